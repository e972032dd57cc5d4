package publish

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Config is what a Publisher works with.
type Config struct {
	Snapshots Snapshots
	Keeper    Keeper
	Images    Images
	// State is the directory for journals, one a publication that is under way. It is of one account and region.
	State string
	// Workers is how many blocks are sent at once; zero: DefaultWorkers. Each holds one block in memory.
	Workers int
	// Settle is how long AWS may take to show what it has just made; zero: DefaultSettle.
	Settle time.Duration
	// Progress nil and Log nil: none.
	Progress Progress
	Log      *slog.Logger
}

// DefaultWorkers is how many blocks are on their way at once. At the 100 ms that AWS reckons with for a block
// ("Optimize performance for EBS direct APIs") that is 320 MB/s, and 32 MiB of memory.
const DefaultWorkers = 64

// DefaultSettle is for EC2's eventual consistency, of which AWS only says that it may take minutes ("Ensure
// idempotency and eventual consistency in Amazon EC2 API requests"); what is asked for by tags was seen within seconds.
const DefaultSettle = 30 * time.Second

// Publisher makes images of disks.
type Publisher struct{ c Config }

// New fills in the defaults.
func New(c Config) (*Publisher, error) {
	if c.Snapshots == nil || c.Keeper == nil || c.Images == nil || c.State == "" {
		return nil, errors.New("publishing an image: snapshots, images and a directory for journals are needed")
	}
	if c.Workers <= 0 {
		c.Workers = DefaultWorkers
	}
	if c.Settle <= 0 {
		c.Settle = DefaultSettle
	}
	if c.Progress == nil {
		c.Progress = silent{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Publisher{c}, nil
}

// Result says what is there now.
type Result struct {
	Image    string `json:"image"`
	Name     string `json:"name"`
	Snapshot string `json:"snapshot"`
	// Digest is the identity that the name is made of.
	Digest Digest `json:"digest"`
	// Volume is in GiB.
	Volume int64 `json:"volumeGiB"`
	// Found: the image was there already, and nothing was sent. Resumed: a journal was gone on with.
	Found   bool `json:"found"`
	Resumed bool `json:"resumed"`
	// Parent is the snapshot that what has not changed was taken from.
	Parent string `json:"parent,omitempty"`
	// DiskBlocks are the disk's blocks that are not zero, KeptBlocks those that the parent had, SentBlocks what was
	// sent now: of the disk, of its manifest, and zeros over what the parent had.
	DiskBlocks int   `json:"diskBlocks"`
	KeptBlocks int   `json:"keptBlocks"`
	SentBlocks int   `json:"sentBlocks"`
	SentBytes  int64 `json:"sentBytes"`
	// Description is the image's, and Tags are those of the image and its snapshot.
	Description string            `json:"description"`
	Tags        map[string]string `json:"tags"`
}

// Publish makes an image of the disk, or finds the one that was made of the same. When it fails, the snapshot and
// the image that it had begun are gone, unless the request keeps them.
func (p *Publisher) Publish(ctx context.Context, r Request) (Result, error) {
	if err := r.Check(); err != nil {
		return Result{}, err
	}
	m, err := Scan(ctx, r.Disk, min(p.c.Workers, runtime.GOMAXPROCS(0)), p.c.Progress)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: r.Name(m), Digest: r.Identity(m), Volume: r.volume(m), DiskBlocks: len(m.Blocks), Tags: r.tags(m), Description: r.description(m)}
	p.c.Log.Info("disk read", "bytes", m.Size, "data", m.Bytes(), "digest", m.Digest())
	lock, j, err := openJournal(p.c.State, result.Name)
	if err != nil {
		return result, err
	}
	defer func() { _ = lock.release() }() // the process's end would do the same
	if done, err := p.find(ctx, &result, j); done || err != nil {
		return result, err
	}
	w := &work{Publisher: p, request: r, manifest: m, result: &result, journal: j}
	if err := w.run(ctx); err != nil {
		return result, errors.Join(err, w.abandon(ctx))
	}
	return result, w.journal.remove()
}

// find looks for an image of the same identity. A journal that goes with it has served.
func (p *Publisher) find(ctx context.Context, r *Result, j *journal) (bool, error) {
	images, err := p.c.Images.Find(ctx, map[string]string{TagDigest: r.Digest.String()})
	if err != nil {
		return false, err
	}
	for _, i := range images {
		if i.Name != r.Name {
			continue
		}
		switch i.State {
		case Pending:
			if err := p.c.Images.WaitImage(ctx, i.ID); err != nil {
				return false, err
			}
		case Available:
		default:
			return false, fmt.Errorf("image %s (%s): its state is %s: %s\nremove it (hardtack image gc, or deregister it), and publish again",
				i.ID, i.Name, i.State, i.Reason)
		}
		r.Found, r.Image, r.Snapshot = true, i.ID, i.Snapshot
		p.c.Log.Info("the image is there", "image", i.ID, "name", i.Name)
		if j != nil {
			return true, errors.Join(p.forget(ctx, j, i.Snapshot), j.remove())
		}
		return true, nil
	}
	return false, nil
}

// forget removes the snapshot of a journal that nobody needs, unless it is the image's own.
func (p *Publisher) forget(ctx context.Context, j *journal, except string) error {
	if j.done.Snapshot == "" || j.done.Snapshot == except {
		return nil
	}
	return p.c.Keeper.DeleteSnapshot(ctx, j.done.Snapshot)
}

// work is one publication.
type work struct {
	*Publisher
	request  Request
	manifest Manifest
	result   *Result
	journal  *journal
	// starting and registering are whether it was asked for what may be there without our having heard of it.
	starting, registering bool
}

// run makes the snapshot and the image.
func (w *work) run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	err := w.send(ctx)
	switch {
	case errors.Is(err, ErrGone) && w.result.Resumed:
		// What an earlier try had begun was ended by AWS meanwhile.
		w.c.Log.Warn("the snapshot of the earlier try is gone: beginning anew", "snapshot", w.journal.done.Snapshot)
		err = w.again(ctx)
	case errors.Is(err, ErrParent) && w.request.Parent == NewestParent:
		w.c.Log.Warn("the older image cannot be made use of: sending everything", "reason", err)
		w.request.Parent = NoParent
		err = w.again(ctx)
	}
	if err != nil {
		return err
	}
	return w.register(ctx)
}

