package awsfake

import (
	"cmp"
	"maps"
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

// EBSOptions set how long snapshots and images take. With the zero value everything happens at once, and blocks are
// kept in memory.
type EBSOptions struct {
	// Directory holds the blocks, in one unlinked file that ends with the process or Account.Close; empty means in
	// memory. A block is kept once, however often it is put.
	Directory string
	// Known is how long after StartSnapshot the other calls still answer ResourceNotFoundException. AWS does not
	// document this delay, but coldsnap makes 12 attempts over 132 s because of it.
	Known time.Duration
	// Seal is the time from CompleteSnapshot to a completed snapshot, Copy from CopyImage to the end of the copy,
	// Register from RegisterImage to an available image.
	Seal, Copy, Register time.Duration
}

// Snapshot is an EBS snapshot.
type Snapshot struct {
	ID, State, Description string
	// Parent is the snapshot that it was started from, Key the ARN of the KMS key that encrypts it, Volume the volume that
	// it was made of, without content then; each may be empty.
	Parent, Key, Volume string
	// Size is that of its volumes, in GiB.
	Size               int
	Started, Completed time.Time
	Tags               map[string]string
	// Blocks is how many blocks hold data, those of its parents included; Written is how many were put into this
	// snapshot.
	Blocks, Written int
}

// Images are the snapshots and images of one region of the account. Several goroutines may call its exported methods,
// which are not API calls: they are not counted, delayed or refused by faults and policies.
//
// Modelled of EC2's calls (2016-11-15): unique names; snapshots that must be completed, and that cannot be deleted
// while an image uses them; tags; launch permissions; copies between regions with their keys; describe calls that lag
// (EC2Options.Lag), and their pages. AWS does not say whether names of copies must be unique; here they must.
// Everything else is refused.
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

// tokened is the call that a client token came with, and the ID of its result.
type tokened struct{ call, id string }

// content is the blocks of a snapshot.
type content struct {
	blocks map[int]block
	// writer tells the snapshots apart that wrote blocks.
	writer  int
	timeout time.Duration
	touched time.Time
	// sealed is whether CompleteSnapshot was accepted.
	sealed bool
}

// block is the digest of a block's data, and the snapshot that it was put into.
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

// Snapshot returns a snapshot's current state, whatever the lag. False means that it does not exist or was deleted.
func (m *Images) Snapshot(id string) (s Snapshot, ok bool) {
	m.account.locked(func() { s, ok = m.snapshot(id) })
	return s, ok
}

// Snapshots returns all snapshots, in the order of their start.
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
	f(&s)
	m.snapshots.put(id, m.now(), m.lag, s)
}

// add makes a snapshot with the blocks of another content, or with none.
func (m *Images) add(s Snapshot, from *content) Snapshot {
	serial := m.account.nextSnapshot()
	s.ID, s.State, s.Started = "snap-"+hexID("snapshot "+m.region, serial, 17), SnapshotPending, m.now()
	c := &content{blocks: map[int]block{}, writer: serial, touched: m.now()}
	if from != nil {
		c.blocks = maps.Clone(from.blocks)
		for _, b := range c.blocks {
			m.account.regional.blocks.keep(b.sum)
		}
	}
	m.contents[s.ID] = c
	m.snapshots.put(s.ID, m.now(), m.lag, s)
	return s
}

// finish ends a pending snapshot in a state; SnapshotError drops its blocks.
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

// drop releases a snapshot's blocks.
func (m *Images) drop(id string) {
	if c := m.contents[id]; c != nil {
		for _, b := range c.blocks {
			m.account.regional.blocks.release(b.sum)
		}
		c.blocks = map[int]block{}
	}
}

// expire fails a snapshot that was not written to for its timeout.
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

// deleteSnapshot deletes a snapshot that no image uses. Blocks that other snapshots share stay.
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

// keyOf returns the ARN of the KMS key with this identifier, or the account's default key for EBS if id is empty and
// encrypted is set; "" is no encryption. False means that the key does not exist.
func (m *Images) keyOf(encrypted bool, id string) (arn string, ok bool) {
	switch {
	case id != "":
		if k := m.account.place(m.region).ssm.vault.find(id); k != nil {
			return k.arn, true
		}
		return "", false
	case encrypted:
		return m.defaultKey(), true
	}
	return "", true
}

// defaultKey returns the account's default key for EBS, alias/aws/ebs. Snapshots that it encrypts cannot be shared.
func (m *Images) defaultKey() string {
	return "arn:aws:kms:" + m.region + ":" + owner + ":key/" + uuidOf("key alias/aws/ebs "+m.region, 0)
}

// byStart orders snapshots for describe calls.
func byStart(a, b Snapshot) int {
	return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
}
