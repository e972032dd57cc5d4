package rollout_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

func TestObsolete(t *testing.T) {
	version := func(n int, image string) rollout.Version { return rollout.Version{Number: n, Image: image} }
	var all []rollout.Version
	for n := 1; n <= 12; n++ {
		all = append(all, version(n, fmt.Sprint("ami-", n)))
	}
	group := func(change func(*rollout.Group)) rollout.Group {
		g := rollout.Group{Launches: all[11], Wanted: all[11], Machines: []rollout.Machine{{ID: "i-1", From: all[11]}}}
		change(&g)
		return g
	}
	same := slices.Clone(all)
	for i := 3; i < 12; i++ {
		same[i].Image = "ami-same" // nine times the same machine: what a rollback goes to is the third
	}
	for name, tt := range map[string]struct {
		group rollout.Group
		all   []rollout.Version
		want  []int
	}{
		"all as wanted":                  {group(func(*rollout.Group) {}), all, []int{1, 2, 3, 4, 5, 6, 7}},
		"an old machine":                 {group(func(g *rollout.Group) { g.Machines = append(g.Machines, rollout.Machine{From: all[2]}) }), all, []int{1, 2, 4, 5, 6, 7}},
		"it launches an old one":         {group(func(g *rollout.Group) { g.Launches = all[4] }), all, []int{1, 2, 3, 4, 6, 7}},
		"an old one is wanted":           {group(func(g *rollout.Group) { g.Wanted = all[4] }), all, []int{1, 2, 3, 6, 7}},
		"a refresh has led to an old":    {group(func(g *rollout.Group) { g.Refresh = &rollout.Refresh{Status: "Successful", To: 1} }), all, []int{2, 3, 4, 5, 6, 7}},
		"a refresh is under way":         {group(func(g *rollout.Group) { g.Refresh = &rollout.Refresh{Status: "InProgress", To: 12} }), all, nil},
		"many of the same":               {group(func(g *rollout.Group) { g.Launches, g.Wanted = same[11], same[11] }), same, []int{1, 2, 4, 5, 6, 7}},
		"few":                            {group(func(g *rollout.Group) { g.Launches, g.Wanted, g.Machines = all[4], all[4], nil }), all[:5], nil},
		"fewer":                          {group(func(g *rollout.Group) { g.Launches, g.Wanted, g.Machines = all[2], all[2], nil }), all[:3], nil},
		"a version that is gone already": {group(func(g *rollout.Group) { g.Machines[0].From = version(99, "") }), all, []int{1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, v := range tt.group.Obsolete(tt.all) {
				got = append(got, v.Number)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
