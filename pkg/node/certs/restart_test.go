package certs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestPendingRestarts takes each step of each rotation: only daemons that read something at their start, and for which it has
// changed, are started again.
func TestPendingRestarts(t *testing.T) {
	all := []string{"kube-controller-manager", "kube-scheduler", "hardtack-controller", "kubelet", "kube-proxy", "flanneld"}
	both := []string{"kube-apiserver", "kube-controller-manager"}
	for name, want := range map[string]map[string][]string{
		pki.KubernetesCA:     {pki.StepAdded: all, pki.StepNone: all},
		pki.KubeletServingCA: {pki.StepAdded: {"kube-apiserver"}, pki.StepNone: {"kube-apiserver"}}, pki.FrontProxyCA: {},
		pki.EtcdClientCA:   {pki.StepAdded: {"etcd", "kube-apiserver"}, pki.StepNone: {"etcd", "kube-apiserver"}},
		pki.EtcdPeerCA:     {pki.StepAdded: {"etcd"}, pki.StepNone: {"etcd"}},
		pki.ServiceAccount: {pki.StepAdded: {"kube-apiserver"}, pki.StepUsed: both, pki.StepNone: {"kube-apiserver"}},
	} {
		b := newBench(t, role.Masters, role.Etcd)
		b.publish(t)
		step := func() {
			t.Helper()
			b.trust(t, b.store)
			if _, err := b.mint(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := b.bootstrap(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if got := certs.PendingRestarts(b.root); len(got) > 0 {
			t.Errorf("%s: at the first start: %v", name, got)
		}
		at := created
		for _, told := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
			at = at.Add(time.Minute)
			if _, err := authority.RotateAuthority(t.Context(), b.store, "demo", name, authority.RotateOptions{Now: at, Taken: true}); err != nil {
				t.Fatal(err)
			}
			step()
			if got := certs.PendingRestarts(b.root); !slices.Equal(got, want[told]) {
				t.Errorf("%s, step %s: %v, want %v", name, told, got, want[told])
			}
			step() // what a run that broke off has left is not forgotten
			if got := certs.PendingRestarts(b.root); !slices.Equal(got, want[told]) {
				t.Errorf("%s, step %s, again: %v, want %v", name, told, got, want[told])
			}
			var units []string
			if err := certs.Restart(t.Context(), restarting(b.root, &units)); err != nil || len(certs.PendingRestarts(b.root)) > 0 || len(units) != len(want[told]) {
				t.Errorf("%s, step %s: %v, started again: %v, still to do: %v", name, told, err, units, certs.PendingRestarts(b.root))
			}
		}
	}
}

// restarting notes what is started again, and whether somebody waits for it.
func restarting(root string, units *[]string) certs.RestartOptions {
	return certs.RestartOptions{Root: root, Now: time.Now,
		Alone: func(ctx context.Context, do func(context.Context) error) error { return do(ctx) },
		Restart: func(_ context.Context, unit string, _ bool) error {
			*units = append(*units, unit)
			return nil
		},
	}
}

// TestRestartTurns: a member of etcd is stopped in its own turn only, and only while the others work; what was not started
// again stays to be done, and hinders nothing else.
func TestRestartTurns(t *testing.T) {
	b := newBench(t, role.Masters, role.Etcd)
	pending := func() {
		t.Helper()
		for _, dir := range []string{"etcd", "kube-apiserver", "kubelet"} {
			b.write(t, pki.Dir+"/"+dir+"/.restart", nil)
		}
	}
	hour := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for member, tests := range map[string]map[time.Duration]time.Duration{ // from the hour on: when it comes, and when it stops
		"a": {0: 0, 20 * time.Second: 20 * time.Second, 31 * time.Second: 3 * time.Minute, 2 * time.Minute: 3 * time.Minute},
		"b": {0: time.Minute, 80 * time.Second: 80 * time.Second, 100 * time.Second: 4 * time.Minute},
		"c": {0: 2 * time.Minute, 179 * time.Second: 5 * time.Minute},
	} {
		for come, want := range tests {
			pending()
			var units, asked []string
			now := hour.Add(come)
			o := restarting(b.root, &units)
			o.Member, o.Members = member, []string{"a", "b", "c"}
			o.Now = func() time.Time { return now }
			o.Sleep = func(_ context.Context, d time.Duration) error { now = now.Add(d); return nil }
			o.Healthy = func(_ context.Context, other string) error { asked = append(asked, other); return nil }
			if err := certs.Restart(t.Context(), o); err != nil {
				t.Error(err)
			}
			if !now.Equal(hour.Add(want)) || len(asked) != 2 || slices.Contains(asked, member) || !slices.Equal(units, []string{"etcd.service", "kube-apiserver.service", "kubelet.service"}) {
				t.Errorf("%s, which comes at %v: at %v, want %v; it asked %v, and started %v", member, come, now.Sub(hour), want, asked, units)
			}
		}
	}
	pending()
	var units []string
	o := restarting(b.root, &units)
	o.Member, o.Members, o.Now = "a", []string{"a", "b", "c"}, func() time.Time { return hour }
	o.Healthy = func(_ context.Context, other string) error {
		if other == "c" {
			return errors.New("connection refused")
		}
		return nil
	}
	held := errors.New("it is held")
	o.Alone = func(context.Context, func(context.Context) error) error { return held }
	err := certs.Restart(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "the member c of etcd does not work") || !errors.Is(err, held) || !slices.Equal(units, []string{"kubelet.service"}) {
		t.Errorf("%v, and started %v", err, units)
	}
	if got := certs.PendingRestarts(b.root); !slices.Equal(got, []string{"etcd", "kube-apiserver"}) {
		t.Errorf("still to do: %v", got)
	}
	// What is replaced again while the daemon starts is not forgotten.
	o = restarting(b.root, &units)
	o.Restart = func(context.Context, string, bool) error {
		later := time.Now().Add(time.Hour)
		return os.Chtimes(filepath.Join(b.root, pki.Dir, "kube-apiserver", ".restart"), later, later)
	}
	if err := certs.Restart(t.Context(), o); err != nil || !slices.Equal(certs.PendingRestarts(b.root), []string{"kube-apiserver"}) {
		t.Errorf("%v, still to do: %v", err, certs.PendingRestarts(b.root))
	}
}

// TestIdentityOfAReplacedAuthority: a node whose certificate no API server trusts any more joins again by itself.
func TestIdentityOfAReplacedAuthority(t *testing.T) {
	b := newBench(t, role.Minions)
	b.publish(t)
	if got, err := b.bootstrap(t.Context(), 0); err != nil || !got.Joined {
		t.Fatalf("%v: %+v", err, got)
	}
	if got, err := b.bootstrap(t.Context(), 0); err != nil || got.Joined {
		t.Fatalf("again: %v: %+v", err, got)
	}
	for _, step := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
		b.now = b.now.Add(time.Minute)
		if _, err := authority.RotateAuthority(t.Context(), b.store, "demo", pki.KubernetesCA, authority.RotateOptions{Now: b.now, Taken: true}); err != nil {
			t.Fatal(err)
		}
		b.trust(t, b.store)
		if got, err := b.bootstrap(t.Context(), 0); err != nil || got.Joined != (step == pki.StepNone) {
			t.Errorf("step %s: %v: %+v", step, err, got)
		}
	}
}

// TestRestartOfUnknownMember: who does not know which member it is starts none of several again.
func TestRestartOfUnknownMember(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, pki.Dir, pki.DirEtcd)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, ".restart"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var units []string
	o := restarting(root, &units)
	o.Members, o.Member = []string{"a", "b", "c"}, ""
	o.Sleep = func(context.Context, time.Duration) error { return nil }
	o.Healthy = func(context.Context, string) error { return nil }
	if err := certs.Restart(t.Context(), o); err == nil || len(units) > 0 {
		t.Errorf("%v, started again: %v", err, units)
	}
}