// again begins anew, once.
func (w *work) again(ctx context.Context) error {
	if err := w.afresh(ctx); err != nil {
		return err
	}
	return w.send(ctx)
}

// begin goes on with the journal, or decides anew.
func (w *work) begin(ctx context.Context) error {
	if w.journal == nil {
		return w.decide(ctx)
	}
	w.result.Resumed = true
	w.c.Log.Info("going on with an earlier try", "snapshot", w.journal.done.Snapshot, "acknowledged", len(w.journal.sent))
	if w.journal.done.Snapshot == "" {
		return nil
	}
	state, err := w.c.Keeper.SnapshotState(ctx, w.journal.done.Snapshot)
	if err != nil {
		return err
	}
	if state == Failed || state == Missing {
		return w.afresh(ctx)
	}
	return nil
}

// afresh drops the journal and what it is of.
func (w *work) afresh(ctx context.Context) error {
	if err := errors.Join(w.forget(ctx, w.journal, ""), w.journal.remove()); err != nil {
		return err
	}
	w.journal, w.result.Resumed, w.starting = nil, false, false
	return w.decide(ctx)
}

// decide plans the snapshot and writes the plan down.
func (w *work) decide(ctx context.Context) error {
	parent, err := w.parent(ctx)
	if err != nil {
		return err
	}
	volume := w.request.volume(w.manifest)
	plan := NewPlan(w.manifest, volume, parent)
	start := Start{
		// Unlike any other: a token that was used for a snapshot which is gone would bring that one back.
		Token: rand.Text(), Volume: volume, Parent: plan.Parent, Key: w.request.Key,
		Description: w.result.Description, Tags: w.result.Tags,
	}
	if plan.Parent != "" {
		start.Key = NoKey // the parent's is taken; to name one with a parent is refused
	}
	w.journal, err = newJournal(w.c.State, decision{Name: w.result.Name, Start: start, Plan: plan})
	return err
}

// send makes the snapshot complete.
func (w *work) send(ctx context.Context) error {
	j := w.journal
	w.result.Parent, w.result.KeptBlocks = j.Plan.Parent, j.Plan.Kept
	if j.done.Snapshot == "" {
		w.starting = true
		snapshot, err := w.c.Snapshots.Start(ctx, j.Start)
		if err == nil || errors.Is(err, ErrRefused) {
			w.starting = false
		}
		if err != nil {
			return err
		}
		if err := j.note(fact{Snapshot: snapshot}); err != nil {
			return err
		}
	}
	w.result.Snapshot = j.done.Snapshot
	if !j.done.Complete {
		if err := w.put(ctx); err != nil {
			return err
		}
		if err := w.complete(ctx); err != nil {
			return err
		}
	}
	return w.c.Keeper.WaitSnapshot(ctx, j.done.Snapshot)
}

// complete ends the writing. A try before this one may have done so without hearing of it.
func (w *work) complete(ctx context.Context) error {
	j := w.journal
	err := w.c.Snapshots.Complete(ctx, j.done.Snapshot, len(j.Plan.Writes), j.Plan.Checksum())
	if errors.Is(err, ErrGone) {
		// One that is neither failed nor missing takes no blocks because it was completed: WaitSnapshot sees to the rest.
		if state, asked := w.c.Keeper.SnapshotState(ctx, j.done.Snapshot); asked == nil && (state == Available || state == Pending) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return j.note(fact{Complete: true})
}

// register makes the image and waits for it.
func (w *work) register(ctx context.Context) error {
	w.registering = true
	image, err := w.c.Images.Register(ctx, Registration{
		Name: w.result.Name, Description: w.result.Description, Architecture: w.request.Architecture,
		Snapshot: w.journal.done.Snapshot, Volume: w.journal.Plan.Volume, Tags: w.result.Tags,
	})
	if errors.Is(err, ErrNameTaken) {
		return w.overtaken(ctx, err)
	}
	if err != nil {
		return err
	}
	w.result.Image = image
	return w.c.Images.WaitImage(ctx, image)
}

// errUnseen is an image that must be there and is not shown.
var errUnseen = errors.New("no image of the same content is shown")

// overtaken is what happens when somebody has registered the same meanwhile, or we did without hearing of it.
func (w *work) overtaken(ctx context.Context, taken error) error {
	ours := w.result.Snapshot
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		found, err := w.find(ctx, w.result, nil)
		switch {
		case err != nil:
			return struct{}{}, backoff.Permanent(err)
		case !found:
			return struct{}{}, errUnseen
		}
		return struct{}{}, nil
	}, backoff.WithMaxElapsedTime(w.c.Settle))
	switch {
	case errors.Is(err, errUnseen):
		return fmt.Errorf("image %s: %w, which Hardtack has not published; choose another name, or remove that image", w.result.Name, taken)
	case err != nil:
		return err
	case w.result.Snapshot == ours:
		w.result.Found = false
		return nil
	}
	return w.c.Keeper.DeleteSnapshot(ctx, ours)
}
