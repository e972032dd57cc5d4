package ami

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// account is one account in one region, in memory, which does what the contract says at once.
type account struct {
	mu        sync.Mutex
	snapshots map[string]*stored
	images    []Image // the newest first
	channels  map[string][]Version
	shared    map[string][]LaunchPermissions
	// registered and copied are the requests that were carried out, by image.
	registered map[string]Registration
	copied     map[string]CopyRequest
	calls      []string
	made       int // images and snapshots
	// before and after see each call by its name, as "Put 3": before it is carried out, and after it. Their error is the call's.
	before, after func(call string) error
}

type stored struct {
	StartRequest
	state  State
	blocks map[int32][]byte
}

func newAccount() *account {
	return &account{snapshots: map[string]*stored{}, channels: map[string][]Version{}, shared: map[string][]LaunchPermissions{}, registered: map[string]Registration{}, copied: map[string]CopyRequest{}}
}

// call carries out a call, unless before says that it fails.
func (a *account) call(name string, do func() error) error {
	a.mu.Lock()
	a.calls = append(a.calls, name)
	a.mu.Unlock()
	if a.before != nil {
		if err := a.before(name); err != nil {
			return err
		}
	}
	a.mu.Lock()
	err := do()
	a.mu.Unlock()
	if err == nil && a.after != nil {
		err = a.after(name)
	}
	return err
}

// answer is what comes of a call that makes something: nothing, beside an error.
func answer(id string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return id, nil
}

func (a *account) Start(_ context.Context, r StartRequest) (id string, err error) {
	err = a.call("Start", func() error {
		for known, s := range a.snapshots {
			if s.Token == r.Token {
				id = known
				return nil
			}
		}
		s := &stored{StartRequest: r, state: Pending, blocks: map[int32][]byte{}}
		if r.Parent != "" {
			if a.snapshots[r.Parent] == nil || r.Key != "" {
				return fmt.Errorf("%w: %w", ErrRefused, ErrParent)
			}
			s.blocks = maps.Clone(a.snapshots[r.Parent].blocks)
		}
		a.made++
		id = fmt.Sprint("snap-", a.made)
		a.snapshots[id] = s
		return nil
	})
	return answer(id, err)
}

func (a *account) Put(_ context.Context, snapshot string, block int32, content []byte, digest Digest) error {
	return a.call(fmt.Sprint("Put ", block), func() error {
		s := a.snapshots[snapshot]
		if s == nil || s.state != Pending {
			return ErrGone
		}
		if sha256.Sum256(content) != digest {
			return ErrDamaged
		}
		s.blocks[block] = bytes.Clone(content)
		return nil
	})
}

func (a *account) Complete(_ context.Context, snapshot string, _ int, _ Digest) error {
	return a.call("Complete", func() error {
		s := a.snapshots[snapshot]
		if s == nil || s.state != Pending {
			return ErrGone
		}
		s.state = Available
		return nil
	})
}

func (a *account) List(_ context.Context, snapshot string) (listed []StoredBlock, err error) {
	err = a.call("List", func() error {
		s := a.snapshots[snapshot]
		if s == nil || s.state != Available {
			return fmt.Errorf("snapshot %q cannot be read", snapshot)
		}
		for _, block := range slices.Sorted(maps.Keys(s.blocks)) {
			listed = append(listed, StoredBlock{block, fmt.Sprint("token of ", block)})
		}
		return nil
	})
	return listed, err
}

func (a *account) Get(_ context.Context, snapshot string, block StoredBlock, content []byte) error {
	return a.call(fmt.Sprint("Get ", block.Block), func() error {
		if block.Token != fmt.Sprint("token of ", block.Block) {
			return fmt.Errorf("block %d is asked for with %q", block.Block, block.Token)
		}
		copy(content, a.snapshots[snapshot].blocks[block.Block])
		return nil
	})
}

func (a *account) Find(_ context.Context, tags map[string]string) (found []Image, err error) {
	err = a.call("Find", func() error {
		for _, i := range a.images {
			has := true
			for key, value := range tags {
				has = has && i.Tags[key] == value
			}
			if has {
				found = append(found, i)
			}
		}
		return nil
	})
	return found, err
}

func (a *account) add(i Image, name string) (string, error) {
	if slices.ContainsFunc(a.images, func(other Image) bool { return other.Name == name }) {
		return "", ErrNameTaken
	}
	a.made++
	i.ID, i.Name, i.State, i.Disks = fmt.Sprint("ami-", a.made), name, Available, 1
	a.images = slices.Insert(a.images, 0, i)
	return i.ID, nil
}

func (a *account) Register(_ context.Context, r Registration) (id string, err error) {
	err = a.call("Register", func() error {
		if s := a.snapshots[r.Snapshot]; s == nil || s.state != Available {
			return fmt.Errorf("snapshot %q is not there", r.Snapshot)
		}
		id, err = a.add(Image{Snapshot: r.Snapshot, Volume: r.Volume, Architecture: r.Architecture, Tags: r.Tags}, r.Name)
		a.registered[id] = r
		return err
	})
	return answer(id, err)
}

func (a *account) Copy(_ context.Context, c CopyRequest) (id string, err error) {
	err = a.call("Copy", func() error {
		for known, other := range a.copied {
			if other.Token == c.Token {
				id = known
				return nil
			}
		}
		id, err = a.add(Image{Tags: c.Tags}, c.Name)
		a.copied[id] = c
		return err
	})
	return answer(id, err)
}

func (a *account) Share(_ context.Context, image string, with LaunchPermissions) error {
	return a.call("Share", func() error {
		a.shared[image] = append(a.shared[image], with)
		return nil
	})
}

