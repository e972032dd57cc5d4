package ami

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

// Config is the configuration of a Publisher. Blocks, Snapshots, Images and State are required.
type Config struct {
	Blocks    Blocks
	Snapshots Snapshots
	Images    Images
	// State is the directory for journals, one for each unfinished publication. It belongs to one account and region.
	State string
	// Workers is the number of blocks sent in parallel, each held in memory; 0 is DefaultWorkers.
	Workers int
	// ConsistencyWait is how long AWS may take to show a resource that was just created; 0 is DefaultConsistencyWait.
	ConsistencyWait time.Duration
	// Progress and Log may be nil.
	Progress Progress
	Log      *slog.Logger
}

// DefaultWorkers is the default number of blocks sent in parallel. At the 100 ms a block of "Optimize performance for
// EBS direct APIs" that is 320 MB/s, with 32 MiB of memory.
const DefaultWorkers = 64

// DefaultConsistencyWait allows for EC2's eventual consistency, which may take minutes ("Ensure idempotency and
// eventual consistency in Amazon EC2 API requests"); lookups by tag have been seen to succeed within seconds.
const DefaultConsistencyWait = 30 * time.Second

// Publisher publishes disks as images.
type Publisher struct{ c Config }

// New returns a Publisher, with the defaults of the configuration filled in.
func New(c Config) (*Publisher, error) {
	if c.Blocks == nil || c.Snapshots == nil || c.Images == nil || c.State == "" {
		return nil, errors.New("publishing an image: snapshots, images and a directory for journals are needed")
	}
	if c.Workers <= 0 {
		c.Workers = DefaultWorkers
	}
	if c.ConsistencyWait <= 0 {
		c.ConsistencyWait = DefaultConsistencyWait
	}
	if c.Progress == nil {
		c.Progress = noProgress{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Publisher{c}, nil
}

// Result describes the published image.
type Result struct {
	Image    string `json:"image"`
	Name     string `json:"name"`
	Snapshot string `json:"snapshot"`
	// Digest is Request.Identity, from which the name is made.
	Digest Digest `json:"digest"`
	// Volume is in GiB.
	Volume int64 `json:"volume_gib"`
	// Found: the image existed, and nothing was sent. Resumed: an earlier, unfinished publication was continued.
	Found   bool `json:"found"`
	Resumed bool `json:"resumed"`
	// Parent is the snapshot that provided the unchanged blocks; empty if there was none.
	Parent string `json:"parent,omitempty"`
	// DiskBlocks counts the disk's blocks that are not zero, KeptBlocks those that the parent provided, and SentBlocks
	// those sent now: blocks of the disk and its manifest, and zeros over blocks of the parent.
	DiskBlocks int   `json:"disk_blocks"`
	KeptBlocks int   `json:"kept_blocks"`
	SentBlocks int   `json:"sent_blocks"`
	SentBytes  int64 `json:"sent_bytes"`
	// Description is the image's, and Tags are those of the image and its snapshot.
	Description string            `json:"description"`
	Tags        map[string]string `json:"tags"`
	// content is what an image that is found must be.
	content *content
}

// Publish makes an image of the disk, or returns the existing image of the same content. If it fails, it removes the
// snapshot and the image that it started, unless the request says Keep.
func (p *Publisher) Publish(ctx context.Context, r Request) (Result, error) {
	if err := r.Check(); err != nil {
		return Result{}, err
	}
	m, err := Scan(ctx, r.Disk, min(p.c.Workers, runtime.GOMAXPROCS(0)), p.c.Progress)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: r.Name(m), Digest: r.Identity(m), Volume: r.volume(m), DiskBlocks: len(m.Blocks), Tags: r.tags(m), Description: r.description(m),
		content: &content{m, r.Architecture, r.volume(m)}}
	p.c.Log.Info("disk read", "bytes", m.Size, "data", m.Bytes(), "digest", m.Digest())
	lock, j, err := openJournal(p.c.State, result.Name)
	if err != nil {
		return result, err
	}
	defer func() {
		// The process's end would do the same.
		_ = lock.release()
		if j != nil {
			_ = j.close()
		}
	}()
	if done, err := p.find(ctx, &result, j); done || err != nil {
		return result, err
	}
	w := &publication{Publisher: p, request: r, manifest: m, result: &result, journal: j}
	if err := w.run(ctx); err != nil {
		return result, errors.Join(err, w.abandon(ctx))
	}
	return result, w.journal.remove()
}

// find looks for an image of the same identity, and checks that it is one unless its snapshot was written here. A journal
// that goes with it has served.
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
			if i, err = settle(ctx, p.c.Images, i); err != nil {
				return false, err
			}
		case Available:
		case Disabled:
			return false, disabled(i)
		default:
			return false, fmt.Errorf("image %s (%s): its state is %s: %s\nremove it (hardtack image gc, or deregister it), and publish again",
				i.ID, i.Name, i.State, i.Reason)
		}
		written := r.Snapshot
		if j != nil {
			written = j.done.Snapshot
		}
		if i.Snapshot != written {
			if err := r.content.verify(ctx, p.c.Blocks, i, p.c.Workers, p.c.Progress); err != nil {
				return false, err
			}
		}
		r.Found, r.Image, r.Snapshot = true, i.ID, i.Snapshot
		p.c.Log.Info("the image is there", "image", i.ID, "name", i.Name)
		if j != nil {
			return true, p.forget(ctx, j, i.Snapshot)
		}
		return true, nil
	}
	return false, nil
}

