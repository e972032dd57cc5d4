package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// This file takes the figures of machines that count instructions, for scripts/compare-kubeadm --instructions.

// idling writes what the machine's processor has not done, five times a second, without a process for each time.
const idling = `exec 3<> <(:); while read -r up _ < /proc/uptime && read -r _ _ _ _ idle waiting _ < /proc/stat; do ` +
	`echo "$up $idle $waiting"; read -rt 0.2 <&3; done > /run/idling`

// idled returns how many seconds a processor had idled, or waited for the disk, by what idling had written last at a time of the
// machine's clock. The kernel counts both in hundredths of a second.
func idled(text string, at float64) (float64, error) {
	seconds := -1.0
	for line := range strings.Lines(text) {
		var up, idle, waiting float64
		if _, err := fmt.Sscan(line, &up, &idle, &waiting); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		if up <= at {
			seconds = (idle + waiting) / 100
		}
	}
	if seconds < 0 {
		return 0, fmt.Errorf("nothing was written in the first %.1f s", at)
	}
	return seconds, nil
}

// kubeletSaid are the kubelet's messages when its node is registered, and when the node becomes Ready for the first time.
var kubeletSaid = regexp.MustCompile(`(?m)^I([0-9]{4} [0-9:.]+) .*"(Successfully registered node|Fast updating node status as it just became ready)"`)

// said returns when the kubelet said that its node was registered, and Ready, in seconds by the machine's clock. The kubelet's own
// times count: journald, whose part of the processor is small at boot, comes to its messages later. Before them the text has the
// time and the clock.
func said(text string) (registered, ready float64, err error) {
	var now, up float64
	if _, err := fmt.Sscan(text, &now, &up); err != nil {
		return 0, 0, fmt.Errorf("the machine's time: %w", err)
	}
	started := time.UnixMicro(int64((now - up) * 1e6)).UTC()
	for _, m := range kubeletSaid.FindAllStringSubmatch(text, -1) {
		at, err := time.Parse("2006 0102 15:04:05", strconv.Itoa(started.Year())+" "+m[1])
		if err != nil {
			return 0, 0, err
		}
		if seconds := at.Sub(started).Seconds(); strings.HasPrefix(m[2], "Successfully") {
			registered = seconds
		} else {
			ready = seconds
		}
	}
	return registered, ready, nil
}

// counted takes the figures of a machine that counts instructions: by its own clock, from its kernel's start.
func (c *compared) counted(t *testing.T, by string, m lab.MachineStatus, units map[string]Unit) join {
	t.Helper()
	j := join{By: by}
	var err error
	if j.Registered, j.Ready, err = said(c.ask(t, m.ID, "echo $(date +%s.%N) $(cut -d' ' -f1 /proc/uptime); "+
		"journalctl --boot --output=cat --unit=kubelet --grep='Successfully registered|just became ready'")); err != nil {
		t.Errorf("%s: what the kubelet said: %v", by, err)
	}
	idle, err := idled(c.ask(t, m.ID, "cat /run/idling"), j.Ready)
	if err != nil {
		t.Errorf("%s: the processor's part: %v", by, err)
	}
	j.CPU = j.Ready - idle
	j.steps(t, units)
	return j
}

func TestSaid(t *testing.T) {
	t.Parallel()
	const text = "1796000014.500000000 74.25\n" +
		`I1130 00:52:39.000000     327 kubelet_node_status.go:78] "Successfully registered node" node="a"` + "\n" +
		`I1130 00:52:39.500000     327 kubelet_node_status.go:431] "Fast updating node status as it just became ready"` + "\n"
	registered, ready, err := said(text)
	if err != nil || registered != 18.75 || ready != 19.25 {
		t.Errorf("%v, %v, %v", registered, ready, err)
	}
	if _, _, err := said("no time"); err == nil {
		t.Error("no time is no error")
	}
	idle, err := idled("11.6 40 10\n18.9 60 20\n19.3 70 20\n", ready)
	if err != nil || idle != 0.8 {
		t.Errorf("%v, %v", idle, err)
	}
	for _, none := range []string{"", "30.1 10 10\n", "11.6 x 10\n"} {
		if _, err := idled(none, ready); err == nil {
			t.Errorf("%q is no error", none)
		}
	}
}
