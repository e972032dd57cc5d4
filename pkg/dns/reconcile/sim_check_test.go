package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const placeholder = "192.0.2.1"

// checker watches every commit. What it expects is worked out here, apart from package record.
type checker struct {
	violations      []string
	staleOverwrites int
	deadPublished   int
	last            *reading
	// left and since are when each address last left the zone, and when it came.
	left, since map[string]time.Time
	// ended has the machines whose hook a call has completed, by address.
	ended map[string]string
}

func (s *sim) violate(format string, args ...any) {
	line := fmt.Sprintf("%.3f s: ", s.now.Sub(epoch).Seconds()) + fmt.Sprintf(format, args...)
	s.logf("VIOLATION %s", line)
	s.violations = append(s.violations, line)
}

// commit applies a batch, and judges the state that it makes by the reading that it was made from.
func (s *sim) commit(p *invocation, from *reading, remove, create []record.Set) error {
	before := s.published()
	if err := s.swap(remove, create); err != nil {
		return err
	}
	s.stats.commits++
	after := s.published()
	s.checkOrder(p, from)
	s.checkContent(p, from, before, after)
	s.checkEnded(p, from, before, after)
	for a := range all(before) {
		if !all(after)[a] {
			s.left[a] = s.now
		}
	}
	for a := range all(after) {
		if !all(before)[a] {
			s.since[a] = s.now
		}
	}
	return nil
}

// swap gives a batch to the zone, and to the stand-in where there is one.
func (s *sim) swap(remove, create []record.Set) error {
	err := s.zone.swap(remove, create)
	if s.fake != nil {
		s.stats.compared++
		if text := s.fake.disagrees(s.zone, remove, create, err); text != "" {
			s.violate("%s", text)
		}
	}
	return err
}

// checkOrder: committed states never go back in membership time.
func (s *sim) checkOrder(p *invocation, from *reading) {
	if s.last != nil && s.last != from {
		if from.start.Before(s.last.end) {
			s.violate("%s commits groups that it began to read at %s over some read until %s", p.name, from.start.Sub(epoch), s.last.end.Sub(epoch))
		}
		if s.f.stale == 0 && from.version < s.last.version {
			s.staleOverwrites++
			s.violate("%s overwrites membership %d with the older %d", p.name, s.last.version, from.version)
		}
	}
	s.last = from
}

// checkContent: what is published is the whole of what was read, and never nothing.
func (s *sim) checkContent(p *invocation, from *reading, before, after map[string][]string) {
	for _, r := range []role.Role{role.Masters, role.Minions} {
		name := string(r) + ".demo.k8s. A"
		if problem := judge(from.fleet, r, before[name], after[name]); problem != "" {
			s.violate("%s publishes %s: %s", p.name, name, problem)
		}
	}
	for name, targets := range after {
		if !strings.HasSuffix(name, " SRV") {
			continue
		}
		for _, target := range targets {
			host := target[strings.LastIndex(target, " ")+1:] + " A"
			// What is published once is never shrunk while a member is being replaced.
			if v := after[host]; len(v) != 1 || before[name] == nil && v[0] == placeholder {
				s.violate("%s publishes %s with %s, which has the addresses %v", p.name, name, target, v)
			}
		}
		if len(targets) != 3 {
			s.violate("%s publishes %s with %d of 3 members", p.name, name, len(targets))
		}
	}
}

// checkEnded: a machine is never published after its hook was completed. Its address may be another's by then.
func (s *sim) checkEnded(p *invocation, from *reading, before, after map[string][]string) {
	for _, g := range from.fleet.Groups {
		for _, m := range g.Members {
			a := m.Private.String()
			if all(after)[a] && !all(before)[a] && s.ended[a] == m.InstanceID && m.Lifecycle == record.InService {
				s.deadPublished++
				s.violate("%s publishes %s, whose hook was completed before", p.name, m.InstanceID)
			}
		}
	}
}

