package etcd

import "time"

//go:generate go test -run TestReadme -update .

// FormAfter is how long a quorum waits for the other members of a first start before it forms the cluster without them.
const FormAfter = 10 * time.Minute

// PanicsBefore is after how many panics in a row a learner's data are given up.
const PanicsBefore = 5

// Decide returns the next step for what is seen. The rows are looked at in the order of the table, each with its reason
// there.
func Decide(f Facts) Action {
	a := decide(&f).action()
	if a.Do == Rewrite {
		a.Clients = f.Etcd.Clients
	}
	return a
}

func decide(f *Facts) Row {
	if f.Etcd.Running {
		return running(f)
	}
	if f.Storage != StorageMachine {
		if row, found := volume(f); found {
			return row
		}
	}
	if !f.Store.Answers {
		return E1Store
	}
	if f.Storage != StorageMachine {
		if row, found := fileSystem(f); found {
			return row
		}
	}
	if row, found := epoch(f); found {
		return row
	}
	if f.Disk.WAL {
		return data(f)
	}
	return empty(f)
}

// volume looks whether this machine has the member's one volume. A mounted one has been found before; it is enough where
// the cloud does not answer.
func volume(f *Facts) (row Row, found bool) {
	if f.Storage == StorageDisk {
		return V5Device, !f.Disk.Mounted && (len(f.Volumes.Claims) != 1 || f.Volumes.Claims[0].Device == "")
	}
	v := &f.Volumes
	switch {
	case !v.Known:
		return V0Silent, !f.Disk.Mounted
	case len(v.Claims) == 0:
		return V1None, true
	case len(v.Claims) > 1:
		return V2Many, true
	}
	switch c := &v.Claims[0]; {
	case c.Holder == "" && c.Free:
		return V3Free, true
	case c.Holder != f.Instance:
		return V4Held, true
	default:
		return V5Device, c.Device == ""
	}
}

// fileSystem looks whether the volume has the file system that this member made, and never makes one where there was one.
func fileSystem(f *Facts) (row Row, found bool) {
	d, made := &f.Disk, f.Store.Made
	ours := made != nil && made.Member == f.Member
	switch {
	case d.Mounted:
		m := d.Marker
		foreign := !ours || d.UUID != made.UUID || m != nil && (m.Cluster != f.Cluster || m.Member != f.Member || m.Volume != f.volume())
		return F5Foreign, foreign
	case d.On == OnUnknown:
		return F0Unread, true
	case made != nil && !ours:
		return F5Foreign, true
	case (d.On == OnBlank || d.On == OnScraps) && f.Store.Used != nil:
		return F3Lost, true
	case d.On == OnBlank && made == nil:
		return F1Blank, true
	case (d.On == OnBlank || d.On == OnScraps) && ours:
		return F2Half, true
	case d.On == OnExt4 && ours && d.UUID == made.UUID && !d.Damaged:
		return F4Ours, true
	}
	return F5Foreign, true
}

// epoch looks whether the data are of the store's epoch.
func epoch(f *Facts) (row Row, found bool) {
	d, s := &f.Disk, &f.Store
	switch {
	case d.MarkerBroken:
		return E5Unmarked, true
	case d.Marker != nil && d.Marker.Epoch > s.Epoch:
		return E3Older, true
	case s.Epoch == 0:
		return E2Begin, true
	case d.WAL && d.Marker == nil:
		return E5Unmarked, true
	case d.WAL && d.Marker.Epoch < s.Epoch:
		return E4Epoch, true
	case s.Outcome != nil && s.Outcome.Formed == nil:
		return N6Next, true
	}
	return 0, false
}

// data decides for data of the store's epoch.
func data(f *Facts) Row {
	switch {
	case f.Store.Outcome == nil:
		return D2Forming
	case f.otherCluster():
		return E6Other
	case f.removed():
		return D3Removed
	case f.Broken != 0 && f.Broken == f.Disk.Marker.MemberID && f.learns():
		return D4Broken
	}
	return D1Formed
}

// empty decides for a directory without data. A record that is read allows no start; one that this process created does.
func empty(f *Facts) Row {
	s := &f.Store
	if s.Outcome != nil {
		return J1Empty
	}
	switch peer, first := s.Begin.peer(f.Member); {
	case !first:
		return N0Stranger
	case peer.URL != f.PeerURL:
		return N0Address
	}
	switch mine := f.attempted(); {
	case s.Started != nil && !mine:
		return N2Abandon
	case s.Begin.Restore != nil && !f.Disk.Restored:
		return R1Fetch
	case mine:
		return N1Start
	}
	return N1Claim
}

