package etcd

import (
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// The product of all facts, each with the values that may matter. What is asserted is said by the rules of the package
// comment, not by the rows.

const (
	theToken = "token-of-2"
	url      = "https://b:2380"
)

var (
	peers    = []Peer{{"a", "https://a:2380"}, {"b", url}, {"c", "https://c:2380"}}
	cluster  = ClusterID(theToken, peers)
	member   = MemberID(theToken, url)
	otherURL = []Peer{{"a", "https://a:2380"}, {"b", "https://elsewhere:2380"}, {"c", "https://c:2380"}}
)

func base(storage Storage) Facts {
	return Facts{Cluster: "demo", Member: "b", PeerURL: url, Instance: "i-me", Storage: storage}
}

func volumeFacts() []Volumes {
	one := func(v Volume) Volumes { return Volumes{Known: true, Claims: []Volume{v}} }
	mine := Volume{ID: "vol-1", Holder: "i-me", State: "running", Device: "/dev/nvme1n1"}
	undetected := mine
	undetected.Device = ""
	return []Volumes{
		{},
		{Known: true},
		{Known: true, Claims: []Volume{mine, {ID: "vol-2", Free: true}}},
		one(Volume{ID: "vol-1", State: "available", Free: true}),
		one(Volume{ID: "vol-1", State: "creating"}),
		one(Volume{ID: "vol-1", Holder: "i-other", State: "running"}),
		one(undetected),
		one(mine),
	}
}

func diskFacts(storage Storage) (all []Disk) {
	volume := "vol-1"
	devices := []Disk{{}, {On: OnBlank}, {On: OnScraps}, {On: OnOther}, {On: OnExt4, UUID: "u"}, {On: OnExt4, UUID: "u", Damaged: true}, {On: OnExt4, UUID: "x"},
		{On: OnExt4, UUID: "u", Mounted: true}, {On: OnExt4, UUID: "x", Mounted: true}}
	if storage == StorageMachine {
		volume, devices = "", []Disk{{Mounted: true}}
	}
	ours := Marker{Cluster: "demo", Member: "b", Epoch: 2, Volume: volume, MemberID: member, ClusterID: cluster}
	markers := []*Marker{nil, &ours}
	for _, change := range []func(*Marker){
		func(m *Marker) { m.Epoch = 1 },
		func(m *Marker) { m.Epoch = 3 },
		func(m *Marker) { m.ClusterID = 9 },
		func(m *Marker) { m.Member = "c" },
		func(m *Marker) { m.Volume = "vol-9" },
	} {
		m := ours
		change(&m)
		markers = append(markers, &m)
	}
	for _, d := range devices {
		if !d.Mounted {
			all = append(all, d)
			continue
		}
		d.Volume = volume
		for _, d.WAL = range both {
			for _, d.Restored = range both {
				for _, d.Marker = range markers {
					all = append(all, d)
				}
				broken := d
				broken.Marker, broken.MarkerBroken = nil, true
				all = append(all, broken)
			}
		}
	}
	return all
}

var both = []bool{false, true}

func storeFacts(storage Storage) []Store {
	all := []Store{{}, {Answers: true}}
	volume := "vol-1"
	if storage == StorageMachine {
		volume = ""
	}
	begins := []*Begin{{Token: theToken, Members: peers}, {Token: theToken, Members: peers[:1]}, {Token: theToken, Members: otherURL}, {Token: theToken, Members: peers, Restore: &Restore{Object: "x"}},
		{Token: theToken, Members: peers, Previous: []string{"a", "b", "x", "y", "z"}}}
	starteds := []*Started{nil, {Volume: volume, Instance: "i-me", Attempt: "mine"}, {Volume: "vol-9", Instance: "i-me", Attempt: "mine"}, {Volume: volume, Instance: "i-me", Attempt: "of another process"}}
	outcomes := []*Outcome{nil, {Formed: &Formed{ClusterID: cluster}}, {Formed: &Formed{ClusterID: cluster, Members: map[string]ID{"b": member}}}, {Abandoned: "why"}}
	mades := []*Made{nil, {Member: "b", UUID: "u"}, {Member: "c", UUID: "u"}}
	if storage == StorageMachine {
		mades = mades[:1]
	}
	for _, begin := range begins {
		for _, started := range starteds {
			for _, outcome := range outcomes {
				for _, made := range mades {
					for _, used := range []*Used{nil, {Epoch: 1, How: ByStart}} {
						all = append(all, Store{Answers: true, Epoch: 2, Begin: begin, Started: started, Outcome: outcome, Made: made, Used: used})
					}
				}
			}
		}
	}
	return all
}

func listFacts() []*List {
	a := Member{ID: 1, Name: "a", PeerURL: "https://a:2380", Started: true}
	b := Member{ID: member, Name: "b", PeerURL: url, Started: true}
	c := Member{ID: 3, Name: "c", PeerURL: "https://c:2380", Started: true}
	learner, late, elsewhere := b, c, b
	learner.Learner, late.Started, elsewhere.PeerURL = true, false, "https://127.0.0.1:2380"
	return []*List{nil, {ClusterID: 9, Members: []Member{a, c}}, {ClusterID: cluster}, {ClusterID: cluster, Members: []Member{a, b, c}}, {ClusterID: cluster, Members: []Member{a, b, late}},
		{ClusterID: cluster, Members: []Member{a, learner, c}}, {ClusterID: cluster, Members: []Member{a, c}},
		{ClusterID: cluster, Members: []Member{elsewhere}}, {ClusterID: cluster, Members: []Member{elsewhere, c}}}
}

func processFacts() (all []Process) {
	for _, clients := range []Clients{Closed, Open} {
		for _, start := range []Start{Sealed, New, Joining} {
			for _, failing := range both {
				p := Process{Running: true, Failing: failing, Clients: clients, Start: start}
				all = append(all, p)
				for _, p.Panics = range []int{PanicsBefore - 1, PanicsBefore} {
					if clients == Open && start == Sealed {
						all = append(all, p)
					}
				}
				p.Panics, p.Reads = 0, true
				all = append(all, p)
				p.ReadsFor = FormAfter
				all = append(all, p)
			}
		}
	}
	return all
}

func TestProductOfFacts(t *testing.T) {
	n, rowsSeen := 0, map[Row]int{}
	for f := range factProduct {
		n++
		a := Decide(*f)
		rowsSeen[a.Row]++
		if broken := brokenRule(f, a); broken != "" {
			t.Fatalf("%s: row %s (%s) for %+v, marker %+v, store %+v, list %+v", broken, a.Row, a.Do, *f, f.Disk.Marker, f.Store, f.List)
		}
	}
	t.Logf("%d rows of facts", n)
	for row := range rows {
		if rowsSeen[Row(row)] == 0 {
			t.Errorf("no facts lead to row %s: %s", Row(row), rows[row].when)
		}
	}
}

// TestRulesFindWrongVariants holds the rules themselves to the wrong procedures of the simulator.
func TestRulesFindWrongVariants(t *testing.T) {
	for _, v := range wrong {
		if v.decideAs == nil || v.byFacts == "" {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			for f := range factProduct {
				if broken := brokenRule(f, v.decide(*f)); broken != "" {
					if broken != v.byFacts {
						t.Errorf("it breaks the rule %q, not %q", broken, v.byFacts)
					}
					return
				}
			}
			t.Error("it breaks no rule")
		})
	}
}

