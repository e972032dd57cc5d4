package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/gateway"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine/machinetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// decided are machines whose members the agent starts: its own code, with processes in the place of systemd's units.
type decided struct {
	*seats
	store store.Store

	mu    sync.Mutex
	ends  map[string]func()
	seen  map[string]string
	count map[string]int // of machines, for their names
}

func newDecided(t *testing.T, dir string) *decided {
	t.Helper()
	d := &decided{seats: newSeats(t, dir), store: store.NewDir(t.TempDir()), ends: map[string]func(){}, seen: map[string]string{}, count: map[string]int{}}
	info := machinetest.Info("demo")
	info.Etcd.Members = etcdMembers
	if _, err := authority.Create(t.Context(), d.store, info, time.Now()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for m := range d.ends {
			d.off(m)
		}
	})
	return d
}

// process is etcd of one seat.
type process struct {
	d      *decided
	member string
	env    map[string]string
}

func (p process) State(context.Context) (member.State, error) {
	p.d.seats.mu.Lock()
	defer p.d.seats.mu.Unlock()
	return member.State{Running: p.d.running[p.member] != nil}, nil
}

func (p process) Start(context.Context) error {
	text, err := os.ReadFile(p.d.path(p.member, "run", "member"))
	if err != nil {
		return err
	}
	env := map[string]string{}
	for key, value := range p.env {
		env[key] = value
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[key] = strings.Replace(value, etcd.ClosedAddress, closedAt(p.member), 1)
	}
	return p.d.spawn(p.member, env)
}

// closedAt is where a closed member listens: they share one loopback device.
func closedAt(member string) string { return "127.0.1." + strconv.Itoa(int(member[0])) }

func (p process) Stop(context.Context) error {
	p.d.end(p.member)
	return nil
}

// on starts a machine for a member, with the disk that is there.
func (d *decided) on(t *testing.T, m string) {
	t.Helper()
	for _, dir := range []string{"disk", "run"} {
		if err := os.MkdirAll(d.path(m, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.count[m]++
	files := gateway.Files{CA: d.path(m, "pki", "ca.crt"), Certificate: d.path(m, "pki", "server.crt"), Key: d.path(m, "pki", "server.key")}
	own := machine.EtcdURL("demo", m)
	a := member.New(member.Config{
		Cluster: "demo", Member: m, PeerURL: machine.EtcdPeerURL("demo", m, etcdMembers), Storage: etcd.StorageMachine, Instance: fmt.Sprintf("machine-%s-%d", m, d.count[m]),
		Dir: d.path(m, "disk"), Environment: d.path(m, "run", "member"), Own: own,
		Records: d.store, Service: process{d, m, d.imageEnv(t, m)}, Clock: clock.System{},
		Peer: func(url string) member.Peer {
			return files.Peer(strings.Replace(url, etcd.ClosedAddress, closedAt(m), 1))
		},
		Say: func(r member.Report) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.seen[m] = fmt.Sprint(r.Action.Row, ": ", r.Step, ": ", r.Why.Cause, ": ", r.Err)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Run(ctx) // ends with ctx
	}()
	d.ends[m] = func() { cancel(); <-ended }
}

// off ends a machine as a loss of power does: its agent, etcd, and what was on its tmpfs.
func (d *decided) off(m string) {
	if end := d.ends[m]; end != nil {
		end()
		delete(d.ends, m)
	}
	d.mu.Lock()
	delete(d.seen, m)
	d.mu.Unlock()
	d.end(m)
	_ = os.RemoveAll(d.path(m, "run"))
}

// says waits until the agent of a member says what is wanted.
func (d *decided) says(t *testing.T, m, want string) {
	t.Helper()
	if pending := eventually(90*time.Second, func() []string {
		d.mu.Lock()
		defer d.mu.Unlock()
		if strings.Contains(d.seen[m], want) {
			return nil
		}
		return []string{d.seen[m]}
	}); len(pending) > 0 {
		t.Fatalf("the agent of %s says %q, want %q", m, pending, want)
	}
}
