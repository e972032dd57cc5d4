package zone_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// machines is a fleet that changes: version n has the n-th set of masters, and enough minions for shards.
type machines struct{ version atomic.Int64 }

func (m *machines) at(version int64) record.Fleet {
	group := func(r role.Role, count, offset int) record.Group {
		g := record.Group{Name: "demo-" + string(r), Cluster: zonetest.Cluster, Role: r, Desired: count}
		for i := range count {
			g.Members = append(g.Members, record.Member{InstanceID: fmt.Sprintf("i-%04d-%s", offset+i, r), Lifecycle: record.InService, Healthy: true,
				Running: true, Private: netip.AddrFrom4([4]byte{10, byte(len(r)), byte((offset + i) >> 8), byte(offset + i)})})
		}
		return g
	}
	return record.Fleet{Cluster: zonetest.Cluster, Groups: []record.Group{group(role.Masters, 3, int(version)), group(role.Minions, 150, 0)}}
}

// commit is one change that the server took: which generation it replaced, by which, and which version of
// the fleet the call had read.
type commit struct {
	from, to string
	version  int64
}

// call is one invocation's view: what it reads and writes is noted, and some replies are lost.
type call struct {
	reconcile.Zone
	fleet *machines
	read  int64
	lose  func() bool
	mu    *sync.Mutex
	made  *[]commit
}

func (c *call) CompareAndSwap(ctx context.Context, cluster string, remove, create []record.Set) error {
	if err := c.Zone.CompareAndSwap(ctx, cluster, remove, create); err != nil {
		return err
	}
	from, _ := record.Generation(remove, cluster)
	to, _ := record.Generation(create, cluster)
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.made = append(*c.made, commit{from: from, to: to, version: c.read})
	if c.lose() {
		return fmt.Errorf("reply: %w", reconcile.ErrUnknownOutcome)
	}
	return nil
}

// fleetOf notes which version a call has read, and lets time pass before the call goes on with it.
type fleetOf struct{ *call }

func (f fleetOf) Read(context.Context, string) (record.Fleet, error) {
	f.read = f.fleet.version.Load()
	time.Sleep(rand.N(5 * time.Millisecond))
	return f.fleet.at(f.read), nil
}

// TestReconcileOnBIND lets several callers reconcile a changing fleet on one real server, and loses some of
// their replies: no commit may go back in membership time, and the end is the last fleet.
func TestReconcileOnBIND(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{})
	fleet := &machines{}
	var mu sync.Mutex
	var made []commit
	once := func(lose func() bool) error {
		c := &call{Zone: at(t, b.Addr, b.KeyFile), fleet: fleet, lose: lose, mu: &mu, made: &made}
		s, err := reconcile.New(reconcile.Config{Zone: c, Fleet: fleetOf{c}, Pace: -1})
		if err != nil {
			return err
		}
		_, err = s.Sync(t.Context(), zonetest.Cluster)
		return err
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 25 {
				fleet.version.Add(1)
				// A call may give up after its conflicts; what it may not do is leave something wrong.
				if err := once(func() bool { return rand.IntN(5) == 0 }); err != nil &&
					!errors.Is(err, reconcile.ErrConflict) && !errors.Is(err, reconcile.ErrUnknownOutcome) {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if err := once(func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d commits over %d versions of the fleet", len(made), fleet.version.Load())
	inOrder(t, made)
	sets, err := at(t, b.Addr, b.KeyFile).Read(t.Context(), zonetest.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	published(t, sets, fleet.at(fleet.version.Load()))
}

// inOrder follows the generations from the first commit to the last.
func inOrder(t *testing.T, made []commit) {
	t.Helper()
	next := map[string]commit{}
	for _, c := range made {
		if other, twice := next[c.from]; twice {
			t.Errorf("generation %q was replaced by %q and by %q", c.from, other.to, c.to)
		}
		next[c.from] = c
	}
	followed, version := 0, int64(0)
	for c, ok := next[""]; ok; c, ok = next[c.to] {
		if c.version < version {
			t.Errorf("a reading of version %d replaced one of version %d", c.version, version)
		}
		version = c.version
		followed++
	}
	if followed != len(made) || followed < 2 {
		t.Errorf("%d of %d commits follow from the first", followed, len(made))
	}
}

// published compares the masters' record, and all minions' shards together, with the fleet.
func published(t *testing.T, sets []record.Set, want record.Fleet) {
	t.Helper()
	found := map[role.Role][]string{}
	for _, s := range sets {
		for _, r := range []role.Role{role.Masters, role.Minions} {
			label, _, _ := strings.Cut(s.Name, ".")
			if s.Type == record.A && (label == string(r) && r == role.Masters || strings.HasPrefix(label, string(r)+"-")) {
				found[r] = append(found[r], s.Values...)
			}
		}
	}
	for _, g := range want.Groups {
		var addresses []string
		for _, m := range g.Members {
			addresses = append(addresses, m.Private.String())
		}
		slices.Sort(addresses)
		slices.Sort(found[g.Role])
		if !slices.Equal(found[g.Role], addresses) {
			t.Errorf("%s: %d addresses are published, want %d: %v", g.Role, len(found[g.Role]), len(addresses), found[g.Role])
		}
	}
}
