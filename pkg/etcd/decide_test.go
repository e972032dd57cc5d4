package etcd

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// good are the facts of a member with data of epoch 2, which is formed, mounted and standing still.
func good(storage Storage) Facts {
	f := base(storage)
	f.Disk = Disk{Mounted: true, WAL: true, Marker: &Marker{Cluster: "demo", Member: "b", Epoch: 2, MemberID: member, ClusterID: cluster}}
	f.Store = Store{Answers: true, Epoch: 2, Begin: &Begin{Token: theToken, Members: peers}, Outcome: &Outcome{Formed: &Formed{ClusterID: cluster, Members: map[string]ID{"a": 1, "b": member, "c": 3}}}}
	if storage != StorageMachine {
		f.Volumes = Volumes{Known: true, Claims: []Volume{{ID: "vol-1", Holder: "i-me", State: "running", Device: "/dev/nvme1n1"}}}
		f.Disk.On, f.Disk.UUID, f.Disk.Volume, f.Disk.Marker.Volume = OnExt4, "u", "vol-1", "vol-1"
		f.Store.Made, f.Store.Used = &Made{Member: "b", UUID: "u"}, &Used{Epoch: 2, How: ByStart}
	}
	return f
}

// The changes from the good facts, by what has happened.
func unmounted(f *Facts) { f.Disk = Disk{On: OnExt4, UUID: "u"} }

func device(on On) func(*Facts) {
	return func(f *Facts) { f.Disk, f.Store.Made, f.Store.Used = Disk{On: on}, nil, nil }
}

func forming(f *Facts) { f.Store.Outcome = nil }

func noData(f *Facts) { f.Disk.WAL, f.Disk.Marker = false, nil }

func runs(f *Facts) {
	f.Etcd = Process{Running: true, Clients: Open, Reads: true, ReadsFor: time.Second}
	f.List = listFacts()[3]
}

