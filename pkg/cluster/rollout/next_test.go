package rollout_test

import (
	stdcmp "cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	member "github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The versions of all launch templates here: v2 has another image.
var (
	v1 = rollout.Version{Number: 1, Image: "ami-a", Config: "sha256:1", Type: "m7i.large"}
	v2 = rollout.Version{Number: 2, Image: "ami-b", Config: "sha256:1", Type: "m7i.large"}
)

func machine(id string, from rollout.Version) rollout.Machine {
	return rollout.Machine{ID: id, From: from, State: "InService", Healthy: true, Running: true, Published: true}
}

func group(key string, roles role.Set, machines ...rollout.Machine) rollout.Group {
	g := rollout.Group{Name: "demo-" + key, Key: key, Roles: roles, Desired: len(machines), Launches: v2, Wanted: v2, Machines: machines}
	if member, ok := strings.CutPrefix(key, "etcd-"); ok {
		g.Member, g.Members = member, []string{"a", "b", "c"}
	}
	return g
}

var (
	etcd    = role.Set{role.Etcd}
	masters = role.Set{role.Masters}
	both    = role.Set{role.Masters, role.Etcd}
	minions = role.Set{role.Minions}
)

// three is a cluster with three etcd members, two masters and two minions.
func three(from rollout.Version) rollout.State {
	return rollout.State{Cluster: "demo", Groups: []rollout.Group{
		group("masters", masters, machine("i-m1", from), machine("i-m2", from)),
		group("minions", minions, machine("i-w1", from), machine("i-w2", from)),
		group("etcd-a", etcd, machine("i-a", from)),
		group("etcd-b", etcd, machine("i-b", from)),
		group("etcd-c", etcd, machine("i-c", from)),
	}}
}

// at changes a machine of the state.
func at(s rollout.State, id string, change func(*rollout.Machine)) rollout.State {
	for i, g := range s.Groups {
		for k, m := range g.Machines {
			if m.ID == id {
				change(&s.Groups[i].Machines[k])
			}
		}
	}
	return s
}

func of(s rollout.State, key string, change func(*rollout.Group)) rollout.State {
	for i := range s.Groups {
		if s.Groups[i].Key == key {
			change(&s.Groups[i])
		}
	}
	return s
}

func fresh(ids ...string) func(rollout.State) rollout.State {
	return func(s rollout.State) rollout.State {
		for _, id := range ids {
			s = at(s, id, func(m *rollout.Machine) { m.From = v2 })
		}
		return s
	}
}

func state(to string) func(*rollout.Machine) { return func(m *rollout.Machine) { m.State = to } }

func TestNext(t *testing.T) {
	old := func() rollout.State { return three(v1) }
	etcdDone := fresh("i-a", "i-b", "i-c")
	controlDone := func(s rollout.State) rollout.State { return fresh("i-m1", "i-m2")(etcdDone(s)) }
	for _, tt := range []struct {
		name  string
		state rollout.State
		only  string
		want  string // action, machine or group, and a part of the reason
	}{
		{"nothing differs", three(v2), "", "finished , every machine"},
		{"etcd comes first", old(), "", "replace i-a, image"},
		{"another version that makes the same machine", three(rollout.Version{Number: 1, Image: "ami-b", Config: "sha256:1", Type: "m7i.large"}), "", "finished , every"},
		{"then the next member", fresh("i-a")(old()), "", "replace i-b, image"},
		{"not while the last one starts", at(fresh("i-a")(old()), "i-a", state("Pending:Wait")), "", "wait demo-etcd-a, i-a of demo-etcd-a is Pending:Wait"},
		{"not before DNS has it", at(fresh("i-a")(old()), "i-a", func(m *rollout.Machine) { m.Published = false }), "", "wait demo-etcd-a, not in DNS"},
		{"not while it is unhealthy", at(fresh("i-a")(old()), "i-a", func(m *rollout.Machine) { m.Healthy = false }), "", "wait demo-etcd-a, unhealthy"},
		{"not while its machine is stopped", at(fresh("i-a")(old()), "i-a", func(m *rollout.Machine) { m.Running = false }), "", "wait demo-etcd-a, not running"},
		{"not while a member is gone", of(fresh("i-a")(old()), "etcd-a", func(g *rollout.Group) { g.Machines = nil }), "", "wait demo-etcd-a, has 0 of 1"},
		{"nor while one leaves", at(old(), "i-c", state("Terminating:Wait")), "", "wait demo-etcd-c, Terminating:Wait"},
		{"a master waits for the quorum too", at(etcdDone(old()), "i-c", state("Pending:Wait")), "masters", "wait demo-etcd-c, Pending:Wait"},
		{"an empty seat with a machine that is not as wanted goes first", at(old(), "i-c", state("Pending:Wait")), "", "replace i-c, is Pending:Wait and not as wanted"},
		{"but not beside another empty seat", at(at(old(), "i-c", state("Pending:Wait")), "i-m1", state("Pending")), "", "wait demo-etcd-c, i-c"},
		{"nor where it is not chosen", at(old(), "i-c", state("Pending:Wait")), "masters", "wait demo-etcd-c, i-c"},
		{"a standby is for its operator", at(old(), "i-m1", state("Standby")), "", "wait demo-masters, Standby"},
		{"also one that is stopped", at(old(), "i-c", func(m *rollout.Machine) { m.Running = false }), "", "replace i-c, is not running and not as wanted"},
		{"also one of several", at(etcdDone(old()), "i-m2", state("Pending:Wait")), "", "replace i-m2, is Pending:Wait and not as wanted"},
		{"but not where more are missing", of(at(etcdDone(old()), "i-m2", state("Pending:Wait")), "masters", func(g *rollout.Group) { g.Desired = 3 }), "", "wait demo-masters, i-m2"},
		{"nor beside one that leaves", of(at(etcdDone(old()), "i-m2", state("Pending:Wait")), "masters", func(g *rollout.Group) {
			g.Machines = append(g.Machines, rollout.Machine{ID: "i-m3", From: v1, State: "Terminating:Wait"})
		}), "", "wait demo-masters, i-m2"},
		{"what is not ours lacks one", at(etcdDone(old()), "i-m1", state("Pending:Wait")), "etcd-a", "finished , every machine"},
		{"what is ours lacks one, and all are as wanted", at(three(v2), "i-m1", state("Pending:Wait")), "", "wait demo-masters, i-m1"},
		{"minions are no redundancy", at(old(), "i-w1", state("Pending:Wait")), "", "replace i-a, image"},
		{"masters one by one", etcdDone(old()), "", "replace i-m1, image"},
		{"the second when the first is back", fresh("i-m1")(etcdDone(old())), "", "replace i-m2, image"},
		{"not while the API is not ready", func() rollout.State { s := old(); s.API = "etcd"; return s }(), "", "wait , the API servers are not ready: etcd"},
		{"which nobody needs who is as wanted", func() rollout.State { s := three(v2); s.API = "etcd"; return s }(), "", "finished , every machine"},
		{"the launch template first", of(old(), "etcd-c", func(g *rollout.Group) { g.Launches = v1 }), "", "point demo-etcd-c, version 1"},
		{"minions at the end", controlDone(old()), "", "start demo-minions, image"},
		{"minions alone", old(), "demo-minions", "start demo-minions, image"},
		{"minions need masters", at(old(), "i-m1", state("Pending:Wait")), "minions", "wait demo-masters, new machines need it"},
		{"a refresh is watched", of(controlDone(old()), "minions", func(g *rollout.Group) {
			g.Refresh = &rollout.Refresh{ID: "1", Status: "InProgress", Percent: 50, To: 2}
		}), "", "watch demo-minions, InProgress, 50 %"},
		{"what leaves needs no refresh, and is waited for", at(fresh("i-w2")(controlDone(old())), "i-w1", state("Terminating:Wait")), "", "wait demo-minions, i-w1 is Terminating:Wait"},
		{"until it is gone", at(fresh("i-w2")(controlDone(old())), "i-w1", state("Terminating:Proceed")), "", "wait demo-minions, i-w1 is Terminating:Proceed"},
		{"what leaves and is as wanted is not ours", at(three(v2), "i-w1", state("Terminating:Wait")), "", "finished , every machine"},
		{"the one before is history", of(controlDone(old()), "minions", func(g *rollout.Group) {
			g.Refresh = &rollout.Refresh{ID: "1", Status: "Cancelled"}
		}), "", "start demo-minions, image"},
		{"machines as wanted in a group that is not", of(three(v2), "minions", func(g *rollout.Group) { g.Launches = v1 }), "", "point demo-minions, already"},
		{"two members in a group without names", rollout.State{Cluster: "demo", Groups: []rollout.Group{group("masters", both, machine("i-1", v1), machine("i-2", v1))}}, "",
			"wait demo-masters, several machines of etcd"},
		{"one member in a group without a name", rollout.State{Cluster: "demo", Groups: []rollout.Group{group("masters", both, machine("i-1", v1))}}, "", "replace i-1, image"},
		{"two machines of a member with a name", of(old(), "etcd-a", func(g *rollout.Group) { g.Desired, g.Machines = 2, append(g.Machines, machine("i-a2", v1)) }), "", "replace i-a, image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next(t, tt.state, tt.only, tt.want)
		})
	}
}