func factProduct(yield func(*Facts) bool) {
	for _, storage := range []Storage{StorageVolume, StorageDisk, StorageMachine} {
		volumes := volumeFacts()
		switch storage {
		case StorageMachine:
			volumes = volumes[:1]
		case StorageDisk:
			volumes = volumes[len(volumes)-2:]
		case StorageVolume:
		}
		disks, stores := diskFacts(storage), storeFacts(storage)
		for _, disk := range disks {
			for i := range stores {
				f := base(storage)
				f.Disk, f.Store = disk, stores[i]
				for _, f.Attempt = range []string{"", "mine"} {
					if !factRest(&f, volumes, yield) {
						return
					}
				}
			}
		}
	}
}

func factRest(f *Facts, volumes []Volumes, yield func(*Facts) bool) bool {
	for _, f.List = range lists {
		for _, f.Broken = range []ID{0, member} {
			for _, f.Volumes = range volumes {
				if f.Broken != 0 && !f.Disk.WAL {
					continue
				}
				if !yield(f) {
					return false
				}
			}
		}
		f.Broken = member
		for _, f.Etcd = range processes {
			if !yield(f) {
				return false
			}
		}
		f.Etcd, f.Broken = Process{}, 0
	}
	return true
}

var lists, processes = listFacts(), processFacts()

