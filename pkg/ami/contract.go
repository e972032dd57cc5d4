package ami

import (
	"context"
	"errors"
	"time"
)

// The errors that callers handle differently.
var (
	// ErrNameTaken is a registration under a name that another image has.
	ErrNameTaken = errors.New("another image has that name")
	// ErrDamaged is a block that did not arrive as it was sent.
	ErrDamaged = errors.New("the block did not arrive as it was sent")
	// ErrGone is a snapshot that does not exist, or takes no more blocks.
	ErrGone = errors.New("the snapshot takes no blocks any more")
	// ErrRefused is a request that AWS refused: it had no effect.
	ErrRefused = errors.New("AWS has refused it")
	// ErrParent is a parent snapshot that this request cannot use.
	ErrParent = errors.New("the snapshot cannot be a parent")
)

// StartRequest describes a new snapshot. A snapshot with a parent has the parent's encryption, whatever Key says.
type StartRequest struct {
	// Token makes the request idempotent: a repeated request with the same token starts no second snapshot. At most 64
	// ASCII characters.
	Token string
	// Volume is in GiB.
	Volume int64
	Parent string
	// Key is the ARN of the KMS key that encrypts the snapshot; "default" is the account's own key, and empty leaves
	// encryption to the account's settings.
	Key         string
	Description string
	Tags        map[string]string
}

// StoredBlock is a block of a completed snapshot, with the token that reading it needs.
type StoredBlock struct {
	Block int32
	Token string
}

// Blocks writes and reads snapshots block by block. Implementations retry calls that may succeed later and give each
// attempt a deadline. They are safe for concurrent use.
type Blocks interface {
	// Start starts a snapshot. Its errors match ErrRefused and ErrParent.
	Start(context.Context, StartRequest) (snapshot string, err error)
	// Put writes a block, and may be repeated for the same block. Its errors match ErrDamaged and ErrGone.
	Put(ctx context.Context, snapshot string, block int32, content []byte, digest Digest) error
	// Complete ends the writing. blocks is the number of blocks written and checksum is Plan.Checksum.
	Complete(ctx context.Context, snapshot string, blocks int, checksum Digest) error
	SnapshotReader
}

// SnapshotReader reads completed snapshots, under the same rules as Blocks.
type SnapshotReader interface {
	// List lists the blocks that a completed snapshot holds, in order.
	List(ctx context.Context, snapshot string) ([]StoredBlock, error)
	// Get reads a block of a completed snapshot into content and verifies its checksum.
	Get(ctx context.Context, snapshot string, block StoredBlock, content []byte) error
}

// State is the state of a snapshot or an image.
type State string

// The states; what AWS calls otherwise is Failed.
const (
	// The states. Any other state of AWS's counts as Failed.
	Pending   State = "pending"
	Available State = "available" // an image that can be launched, a snapshot that is complete
	// Disabled is an image that its owner has taken out of use, and can enable again: it keeps its name and its snapshot.
	Disabled State = "disabled"
	Failed   State = "failed"
	Missing  State = "missing"
)

// Image is a machine image and the snapshot of its root volume.
type Image struct {
	ID, Name string
	State    State
	// Reason is AWS's explanation of a failed image.
	Reason       string
	Architecture string
	Snapshot     string
	// Volume is the root volume's size in GiB.
	Volume int64
	// Disks counts the image's disks, the root volume included.
	Disks   int
	Created time.Time
	Tags    map[string]string
	// Launched is when an instance was last launched from it, in any account; zero is never or not known.
	Launched time.Time
}

// Kubernetes is the image's version of Kubernetes, as v1.36.3; empty if its tags do not say it.
func (i Image) Kubernetes() string { return i.Tags[TagKubernetes] }

// Registration describes an image to register.
type Registration struct {
	Name, Description, Architecture, Snapshot string
	Volume                                    int64
	Tags                                      map[string]string
	// UEFI says that no firmware but UEFI starts the image.
	UEFI bool
	// SecureBoot is Request.SecureBoot.
	SecureBoot []byte
}

// Images are the machine images of one account in one region.
type Images interface {
	// Find lists the account's own images with all these tags, in any state, the newest first. An empty
	// value matches any.
	Find(ctx context.Context, tags map[string]string) ([]Image, error)
	// Register registers an image. The error matches ErrNameTaken if another image has the name.
	Register(context.Context, Registration) (image string, err error)
	// Deregister removes an image; one that is not there is no error.
	Deregister(ctx context.Context, image string) error
	// WaitImage returns when the image can be launched.
	WaitImage(ctx context.Context, image string) error
}

// Snapshots waits for snapshots and deletes them.
type Snapshots interface {
	// SnapshotState returns the state of a snapshot, Missing if it does not exist.
	SnapshotState(ctx context.Context, snapshot string) (State, error)
	// WaitSnapshot returns when the snapshot is complete.
	WaitSnapshot(ctx context.Context, snapshot string) error
	// DeleteSnapshot deletes a snapshot, pending or completed. A snapshot that does not exist is no error.
	DeleteSnapshot(ctx context.Context, snapshot string) error
}