// next asserts which step comes next, in words: its action, its machine or group, and after a comma a part of its reason. only is
// the group that is refreshed alone; empty is none.
func next(t *testing.T, state rollout.State, only, want string) {
	t.Helper()
	var groups []string
	if only != "" {
		groups = []string{only}
	}
	step := rollout.Next(state, groups, nil)
	about, reason, _ := strings.Cut(want, ", ")
	if got := string(step.Action) + " " + stdcmp.Or(step.Machine, step.Group); got != about || !strings.Contains(step.Reason, reason) {
		t.Errorf("%s, %s\nwant %s", got, step.Reason, want)
	}
}

// No machine of etcd is replaced unless every member reports that it is in order; masters and minions do not ask for that.
func TestNextAsksTheMembers(t *testing.T) {
	reports := func(name string, change func(*member.Status)) func(rollout.State) rollout.State {
		return func(s rollout.State) rollout.State {
			r := s.Etcd.Members[name]
			change(&r)
			s.Etcd.Members[name] = r
			return s
		}
	}
	both := func(changes ...func(rollout.State) rollout.State) func(rollout.State) rollout.State {
		return func(s rollout.State) rollout.State {
			for _, change := range changes {
				s = change(s)
			}
			return s
		}
	}
	index := func(i uint64, ago time.Duration) func(*member.Status) {
		return func(r *member.Status) { r.Store.RaftIndex, r.At = i, noon.Add(-ago) }
	}
	backup := func(ago time.Duration) func(*member.Status) {
		return func(r *member.Status) { r.Backup = &member.Backup{At: noon.Add(-ago)} }
	}
	for _, tt := range []struct {
		name       string
		change     func(rollout.State) rollout.State
		only, lose string
		want       string // action, subject, and a part of the reason
	}{
		{"all are in order", both(), "", "", "replace i-a, image"},
		{"one is silent", reports("b", func(r *member.Status) { r.At = noon.Add(-4 * time.Minute) }), "", "", "wait demo-etcd-b, member b: its member has not reported for 4 minutes"},
		{"one reports the future", reports("b", func(r *member.Status) { r.At = noon.Add(time.Hour) }), "", "", "wait demo-etcd-b, compare the clocks"},
		{"one does not run", reports("c", func(r *member.Status) { r.Row = member.V4Held }), "", "", "wait demo-etcd-c, does not run (row V4)"},
		{"one is a learner", reports("c", func(r *member.Status) { r.Learner = true }), "", "", "wait demo-etcd-c, member c: it is a learner"},
		{"one knows no leader", reports("c", func(r *member.Status) { r.Leader = 0 }), "", "", "wait demo-etcd-c, no leader"},
		{"one is of another epoch", reports("c", func(r *member.Status) { r.Epoch = 2 }), "", "", "wait demo-etcd-c, at epoch 2"},
		{"an alarm", reports("b", func(r *member.Status) { r.Store.Alarms = []string{"NOSPACE"} }), "", "", "wait demo-etcd-b, alarm NOSPACE"},
		{"an alarm of the seat itself", reports("a", func(r *member.Status) { r.Store.Alarms = []string{"CORRUPT"} }), "", "", "wait demo-etcd-a, alarm CORRUPT"},
		{"a new machine has not reported", reports("b", func(r *member.Status) { r.Instance = "i-before" }), "", "", "wait demo-etcd-b, its report is of machine i-before"},
		{"one lags", reports("b", index(95_000, 0)), "", "", "wait demo-etcd-b, 5000 entries behind"},
		{"one lags a little", reports("b", index(95_001, 0)), "", "", "replace i-a, image"},
		// A minute of writes lies between the two reports, and neither is behind.
		{"one reported earlier", reports("b", index(60_000, time.Minute)), "", "", "replace i-a, image"},
		{"one lags behind an earlier report", both(reports("b", index(80_000, 0)), reports("a", index(90_000, time.Minute)), reports("c", index(90_000, time.Minute))), "", "",
			"wait demo-etcd-b, 10000 entries behind"},
		{"a backup of this quarter", both(reports("a", backup(time.Hour)), reports("c", backup(15*time.Minute))), "", "", "replace i-a, image"},
		{"a member of an earlier epoch that was ahead", func(s rollout.State) rollout.State {
			s.Etcd.Members["z"] = member.Status{At: noon, Store: member.Content{RaftIndex: 900_000}}
			return s
		}, "", "", "replace i-a, image"},
		{"a group without the role", func(s rollout.State) rollout.State {
			s.Etcd.Members["m"] = member.Status{At: noon, Learner: true}
			return of(s, "masters", func(g *rollout.Group) { g.Member = "m" })
		}, "", "", "replace i-a, image"},
		{"a backup", both(reports("a", backup(time.Hour)), reports("c", backup(14*time.Minute))), "", "", "replace i-a, image"},
		{"an old backup", both(reports("a", backup(time.Hour)), reports("c", backup(16*time.Minute))), "", "", "wait demo-etcd-a, the newest backup is 16 minutes old"},
		{"an empty seat's own member is down", func(s rollout.State) rollout.State {
			return reports("c", func(r *member.Status) { r.At = noon.Add(-time.Hour) })(at(s, "i-c", state("Pending:Wait")))
		}, "", "", "replace i-c, is Pending:Wait and not as wanted"},
		{"an empty seat, and another member is silent", func(s rollout.State) rollout.State {
			return reports("b", func(r *member.Status) { r.At = noon.Add(-time.Hour) })(at(s, "i-c", state("Pending:Wait")))
		}, "", "", "wait demo-etcd-b, has not reported for 60 minutes"},
		{"with leave to lose it", reports("b", func(r *member.Status) { r.Learner = true }), "", "etcd-a", "replace i-a, image"},
		{"masters do not ask", both(reports("b", func(r *member.Status) { r.Learner = true }), fresh("i-a", "i-b", "i-c")), "masters", "", "replace i-m1, image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 20 { // whatever the order in which the reports are looked at
				step := rollout.Next(tt.change(durable()), strings.Fields(tt.only), strings.Fields(tt.lose))
				about, reason, _ := strings.Cut(tt.want, ", ")
				if got := string(step.Action) + " " + stdcmp.Or(step.Machine, step.Group); got != about || !strings.Contains(step.Reason, reason) {
					t.Fatalf("%s, %s\nwant %s", got, step.Reason, tt.want)
				}
			}
		})
	}
}