// brokenRule returns the rule of the package that an action breaks; "" if it breaks none.
func brokenRule(f *Facts, a Action) string {
	d, s, m := &f.Disk, &f.Store, f.Disk.Marker
	formed := s.Outcome != nil && s.Outcome.Formed != nil
	undecided := s.Answers && s.Epoch > 0 && s.Outcome == nil
	starts := a.Do == First || a.Do == Run || a.Do == Reopen
	alone := f.Storage == StorageMachine || f.Storage == StorageDisk && len(f.Volumes.Claims) == 1 || len(f.Volumes.Claims) == 1 && f.Volumes.Claims[0].Holder == f.Instance || !f.Volumes.Known && d.Mounted
	ours := d.Mounted && (f.Storage == StorageMachine || s.Made != nil && s.Made.Member == f.Member && s.Made.UUID == d.UUID)
	mine := s.Started != nil && f.Attempt != "" && s.Started.Attempt == f.Attempt && s.Started.Volume == f.volume()
	left := formed && f.List != nil && f.List.ClusterID == cluster && len(f.List.Members) > 0 && !slices.ContainsFunc(f.List.Members, func(l Member) bool { return l.ID == member })
	learner := formed && s.Outcome.Formed.Members["b"] != member && f.List != nil && f.List.ClusterID == cluster && slices.ContainsFunc(f.List.Members, func(l Member) bool { return l.ID == member && l.Learner })
	for _, rule := range []struct {
		text string
		kept bool
	}{
		{"only a first start is new", (a.Start == New) == (a.Do == First) || a.Do == Rewrite},
		{"a decision joins nobody by itself", a.Start != Joining},
		{"a first start follows its own record, on an empty directory of an undecided epoch", a.Do != First || undecided && mine && !d.WAL && !f.Etcd.Running && ours && alone},
		{"a first start is one of the epoch's members, at its address", a.Do != First || slices.Contains(s.Begin.Members, Peer{f.Member, f.PeerURL})},
		{"a first start of a restored epoch has what it restores", a.Do != First || s.Begin.Restore == nil || d.Restored},
		{"any other start has a log of this epoch", a.Do != Run || s.Answers && d.WAL && m != nil && m.Epoch == s.Epoch && ours && alone},
		{"clients come in only when the epoch is formed", !starts || a.Clients == Closed || s.Answers && formed},
		{"what runs is restarted only to let clients in", a.Do != Reopen || f.Etcd.Clients == Closed && formed},
		{"only what stands still is started", a.Do != Run || !f.Etcd.Running},
		{"a file system is made only where nothing is and nothing was", a.Do != Format || s.Answers && s.Used == nil && s.Made != nil && s.Made.Member == f.Member && (d.On == OnBlank || d.On == OnScraps) && alone},
		{"a file system's record is made only for a blank device", a.Do != Make || s.Answers && s.Used == nil && s.Made == nil && d.On == OnBlank && alone},
		{"only the one free volume is attached", a.Do != Attach || f.Storage == StorageVolume && len(f.Volumes.Claims) == 1 && f.Volumes.Claims[0].Free && f.Volumes.Claims[0].Holder == ""},
		{discards, a.Do != Discard || s.Answers && m != nil && (m.Epoch < s.Epoch || m.Epoch == s.Epoch && (left || learner && f.Broken == m.MemberID && !f.Etcd.Running && d.WAL && ours && alone))},
		{halts, a.Do != Halt || f.Etcd.Failing && f.gone() || learner && f.Etcd.Panics >= PanicsBefore},
		{"a store that does not answer decides nothing", s.Answers || slices.Contains([]Do{Wait, Stop, Attach, Report, Rewrite, Halt}, a.Do)},
		{"an outcome is made only where there is none", a.Do != Form && a.Do != Abandon || undecided},
		{"a start is given up only by who may have lost it", a.Do != Abandon || !d.WAL && !f.Etcd.Running && s.Started != nil && !mine},
		{"formed is said by a member that reads", a.Do != Form || f.Etcd.Running && f.Etcd.Reads && f.List != nil && f.List.ClusterID == cluster},
		{"formed waits for a quorum to leave the epoch before", a.Do != Form || len(s.Begin.Previous) == 0},
		{"an epoch begins after an abandoned one", a.Do != NextEpoch || s.Answers && s.Outcome != nil && !formed},
		{"an address is changed by the only member, and only its own", a.Do != Advertise || f.Etcd.Running && formed && m != nil && len(f.List.Members) == 1 && f.List.ClusterID == cluster && f.List.Members[0].ID == m.MemberID},
		{"a cluster is joined without data, or as a learner", a.Do != Join || s.Answers && formed && (!d.WAL && !f.Etcd.Running && ours && alone || f.Etcd.Running)},
		{"who waits says why", explains(f, a)},
	} {
		if !rule.kept {
			return rule.text
		}
	}
	return ""
}

func explains(f *Facts, a Action) bool {
	if a.Do != Wait && a.Do != Stop && a.Do != Join {
		return true
	}
	r := &rows[a.Row]
	return slices.Contains(reasons, reason.Reason(r.reason)) && r.when != "" && (a.Do == Wait && r.reason == byStore || a.Do == Join || r.next != "") && cause(a.Row, *f) != ""
}

var reasons = reason.All()
