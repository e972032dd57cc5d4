package rollout_test

import (
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	member "github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// TestHandover: a machine of the masters, which was the only member of etcd, has the data for which the group of the first of
// three waits. It goes first, though no member serves, and only while its member is well.
func TestHandover(t *testing.T) {
	grown := func() rollout.State {
		s := rollout.State{Cluster: "demo", Groups: []rollout.Group{
			group("masters", masters, machine("i-old", v1)),
			group("etcd-a", etcd, machine("i-a", v2)), group("etcd-b", etcd, machine("i-b", v2)), group("etcd-c", etcd, machine("i-c", v2)),
		}}
		for _, id := range []string{"i-a", "i-b", "i-c"} {
			s = at(s, id, state("Pending:Wait"))
		}
		s.Etcd = rollout.Reports{At: noon, Epoch: 1, Members: map[string]member.Status{
			"a": {At: noon, Instance: "i-old", Volume: "vol-a", Epoch: 1, MemberID: 7, Row: member.SRuns, Leader: 7, Backup: &member.Backup{At: noon.Add(-time.Minute)}},
			"b": {At: noon, Instance: "i-b", Volume: "vol-b", Row: member.J1Empty},
		}}
		return of(s, "etcd-a", func(g *rollout.Group) { g.Volume = &rollout.Volume{ID: "vol-a", Holder: "i-old"} })
	}
	of1 := func(change func(*member.Status)) rollout.State {
		s := grown()
		r := s.Etcd.Members["a"]
		change(&r)
		s.Etcd.Members["a"] = r
		return s
	}
	for _, tt := range []struct {
		name, only string
		state      rollout.State
		want       string
	}{
		{"the holder goes first", "", grown(), "replace i-old, has member a, which is etcd-a's now"},
		{"also after another one", "", of(grown(), "masters", func(g *rollout.Group) { g.Machines = append([]rollout.Machine{machine("i-new", v1)}, g.Machines...) }),
			"replace i-old, has member a, which is etcd-a's now"},
		{"also where the one that waits is in service", "", at(grown(), "i-a", state("InService")), "replace i-old, has member a, which is etcd-a's now"},
		{"also by itself", "masters", grown(), "replace i-old, has member a, which is etcd-a's now"},
		{"not by others", "etcd-a", grown(), "wait demo-etcd-a, which i-old of masters has"},
		{"not while it is silent", "", of1(func(r *member.Status) { r.At = noon.Add(-time.Hour) }), "wait demo-masters, has not reported for 60 minutes"},
		{"not without a recent backup", "", of1(func(r *member.Status) { r.Backup.At = noon.Add(-time.Hour) }), "wait demo-masters, the newest backup is 60 minutes old"},
		{"not without a leader", "", of1(func(r *member.Status) { r.Leader = 0 }), "wait demo-masters, knows no leader"},
		{"not data on its own disk", "", of1(func(r *member.Status) { r.Volume = "vol-x" }), "wait demo-masters, reports volume vol-x"},
		{"once only", "", at(grown(), "i-old", state("Terminating:Wait")), "wait demo-etcd-a, Pending:Wait"},
		{"nor where it has the volume", "", of(grown(), "etcd-a", func(g *rollout.Group) { g.Volume.Holder = "i-a" }), "wait demo-etcd-a, Pending:Wait"},
		{"not beside a member that has failed", "", at(grown(), "i-b", state("InService")), "wait demo-masters, does not run (row J1)"},
		// Another voter's new machine has not come back: with both away there would be no quorum.
		{"not beside another seat", "", func() rollout.State {
			s := grown()
			s.Etcd.Members["b"] = member.Status{At: noon, Instance: "i-b", Volume: "vol-b", Epoch: 1, MemberID: 8, Row: member.V4Held}
			return s
		}(), "wait demo-masters, does not run (row V4)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next(t, tt.state, tt.only, tt.want)
		})
	}
}
