package reconcile_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var stormFlag = flag.String("storm", "", "write the storms' figures to this file as JSON, and make the largest storm too")

const (
	stormLength  = 60 * time.Second
	stormHorizon = 15 * time.Minute
	perSecond    = 5 // requests that Route 53 takes from an account
)

// storm is n launches within a minute in one account, and what one system made of them.
type storm struct {
	*world
	launched, up, published []time.Time // by machine; a zero published is never
	ended                   []time.Time // by machine; nil and zero are never
	lost                    []bool      // its launch hook gave it up
	route53, other          int         // requests, refused ones included
	tokens                  float64
	filled                  time.Time
}

// system is an algorithm: it schedules what it does about the launches.
type system struct {
	name  string
	start func(*storm)
}

// figures are what is measured of one system in one storm. Calls are those beyond the system's own
// schedule.
type figures struct {
	System       string  `json:"system"`
	Launches     int     `json:"launches"`
	Calls        int     `json:"calls"`
	Route53Calls int     `json:"route53_calls"`
	RightAfter   float64 `json:"right_after_seconds"` // from the last machine's being in service; -1: never
	WrongSeconds float64 `json:"wrong_answer_seconds"`
	Missing      int     `json:"never_published"`
	LostToHook   int     `json:"lost_to_hook"`
}

func newStorm(n int) *storm {
	s := &storm{world: newWorld(uint64(n)), tokens: perSecond, filled: epoch}
	s.lost, s.published = make([]bool, n), make([]time.Time, n)
	for range n {
		at := epoch.Add(s.between(0, stormLength))
		s.launched = append(s.launched, at)
		s.up = append(s.up, at.Add(s.between(25*time.Second, 45*time.Second)))
	}
	return s
}

// take is one request to Route 53: the account's token bucket says whether it is served.
func (s *storm) take() bool {
	s.route53++
	s.tokens = min(perSecond, s.tokens+perSecond*s.now.Sub(s.filled).Seconds())
	s.filled = s.now
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}

func (s *storm) publish(i int) {
	if s.published[i].IsZero() {
		s.published[i] = s.now
	}
}

// measure judges the end.
func (s *storm) measure(name string) figures {
	f := figures{System: name, Launches: len(s.up), Calls: s.route53 + s.other, Route53Calls: s.route53}
	var last, right time.Time
	wrong := map[int64]bool{} // tenths of a second in which somebody in service is not published
	for i, up := range s.up {
		if s.lost[i] {
			f.LostToHook++
			continue
		}
		if up.After(last) {
			last = up
		}
		until := s.published[i]
		if until.IsZero() {
			f.Missing++
			until = epoch.Add(stormHorizon)
		}
		if until.After(right) {
			right = until
		}
		for t := up; t.Before(until); t = t.Add(100 * time.Millisecond) {
			wrong[t.Sub(epoch).Milliseconds()/100] = true
		}
	}
	f.WrongSeconds = float64(len(wrong)) / 10
	f.RightAfter = max(0, right.Sub(last).Round(100*time.Millisecond).Seconds())
	if f.Missing+f.LostToHook > 0 {
		f.RightAfter = -1
	}
	return f
}

// ours is the real reconcile behind a model of the queue: events gather for two seconds, at most 1000
// together, and at most two calls run at once; a sweep comes every minute.
type ours struct {
	*storm
	zone            *zone
	pending         int
	armed, waiting  bool
	running, failed int
	timeout         time.Duration // of the deployed function
}

// runOurs is the system as it is deployed: the time of a call is that of the function's template.
func runOurs(s *storm) {
	o := &ours{storm: s, zone: newZone(), timeout: functionTimeout()}
	for _, set := range record.Placeholders(cluster, record.DefaultPolicy()) {
		o.zone.sets[setKey{set.Name, set.Type}] = set
	}
	for i := range s.up {
		s.after(s.launched[i].Sub(epoch)+time.Second, o.event)
		s.after(s.up[i].Sub(epoch)+time.Second, o.event)
	}
	for at := 10 * time.Second; at < stormHorizon; at += time.Minute {
		s.after(at, o.event)
	}
}

func (o *ours) event() {
	o.pending++
	if !o.armed && !o.waiting {
		o.armed = true
		o.after(2*time.Second, o.fire)
	}
}

func (o *ours) fire() {
	o.armed, o.waiting = false, o.running >= 2
	if o.waiting {
		return
	}
	batch := min(o.pending, 1000)
	o.pending -= batch
	o.running++
	ok := false
	o.spawn("call", func(p *proc) { ok = o.call(p) }, func() {
		o.running--
		if !ok {
			o.failed++
			o.after(30*time.Second, o.event)
		}
		if o.waiting {
			o.fire()
		}
	})
	if o.pending > 0 {
		o.armed = true
		o.after(2*time.Second, o.fire)
	}
}

func (o *ours) call(p *proc) bool {
	ctx, cancel := context.WithDeadline(context.Background(), o.now.Add(o.timeout))
	defer cancel()
	sync, err := reconcile.New(reconcile.Config{Zone: oursZone{o, p}, Fleet: oursFleet{o, p}, Clock: p, Random: o.rng.Uint64})
	if err != nil {
		panic(err)
	}
	r, err := sync.Sync(ctx, cluster, reconcile.Event{})
	o.logf("changed=%v conflicts=%d throttled=%d calls=%+v err=%v", r.Changed, r.Conflicts, r.Throttled, r.Calls, err)
	return err == nil
}