// disabled is the error of an image that is there, is out of use, and lets no other have its name.
func disabled(i Image) error {
	return fmt.Errorf("image %s (%s) is disabled, and keeps its name: enable it (aws ec2 enable-image --image-id %[1]s), deregister it, or publish under another name", i.ID, i.Name)
}

// forget removes an obsolete journal and its snapshot, unless that is except. The journal goes last: nothing else knows of the
// snapshot for certain.
func (p *Publisher) forget(ctx context.Context, j *journal, except string) error {
	if s := j.done.Snapshot; s != "" && s != except {
		if err := p.c.Snapshots.DeleteSnapshot(ctx, s); err != nil {
			return err
		}
	}
	return j.remove()
}

// publication is one call of Publish.
type publication struct {
	*Publisher
	request  Request
	manifest Manifest
	result   *Result
	journal  *journal
	// starting and registering: a request was sent whose reply may have been lost, so the resource may exist.
	starting, registering bool
}

// run makes the snapshot and the image.
func (w *publication) run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	err := w.send(ctx)
	switch {
	case errors.Is(err, ErrGone) && w.result.Resumed:
		// What an earlier try had begun was ended by AWS meanwhile.
		w.c.Log.Warn("the snapshot of the earlier try is gone: beginning anew", "snapshot", w.journal.done.Snapshot)
		err = w.restart(ctx)
	case errors.Is(err, ErrParent) && w.request.Parent == NewestParent:
		w.c.Log.Warn("the older image cannot be made use of: sending everything", "reason", err)
		w.request.Parent = NoParent
		err = w.restart(ctx)
	}
	if err != nil {
		return err
	}
	return w.register(ctx)
}

// restart starts over, once.
func (w *publication) restart(ctx context.Context) error {
	if err := w.discardJournal(ctx); err != nil {
		return err
	}
	return w.send(ctx)
}

// begin resumes the journal's publication, or plans a new one.
func (w *publication) begin(ctx context.Context) error {
	if w.journal == nil {
		return w.decide(ctx)
	}
	w.result.Resumed = true
	w.c.Log.Info("going on with an earlier try", "snapshot", w.journal.done.Snapshot, "acknowledged", len(w.journal.sent))
	if w.journal.done.Snapshot == "" {
		return nil
	}
	state, err := w.c.Snapshots.SnapshotState(ctx, w.journal.done.Snapshot)
	if err != nil {
		return err
	}
	if state == Failed || state == Missing {
		return w.discardJournal(ctx)
	}
	return nil
}

