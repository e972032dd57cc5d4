package certs_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func gidOf(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Gid)
	}
	return -1
}

// publish does what a master's controller does.
func (b *bench) publish(t *testing.T) pki.Token {
	t.Helper()
	token := pki.NewToken(b.now)
	data, err := token.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.Put(t.Context(), pki.BootstrapToken, data); err != nil {
		t.Fatal(err)
	}
	return token
}

func (b *bench) bootstrap(ctx context.Context, patience time.Duration) (certs.Bootstrapped, error) {
	return certs.Bootstrap(ctx, certs.BootstrapOptions{Root: b.root, Config: conf(), Store: b.store,
		Now: func() time.Time { return b.now }, Patience: patience, Status: b.status})
}

func TestBootstrap(t *testing.T) {
	b := newBench(t, role.Minions)
	token := b.publish(t)
	got, err := b.bootstrap(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Server != "https://masters.demo.k8s:443" || len(got.Changed) != 3 || !got.Expires.Equal(token.Expires) {
		t.Errorf("%+v", got)
	}
	if strings.Contains(fmt.Sprintf("%+v", got), token.Secret) {
		t.Error("the report has the token's secret")
	}
	if kubeconfig := string(b.read(t, "kubelet", "bootstrap-kubeconfig")); !strings.Contains(kubeconfig, token.Bearer()) || !strings.Contains(kubeconfig, "/run/hardtack/pki/kubelet/ca.crt") {
		t.Errorf("kubelet's: %s", kubeconfig)
	}
	for _, dir := range []string{"kube-proxy", "flanneld"} {
		kubeconfig := string(b.read(t, dir, "kubeconfig"))
		if strings.Contains(kubeconfig, token.Secret) || strings.Count(kubeconfig, certs.NodeIdentity) != 2 {
			t.Errorf("%s: %s", dir, kubeconfig)
		}
	}
	again, err := b.bootstrap(t.Context(), 0)
	if err != nil || len(again.Changed) != 0 {
		t.Errorf("%v %v", again, err)
	}
	// The next token: the kubelet's file changes, and nobody else's.
	b.publish(t)
	if next, err := b.bootstrap(t.Context(), 0); err != nil || len(next.Changed) != 1 {
		t.Errorf("%+v %v", next, err)
	}
}

// TestBootstrapSaysWhich gives each thing that can be wrong its own reason, and its own word about what to do.
func TestBootstrapSaysWhich(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, b *bench)
		want  reason.Reason
		says  string
	}{
		"no token yet":  {func(*testing.T, *bench) {}, reason.Token, "not in the store"},
		"no permission": {func(_ *testing.T, b *bench) { b.store = refusing{} }, reason.Permission, "no permission"},
		"out of reach": {func(t *testing.T, b *bench) {
			t.Helper()
			b.store = store.NewDir(t.TempDir() + "/x")
		}, reason.Store, "out of reach"},
		"nobody who says who this is": {func(_ *testing.T, b *bench) { b.store = unknown{} }, reason.Metadata, "no metadata"},
		"an old token": {func(t *testing.T, b *bench) {
			t.Helper()
			b.publish(t)
			b.now = b.now.Add(25 * time.Hour)
		}, reason.Token, "expired at 2026-01-03T03:04:05Z, and the clock says 2026-01-03T04:04:05Z"},
		"a spoiled token": {func(t *testing.T, b *bench) {
			t.Helper()
			_ = b.store.Put(t.Context(), pki.BootstrapToken, []byte("x"))
		}, reason.Token, "reading the bootstrap token"},
		"no authority": {func(t *testing.T, b *bench) {
			t.Helper()
			b.root = t.TempDir()
		}, reason.Config, machine.CAPath},
		"a spoiled authority": {func(t *testing.T, b *bench) {
			t.Helper()
			b.write(t, machine.CAPath, []byte("x"))
		}, reason.Config, "no block"},
		"a slow clock": {func(t *testing.T, b *bench) {
			t.Helper()
			b.publish(t)
			b.now = b.now.AddDate(-1, 0, 0)
		}, reason.Clock, "the clock is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, role.Minions)
			tt.spoil(t, b)
			got, err := b.bootstrap(t.Context(), 0)
			if err == nil || reason.Of(err) != tt.want || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q: %v, want %q with %q (%+v)", reason.Of(err), err, tt.want, tt.says, got)
			}
			if f := reason.Explain("u", err); f.Next == "" {
				t.Error("it does not say what to do")
			}
		})
	}
}

// TestBootstrapWaits starts a minion before its cluster has a token, a right or a store, and lets them come.
func TestBootstrapWaits(t *testing.T) {
	b := newBench(t, role.Minions)
	behind := b.store
	b.store = &later{Store: behind, refusals: 1, faults: 1}
	done := make(chan error)
	go func() {
		_, err := b.bootstrap(t.Context(), certs.Forever)
		done <- err
	}()
	for !strings.Contains(b.said(), "[token]") {
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	data, err := pki.NewToken(b.now).Marshal()
	if err == nil {
		err = behind.Put(t.Context(), pki.BootstrapToken, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[permission]", "[store]", "[token]"} {
		if strings.Count(b.said(), want) != 1 {
			t.Errorf("the status said %s %d times, want once:\n%s", want, strings.Count(b.said(), want), b.said())
		}
	}
}

// unknown is the store of a machine that could not find out who it is.
type unknown struct{ refusing }

func (unknown) Get(context.Context, string) ([]byte, error) {
	return nil, fmt.Errorf("reading: %w", reason.Errorf(reason.Metadata, "%w: no metadata", pki.ErrUnreachable))
}

// later is a store that refuses first, then is out of reach, and then works.
type later struct {
	store.Store
	refusals, faults int
}

func (l *later) Get(ctx context.Context, object string) ([]byte, error) {
	if l.refusals--; l.refusals >= 0 {
		return nil, fmt.Errorf("reading %s: %w", object, pki.ErrForbidden)
	}
	if l.faults--; l.faults >= 0 {
		return nil, fmt.Errorf("reading %s: %w", object, pki.ErrUnreachable)
	}
	return l.Store.Get(ctx, object)
}
