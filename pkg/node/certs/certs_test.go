package certs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bench is a machine with a root directory of its own, and the store of its cluster.
type bench struct {
	root  string
	store store.Store
	now   time.Time
	host  certs.Host
	roles role.Set
	// says is what the machine's units have shown as their status.
	mu   sync.Mutex
	says []string
}

func newBench(t *testing.T, roles ...role.Role) *bench {
	t.Helper()
	b := &bench{root: t.TempDir(), store: store.NewDir(filepath.Join(t.TempDir(), "store")), now: created, roles: role.NewSet(roles...),
		host: certs.Host{Name: "ip-10-1-0-12", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.12")}}}
	if _, err := authority.Create(t.Context(), b.store, conf().Info(), created); err != nil {
		t.Fatal(err)
	}
	b.trust(t, b.store)
	return b
}

// trust gives the machine the public authority of a store, as its user data does.
func (b *bench) trust(t *testing.T, s store.Store) {
	t.Helper()
	data, err := s.Get(t.Context(), pki.PublicKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, machine.CAPath, data)
}

func (b *bench) write(t *testing.T, name string, data []byte) {
	t.Helper()
	file := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.root, pki.Dir, dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func conf() config.Effective {
	return config.Effective{Config: machine.Config{Cluster: "demo", CAFile: machine.CAPath, API: machine.API{Port: 443}, Etcd: machine.Etcd{Members: []string{"a"}, Member: "a"},
		Network: machine.Network{ServiceCIDR: "10.96.0.0/16", PodCIDR: "10.244.0.0/16", DNSAddress: "10.96.0.10", DNSDomain: "cluster.local"}}}
}

// otherInfo is another cluster's.
func otherInfo() machine.ClusterInfo {
	other := conf().Info()
	other.Cluster = "other"
	return other
}

func (b *bench) mint(ctx context.Context) ([]certs.Minted, error) {
	return certs.Mint(ctx, certs.MintOptions{Root: b.root, Roles: b.roles, Config: conf(), Store: b.store,
		Host: func() (certs.Host, error) { return b.host, nil }, Now: func() time.Time { return b.now }, Status: b.status})
}

func (b *bench) status(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.says = append(b.says, text)
}

func (b *bench) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.says, "\n")
}

func actions(minted []certs.Minted) (out []string) {
	for _, m := range minted {
		out = append(out, filepath.Base(m.Dir)+" "+m.Action)
	}
	return out
}

func (b *bench) mustMint(t *testing.T, want ...string) []certs.Minted {
	t.Helper()
	minted, err := b.mint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := actions(minted); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v: %+v", got, want, minted)
	}
	return minted
}

func TestMint(t *testing.T) {
	b := newBench(t, role.Masters, role.Etcd)
	all := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "konnectivity-server", "hardtack-controller", "admin", "etcd"}
	each := func(action string, but ...string) (out []string) {
		for _, dir := range all {
			if slices.Contains(but, dir) {
				out = append(out, dir+" minted")
			} else {
				out = append(out, dir+" "+action)
			}
		}
		return out
	}
	b.mustMint(t, each("minted")...)
	b.mustMint(t, each("kept")...)
	b.now = created.Add(17 * time.Hour) // the administrator's lives a day
	b.mustMint(t, each("kept", "admin")...)
	b.now = created.Add(5 * 24 * time.Hour)
	b.mustMint(t, each("minted")...)
	// The machine has another address: its servers' certificates change, its clients' do not.
	b.host.Addresses = []netip.Addr{netip.MustParseAddr("10.1.0.13")}
	b.mustMint(t, each("kept", "kube-apiserver", "konnectivity-server", "hardtack-controller", "etcd")...)
	// Somebody has spoiled a file.
	b.write(t, pki.Dir+"/kube-scheduler/client.key", []byte("x"))
	b.mustMint(t, each("kept", "kube-scheduler")...)
}

// TestMinionsMintNothing: a role file of a minion asks for no certificate, and for no right.
func TestMinionsMintNothing(t *testing.T) {
	b := newBench(t, role.Minions)
	b.store = refusing{}
	b.mustMint(t)
}

// refusing is a store that lets nobody in.
type refusing struct{ store.Store }

func (refusing) Get(_ context.Context, object string) ([]byte, error) {
	return nil, fmt.Errorf("reading %s: %w", object, pki.ErrForbidden)
}
func (r refusing) GetAll(ctx context.Context, objects ...string) (map[string][]byte, error) {
	_, err := r.Get(ctx, objects[0])
	return nil, err
}