// attempted reports whether this very process created the record that the member starts, for this volume.
func (f *Facts) attempted() bool {
	started := f.Store.Started
	return started != nil && f.Attempt != "" && started.Attempt == f.Attempt && started.Volume == f.volume()
}

// running decides for a member that runs. Nothing but a new epoch, or a cluster that has removed it, stops one: not a
// store that does not answer, and not a volume that seems to have gone.
func running(f *Facts) Row {
	s, m := &f.Store, f.Disk.Marker
	switch {
	case f.Etcd.Start != Sealed && f.Disk.WAL:
		return S1Seal
	case f.Etcd.Failing && f.gone():
		return S2Gone
	case f.Disk.Mounted && f.Disk.WAL && m == nil && !f.Disk.MarkerBroken:
		return E5Unmarked
	case !s.Answers || m == nil || m.Epoch > s.Epoch:
		return SRuns
	case m.Epoch < s.Epoch:
		return E4Epoch
	case s.Outcome == nil && f.ready():
		return N3Form
	case s.Outcome == nil:
		return N4Wait
	case s.Outcome.Formed == nil:
		return N6Next
	case f.otherCluster():
		return E6Other
	case f.removed():
		return D3Removed
	case f.Etcd.Clients == Closed:
		return N5Open
	case f.moved():
		return S3Address
	}
	switch {
	case f.learns() && f.Etcd.Panics >= PanicsBefore && f.Disk.WAL:
		return S4Broken
	case f.learning():
		return J2Learner
	}
	return SRuns
}

// learning reports whether the cluster has the member as a learner.
func (f *Facts) learning() bool {
	own := f.List.byID(f.Disk.Marker.MemberID)
	return own != nil && own.Learner && f.current()
}

// learns reports whether the member is a learner by the cluster's list, and was none of its first voters by the record. etcd
// makes no learner of a voter, so that the ID has never had a vote, and no write was ever acknowledged because it has it. Who
// stands still while the list is read adds nothing to that: a promotion that comes late makes a voter of it that is away.
func (f *Facts) learns() bool {
	for _, first := range f.Store.Outcome.Formed.Members {
		if first == f.Disk.Marker.MemberID {
			return false
		}
	}
	return f.learning()
}

// moved reports whether the cluster has its only member at another address than the machine offers: it had no name that others
// reach, and its cluster is now to have more members. With others the address would be one that they use, and is left.
func (f *Facts) moved() bool {
	own := f.List.byID(f.Disk.Marker.MemberID)
	return own != nil && f.current() && len(f.List.Members) == 1 && own.PeerURL != f.PeerURL
}

// gone reports whether what etcd was started on is no longer there: as it is, it would fail for ever.
func (f *Facts) gone() bool {
	d := &f.Disk
	return !d.Mounted || d.Marker == nil && !d.MarkerBroken || !d.WAL && f.Etcd.Start == Sealed
}

// otherCluster reports whether the marker is of another cluster than the one that was formed.
func (f *Facts) otherCluster() bool {
	return f.Disk.Marker.ClusterID != f.Store.Outcome.Formed.ClusterID
}

// current reports whether the list is of the cluster that was formed: DNS may name members of another one.
func (f *Facts) current() bool {
	return f.List != nil && f.List.ClusterID == f.Store.Outcome.Formed.ClusterID
}

// removed reports whether the cluster no longer has the member whose data these are.
func (f *Facts) removed() bool {
	return f.current() && len(f.List.Members) > 0 && f.List.byID(f.Disk.Marker.MemberID) == nil
}

// ready reports whether the first start has succeeded: enough members have started, and so many voters have left the epoch
// before that what is left of it cannot commit anything.
func (f *Facts) ready() bool {
	b := f.Store.Begin
	if !f.Etcd.Reads || f.List == nil || f.List.ClusterID != ClusterID(b.Token, b.Members) {
		return false
	}
	return enough(f.List, b, f.Etcd.ReadsFor) && left(f.List, b)
}

func enough(l *List, b *Begin, reads time.Duration) bool {
	n := 0
	for _, m := range b.Members {
		if l.started(m.Name) {
			n++
		}
	}
	return n == len(b.Members) || n >= Quorum(len(b.Members)) && reads >= FormAfter
}

func left(l *List, b *Begin) bool {
	if len(b.Previous) == 0 {
		return true
	}
	n := 0
	for _, name := range b.Previous {
		off := false
		for _, o := range b.Off {
			off = off || o == name
		}
		if off || l.started(name) {
			n++
		}
	}
	return n >= Quorum(len(b.Previous))
}
