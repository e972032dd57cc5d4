package publish

import (
	"context"
	"errors"
	"time"
)

// What callers decide by.
var (
	// ErrNameTaken is a registration under a name that another image has.
	ErrNameTaken = errors.New("another image has that name")
	// ErrDamaged is a block that did not arrive as it was sent.
	ErrDamaged = errors.New("the block did not arrive as it was sent")
	// ErrGone is a snapshot that is not there, or to which nothing can be written any more.
	ErrGone = errors.New("the snapshot takes no blocks any more")
	// ErrRefused is a call that was answered with a refusal: nothing has come of it.
	ErrRefused = errors.New("AWS has refused it")
	// ErrParent is a snapshot that no other can be started from, or not so.
	ErrParent = errors.New("the snapshot cannot be a parent")
)

// Start says what a snapshot begins as. A snapshot with a parent is encrypted as the parent is, and not otherwise.
type Start struct {
	// Token makes the call the same one when it is made again: 64 ASCII characters at most.
	Token string
	// Volume is in GiB.
	Volume int64
	Parent string
	// Key encrypts: a KMS key's ARN. "default" is the account's own.
	Key         string
	Description string
	Tags        map[string]string
}

// Listed is a block of a finished snapshot, and what it takes to read it.
type Listed struct {
	Block int32
	Token string
}

// Snapshots are written and read block by block. Calls are tried again inside, as long as that makes sense, each
// attempt with a deadline of its own; they may be made by several goroutines.
type Snapshots interface {
	// Start begins a snapshot; ErrRefused and ErrParent are told.
	Start(context.Context, Start) (snapshot string, err error)
	// Put writes a block. It may be written again; ErrDamaged and ErrGone say what went wrong.
	Put(ctx context.Context, snapshot string, block int32, content []byte, digest Digest) error
	// Complete ends the writing. blocks and checksum (Plan.Checksum) are of all that was written.
	Complete(ctx context.Context, snapshot string, blocks int, checksum Digest) error
	// List lists the blocks that a completed snapshot holds, in order.
	List(ctx context.Context, snapshot string) ([]Listed, error)
	// Get reads a block of a completed snapshot into content, and proves it by the checksum that comes with it.
	Get(ctx context.Context, snapshot string, block Listed, content []byte) error
}

// State is how a snapshot or an image fares.
type State string

// The states; what AWS calls otherwise is Failed.
const (
	Pending   State = "pending"
	Available State = "available" // an image that can be launched, a snapshot that is complete
	Failed    State = "failed"
	Missing   State = "missing"
)

// Image is a machine image and the snapshot of its root volume.
type Image struct {
	ID, Name string
	State    State
	// Reason is what AWS says of a failed image.
	Reason       string
	Architecture string
	Snapshot     string
	// Volume is the root volume's size in GiB.
	Volume  int64
	Created time.Time
	Tags    map[string]string
	// Launched is when it was last used for an instance, in whatever account; zero: never, or AWS does not say.
	Launched time.Time
}

// Registration says what an image is.
type Registration struct {
	Name, Description, Architecture, Snapshot string
	Volume                                    int64
	Tags                                      map[string]string
}

// Images are the machine images of one account in one region.
type Images interface {
	// Find lists the account's own images with all these tags, whatever their state, the newest first. An empty
	// value stands for any.
	Find(ctx context.Context, tags map[string]string) ([]Image, error)
	// Register makes an image; ErrNameTaken is told.
	Register(context.Context, Registration) (image string, err error)
	// Deregister removes an image; one that is not there is no error.
	Deregister(ctx context.Context, image string) error
	// WaitImage returns when the image can be launched.
	WaitImage(ctx context.Context, image string) error
}

// Keeper looks after snapshots as a whole.
type Keeper interface {
	// SnapshotState is how a snapshot fares.
	SnapshotState(ctx context.Context, snapshot string) (State, error)
	// WaitSnapshot returns when the snapshot is complete.
	WaitSnapshot(ctx context.Context, snapshot string) error
	// DeleteSnapshot removes a snapshot, pending or not; one that is not there is no error.
	DeleteSnapshot(ctx context.Context, snapshot string) error
}