func (refusing) String() string { return "ssm:/hardtack/demo" }

// elsewhen is a store whose clock is another.
type elsewhen struct {
	store.Store
	skew time.Duration
}

func (e elsewhen) Skew() time.Duration { return e.skew }

// gone is a store that answers after a number of calls.
type gone struct {
	store.Store
	calls int
}

func (g *gone) Get(ctx context.Context, object string) ([]byte, error) {
	if g.calls--; g.calls >= 0 {
		return nil, fmt.Errorf("reading %s: %w", object, pki.ErrUnreachable)
	}
	return g.Store.Get(ctx, object)
}

func (g *gone) GetAll(ctx context.Context, objects ...string) (map[string][]byte, error) {
	if g.calls--; g.calls >= 0 {
		return nil, fmt.Errorf("reading %s: %w", objects, pki.ErrUnreachable)
	}
	return g.Store.GetAll(ctx, objects...)
}

func TestMintFails(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, b *bench)
		want  reason.Reason
		says  string
	}{
		"a machine that fakes its role": {func(_ *testing.T, b *bench) { b.store = refusing{} }, reason.Permission, "no permission"},
		"a store that is empty": {func(t *testing.T, b *bench) {
			t.Helper()
			b.store = store.NewDir(t.TempDir())
			if err := b.store.Put(t.Context(), "public/readme", []byte("of another cluster's")); err != nil {
				t.Fatal(err)
			}
		}, reason.Store, "not in the store"},
		"a store that is not mounted yet": {func(t *testing.T, b *bench) {
			t.Helper()
			b.store = store.NewDir(t.TempDir())
		}, reason.Store, "is what it is for mounted?"},
		"a store that is not there": {func(t *testing.T, b *bench) {
			t.Helper()
			b.store = store.NewDir(filepath.Join(t.TempDir(), "x"))
		}, reason.Store, "out of reach"},
		"no network":                     {func(_ *testing.T, b *bench) { b.host.Addresses = nil }, reason.Network, "no address yet"},
		"the clock at its beginning":     {func(_ *testing.T, b *bench) { b.now = time.Unix(0, 0) }, reason.Clock, "it says 1970-01-01T00:00:00Z"},
		"the clock a year slow":          {func(_ *testing.T, b *bench) { b.now = created.AddDate(-1, 0, 0) }, reason.Clock, "8759h55m0s later"},
		"the clock far ahead":            {func(_ *testing.T, b *bench) { b.now = created.AddDate(20, 0, 0) }, reason.Clock, "expired"},
		"the clock ahead of the store's": {func(_ *testing.T, b *bench) { b.store = elsewhen{b.store, -time.Hour} }, reason.Clock, "clock is 1h0m0s ahead of that of"},
		"the clock behind the store's":   {func(_ *testing.T, b *bench) { b.store = elsewhen{b.store, time.Hour} }, reason.Clock, "clock is 1h0m0s behind that of"},
		"another cluster's user data": {func(t *testing.T, b *bench) {
			t.Helper()

			other := store.NewDir(t.TempDir())
			if _, err := authority.Create(t.Context(), other, otherInfo(), created); err != nil {
				t.Fatal(err)
			}
			b.trust(t, other)
		}, reason.Untrusted, `"other kubernetes-ca"`},
		"a spoiled key": {func(t *testing.T, b *bench) {
			t.Helper()

			if err := b.store.Put(t.Context(), pki.FrontProxyCA+pki.Key, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}, reason.Certificates, pki.FrontProxyCA},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, role.Masters)
			tt.spoil(t, b)
			minted, err := b.mint(t.Context())
			if err == nil || reason.Of(err) != tt.want || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q: %v, want %q with %q", reason.Of(err), err, tt.want, tt.says)
			}
			if len(minted) > 0 {
				t.Errorf("something was minted: %v", minted)
			}
			if files, err := os.ReadDir(filepath.Join(b.root, pki.Dir)); err == nil && len(files) > 0 {
				t.Errorf("something is half there: %v", files)
			}
		})
	}
}

