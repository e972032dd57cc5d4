package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/systemd"
)

// markReady is the mark of the moment in which every role worked; marksFile keeps the marks of this boot.
const (
	markReady = "ready"
	marksFile = "/run/hardtack/marks.json"
)

// timelineCommand is hardtack-agent timeline.
func timelineCommand(ctx context.Context, args []string, s streams) error {
	flags := flag.NewFlagSet("timeline", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	asJSON := flags.Bool("json", false, "")
	if done, err := parseFlags(flags, args, s); done || err != nil {
		return err
	}
	manager, err := systemd.NewManager(ctx)
	if err != nil {
		return err
	}
	defer manager.Close()
	marks, err := readMarks(*root)
	if err != nil {
		return err
	}
	t, err := buildTimeline(ctx, manager, *root, marks)
	if err != nil {
		return err
	}
	if !*asJSON {
		return printTimeline(s.out, t)
	}
	enc := json.NewEncoder(s.out)
	enc.SetIndent("", "  ")
	return enc.Encode(t)
}

// showTimeline keeps the marks for hardtack-agent timeline, and writes the line for the journal and the console.
func showTimeline(ctx context.Context, manager *systemd.Manager, root string, marks []timeline.Mark, w io.Writer) error {
	text, err := json.Marshal(marks)
	if err != nil {
		return err
	}
	file := filepath.Join(root, marksFile)
	if err := errors.Join(os.WriteFile(file+".new", text, 0o644), os.Rename(file+".new", file)); err != nil {
		return err
	}
	t, err := buildTimeline(ctx, manager, root, marks)
	if err != nil {
		return err
	}
	return t.Write(w)
}

func readMarks(root string) (marks []timeline.Mark, err error) {
	text, err := os.ReadFile(filepath.Join(root, marksFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // not ready yet
	}
	if err != nil {
		return nil, err
	}
	return marks, json.Unmarshal(text, &marks)
}

// buildTimeline asks the service manager.
func buildTimeline(ctx context.Context, manager *systemd.Manager, root string, marks []timeline.Mark) (timeline.Timeline, error) {
	roles, err := config.Roles(root)
	if err != nil {
		return timeline.Timeline{}, err
	}
	boot, err := manager.Boot(ctx)
	if err != nil {
		return timeline.Timeline{}, err
	}
	units, err := manager.Units(ctx, timelineUnits(roles)...)
	if err != nil {
		return timeline.Timeline{}, err
	}
	name, err := nodeName(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return timeline.Timeline{}, err
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return timeline.Timeline{}, err
	}
	m := timeline.Machine{Instance: agent.InstanceID(root), Node: name, Roles: roles.String(), Boot: strings.TrimSpace(string(id))}
	t := timeline.Build(m, boot, units, marks, systemd.Monotonic())
	for _, mark := range marks {
		if mark.Name == markReady {
			t.Ready = mark.At
		}
	}
	return t, nil
}

// printTimeline is for people.
func printTimeline(w io.Writer, t timeline.Timeline) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tab, "begin\texec\tactive\tcpu\t  ms since the kernel began\n")
	fmt.Fprintf(tab, "%d\t\t\t\t  firmware and loader\n%d\t\t\t\t  service manager\n", -t.Firmware-t.Loader, t.Userspace)
	for _, u := range t.Units {
		fmt.Fprintf(tab, "%d\t%d\t%d\t%d\t  %s\n", u.Begin, u.Exec, u.Active, u.CPU, u.Unit)
	}
	for _, m := range t.Marks {
		fmt.Fprintf(tab, "%d\t\t\t\t  %s\n", m.At, m.Name)
	}
	fmt.Fprintf(tab, "%d\t\t\t\t  ready (0: not yet); of it the agent worked %d, waited %d, and used %d of CPU\n", t.Ready, t.Agent.Work, t.Agent.Wait, t.Agent.CPU)
	return tab.Flush()
}

// timelineUnits lists the units of a boot.
func timelineUnits(roles role.Set) []string {
	return append([]string{"systemd-networkd.service", "systemd-resolved.service", "hardtack-userdata.service", "hardtack-ready.service"}, readyUnits(roles)...)
}