func (a *account) Deregister(_ context.Context, image string) error {
	return a.call("Deregister", func() error {
		a.images = slices.DeleteFunc(a.images, func(i Image) bool { return i.ID == image })
		return nil
	})
}

func (a *account) Discard(ctx context.Context, image string, _ map[string]string) error {
	return errors.Join(a.Deregister(ctx, image), a.call("Discard", func() error { return nil }))
}

// WaitImage makes a pending image available.
func (a *account) WaitImage(_ context.Context, image string) error {
	return a.call("WaitImage", func() error {
		for i := range a.images {
			if a.images[i].ID == image && a.images[i].State == Pending {
				a.images[i].State = Available
			}
		}
		return nil
	})
}

func (a *account) Image(_ context.Context, id string) (found Image, err error) {
	found = Image{ID: id, State: Missing}
	err = a.call("Image", func() error {
		for _, i := range a.images {
			if i.ID == id {
				found = i
			}
		}
		return nil
	})
	return found, err
}

func (a *account) SnapshotState(_ context.Context, snapshot string) (state State, err error) {
	err = a.call("SnapshotState", func() error {
		state = Missing
		if s := a.snapshots[snapshot]; s != nil {
			state = s.state
		}
		return nil
	})
	return state, err
}

func (a *account) WaitSnapshot(_ context.Context, snapshot string) error {
	return a.call("WaitSnapshot", func() error {
		if s := a.snapshots[snapshot]; s == nil || s.state == Failed {
			return fmt.Errorf("snapshot %q will not be complete", snapshot)
		}
		return nil
	})
}

func (a *account) DeleteSnapshot(_ context.Context, snapshot string) error {
	return a.call("DeleteSnapshot", func() error {
		if snapshot == "" {
			return errors.New("no snapshot is named")
		}
		if slices.ContainsFunc(a.images, func(i Image) bool { return i.Snapshot == snapshot }) {
			return fmt.Errorf("snapshot %s is in use", snapshot)
		}
		delete(a.snapshots, snapshot)
		return nil
	})
}

func (a *account) History(_ context.Context, channel string) (history []Version, err error) {
	err = a.call("History", func() error {
		history = slices.Clone(a.channels[channel])
		return nil
	})
	return history, err
}

func (a *account) Set(_ context.Context, channel, image string) (v Version, err error) {
	err = a.call("Set", func() error {
		v = Version{Number: int64(len(a.channels[channel]) + 1), Image: image}
		a.channels[channel] = append(a.channels[channel], v)
		return nil
	})
	return v, err
}

var errBroken = errors.New("broken")

// breaks makes the n-th call of this name fail, from 1.
func breaks(name string, n int) func(string) error {
	var mu sync.Mutex
	return func(call string) error {
		mu.Lock()
		defer mu.Unlock()
		if call == name {
			n--
		}
		if call == name && n == 0 {
			return errBroken
		}
		return nil
	}
}

// publisher publishes in the account, one block at a time.
func (a *account) publisher(t *testing.T, state string, change ...func(*Config)) *Publisher {
	t.Helper()
	c := Config{Blocks: a, Snapshots: a, Images: a, State: state, Workers: 1, ConsistencyWait: 20 * time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// memory is a disk in memory.
type memory struct {
	content []byte
	// data returns what Data does; nil is that all may hold something.
	data func(offset int64) (start, end int64, ok bool, err error)
	// read is called before a block is read; an error is ReadAt's.
	read func(offset int64) error
	// asked counts the calls of Data: whoever asks for ever is stopped.
	asked atomic.Int64
}

func (d *memory) Size() int64 { return int64(len(d.content)) }

func (d *memory) Data(offset int64) (start, end int64, ok bool, err error) {
	if d.asked.Add(1) > 1000 {
		return 0, 0, false, errBroken
	}
	if d.data != nil {
		return d.data(offset)
	}
	return offset, d.Size(), offset < d.Size(), nil
}

func (d *memory) ReadAt(p []byte, offset int64) (int, error) {
	if d.read != nil {
		if err := d.read(offset); err != nil {
			return 0, err
		}
	}
	return bytes.NewReader(d.content).ReadAt(p, offset)
}

// disk has these blocks: a letter is a block of it, and a dot one of zeros.
func disk(blocks string) *memory {
	d := &memory{}
	for _, b := range []byte(blocks) {
		d.content = append(d.content, block(b)...)
	}
	return d
}

func block(letter byte) []byte { return bytes.Repeat([]byte{letter - '.'}, BlockSize) }

func requestOf(d Disk) Request { return Request{Disk: d, Image: "test", Architecture: "amd64"} }

// progress adds up what it is told.
type progress struct {
	mu          sync.Mutex
	total, done int64
	began       int
}

func (p *progress) Begin(_ string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += total
	p.began++
}

func (p *progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
}

// What is waited for comes: a disk is read and sent, by one and by several at once, and an error ends it.
func TestPublishingEnds(t *testing.T) {
	ended := make(chan error, 1)
	for _, workers := range []int{1, 3} {
		for _, failing := range []string{"", "Put 1"} {
			a, d := newAccount(), disk("ab")
			if failing != "" {
				a.before = breaks(failing, 1)
			}
			p := a.publisher(t, t.TempDir(), func(c *Config) { c.Workers = workers })
			go func() {
				_, err := p.Publish(t.Context(), requestOf(d))
				ended <- err
			}()
			select {
			case err := <-ended:
				if failing == "" && err != nil || failing != "" && !errors.Is(err, errBroken) {
					t.Errorf("%d workers, %q fails: %v", workers, failing, err)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("%d workers, %q fails: it does not end", workers, failing)
			}
		}
	}
}