// judge compares one record with the machines that belong in it; "" is right.
func judge(f record.Fleet, r role.Role, before, after []string) string {
	var want, kept []string
	wanted := 0
	for _, g := range f.Groups {
		if g.Role != r {
			continue
		}
		wanted += g.Desired
		for _, m := range g.Members {
			if m.Lifecycle == record.InService && m.Healthy && m.Running {
				want = append(want, m.Private.String())
			} else if slices.Contains(before, m.Private.String()) && !m.Lifecycle.Leaving() {
				kept = append(kept, m.Private.String())
			}
		}
	}
	slices.Sort(want)
	switch {
	case len(want) > 0 && slices.Equal(want, after):
	case len(want) > 0:
		return fmt.Sprintf("%v in place of %v", after, want)
	case len(after) == 0:
		return "nothing at all"
	case wanted > 0 && len(kept) > 0 && slices.Equal(after, []string{placeholder}):
		return fmt.Sprintf("an empty record although %d machines are wanted and %v could stay", wanted, kept)
	case slices.ContainsFunc(after, func(a string) bool { return a != placeholder && !slices.Contains(before, a) }):
		return fmt.Sprintf("%v, which are no members", after)
	}
	return ""
}

// checkHook: a machine goes on only when no resolver can still answer with its address.
func (s *sim) checkHook(p *invocation, m *record.Member) {
	a := m.Private.String()
	s.ended[a] = m.InstanceID
	if all(s.published())[a] && s.since[a].Before(p.looked) {
		s.violate("%s completes the hook of %s, which is published", p.name, m.InstanceID)
	}
	if left, ok := s.left[a]; ok && left.Before(p.looked) && s.now.Sub(left) < record.DefaultTTL+testSettle-underWay {
		s.violate("%s completes the hook of %s only %s after it left", p.name, m.InstanceID, s.now.Sub(left))
	}
}

// converged: after the last event and one sweep the records are the truth.
func (s *sim) converged() {
	after := s.published()
	truth, _ := s.region.as(s.now)
	for _, r := range []role.Role{role.Masters, role.Minions} {
		name := string(r) + ".demo.k8s. A"
		if problem := judge(truth, r, after[name], after[name]); problem != "" {
			s.violate("in the end %s is wrong: %s", name, problem)
		}
	}
	for _, g := range truth.Groups {
		for _, m := range g.Members {
			if m.Lifecycle == record.TerminatingWait {
				s.violate("in the end %s still waits", m.InstanceID)
			}
		}
	}
}

// published is the zone's sets by name and type.
func (s *sim) published() map[string][]string {
	out := map[string][]string{}
	for _, set := range s.zone.list() {
		out[set.Name+" "+set.Type] = sorted(set.Values)
	}
	return out
}

// all is every address of some sets.
func all(sets map[string][]string) map[string]bool {
	out := map[string]bool{}
	for name, values := range sets {
		if strings.HasSuffix(name, " A") {
			for _, v := range values {
				out[v] = true
			}
		}
	}
	return out
}

// groupsFirst reads the fleet before the zone.
func groupsFirst(z reconcile.Zone, f reconcile.Fleet) (reconcile.Zone, reconcile.Fleet) {
	early := &earlyFleet{Fleet: f}
	return &lateZone{Zone: z, fleet: early}, early
}

type lateZone struct {
	reconcile.Zone
	fleet *earlyFleet
}

func (z *lateZone) Read(ctx context.Context, name string) ([]record.Set, error) {
	if z.fleet.f, z.fleet.err = z.fleet.Fleet.Read(ctx, name); z.fleet.err != nil {
		return nil, z.fleet.err
	}
	return z.Zone.Read(ctx, name)
}

type earlyFleet struct {
	reconcile.Fleet
	f   record.Fleet
	err error
}

func (f *earlyFleet) Read(context.Context, string) (record.Fleet, error) { return f.f, f.err }

// withoutGeneration gives every commit the same generation.
func withoutGeneration(z reconcile.Zone, f reconcile.Fleet) (reconcile.Zone, reconcile.Fleet) {
	return constantZone{z}, f
}

type constantZone struct{ reconcile.Zone }

func (z constantZone) CompareAndSwap(ctx context.Context, name string, remove, create []record.Set) error {
	create = slices.Clone(create)
	for i, s := range create {
		create[i].Values = slices.Clone(s.Values)
		for j, v := range s.Values {
			if strings.HasPrefix(v, "generation=") {
				create[i].Values[j] = "generation=1.0.0." + strings.Repeat("0", 210)
			}
		}
	}
	return z.Zone.CompareAndSwap(ctx, name, remove, create)
}