// oursZone spends a request for every page of 300 sets and for every batch.
type oursZone struct {
	*ours
	p *proc
}

func (z oursZone) Limits() record.Limits { return route53Limits }

func (z oursZone) Read(context.Context, string) ([]record.Set, error) {
	for page := 0; page <= len(z.zone.sets)/300; page++ {
		z.p.pause(80 * time.Millisecond)
		if !z.take() {
			return nil, fmt.Errorf("Rate exceeded: %w", reconcile.ErrThrottled)
		}
	}
	return z.zone.list(), nil
}

func (z oursZone) CompareAndSwap(_ context.Context, _ string, remove, create []record.Set) error {
	z.p.pause(120 * time.Millisecond)
	if !z.take() {
		return fmt.Errorf("Rate exceeded: %w", reconcile.ErrThrottled)
	}
	if err := z.zone.swap(remove, create); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, set := range z.zone.sets {
		if set.Type == record.A && strings.HasPrefix(set.Name, string(role.Minions)) {
			for _, v := range set.Values {
				there[v] = true
			}
		}
	}
	for i := range z.up {
		if there[stormAddress(i).String()] {
			z.publish(i)
		}
	}
	return nil
}

func stormAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }

// oursFleet spends one request on the groups and one on every page of 1000 machines.
type oursFleet struct {
	*ours
	p *proc
}

func (f oursFleet) Read(context.Context, string) (record.Fleet, error) {
	f.other++
	g := record.Group{Name: "demo-minions", Cluster: cluster, Role: role.Minions, Desired: len(f.up)}
	for i, at := range f.launched {
		if at.After(f.now) || f.ended != nil && !f.ended[i].IsZero() && !f.ended[i].After(f.now) {
			continue
		}
		m := record.Member{InstanceID: fmt.Sprintf("i-%05d", i), Lifecycle: "Pending", Healthy: true, Running: true, Private: stormAddress(i)}
		if !f.up[i].After(f.now) {
			m.Lifecycle = record.InService
		}
		g.Members = append(g.Members, m)
	}
	for page := 0; page <= len(g.Members)/1000; page++ {
		f.other++
		f.p.pause(150 * time.Millisecond)
	}
	return record.Fleet{Cluster: cluster, Groups: []record.Group{g}}, nil
}

// TestStorms prints what storms of launches cost this reconcile, models of others' and, where it may take
// longer, external-dns itself; it holds the aims for a thousand.
func TestStorms(t *testing.T) {
	sizes := []int{1, 10, 100, 1000}
	if *stormFlag != "" {
		sizes = append(sizes, 5000)
	}
	var all []figures
	for _, n := range sizes {
		for _, sys := range append([]system{{"hardtack", runOurs}}, peers...) {
			all = append(all, stormOf(sys, n))
		}
	}
	t.Run("external-dns itself", func(t *testing.T) { all = append(all, stormsOfExternalDNS(t, sizes, all)...) })
	slices.SortStableFunc(all, func(a, b figures) int { return a.Launches - b.Launches })
	t.Log("\n" + table(all))
	checkAims(t, all)
	if *stormFlag != "" {
		data, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(*stormFlag), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*stormFlag, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// stormOf measures one system in one storm, less what it does in the same time without launches.
func stormOf(sys system, n int) figures {
	idle, s := newStorm(0), newStorm(n)
	for _, one := range []*storm{idle, s} {
		sys.start(one)
		one.run(epoch.Add(stormHorizon))
	}
	f := s.measure(sys.name)
	f.Calls -= idle.route53 + idle.other
	f.Route53Calls -= idle.route53
	return f
}

func checkAims(t *testing.T, all []figures) {
	t.Helper()
	for _, f := range all {
		if f.System != "hardtack" {
			continue
		}
		if f.Missing > 0 || f.LostToHook > 0 || f.RightAfter < 0 || f.RightAfter > 30 {
			t.Errorf("%d launches: %d never published, %d lost, right after %.1f s", f.Launches, f.Missing, f.LostToHook, f.RightAfter)
		}
		if f.Launches <= 1000 && (f.Calls > 150 || f.Route53Calls > 60) {
			t.Errorf("%d launches take %d calls, %d of them to Route 53: more than 150 and 60", f.Launches, f.Calls, f.Route53Calls)
		}
	}
}

func table(all []figures) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "launches\tcalls\tto Route 53\tright after\twrong answers\tnever published\tlost to a hook\t  system\t")
	for _, f := range all {
		right := fmt.Sprintf("%.1f s", f.RightAfter)
		if f.RightAfter < 0 {
			right = "never"
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%.1f s\t%d\t%d\t  %s\t\n", f.Launches, f.Calls, f.Route53Calls, right, f.WrongSeconds, f.Missing, f.LostToHook, f.System)
	}
	if err := w.Flush(); err != nil {
		return err.Error()
	}
	return b.String()
}
