package reconcile_test

import (
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

const (
	endingAfter = 5 * time.Minute // by then every machine is published, and nothing happens any more
	spotNotice  = 2 * time.Minute // EC2's, before it takes a spot machine
)

// stormOfEnds returns the calls and those to Route 53 that it takes when so many of some more machines end within a minute, less
// those without. With machine events each end has four more: EC2's notice and its recommendation, two minutes before, and
// the machine's shutting down and stopping.
func stormOfEnds(ends int, machineEvents bool) (calls, route53 int) {
	all := ends + 200
	run := func(ends int) *storm {
		s := newStorm(all)
		s.ended = make([]time.Time, len(s.up))
		o := &ours{storm: s, zone: newZone(), timeout: functionTimeout()}
		for _, set := range record.Placeholders(cluster, record.DefaultPolicy()) {
			o.zone.sets[setKey{set.Name, set.Type}] = set
		}
		for i := range s.up {
			s.launched[i], s.up[i] = epoch, epoch
		}
		for i := range ends {
			at := endingAfter + s.between(0, stormLength)
			s.ended[i] = epoch.Add(at)
			s.after(at+time.Second, o.event) // AutoScaling's two
			s.after(at+time.Second, o.event)
			if machineEvents {
				for _, early := range []time.Duration{spotNotice, spotNotice, 0, 0} {
					s.after(at-early+100*time.Millisecond, o.event)
				}
			}
		}
		for at := 10 * time.Second; at < stormHorizon; at += time.Minute {
			s.after(at, o.event)
		}
		s.run(epoch.Add(stormHorizon))
		if got := len(minionsIn(o.zone)); got != all-ends {
			panic("the records are not right in the end")
		}
		return s
	}
	idle, s := run(0), run(ends)
	return s.route53 + s.other - idle.route53 - idle.other, s.route53 - idle.route53
}

// minionsIn is every address that the shards of the minions publish.
func minionsIn(z *zone) map[string]bool {
	all := map[string]bool{}
	for _, set := range z.sets {
		if set.Type == record.A && len(set.Name) > 8 && set.Name[:8] == "minions-" {
			for _, v := range set.Values {
				all[v] = true
			}
		}
		if set.Name == "minions.demo.k8s." && set.Type == record.A && len(set.Values) > record.DefaultSubset {
			for _, v := range set.Values {
				all[v] = true
			}
		}
	}
	return all
}

// TestStormOfEnds: what EC2 says about machines that end, beside AutoScaling, gathers in the queue as everything else. Most
// of the further calls are for the notices two minutes before, and find nothing to write. With -storm it is a thousand too.
func TestStormOfEnds(t *testing.T) {
	sizes := []int{100}
	if *stormFlag != "" {
		sizes = append(sizes, 1000)
	}
	for _, n := range sizes {
		calls, route53 := stormOfEnds(n, false)
		more, moreRoute53 := stormOfEnds(n, true)
		t.Logf("%4d ends: %3d calls, %3d to Route 53; with EC2's events %3d and %3d", n, calls, route53, more, moreRoute53)
		if more > 210 || moreRoute53 > 70 {
			t.Errorf("%d ends with EC2's events take %d calls, %d to Route 53: more than 210 and 70", n, more, moreRoute53)
		}
	}
}