// Only a member's own report, of now, of this epoch and from the machine that has the volume, says that data outlive it.
func TestRefuseDoubts(t *testing.T) {
	a := func(change func(*member.Status)) func(rollout.State) rollout.State {
		return func(s rollout.State) rollout.State {
			r := s.Etcd.Members["a"]
			change(&r)
			s.Etcd.Members["a"] = r
			return s
		}
	}
	holder := func(id string) func(rollout.State) rollout.State {
		return func(s rollout.State) rollout.State {
			return of(s, "etcd-a", func(g *rollout.Group) { g.Volume.Holder = id })
		}
	}
	starts := func(s rollout.State) rollout.State { return at(s, "i-a", state("Pending:Wait")) }
	for _, tt := range []struct {
		name   string
		change func(rollout.State) rollout.State
		want   string // a part of the error; empty: allowed
	}{
		{"as it should be", func(s rollout.State) rollout.State { return s }, ""},
		{"no report", func(s rollout.State) rollout.State { delete(s.Etcd.Members, "a"); return s }, "does not report that its data are on a volume"},
		{"no reading", func(s rollout.State) rollout.State { s.Etcd = rollout.Reports{Unread: "no permission"}; return s }, "cannot be read: no permission"},
		{"its own disk", a(func(r *member.Status) { r.Volume = "" }), "on the machine's own disk"},
		{"an earlier epoch", a(func(r *member.Status) { r.Epoch = 0 }), "of epoch 0, and etcd is at epoch 1"},
		{"the report is old", a(func(r *member.Status) { r.At = noon.Add(-3*time.Minute - time.Second) }), "has not reported for 3 minutes"},
		{"the report is nearly old", a(func(r *member.Status) { r.At = noon.Add(-3 * time.Minute) }), ""},
		{"the report is nearly of the future", a(func(r *member.Status) { r.At = noon.Add(3 * time.Minute) }), ""},
		{"the report is of the future", a(func(r *member.Status) { r.At = noon.Add(3*time.Minute + time.Second) }), "compare the clocks"},
		{"it does not run", a(func(r *member.Status) { r.Row = member.F5Foreign }), "row F5"},
		{"a volume that there is not", func(s rollout.State) rollout.State {
			return of(s, "etcd-a", func(g *rollout.Group) { g.Volume = nil })
		}, "volume vol-a, which is not there"},
		{"another volume", a(func(r *member.Status) { r.Volume = "vol-x" }), "volume vol-x, which is not there"},
		{"a volume that nobody has", holder(""), "which none of its machines has"},
		{"a volume that another group has", holder("i-b"), "which none of its machines has"},
		{"the report of the machine before", a(func(r *member.Status) { r.Instance = "i-before" }), "has not reported yet"},
		// A new image that does not come up must be replaceable: its machine never had data of its own.
		{"a machine that never came up, old report", func(s rollout.State) rollout.State {
			return a(func(r *member.Status) { r.At, r.Instance = noon.Add(-time.Hour), "i-before" })(starts(s))
		}, ""},
		{"a machine that never came up beside one that leaves, old report", func(s rollout.State) rollout.State {
			s = a(func(r *member.Status) { r.At, r.Instance = noon.Add(-time.Hour), "i-before" })(starts(s))
			return of(s, "etcd-a", func(g *rollout.Group) {
				g.Machines = append(g.Machines, rollout.Machine{ID: "i-before", From: v1, State: "Terminating:Wait"})
			})
		}, ""},
		{"a machine that never came up, free volume", func(s rollout.State) rollout.State { return holder("")(starts(s)) }, ""},
		{"a machine that never came up, no report", func(s rollout.State) rollout.State {
			delete(s.Etcd.Members, "a")
			return starts(s)
		}, "does not report"},
		{"a machine that never came up, volume elsewhere", func(s rollout.State) rollout.State { return holder("i-b")(starts(s)) }, "none of its machines"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := rollout.Refuse(tt.change(durable()), []string{"etcd-a"}, nil)
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// A refresh that can be rolled back has one version to go back to.
func TestWayBack(t *testing.T) {
	s := three(v2)
	s = at(s, "i-w1", func(m *rollout.Machine) { m.From = v1 })
	if step := rollout.Next(s, nil, nil); step.From != 1 || step.To != 2 {
		t.Errorf("one version before: %+v", step)
	}
	s = at(s, "i-w2", func(m *rollout.Machine) { m.From = rollout.Version{Number: 7, Image: "ami-z"} })
	if step := rollout.Next(s, nil, nil); step.From != 0 || step.To != 2 {
		t.Errorf("two versions before: %+v", step)
	}
}

func TestDiffers(t *testing.T) {
	other := rollout.Version{Number: 9, Image: "ami-b", Config: "sha256:2", Type: "m7i.xlarge", Rest: "x"}
	if diff := cmp.Diff([]string{"image", "configuration", "instance type", "disk, network or profile"}, v1.Differs(other)); diff != "" {
		t.Error(diff)
	}
	if got := v1.Differs(rollout.Version{Number: 9, Image: "ami-a", Config: "sha256:1", Type: "m7i.large"}); len(got) > 0 {
		t.Errorf("another number alone: %v", got)
	}
	disk := rollout.Version{Number: 2, Rest: "x"}
	if got := disk.Differs(rollout.Version{Number: 3, Rest: "x"}); len(got) > 0 {
		t.Errorf("the same disk: %v", got)
	}
}

func TestPrevious(t *testing.T) {
	same := v2
	same.Number = 3
	v0 := rollout.Version{Number: 4, Image: "ami-z"}
	if v, ok := rollout.Previous([]rollout.Version{v2, same, v1, v0}, same); !ok || v != v1 {
		t.Errorf("before 3: %+v, %v", v, ok)
	}
	if v, ok := rollout.Previous([]rollout.Version{{Number: 2, Image: "ami-c"}, v1}, same); !ok || v.Number != 2 {
		t.Errorf("the newest before 3: %+v, %v", v, ok)
	}
	if v, ok := rollout.Previous([]rollout.Version{v1, v0}, v1); ok {
		t.Errorf("before the first: %+v", v)
	}
}

func TestRefuse(t *testing.T) {
	lone := rollout.State{Cluster: "demo", Groups: []rollout.Group{group("masters", both, machine("i-m", v1)), group("minions", minions, machine("i-w", v1))}}
	one := rollout.State{Cluster: "demo", Groups: []rollout.Group{group("masters", both, machine("i-m", v1))}}
	launches := func(s rollout.State, key string) rollout.State {
		return of(s, key, func(g *rollout.Group) { g.Launches = v1 })
	}
	two := three(v1)
	two.Groups = two.Groups[:4]
	for i := range two.Groups {
		two.Groups[i].Members = []string{"a", "b"}
	}
	for _, tt := range []struct {
		name       string
		state      rollout.State
		only, lose string
		want       []string // parts of the error; none: allowed
	}{
		{"the one member", lone, "", "", []string{"masters: it is all of etcd", "safe: minions"}},
		{"the one member, with a name", of(one, "masters", func(g *rollout.Group) { g.Member, g.Members = "a", []string{"a"} }), "", "", []string{"masters: it is all of etcd"}},
		{"the one member, with leave", lone, "", "masters", nil},
		{"the one member by AutoScaling's name", lone, "", "demo-masters", nil},
		{"what is safe", lone, "minions", "", nil},
		{"three members", three(v1), "", "", []string{"etcd-a: etcd goes on with 2 of 3", "etcd-c:", "takes the member's place by itself", "safe: masters minions"}},
		{"three members, and minions that are as wanted", fresh("i-w1", "i-w2")(three(v1)), "", "", []string{"safe: masters."}},
		{"three members, and minions that are, but for the next one", launches(fresh("i-w1", "i-w2")(three(v1)), "minions"), "", "", []string{"safe: masters minions"}},
		{"no machine of etcd, but the next one", launches(three(v2), "etcd-a"), "", "", nil},
		{"three members, leave for one", three(v1), "", "etcd-a", []string{"etcd-b: ", "etcd-c: "}},
		{"one of three, with leave", three(v1), "etcd-a", "etcd-a", nil},
		{"two members", two, "etcd-a", "", []string{"of two members each is needed", "nothing else is to be replaced"}},
		{"members that are as wanted", fresh("i-a", "i-b", "i-c")(three(v1)), "", "", nil},
		{"volumes that outlive machines", durable(), "", "", nil},
		{"a group that there is not", three(v1), "workers", "", []string{`group "workers" is not one of demo: the groups are etcd-a, etcd-b, etcd-c, masters, minions`}},
		{"leave for a group that there is not", three(v1), "minions", "etcd-d", []string{`group "etcd-d"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := rollout.Refuse(tt.state, strings.Fields(tt.only), strings.Fields(tt.lose))
			if (err != nil) != (len(tt.want) > 0) {
				t.Fatalf("%v", err)
			}
			text := fmt.Sprint(err)
			if refusal := (*rollout.Refusal)(nil); errors.As(err, &refusal) {
				if !strings.HasPrefix(text, "replacing machines of etcd") || strings.Contains(text, "nothing else") != (len(refusal.Safe) == 0) {
					t.Errorf("%s\nwhile %v is safe", text, refusal.Safe)
				}
				text += "\nsafe: " + strings.Join(refusal.Safe, " ") + "."
			}
			for _, part := range tt.want {
				if !strings.Contains(text, part) {
					t.Errorf("%s\nwants %s", text, part)
				}
			}
		})
	}
}
