package lab

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	var phases []Phase
	last := 0.0
	for _, r := range s.state().Reached {
		phases = append(phases, r.Phase)
		if r.Seconds < last {
			t.Errorf("%s was reached after %.0f s, what came before it after %.0f s", r.Phase, r.Seconds, last)
		}
		last = r.Seconds
	}
	if diff := cmp.Diff([]Phase{PhasePower, PhaseKernel, PhaseSystemd, PhaseUserData}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if news != 3 {
		t.Errorf("told of %d changes, want one for each phase but the first", news)
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
	say(`[   12.1] hardtack-agent[9]: {"hardtack":"failed","unit":"hardtack-certs-masters.service","reason":"store","cause":"no answer","next":"look"}`,
		`{"hardtack":"failed","unit":"hardtack-ready.service","reason":"dns","cause":"no address","next":"wait"}`,
		`{"hardtack":"failed","unit":"hardtack-ready.service","reason":"not-ready","cause":"healthz","next":"wait"}`,
		`{"hardtack":"failed","unit":"hardtack-ready.service","reason":"magic"}`)
	got := s.state().Failures
	if len(got) != 2 || got[0].Cause != "no answer" || got[1].Cause != "healthz" {
		t.Fatalf("failures %+v, want the last of each unit", got)
	}
	say("\x1b[0;32m  OK  \x1b[0m Finished \x1b[0;1;39mhardtack-certs-masters.service\x1b[0m - Certificates.")
	if got := s.state().Failures; len(got) != 1 || got[0].Unit != "hardtack-ready.service" {
		t.Errorf("failures %+v after the first unit has finished", got)
	}
	say(`{"hardtack":"failed","unit":"kube-controller-manager.service","reason":"unreachable","cause":"no answer","next":"look"}`,
		"[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mkube-controller-manager.se…\x1b[0mmanager.")
	if got := s.state().Failures; len(got) != 1 {
		t.Errorf("failures %+v after a unit with a long name works", got)
	}
	say(`{"hardtack":"timeline","total":12.5}`)
	state := s.state()
	if len(state.Failures) > 0 || string(state.Timeline) != `{"hardtack":"timeline","total":12.5}` || state.Reached[len(state.Reached)-1].Phase != PhaseReady {
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

// TestScanAgent reads what the agent and systemd say in a master's journal.
func TestScanAgent(t *testing.T) {
	t.Parallel()
	s := newScanner(ticking(), func() {})
	journal := &stream{scanner: s}
	for _, l := range []string{
		"hardtack-agent[240]: write  /etc/hardtack/machine.yaml         0644  0:0",
		"hardtack-certs-etcd[384]: minted  /run/hardtack/pki/etcd/server.crt  expires 2026-11-28T15:05:38Z",
		`[  250.58] hardtack-agent[386]: level=INFO msg="not ready" checks=etcd,api unit=etcd.service reason=etcd cause="x"`,
		"[  250.58] hardtack-agent[386]: level=INFO msg=works check=etcd",
		"2026-11-21T14:57:56.151716Z systemd[1]: Started kube-apiserver.service - Kubernetes API server.",
		"[  350.58] hardtack-agent[386]: level=INFO msg=works check=api",
	} {
		_, _ = journal.Write([]byte(l + "\n"))
	}
	var phases []Phase
	for _, r := range s.state().Reached {
		phases = append(phases, r.Phase)
	}
	if diff := cmp.Diff([]Phase{PhasePower, PhaseUserData, PhaseCerts, PhaseEtcd, PhaseAPI}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}
