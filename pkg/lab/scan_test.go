package lab

import (
	"encoding/binary"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ticking is a clock that is a second later at every look.
func ticking() func() time.Time {
	now := time.Unix(0, 0)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

// TestScanConsole reads the console of a real boot, byte by byte as it may come.
func TestScanConsole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/console.txt")
	if err != nil {
		t.Fatal(err)
	}
	news := 0
	s := newScanner(ticking(), func() { news++ })
	console := &stream{scanner: s}
	for _, b := range text {
		if _, err := console.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	var phases []timeline.Phase
	last := 0.0
	for _, r := range s.state().Reached {
		phases = append(phases, r.Phase)
		if r.Seconds < last {
			t.Errorf("%s was reached after %.0f s, what came before it after %.0f s", r.Phase, r.Seconds, last)
		}
		last = r.Seconds
	}
	if diff := cmp.Diff([]timeline.Phase{timeline.PhasePower, timeline.PhaseKernel, timeline.PhaseSystemd, timeline.PhaseUserData}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if news != 3 {
		t.Errorf("told of %d changes, want one for each phase but the first", news)
	}
}

// TestFullDisk: a machine whose output no file takes any more is seen as before, and its lab's log says so once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var log strings.Builder
	h := &host{log: slog.New(slog.NewTextHandler(&log, nil))}
	g := &guest{id: "i-1", scan: newScanner(ticking(), func() {})}
	var console qemu.Log
	if err := console.Follow(h.keep(g, full)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"[    0.000000] Linux version 6.12\r\n", "systemd[1]: systemd 257\r\n"} {
		if _, err := console.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if got := g.scan.state().Reached; len(got) != 3 || got[2].Phase != timeline.PhaseSystemd {
		t.Errorf("it has reached %v, want %s", got, timeline.PhaseSystemd)
	}
	if n := strings.Count(log.String(), "no space left on device"); n != 1 || !strings.Contains(log.String(), "machine=i-1") {
		t.Errorf("the lab's log says it %d times, want once:\n%s", n, log.String())
	}
}

func TestScanFailures(t *testing.T) {
	t.Parallel()
	s := newScanner(ticking(), func() {})
	console := &stream{scanner: s}
	say := func(lines ...string) {
		for _, l := range lines {
			_, _ = console.Write([]byte(l + "\r\n"))
		}
	}
	fail := func(unit string, r reason.Reason, cause string) string {
		return reason.Explain(unit, reason.Errorf(r, "%s", cause)).Line()
	}
	say("[   12.1] hardtack-agent[9]: "+fail("hardtack-certs-masters.service", reason.Store, "no answer"),
		fail("hardtack-ready.service", reason.DNS, "no address"),
		fail("hardtack-ready.service", reason.NotReady, "healthz"),
		`{"hardtack":"failed","unit":"hardtack-ready.service","reason":"magic"}`)
	got := s.state().Failures
	if len(got) != 2 || got[0].Cause != "no answer" || got[1].Cause != "healthz" {
		t.Fatalf("failures %+v, want the last of each unit", got)
	}
	say("[   13.0] hardtack-agent[9]: " + timeline.Progress{Phase: timeline.PhaseCerts, Units: []string{"hardtack-certs-masters.service"}}.Line())
	if got := s.state().Failures; len(got) != 1 || got[0].Unit != "hardtack-ready.service" {
		t.Errorf("failures %+v after the first unit works", got)
	}
	say(fail("kube-scheduler.service", reason.Unreachable, "no answer"),
		timeline.Progress{Phase: "scheduler", Units: []string{"kube-scheduler.service"}}.Line())
	if got := s.state(); len(got.Failures) != 1 || len(got.Reached) != 2 {
		t.Errorf("failures %+v and phases %v after a unit works that is no phase", got.Failures, got.Reached)
	}
	told := timeline.Timeline{Schema: timeline.Schema, Roles: "masters", Ready: 12500}.Line()
	say("[   99.9] hardtack-agent[9]: " + told)
	state := s.state()
	if len(state.Failures) > 0 || string(state.Timeline) != told || state.Reached[len(state.Reached)-1].Phase != timeline.PhaseReady {
		t.Errorf("after the timeline: %s, %v", state.Timeline, state.Reached)
	}
	// A line that never ends is not kept for ever.
	_, _ = console.Write([]byte(strings.Repeat("x", 3*maxLine)))
	if len(console.rest) > maxLine {
		t.Errorf("%d bytes of a line are kept", len(console.rest))
	}
}

func TestJournal(t *testing.T) {
	t.Parallel()
	message := "first\nsecond"
	binaryField := "MESSAGE\n" + string(binary.LittleEndian.AppendUint64(nil, uint64(len(message)))) + message + "\n"
	stream := "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1795270108990000\n_PID=7\nSYSLOG_IDENTIFIER=kubelet\nMESSAGE=starting = now\n\n" +
		"__REALTIME_TIMESTAMP=1795270109000000\n_COMM=etcd\n" + binaryField + "\n" +
		"NOTHING=here\n\n"
	var out strings.Builder
	if err := readJournal(strings.NewReader(stream), &out); err == nil || err.Error() != "EOF" {
		t.Errorf("the stream's end: %v", err)
	}
	want := "2026-11-21T14:08:28.990000Z kubelet[7]: starting = now\n2026-11-21T14:08:29.000000Z etcd: first\n    second\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	huge := "MESSAGE\n" + string(binary.LittleEndian.AppendUint64(nil, 1<<40))
	if err := readJournal(strings.NewReader(huge), &out); err == nil || !strings.Contains(err.Error(), "1099511627776 bytes") {
		t.Errorf("a field of a terabyte: %v", err)
	}
}

// TestScanAgent reads the lines of a machine of all roles: every phase is reached, those of daemons by the names of the
// checks that say that they work.
func TestScanAgent(t *testing.T) {
	t.Parallel()
	s := newScanner(ticking(), func() {})
	journal := &stream{scanner: s}
	say := func(text string) { _, _ = journal.Write([]byte(text + "\n")) }
	say("[    0.000000] Linux version 6.12")
	say("\x1b[?7h[    2.756924] systemd[1]: systemd 257 running in system mode")
	say("hardtack-agent[240]: " + timeline.Progress{Phase: timeline.PhaseUserData, Units: []string{"hardtack-userdata.service"}}.Line())
	say("hardtack-certs-etcd[384]: " + timeline.Progress{Phase: timeline.PhaseCerts, Units: []string{"hardtack-certs-etcd.service"}}.Line())
	for _, c := range (ready.Machine{Roles: role.All()}).Checks() {
		say("[  250.58] hardtack-agent[386]: " + timeline.Progress{Phase: timeline.Phase(c.Name), Units: []string{c.Unit}}.Line())
	}
	say(timeline.Timeline{Schema: timeline.Schema}.Line())
	var phases []timeline.Phase
	for _, r := range s.state().Reached {
		phases = append(phases, r.Phase)
	}
	if diff := cmp.Diff(timeline.Phases(role.All()), phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}