// discardJournal removes the journal and its snapshot.
func (w *publication) discardJournal(ctx context.Context) error {
	if err := w.forget(ctx, w.journal, ""); err != nil {
		return err
	}
	w.journal, w.result.Resumed, w.starting = nil, false, false
	return w.decide(ctx)
}

// decide plans the snapshot and writes the plan to the journal.
func (w *publication) decide(ctx context.Context) error {
	parent, err := w.parent(ctx)
	if err != nil {
		return err
	}
	volume := w.request.volume(w.manifest)
	plan := NewPlan(w.manifest, volume, parent)
	start := StartRequest{
		// A new token: one that was used for a deleted snapshot would return that snapshot.
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
func (w *publication) send(ctx context.Context) error {
	j := w.journal
	w.result.Parent, w.result.KeptBlocks = j.Plan.Parent, j.Plan.Kept
	if j.done.Snapshot == "" {
		w.starting = true
		snapshot, err := w.c.Blocks.Start(ctx, j.Start)
		if err == nil || errors.Is(err, ErrRefused) {
			w.starting = false
		}
		if err != nil {
			return err
		}
		if err := j.append(journalEntry{Snapshot: snapshot}); err != nil {
			return err
		}
	}
	w.result.Snapshot = j.done.Snapshot
	if !j.done.Complete {
		if err := w.sendBlocks(ctx); err != nil {
			return err
		}
		if err := w.complete(ctx); err != nil {
			return err
		}
	}
	return w.c.Snapshots.WaitSnapshot(ctx, j.done.Snapshot)
}

// complete completes the snapshot. An earlier attempt may have done so without hearing of it.
func (w *publication) complete(ctx context.Context) error {
	j := w.journal
	err := w.c.Blocks.Complete(ctx, j.done.Snapshot, len(j.Plan.Writes), j.Plan.Checksum())
	if errors.Is(err, ErrGone) {
		// One that is neither failed nor missing takes no blocks because it was completed: WaitSnapshot sees to the rest.
		if state, asked := w.c.Snapshots.SnapshotState(ctx, j.done.Snapshot); asked == nil && (state == Available || state == Pending) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return j.append(journalEntry{Complete: true})
}

// register makes the image and waits for it.
func (w *publication) register(ctx context.Context) error {
	w.registering = true
	image, err := w.c.Images.Register(ctx, Registration{
		Name: w.result.Name, Description: w.result.Description, Architecture: w.request.Architecture,
		Snapshot: w.journal.done.Snapshot, Volume: w.journal.Plan.Volume, Tags: w.result.Tags, UEFI: w.request.UEFI, SecureBoot: w.request.SecureBoot,
	})
	if errors.Is(err, ErrNameTaken) {
		return w.resolveNameTaken(ctx, err)
	}
	if err != nil {
		return err
	}
	w.result.Image = image
	return w.c.Images.WaitImage(ctx, image)
}

// errNotVisible is an image that must exist but is not visible yet.
var errNotVisible = errors.New("no image of the same content is shown")

// resolveNameTaken uses the image that has the name: another process registered it, or this one did and lost the reply.
func (w *publication) resolveNameTaken(ctx context.Context, taken error) error {
	ours := w.result.Snapshot
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		found, err := w.find(ctx, w.result, nil)
		switch {
		case err != nil:
			return struct{}{}, backoff.Permanent(err)
		case !found:
			return struct{}{}, errNotVisible
		}
		return struct{}{}, nil
	}, backoff.WithMaxElapsedTime(w.c.ConsistencyWait))
	switch {
	case errors.Is(err, errNotVisible):
		return fmt.Errorf("image %s: %w, which Hardtack has not published; choose another name, or remove that image", w.result.Name, taken)
	case err != nil:
		return err
	case w.result.Snapshot == ours:
		w.result.Found = false
		return nil
	}
	return w.c.Snapshots.DeleteSnapshot(ctx, ours)
}
