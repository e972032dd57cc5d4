package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// minions is the output of a machine with the role minions, with a shortened journal.
func minions(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/minions.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParseReport(t *testing.T) {
	t.Parallel()
	r, err := ParseReport(minions(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := 43910 * time.Millisecond; r.Uptime != want {
		t.Errorf("uptime %s, want %s", r.Uptime, want)
	}
	if !r.Decided || len(r.Failed) > 0 || !slices.Equal(r.Interfaces, []string{"lo"}) || len(r.Units) != 13 {
		t.Errorf("decided %v, failed %v, interfaces %v, %d units", r.Decided, r.Failed, r.Interfaces, len(r.Units))
	}
	if diff := cmp.Diff(map[string]string{"/etc/sysconfig/kubernetes-minions": "A=b"}, r.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	want := Unit{
		Load: "loaded", Active: "activating", Result: "success", FileState: "enabled",
		Conditioned: 57049198 * time.Microsecond, Condition: true, Assert: true,
		Activated: 61669466 * time.Microsecond, Restarts: 1,
		Jobs: []Job{{"start", "failed", "Failed to start kubelet.service - Kubernetes node agent."}},
	}
	if diff := cmp.Diff(want, r.Units["kubelet.service"]); diff != "" {
		t.Errorf("kubelet (-want +got):\n%s", diff)
	}
	if !strings.Contains(r.Journal, "Linux version") || !strings.Contains(r.Analyze, "Startup finished") {
		t.Errorf("journal %q, analyze %q", r.Journal, r.Analyze)
	}
	for name, starts := range map[string]bool{"kubelet.service": true, "etcd.service": false} {
		if wrong := fate(r.Units[name], starts); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
		if fate(r.Units[name], !starts) == "" {
			t.Errorf("%s: the opposite is found right too", name)
		}
	}
}

func TestParseReportRefuses(t *testing.T) {
	t.Parallel()
	whole := minions(t)
	cases := map[string]struct{ text, want string }{
		"nothing":    {"", `no frame "uptime"`},
		"cut short":  {whole[:strings.Index(whole, "@begin journal")], `no frame "journal"`},
		"no number":  {strings.Replace(whole, "NRestarts=1", "NRestarts=one", 1), "property NRestarts"},
		"no base64":  {strings.Replace(whole, "QT1i", "!", 1), "file /etc/sysconfig/kubernetes-minions"},
		"no json":    {strings.Replace(whole, `{"UNIT"`, `{UNIT`, 1), "journal entry"},
		"no unit id": {strings.Replace(whole, "Id=etcd.service", "", 1), "unit without Id"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := ParseReport(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestProbeCredentials(t *testing.T) {
	t.Parallel()
	c := Probe{Units: []string{"a.service", "b.service"}, Limit: time.Minute}.Credentials()
	unit := string(c["systemd.extra-unit.hardtack-probe.service"])
	if want := `ExecStart=/bin/sh %d/hardtack.probe 60 "" a.service b.service`; !strings.Contains(unit, want) {
		t.Errorf("unit without %q:\n%s", want, unit)
	}
	until := string(Probe{Until: []string{"c.service", "d.service"}, Limit: time.Minute}.Credentials()["systemd.extra-unit.hardtack-probe.service"])
	if want := `hardtack.probe 60 "c.service d.service" `; !strings.Contains(until, want) {
		t.Errorf("unit without %q:\n%s", want, until)
	}
	if len(c["hardtack.probe"]) == 0 || len(c["systemd.unit-dropin.multi-user.target"]) == 0 {
		t.Error("no script, or nothing that starts the unit")
	}
}