func TestRows(t *testing.T) {
	type change = func(*Facts)
	all := []Storage{StorageVolume, StorageDisk, StorageMachine}
	disks, cloud := all[:2], all[:1]
	claim := func(v Volume) change { return func(f *Facts) { unmounted(f); f.Volumes.Claims = []Volume{v} } }
	for _, c := range []struct {
		name string
		on   []Storage
		do   []change
		want Row
	}{
		{"the cloud is silent", cloud, []change{unmounted, func(f *Facts) { f.Volumes = Volumes{} }}, V0Silent},
		{"the cloud is silent after the mount", cloud, []change{func(f *Facts) { f.Volumes = Volumes{} }}, D1Formed},
		{"no volume", cloud, []change{unmounted, func(f *Facts) { f.Volumes.Claims = nil }}, V1None},
		{"two volumes", cloud, []change{func(f *Facts) { f.Volumes.Claims = append(f.Volumes.Claims, Volume{ID: "vol-2"}) }}, V2Many},
		{"a free volume", cloud, []change{claim(Volume{ID: "vol-1", Free: true})}, V3Free},
		{"a volume that is being made", cloud, []change{claim(Volume{ID: "vol-1", State: "creating"})}, V4Held},
		{"another machine's volume", cloud, []change{claim(Volume{ID: "vol-1", Holder: "i-other", State: "shutting-down"})}, V4Held},
		{"no device yet", disks, []change{claim(Volume{ID: "vol-1", Holder: "i-me"})}, V5Device},
		{"the document's disk is not there", []Storage{StorageDisk}, []change{unmounted, func(f *Facts) { f.Volumes = Volumes{} }}, V5Device},
		{"no store", all, []change{func(f *Facts) { f.Store = Store{} }}, E1Store},
		{"no store, before the mount", disks, []change{unmounted, func(f *Facts) { f.Store = Store{} }}, E1Store},
		{"unreadable", disks, []change{device(OnUnknown)}, F0Unread},
		{"blank", disks, []change{device(OnBlank)}, F1Blank},
		{"half made", disks, []change{device(OnScraps), func(f *Facts) { f.Store.Made = &Made{Member: "b", UUID: "u"} }}, F2Half},
		{"blank, recorded and never used", disks, []change{device(OnBlank), func(f *Facts) { f.Store.Made = &Made{Member: "b", UUID: "u"} }}, F2Half},
		{"blank and used", disks, []change{device(OnBlank), func(f *Facts) {
			f.Store.Made, f.Store.Used = &Made{Member: "b", UUID: "u"}, &Used{Epoch: 1, How: ByStart}
		}}, F3Lost},
		{"destroyed", disks, []change{device(OnScraps), func(f *Facts) {
			f.Store.Made, f.Store.Used = &Made{Member: "b", UUID: "u"}, &Used{Epoch: 1, How: ByStart}
		}}, F3Lost},
		{"not blank, without a record", disks, []change{device(OnScraps)}, F5Foreign},
		{"another system's", disks, []change{device(OnOther)}, F5Foreign},
		{"a copy of a volume", disks, []change{unmounted, func(f *Facts) { f.Store.Made, f.Store.Used = nil, nil }}, F5Foreign},
		{"another member's", disks, []change{unmounted, func(f *Facts) { f.Store.Made = &Made{Member: "c", UUID: "u"} }}, F5Foreign},
		{"damaged", disks, []change{unmounted, func(f *Facts) { f.Disk.Damaged = true }}, F5Foreign},
		{"another member's marker", disks, []change{func(f *Facts) { f.Disk.Marker.Member = "c" }}, F5Foreign},
		{"another cluster's marker", disks, []change{func(f *Facts) { f.Disk.Marker.Cluster = "test" }}, F5Foreign},
		{"ours", disks, []change{unmounted}, F4Ours},
		{"an older store", all, []change{func(f *Facts) { f.Disk.Marker.Epoch = 3 }}, E3Older},
		{"another store, without an epoch", all, []change{func(f *Facts) { f.Store.Epoch, f.Store.Begin, f.Store.Outcome = 0, nil, nil }}, E3Older},
		{"no epoch", all, []change{noData, func(f *Facts) { f.Store.Epoch, f.Store.Begin, f.Store.Outcome = 0, nil, nil }}, E2Begin},
		{"a log without a marker", all, []change{func(f *Facts) { f.Disk.Marker = nil }}, E5Unmarked},
		{"a broken marker", all, []change{noData, func(f *Facts) { f.Disk.MarkerBroken = true }}, E5Unmarked},
		{"a restore while it was away", all, []change{func(f *Facts) { f.Disk.Marker.Epoch = 1 }}, E4Epoch},
		{"an abandoned epoch", all, []change{func(f *Facts) { f.Store.Outcome = &Outcome{Abandoned: "why"} }}, N6Next},
		{"another cluster's data", all, []change{func(f *Facts) { f.Disk.Marker.ClusterID = 9 }}, E6Other},
		{"removed while it was away", all, []change{func(f *Facts) { f.List = listFacts()[6] }}, D3Removed},
		{"names lead to another cluster, which does not know it", all, []change{func(f *Facts) { f.List = listFacts()[1] }}, D1Formed},
		{"a normal start", all, []change{}, D1Formed},
		{"a machine that ended in the first start", all, []change{forming}, D2Forming},
		{"a wiped member", all, []change{noData}, J1Empty},
		{"scaled up too early", all, []change{noData, forming, func(f *Facts) { f.Store.Begin = &Begin{Token: theToken, Members: peers[:1]} }}, N0Stranger},
		{"another document", all, []change{noData, forming, func(f *Facts) { f.Store.Begin = &Begin{Token: theToken, Members: otherURL} }}, N0Address},
		{"a restore", all, []change{noData, forming, func(f *Facts) { f.Store.Begin = &Begin{Token: theToken, Members: peers, Restore: &Restore{}} }}, R1Fetch},
		{"a first start", all, []change{noData, forming}, N1Claim},
		{"a first start, claimed", all, []change{noData, forming, claimed}, N1Start},
		{"a first start, claimed before a restart", all, []change{noData, forming, claimed, func(f *Facts) { f.Attempt = "" }}, N2Abandon},
		{"claimed for another volume", disks, []change{noData, forming, claimed, func(f *Facts) { f.Store.Started.Volume = "vol-9" }}, N2Abandon},
		{"running", all, []change{runs}, SRuns},
		{"running without a store", all, []change{runs, func(f *Facts) { f.Store = Store{} }}, SRuns},
		{"running while volumes are added", cloud, []change{runs, func(f *Facts) { f.Volumes.Claims = nil }}, SRuns},
		{"running, and a read of the store is old", all, []change{runs, func(f *Facts) { f.Disk.Marker.Epoch = 3 }}, SRuns},
		{"running with the flags of its first start", all, []change{runs, func(f *Facts) { f.Etcd.Start = New; f.Store = Store{} }}, S1Seal},
		{"its disk has gone", disks, []change{runs, func(f *Facts) { f.Etcd.Failing = true; f.Disk = Disk{} }}, S2Gone},
		{"its log has gone", all, []change{runs, func(f *Facts) { f.Etcd.Failing = true; f.Disk.WAL = false }}, S2Gone},
		{"a first start that fails", all, []change{runs, forming, func(f *Facts) {
			f.Etcd = Process{Running: true, Failing: true, Start: New}
			f.Disk.WAL, f.List = false, nil
		}}, N4Wait},
		{"a restore while it runs", all, []change{runs, func(f *Facts) { f.Disk.Marker.Epoch = 1 }}, E4Epoch},
		{"the first two of three", all, []change{runs, forming, func(f *Facts) { f.List = listFacts()[4] }}, N4Wait},
		{"the first two of three, ten minutes on", all, []change{runs, forming, func(f *Facts) { f.List, f.Etcd.ReadsFor = listFacts()[4], FormAfter }}, N3Form},
		{"all three", all, []change{runs, forming}, N3Form},
		{"all three, and the old epoch has a quorum", all, []change{runs, forming, func(f *Facts) {
			f.Store.Begin = &Begin{Token: theToken, Members: peers, Previous: []string{"b", "c", "d", "e", "f"}, Off: []string{"g"}}
		}}, N4Wait},
		{"all three, and one of the old epoch is off", all, []change{runs, forming, func(f *Facts) {
			f.Store.Begin = &Begin{Token: theToken, Members: peers, Previous: []string{"b", "c", "d", "e", "f"}, Off: []string{"f"}}
		}}, N3Form},
		{"all three, formed", all, []change{runs, func(f *Facts) { f.Etcd.Clients = Closed }}, N5Open},
		{"all three, abandoned", all, []change{runs, func(f *Facts) { f.Store.Outcome = &Outcome{Abandoned: "why"} }}, N6Next},
		{"removed", all, []change{runs, func(f *Facts) { f.List = listFacts()[6] }}, D3Removed},
		{"a learner", all, []change{runs, learns}, J2Learner},
		{"a learner that panics", all, []change{runs, learns, panics}, S4Broken},
		{"a learner that has panicked less often", all, []change{runs, learns, panics, func(f *Facts) { f.Etcd.Panics-- }}, J2Learner},
		{"a voter that panics", all, []change{runs, panics}, SRuns},
		{"a first voter that panics, and is called a learner", all, []change{runs, learns, panics, func(f *Facts) { f.Store.Outcome.Formed.Members["b"] = member }}, J2Learner},
		{"a member that panics, and nobody says what it is", all, []change{runs, learns, panics, func(f *Facts) { f.List = nil }}, SRuns},
		{"a member that panics, and another cluster calls it a learner", all, []change{runs, learns, panics, func(f *Facts) { f.List.ClusterID = 9 }}, SRuns},
		{"a learner that panicked, halted", all, []change{learns, broken}, D4Broken},
		{"a learner that panicked, promoted meanwhile", all, []change{learns, broken, func(f *Facts) { f.List = listFacts()[3] }}, D1Formed},
		{"a learner that panicked, and nobody says what it is now", all, []change{learns, broken, func(f *Facts) { f.List = nil }}, D1Formed},
		{"a learner that panicked, and a new one is there", all, []change{learns, broken, func(f *Facts) { f.Broken = 99 }}, D1Formed},
		{"a learner that did not panic", all, []change{learns}, D1Formed},
	} {
		for _, storage := range c.on {
			f := good(storage)
			for _, do := range c.do {
				do(&f)
			}
			if a := Decide(f); a.Row != c.want {
				t.Errorf("%s, storage %d: row %s (%s), want %s (%s)", c.name, storage, a.Row, rows[a.Row].when, c.want, rows[c.want].when)
			}
		}
	}
}

