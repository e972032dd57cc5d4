package systemd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// TestUnit reads the unit from the control group, in every place where a process can be.
func TestUnit(t *testing.T) {
	for text, want := range map[string]string{
		"0::/hardtack.slice/hardtack-node.slice/kubelet.service\n":              "kubelet.service",
		"12:cpu:/a.service\n0::/hardtack.slice/containerd.service/kubepods/x\n": "containerd.service",
		"0::/user.slice/user-0.slice/session-1.scope\n":                         "",
		"0::/\n": "", "": "", "1:name=systemd:/x.service\n": "",
	} {
		file := filepath.Join(t.TempDir(), "cgroup")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := unitOf(file); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := unitOf("/nowhere"); got != "" {
		t.Errorf("%q", got)
	}
}

// TestUnitFrom takes a unit from properties of the types that the bus has.
func TestUnitFrom(t *testing.T) {
	line := func(start, stop uint64, args ...string) []any {
		return []any{args[0], args, false, uint64(1), start, uint64(2), stop, uint32(7), int32(1), int32(0)}
	}
	got := unitFrom("a.service", map[string]any{
		"LoadState": "loaded", "ActiveState": "activating", "SubState": "start-pre", "Result": "success", "StatusText": "[dns] x", "NRestarts": uint32(2), "ExecMainStatus": int32(1),
		"InactiveExitTimestampMonotonic": uint64(10), "ExecMainStartTimestampMonotonic": uint64(20), "ExecMainExitTimestampMonotonic": uint64(30),
		"ActiveEnterTimestampMonotonic": uint64(40), "CPUUsageNSec": ^uint64(0), "AssertResult": false, "AssertTimestampMonotonic": uint64(5),
		"ConditionResult": false, "ConditionTimestampMonotonic": uint64(5),
		"ExecStartPre": [][]any{line(11, 19, "/bin/a", "b"), {"short"}}, "ExecStart": [][]any{line(20, 0, "/bin/c")},
	})
	want := timeline.Unit{
		Name: "a.service", Load: "loaded", Active: "activating", Sub: "start-pre", Result: "success", Status: "[dns] x", Restarts: 2, Exit: 1,
		Begin: 10, ExecStart: 20, ExecExit: 30, ActiveEnter: 40, Refused: true, Skipped: true,
		Commands: []timeline.Command{{Args: []string{"/bin/a", "b"}, Start: 11, Stop: 19}, {Args: []string{"/bin/c"}, Main: true, Start: 20}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// What was never looked at has not failed.
	if u := unitFrom("a.slice", map[string]any{"AssertResult": false, "ConditionResult": false}); u.Refused || u.Skipped {
		t.Errorf("refused %v, skipped %v", u.Refused, u.Skipped)
	}
}

// TestMonotonic does not go back.
func TestMonotonic(t *testing.T) {
	a, b := Monotonic(), Monotonic()
	if a == 0 || b < a {
		t.Errorf("%d, then %d", a, b)
	}
}
