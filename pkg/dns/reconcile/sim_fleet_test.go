package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const cluster = "demo"

// region is the truth: groups and machines, and how they were at any earlier time.
type region struct {
	*world
	groups  []record.Group
	history []moment
	ids     int
	// changed is called after every change; told says whether AWS makes an event of it.
	changed func(told bool)
	// hookTime is how long a terminating machine waits for its hook.
	hookTime time.Duration
}

// moment is the fleet from a time on. Its values are never changed.
type moment struct {
	at    time.Time
	fleet record.Fleet
}

// note makes what the groups are now part of history.
func (r *region) note(told bool) {
	f := record.Fleet{Cluster: cluster}
	for _, g := range r.groups {
		g.Members = slices.Clone(g.Members)
		f.Groups = append(f.Groups, g)
	}
	r.history = append(r.history, moment{at: r.now, fleet: f})
	if r.changed != nil {
		r.changed(told)
	}
}

// as is the fleet at a time, and the number of that state.
func (r *region) as(at time.Time) (record.Fleet, int) {
	for i := len(r.history) - 1; i > 0; i-- {
		if !r.history[i].at.After(at) {
			return r.history[i].fleet, i
		}
	}
	return r.history[0].fleet, 0
}

func (r *region) find(id string) (*record.Group, *record.Member) {
	for i := range r.groups {
		for j := range r.groups[i].Members {
			if r.groups[i].Members[j].InstanceID == id {
				return &r.groups[i], &r.groups[i].Members[j]
			}
		}
	}
	return nil, nil
}

// address is the lowest one that no machine has: it comes back soon after a machine has gone.
func (r *region) address() netip.Addr {
	for n := 10; ; n++ {
		a := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
		if !slices.ContainsFunc(r.groups, func(g record.Group) bool {
			return slices.ContainsFunc(g.Members, func(m record.Member) bool { return m.Private == a })
		}) {
			return a
		}
	}
}

// launch starts a machine, which is in service after a while.
func (r *region) launch(group int, state record.Lifecycle) string {
	r.ids++
	g := &r.groups[group]
	m := record.Member{InstanceID: fmt.Sprintf("i-%04d", r.ids), Lifecycle: state, Healthy: true, Running: state == record.InService, Private: r.address()}
	if g.Role == role.Etcd {
		m.EtcdMember = freeMember(g)
	}
	g.Members = append(g.Members, m)
	r.note(false)
	if state != record.InService {
		r.after(r.between(time.Second, 10*time.Second), func() { r.set(m.InstanceID, record.PendingWait, true) })
		r.after(r.between(11*time.Second, 30*time.Second), func() { r.set(m.InstanceID, record.InService, true) })
	}
	return m.InstanceID
}

func freeMember(g *record.Group) string {
	for _, name := range g.EtcdMembers {
		if !slices.ContainsFunc(g.Members, func(m record.Member) bool { return m.EtcdMember == name }) {
			return name
		}
	}
	return ""
}

// set moves a machine on that is starting, and no other.
func (r *region) set(id string, state record.Lifecycle, told bool) {
	_, m := r.find(id)
	if m == nil || m.Lifecycle.Leaving() {
		return
	}
	m.Lifecycle, m.Running = state, true
	r.note(told)
}

// terminate begins the end of a machine: its hook holds it until it is completed or its time is over.
func (r *region) terminate(id string) {
	_, m := r.find(id)
	if m == nil || m.Lifecycle == record.TerminatingWait || m.Lifecycle == record.TerminatingProceed {
		return
	}
	m.Lifecycle = record.TerminatingWait
	r.note(true)
	r.after(r.hookTime, func() { r.proceed(id) })
}

func (r *region) proceed(id string) {
	_, m := r.find(id)
	if m == nil || m.Lifecycle != record.TerminatingWait {
		return
	}
	m.Lifecycle = record.TerminatingProceed
	r.note(false)
	r.after(r.between(time.Second, 5*time.Second), func() {
		g, m := r.find(id)
		m.Running = false
		g.Members = slices.DeleteFunc(g.Members, func(m record.Member) bool { return m.InstanceID == id })
		r.note(true)
	})
}

// churn does one thing to a random machine or group.
func (r *region) churn() {
	group := r.rng.IntN(len(r.groups))
	g := &r.groups[group]
	if len(g.Members) == 0 || r.chance(0.3) {
		if g.Role != role.Etcd || len(g.Members) < len(g.EtcdMembers) {
			g.Desired++
			r.launch(group, "Pending")
		}
		return
	}
	m := &g.Members[r.rng.IntN(len(g.Members))]
	id := m.InstanceID
	switch r.rng.IntN(6) {
	case 0, 1:
		r.terminate(id)
		r.after(r.between(time.Second, 20*time.Second), func() { r.replaceIn(group) })
	case 2:
		g.Desired = max(0, g.Desired-1)
		r.terminate(id)
	case 3:
		if m.Lifecycle == record.InService {
			m.Lifecycle = "Standby"
			r.note(false)
			r.after(r.between(time.Second, 40*time.Second), func() { r.back(id) })
		}
	default:
		m.Healthy = false // SetInstanceHealth: no event
		r.note(false)
		r.after(r.between(time.Second, 20*time.Second), func() {
			if _, m := r.find(id); m != nil {
				m.Healthy = true
				r.note(false)
			}
		})
	}
}

func (r *region) replaceIn(group int) {
	if g := r.groups[group]; len(g.Members) <= g.Desired && (g.Role != role.Etcd || freeMember(&g) != "") {
		r.launch(group, "Pending")
	}
}

func (r *region) back(id string) {
	if _, m := r.find(id); m != nil && m.Lifecycle == "Standby" {
		m.Lifecycle = record.InService
		r.note(true)
	}
}

// reading is one call's reading of the fleet: when it began and ended, and what it saw.
type reading struct {
	start, end time.Time
	version    int
	fleet      record.Fleet
}

// simFleet is the region as one process reads it.
type simFleet struct {
	*sim
	p *invocation
}

func (f simFleet) Read(ctx context.Context, _ string) (record.Fleet, error) {
	r := &reading{start: f.now}
	f.p.pause(f.latency())
	if err := f.trouble(ctx, f.p); err != nil {
		f.logf("%s reads the fleet: %v", f.p.name, err)
		return record.Fleet{}, err
	}
	at := f.now
	if f.f.stale > 0 {
		at = at.Add(-f.between(0, f.f.stale))
	}
	r.fleet, r.version = f.region.as(at)
	f.logf("%s reads the fleet as of state %d", f.p.name, r.version)
	f.p.pause(f.latency())
	r.end = f.now
	f.p.member = r
	return r.fleet, f.p.expired(ctx)
}

// simHooks completes hooks.
type simHooks struct {
	*sim
	p *invocation
}

func (h simHooks) Complete(ctx context.Context, group, id string) error {
	h.p.pause(h.latency())
	if err := h.trouble(ctx, h.p); err != nil {
		return err
	}
	if g, m := h.region.find(id); m != nil && m.Lifecycle == record.TerminatingWait {
		if g.Name != group {
			return errors.New("no such instance in this group")
		}
		h.checkHook(h.p, m)
		h.logf("%s completes the hook of %s", h.p.name, id)
		h.region.proceed(id)
	}
	h.p.pause(h.latency())
	return nil
}