// learns lets the member be one that has joined, and has no vote.
func learns(f *Facts) {
	f.List = listFacts()[5]
	f.Store.Outcome = &Outcome{Formed: &Formed{ClusterID: cluster, Members: map[string]ID{"a": 1, "b": 2, "c": 3}}}
}

func panics(f *Facts) { f.Etcd.Failing, f.Etcd.Reads, f.Etcd.Panics = true, false, PanicsBefore }

func broken(f *Facts) { f.Broken = member }

func claimed(f *Facts) {
	f.Attempt = "mine"
	f.Store.Started = &Started{Volume: f.volume(), Instance: "i-me", Attempt: "mine"}
}

func TestEnvironment(t *testing.T) {
	f := good(StorageMachine)
	f.List = &List{ClusterID: cluster, Members: []Member{{ID: 1, Name: "a", PeerURL: "https://a:2380"}, {ID: 7, PeerURL: url, Learner: true}, {ID: 3, Name: "c", PeerURL: "https://c:2380"}}}
	const (
		three  = "ETCD_INITIAL_CLUSTER=a=https://a:2380,b=https://b:2380,c=https://c:2380"
		alone  = "ETCD_INITIAL_CLUSTER=b=https://b:2380"
		closed = "ETCD_LISTEN_CLIENT_URLS=https://127.0.0.2:2379"
		fresh  = "ETCD_INITIAL_CLUSTER_STATE=new"
		exists = "ETCD_INITIAL_CLUSTER_STATE=existing"
		of     = "ETCD_INITIAL_CLUSTER_TOKEN=" + theToken
	)
	seal := good(StorageMachine)
	runs(&seal)
	seal.Etcd.Start = Joining
	for name, c := range map[string]struct {
		got  []string
		want []string
	}{
		"first":  {N1Start.action().Environment(f), []string{"ETCD_NAME=b", three, fresh, of, closed}},
		"data":   {D1Formed.action().Environment(f), []string{"ETCD_NAME=b", alone, exists}},
		"formed": {N5Open.action().Environment(f), []string{"ETCD_NAME=b", alone, exists}},
		"again":  {D2Forming.action().Environment(f), []string{"ETCD_NAME=b", alone, exists, closed}},
		"seal":   {Decide(seal).Environment(seal), []string{"ETCD_NAME=b", alone, exists}},
		"join":   {JoinAction{Do: JoinStart, ID: 7}.Environment(f), []string{"ETCD_NAME=b", "ETCD_INITIAL_CLUSTER=b=https://b:2380,a=https://a:2380,c=https://c:2380", exists, of}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

// TestExplanations has what people are told in the cases that name something.
func TestExplanations(t *testing.T) {
	held := good(StorageVolume)
	unmounted(&held)
	held.Volumes.Claims = []Volume{{ID: "vol-1", Holder: "i-other", State: "shutting-down"}}
	two := good(StorageVolume)
	two.Volumes.Claims = append(two.Volumes.Claims, Volume{ID: "vol-2"})
	copied := good(StorageVolume)
	unmounted(&copied)
	copied.Store.Made = nil
	marked := good(StorageVolume)
	marked.Disk.Marker.Member = "c"
	older := good(StorageVolume)
	older.Disk.Marker.Epoch = 5
	lost := good(StorageVolume)
	device(OnBlank)(&lost)
	lost.Store.Made, lost.Store.Used = &Made{Member: "b", UUID: "u"}, &Used{Epoch: 1, How: ByStart}
	for _, c := range []struct {
		facts       Facts
		cause, next string
	}{
		{held, "volume vol-1 is held by i-other, which is shutting-down", "never detached by force"},
		{two, "volumes vol-1, vol-2 all claim member b", "take the tags off"},
		{copied, "volume vol-1: it is not blank, and no record says", "hardtack etcd replace b"},
		{marked, "volume vol-1: its marker is of member c of cluster demo on volume vol-1", "put the member's own volume back"},
		{older, "the data are of epoch 5, the store's newest is 2", "put the cluster's records back"},
		{lost, "volume vol-1: it had this member's data and has lost its file system", "hardtack etcd replace b"},
	} {
		a := Decide(c.facts)
		if e := a.Explain(c.facts); !strings.Contains(e.Cause, c.cause) || !strings.Contains(e.Next, c.next) || e.Reason == "" {
			t.Errorf("row %s: %+v, want %q and %q", a.Row, e, c.cause, c.next)
		}
	}
}

// TestJoinSteps follows one replacement from the empty disk to the vote.
func TestJoinSteps(t *testing.T) {
	j := JoinFacts{Facts: good(StorageVolume), Backups: true, BackupAge: -1}
	f := &j.Facts
	noData(f)
	f.Store.Used = nil
	well := []Voter{{ID: 1, ClusterID: cluster, Leader: 1, LeaderFor: LeaderFor}, {ID: 3, ClusterID: cluster, Leader: 1, LeaderFor: LeaderFor}}
	without := listFacts()[6]
	added := &List{ClusterID: cluster, Members: append([]Member{{ID: 7, PeerURL: url, Learner: true}}, without.Members...)}
	for _, step := range []struct {
		name   string
		change func()
		want   JoinAction
	}{
		{"nobody answers", func() {}, JoinAction{Why: NoQuorum}},
		{"they answer", func() { f.List = listFacts()[3] }, JoinAction{Do: JoinLock}},
		{"another has the lock", func() { j.Lock = LockOthers }, JoinAction{Why: Locked}},
		{"locked", func() { j.Lock = LockMine }, JoinAction{Why: VoterSilent}},
		{"the others are well", func() { j.Voters = well }, JoinAction{Why: StillAnswers}},
		{"the old member is silent", func() { j.Silent = SilentFor }, JoinAction{Do: JoinBackup}},
		{"backed up", func() { j.BackupAge = 0 }, JoinAction{Do: JoinRemove, ID: member}},
		{"removed", func() { f.List = without }, JoinAction{Do: JoinAdd}},
		{"added, and the answer is lost", func() { f.List = added }, JoinAction{Do: JoinRemove, ID: 7}},
		{"added", func() { j.Added = 7 }, JoinAction{Do: JoinRecord, ID: 7}},
		{"marked, and not recorded", func() {
			f.Disk.Marker = &Marker{Cluster: "demo", Member: "b", Epoch: 2, Volume: "vol-1", MemberID: 7, ClusterID: cluster}
		}, JoinAction{Do: JoinRecord, ID: 7}},
		{"recorded", func() { f.Store.Used = &Used{Epoch: 2, How: ByJoin} }, JoinAction{Do: JoinStart, ID: 7}},
		{"the machine restarts before the log", func() { j.Added = 0 }, JoinAction{Do: JoinRemove, ID: 7}},
		{"it runs", func() { f.Disk.WAL, f.Etcd.Running = true, true }, JoinAction{Why: CatchingUp}},
		{"it has not everything", func() { j.Target, j.Own = 100, &Own{ID: 7, Learner: true, Applied: 99} }, JoinAction{Why: CatchingUp}},
		{"it has everything", func() { j.Own.Applied = 100 }, JoinAction{Do: JoinPromote, ID: 7}},
		{"it votes", func() {
			f.List = &List{ClusterID: cluster, Members: append([]Member{{ID: 7, Name: "b", PeerURL: url, Started: true}}, without.Members...)}
		}, JoinAction{Do: JoinDone}},
	} {
		step.change()
		if got := DecideJoin(j); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
}
