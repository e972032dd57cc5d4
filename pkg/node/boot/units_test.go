package boot

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeUnits notes what a service manager is asked for.
type fakeUnits struct {
	calls []string
	fail  error
}

func (f *fakeUnits) Reload(context.Context) error {
	f.calls = append(f.calls, "reload")
	return f.fail
}

func (f *fakeUnits) Start(_ context.Context, names ...string) error {
	for _, name := range names {
		f.calls = append(f.calls, "start "+name)
	}
	return nil
}

func (f *fakeUnits) Close() { f.calls = append(f.calls, "close") }

const (
	hookUnit   = "etc/systemd/system/hook.service"
	hookDropIn = "etc/systemd/system/kubelet.service.d/50-hook.conf"
	withHook   = minions + `- {path: /etc/systemd/system/second.timer, content: "[Timer]\nOnBootSec=1\n[Install]\nWantedBy=timers.target\n"}
- {path: /etc/systemd/system/hook.service, content: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}
- {path: /etc/systemd/system/helper.service, content: "[Service]\nExecStart=/bin/true\n"}
- {path: /etc/systemd/system/kubelet.service.d/50-hook.conf, content: "[Service]\nEnvironment=A=1\n"}
`
)

// run runs the reader over a tree and returns what the service manager was asked for.
func runUnits(t *testing.T, root string, fail error) ([]string, Report, error) {
	t.Helper()
	f := &fakeUnits{fail: fail}
	report, err := Run(t.Context(), Options{Root: root, Units: func(context.Context) (Units, error) { return f, nil }})
	return f.calls, report, err
}

func TestUnitsOfUserData(t *testing.T) {
	root := tree{fileSource: withHook}.make(t)
	calls, _, err := runUnits(t, root, nil)
	if err != nil {
		t.Fatal(err)
	}
	starts := []string{"start second.timer", "start hook.service", "close"}
	if diff := cmp.Diff(append([]string{"reload"}, starts...), calls); diff != "" {
		t.Errorf("on the first boot (-want +got):\n%s", diff)
	}
	// The next boot finds the files there, and systemd has read them.
	if calls, _, err = runUnits(t, root, nil); err != nil || !slices.Equal(calls, starts) {
		t.Errorf("on the second boot: %v, %v, want %v", calls, err, starts)
	}
	// User data without units takes them away again.
	tree{fileSource: minions}.put(t, root)
	if calls, _, err = runUnits(t, root, nil); err != nil || !slices.Equal(calls, []string{"reload", "close"}) {
		t.Errorf("without units: %v, %v", calls, err)
	}
	for _, name := range []string{hookUnit, hookDropIn} {
		if _, there := readTree(t, root)[name]; there {
			t.Errorf("%s is still there", name)
		}
	}
	if calls, _, err = runUnits(t, root, nil); err != nil || len(calls) > 0 {
		t.Errorf("with nothing to tell: %v, %v, want no call", calls, err)
	}
}

// A unit that systemd does not come to know could be one that the roles must not start without.
func TestUnitsFailClosed(t *testing.T) {
	root := tree{fileSource: withHook}.make(t)
	reason := errors.New("no such bus")
	_, report, err := runUnits(t, root, reason)
	if !errors.Is(err, reason) || len(report.Roles) > 0 {
		t.Errorf("roles %v, error %v, want none and the reason", report.Roles, err)
	}
	if _, there := readTree(t, root)[minionsFile]; there {
		t.Error("the role file is there")
	}
}

func TestUnitsDryRun(t *testing.T) {
	root := tree{fileSource: withHook}.make(t)
	f := &fakeUnits{}
	_, err := Run(t.Context(), Options{Root: root, DryRun: true, Units: func(context.Context) (Units, error) { return f, nil }})
	if err != nil || len(f.calls) > 0 {
		t.Errorf("a dry run asks for %v (%v)", f.calls, err)
	}
}
