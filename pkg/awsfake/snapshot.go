package awsfake

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// The states of a snapshot.
const (
	SnapshotPending   = "pending"
	SnapshotCompleted = "completed"
	SnapshotError     = "error"
	snapshotDeleted   = "deleted"
)

// BlockSize is the only size of a snapshot's blocks, in bytes (API reference, PutSnapshotBlock, DataLength).
const BlockSize = 512 << 10

const blocksPerGiB = 1 << 30 / BlockSize

// EBSOptions set how snapshots and images come to be. With the zero value everything happens at once, and blocks
// are kept in memory.
type EBSOptions struct {
	// Directory is where the blocks are kept, in one file without a name that ends with the process or
	// Account.Close. Empty is in memory. A block is kept once, however often it is put.
	Directory string
	// Known is how long after StartSnapshot the other calls still answer that there is no such snapshot. AWS says
	// nothing of it, but coldsnap's 12 attempts over 132 s are there because of it.
	Known time.Duration
	// Seal is the time from CompleteSnapshot to completed, Copy that from CopyImage or CopySnapshot to the end of
	// the copy, Register that from RegisterImage to an available image.
	Seal, Copy, Register time.Duration
	// Validate is how long after PutParameter the image is looked for that is the value of a parameter of the type
	// aws:ec2:image; the parameter is changed only then.
	Validate time.Duration
	// Encrypt is encryption by default: nothing that is not encrypted can be made.
	Encrypt bool
}

// Snapshot is an EBS snapshot.
type Snapshot struct {
	ID, State, Description string
	// Parent is the snapshot that it was started from, Key the ARN of the key that encrypts it; both may be empty.
	Parent, Key string
	// Size is that of its volumes, in GiB.
	Size               int
	Started, Completed time.Time
	Tags               map[string]string
	// Shared are the accounts that may make volumes from it.
	Shared []string
	// Blocks is how many blocks hold data, those of its parents included; Written how many were put into itself.
	Blocks, Written int
}

// Images are the snapshots and images of one region of the account. Its exported methods may be called by several
// goroutines; they are no API calls: nothing counts, delays or refuses them.
//
// Held of EC2's calls about them (2016-11-15): names that are unique, and their characters; mappings with the sizes,
// IOPS and throughput of each type of volume; snapshots that must be completed, and that are not deleted as long as
// an image uses them; what boot modes, architectures, IMDS and TPM go together; tags; launch and volume permissions;
// copies between regions with their keys; describe calls that lag behind (EC2Options.Lag), their filters and pages;
// DryRun. Taken for the harder reading: names of copies are unique too, nothing can be made public (as "block public
// access" has it by default), a copy starts a lineage of its own. Not modelled, and refused: paravirtual and
// instance-store images, UEFI data, deprecation, disabled images, the recycle bin, Outposts, local zones, locks,
// CreateImage and CreateSnapshot.
type Images struct {
	account *Account
	region  string
	options EBSOptions
	lag     time.Duration

	images    shelf[Image]
	snapshots shelf[Snapshot]
	contents  map[string]*content
	// starts and copies are the calls that were made with a client token.
	starts, copies map[string]tokened
}

func newImages(a *Account, region string, o Options) *Images {
	return &Images{
		account: a, region: region, options: o.EBS, lag: o.EC2.Lag, contents: map[string]*content{},
		images: newShelf[Image](), snapshots: newShelf[Snapshot](), starts: map[string]tokened{}, copies: map[string]tokened{},
	}
}

func (m *Images) now() time.Time { return m.account.regional.agenda.now }

func (m *Images) after(d time.Duration, f func()) { m.account.regional.agenda.after(d, f) }

// tokened is what a client token stands for: the call that it came with, and what came of it.
type tokened struct{ call, id string }

// content is what a snapshot holds.
type content struct {
	blocks map[int]block
	// writer tells the snapshots apart that wrote blocks; lineage is the first writer of all that have these
	// blocks from each other.
	writer, lineage int
	timeout         time.Duration
	touched         time.Time
	// sealed is whether CompleteSnapshot was accepted.
	sealed bool
}

// block is one of a snapshot's blocks: what it holds, and which snapshot it was put into.
type block struct {
	sum    digest
	writer int
}

func (c *content) written() (n int) {
	for _, b := range c.blocks {
		if b.writer == c.writer {
			n++
		}
	}
	return n
}

// indexes are those of the blocks that hold data, in order.
func (c *content) indexes() []int { return sortedKeys(c.blocks) }

// Snapshot returns a snapshot as it is, whatever the lag.
func (m *Images) Snapshot(id string) (s Snapshot, ok bool) {
	m.account.locked(func() { s, ok = m.snapshot(id) })
	return s, ok
}

// Snapshots lists the snapshots that there are, in the order of their start.
func (m *Images) Snapshots() (list []Snapshot) {
	m.account.locked(func() {
		for _, id := range m.snapshots.order {
			if s, ok := m.snapshot(id); ok {
				list = append(list, s)
			}
		}
	})
	return list
}

