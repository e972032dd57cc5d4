// Package dnssync keeps a cluster's DNS records equal to its groups' healthy members.
//
// Its rule: level-triggered compare-and-swap. Every call reads the records first and the groups after,
// and replaces the generation record in the same atomic batch; so of two calls that overlap, the one
// that read the groups earlier can never overwrite the other. Events are only pokes.
//
// A call that finds nothing to change writes nothing, and so does not stop an older call that is still
// under way: that one may commit a reading which the groups have left again, though never one older than
// what is published. The next sweep makes it good. This is why there is a sweep.
package dnssync

import (
	"context"
	"errors"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// What a Zone's errors are, for the decisions that are made on them (errors.Is).
var (
	// ErrConflict: the zone is not what the base says. Nothing was changed; read again.
	ErrConflict = errors.New("the records have changed since they were read")
	// ErrThrottled: the server asks to slow down. Nothing was changed; wait.
	ErrThrottled = errors.New("the DNS service asks to slow down")
	// ErrUnknownOutcome: the reply was lost; the batch may have been committed or not. Read again.
	ErrUnknownOutcome = errors.New("whether the records were changed is not known")
)

// Zone is a compare-and-swap store of a cluster's record sets.
type Zone interface {
	// Read returns every record set at <cluster>.k8s and below that Hardtack keeps, the generation
	// record included, and pending changes already applied. A partial reading is an error.
	Read(ctx context.Context, cluster string) ([]record.Set, error)
	// CompareAndSwap replaces remove (exactly as read) by create in one atomic batch, or changes
	// nothing: a set of remove that differs or a set of create whose name and type exist is
	// ErrConflict. It may be called by several processes at once.
	CompareAndSwap(ctx context.Context, cluster string, remove, create []record.Set) error
	// Limits says what one set and one batch may hold.
	Limits() record.Limits
}

// Fleet reads groups and their machines.
type Fleet interface {
	// Read returns the whole cluster, or an error: never a part. A cluster without groups is a Fleet
	// without groups.
	Read(ctx context.Context, cluster string) (record.Fleet, error)
}

// Hooks are the lifecycle hooks of machines that wait.
type Hooks interface {
	// Complete lets the machine's group go on (CONTINUE). A machine that waits no longer is no error.
	Complete(ctx context.Context, group, instanceID string) error
}

// Clock is the time; tests bring their own.
type Clock interface {
	Now() time.Time
	// Sleep waits for d or until ctx ends, whose error it then returns.
	Sleep(ctx context.Context, d time.Duration) error
}