// TestMintWaits meets a store, a network and a clock that come one after the other.
func TestMintWaits(t *testing.T) {
	b := newBench(t, role.Etcd)
	b.store = &gone{b.store, 2}
	asked := 0
	minted, err := certs.Mint(t.Context(), certs.MintOptions{Root: b.root, Roles: b.roles, Config: conf(), Store: b.store,
		Host: func() (certs.Host, error) {
			if asked++; asked == 1 {
				return certs.Host{Name: "x"}, nil
			}
			return b.host, nil
		}, Now: func() time.Time { return b.now }, Patience: time.Minute, Status: b.status})
	if err != nil || len(minted) != 1 {
		t.Fatalf("%v %v", minted, err)
	}
	for _, want := range []string{"[network] this machine has no address yet", "[store] reading [etcd/client-ca.crt"} {
		if !strings.Contains(b.said(), want) {
			t.Errorf("the status never said %q:\n%s", want, b.said())
		}
	}
}

// TestWaitEndsWithItsContext: whoever stops the unit does not wait for the store.
func TestWaitEndsWithItsContext(t *testing.T) {
	b := newBench(t, role.Etcd)
	ctx, cancel := context.WithCancel(t.Context())
	b.store = &gone{b.store, 1 << 30}
	done := make(chan error)
	go func() {
		_, err := certs.Mint(ctx, certs.MintOptions{Root: b.root, Roles: b.roles, Config: conf(), Store: b.store,
			Host: func() (certs.Host, error) { return b.host, nil }, Now: func() time.Time { return b.now }, Patience: certs.Forever,
			Status: func(string) { cancel() }})
		done <- err
	}()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

// TestOneGenerationIsLeft looks at what is in a directory after many renewals, and after a run that was killed.
func TestOneGenerationIsLeft(t *testing.T) {
	b := newBench(t, role.Etcd)
	b.mustMint(t, "etcd minted")
	dir := filepath.Join(b.root, pki.Dir, "etcd")
	if err := os.MkdirAll(filepath.Join(dir, ".generation-killed"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{".link-server.crt", "old.key"} {
		if err := os.Symlink("x", filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	b.now = b.now.Add(5 * 24 * time.Hour)
	b.mustMint(t, "etcd minted")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".generation-") {
			names = append(names, ".generation")
			continue
		}
		names = append(names, e.Name())
	}
	want := []string{".current", ".generation", "ca.crt", "peer-ca.crt", "peer.crt", "peer.key", "server.crt", "server.key"}
	if !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// TestModes: who may read the files follows from the directory, which the image's tmpfiles.d makes.
func TestModes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files to another group: run as root")
	}
	const group = 4242
	for _, tt := range []struct {
		mode fs.FileMode
		gid  int
		want fs.FileMode
	}{{0o750, group, 0o640}, {0o700, 0, 0o600}} {
		b := newBench(t, role.Etcd)
		dir := filepath.Join(b.root, pki.Dir, "etcd")
		if err := errors.Join(os.MkdirAll(dir, tt.mode), os.Chown(dir, 0, tt.gid), os.Chmod(dir, tt.mode)); err != nil {
			t.Fatal(err)
		}
		b.mustMint(t, "etcd minted")
		for _, name := range []string{".", "server.key", "peer.crt"} {
			info, err := os.Stat(filepath.Join(dir, ".current", name))
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if info.IsDir() {
				want = tt.mode
			}
			if info.Mode().Perm() != want || gidOf(info) != tt.gid {
				t.Errorf("%s in a directory %v of group %d: %v, group %d", name, tt.mode, tt.gid, info.Mode().Perm(), gidOf(info))
			}
		}
	}
}

// TestOlderStore has a store that was made before kubelets' serving certificates had an authority of their own: the
// master says what it lacks and what makes it, and goes on when it is made.
func TestOlderStore(t *testing.T) {
	b := newBench(t, role.Masters)
	dir := strings.TrimPrefix(b.store.String(), store.KindDir+":")
	for _, half := range []string{pki.Crt, pki.Key} {
		if err := os.Remove(filepath.Join(dir, pki.KubeletServingCA+half)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.mint(t.Context())
	var told *reason.Error
	if reason.Of(err) != reason.Store || !strings.Contains(err.Error(), pki.KubeletServingCA) || !errors.As(err, &told) || !strings.Contains(told.Next, "hardtack pki create") {
		t.Errorf("%q: %v", reason.Of(err), err)
	}
	made, err := authority.Create(t.Context(), b.store, conf().Info(), created)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		if (m.Action == authority.Created) != strings.HasPrefix(m.Object, pki.KubeletServingCA+".") {
			t.Errorf("%s was %s", m.Object, m.Action)
		}
	}
	if _, err := b.mint(t.Context()); err != nil {
		t.Error(err)
	}
}