func (m *Images) snapshot(id string) (Snapshot, bool) {
	s, ok := m.snapshots.get(id)
	if !ok || s.State == snapshotDeleted {
		return Snapshot{}, false
	}
	if c := m.contents[id]; c != nil {
		s.Blocks, s.Written = len(c.blocks), c.written()
	}
	return s, true
}

// change makes another version of a snapshot.
func (m *Images) change(id string, f func(*Snapshot)) {
	s, ok := m.snapshots.get(id)
	if !ok {
		return
	}
	s.Tags = maps.Clone(s.Tags)
	s.Shared = slices.Clone(s.Shared)
	f(&s)
	m.snapshots.put(id, m.now(), m.lag, s)
}

// add makes a snapshot that holds the blocks of another content, or nothing.
func (m *Images) add(s Snapshot, from *content) Snapshot {
	serial := m.account.nextSnapshot()
	s.ID, s.State, s.Started = "snap-"+hexID("snapshot "+m.region, serial, 17), SnapshotPending, m.now()
	c := &content{blocks: map[int]block{}, writer: serial, lineage: serial, touched: m.now()}
	if from != nil {
		c.blocks, c.lineage = maps.Clone(from.blocks), from.lineage
		for _, b := range c.blocks {
			m.account.regional.blocks.keep(b.sum)
		}
	}
	m.contents[s.ID] = c
	m.snapshots.put(s.ID, m.now(), m.lag, s)
	return s
}

// finish ends a pending snapshot in a state; in error, what it held is gone.
func (m *Images) finish(id, state string) {
	if s, ok := m.snapshots.get(id); !ok || s.State != SnapshotPending {
		return
	}
	if state == SnapshotError {
		m.drop(id)
	}
	m.change(id, func(s *Snapshot) {
		if s.State = state; state == SnapshotCompleted {
			s.Completed = m.now()
		}
	})
}

// drop lets go of a snapshot's blocks.
func (m *Images) drop(id string) {
	if c := m.contents[id]; c != nil {
		for _, b := range c.blocks {
			m.account.regional.blocks.release(b.sum)
		}
		c.blocks = map[int]block{}
	}
}

// expire ends a snapshot that nobody has written to for its timeout; otherwise it looks again.
func (m *Images) expire(id string) {
	c := m.contents[id]
	if s, _ := m.snapshots.get(id); s.State != SnapshotPending || c.sealed {
		return
	}
	if left := c.touched.Add(c.timeout).Sub(m.now()); left > 0 {
		m.after(left, func() { m.expire(id) })
		return
	}
	m.finish(id, SnapshotError)
}

// deleteSnapshot deletes a snapshot that no image uses. What others have of it stays.
func (m *Images) deleteSnapshot(id string) error {
	if _, ok := m.snapshot(id); !ok {
		return noSnapshot(id)
	}
	if users := m.users(id); len(users) > 0 {
		return refuse("InvalidSnapshot.InUse", "The snapshot %s is currently in use by %s", id, users[0])
	}
	m.drop(id)
	delete(m.contents, id)
	m.change(id, func(s *Snapshot) { s.State = snapshotDeleted })
	return nil
}

func noSnapshot(id string) error {
	return refuse("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
}

// shelf keeps values by identifier in the order in which they came, with their former versions.
type shelf[T any] struct {
	order []string
	byID  map[string]*past[T]
}

func newShelf[T any]() shelf[T] { return shelf[T]{byID: map[string]*past[T]{}} }

func (s *shelf[T]) put(id string, now time.Time, lag time.Duration, value T) {
	if s.byID[id] == nil {
		s.order = append(s.order, id)
		s.byID[id] = &past[T]{}
	}
	s.byID[id].put(now, lag, value)
}

func (s *shelf[T]) get(id string) (value T, ok bool) {
	if p := s.byID[id]; p != nil {
		return p.last(), true
	}
	return value, false
}

// at lists the values as they were at t.
func (s *shelf[T]) at(t time.Time) (list []T) {
	for _, id := range s.order {
		if value, ok := s.byID[id].at(t); ok {
			list = append(list, value)
		}
	}
	return list
}

// keyOf is the key that encrypts what is made with an identifier of a key, or with none but encrypted: then it is
// the account's own for EBS. Empty and true: not encrypted. False: there is no such key.
func (m *Images) keyOf(encrypted bool, id string) (arn string, ok bool) {
	switch {
	case id != "":
		arn = m.account.place(m.region).ssm.keyARN(id)
		return arn, arn != ""
	case encrypted || m.options.Encrypt:
		return m.defaultKey(), true
	}
	return "", true
}

// defaultKey is the account's own key for EBS, alias/aws/ebs. What it encrypts cannot be shared.
func (m *Images) defaultKey() string {
	return "arn:aws:kms:" + m.region + ":" + owner + ":key/" + uuidOf("key alias/aws/ebs "+m.region, 0)
}

// byStart orders snapshots for describe calls.
func byStart(a, b Snapshot) int {
	return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
}
