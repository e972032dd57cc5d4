// Package reconcile keeps a cluster's DNS records equal to the healthy members of its groups.
//
// Its rule: level-triggered compare-and-swap. Every call first reads the records and then the groups, and replaces the
// generation record in the same atomic batch. So of two overlapping calls, the one that read the groups earlier can
// never overwrite the other. Events only trigger a call; their content is not used.
//
// A call that finds nothing to change writes nothing, and so does not stop an older call that is still running. That
// one may commit a reading that is a second old (a change that waits longer reads the groups again), though never one
// older than the published one; the next sweep corrects it. This is why there is a sweep.
//
// Nothing publishes a machine whose hook was completed: the hook waits until a generation says that the machine has left,
// which makes every change of an older reading a conflict, also if the machine was never published.
package reconcile

import (
	"context"
	"errors"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// The errors of a Zone that callers handle differently.
var (
	// ErrConflict: the zone has changed since it was read. Nothing was written; read again.
	ErrConflict = errors.New("the records have changed since they were read")
	// ErrThrottled: the DNS service throttles. Nothing was written; wait.
	ErrThrottled = errors.New("the DNS service asks to slow down")
	// ErrUnknownOutcome: the reply was lost, so the batch may or may not be committed. Read again.
	ErrUnknownOutcome = errors.New("whether the records were changed is not known")
)

// Zone is a compare-and-swap store of a cluster's record sets. It must be safe for concurrent use by several processes.
type Zone interface {
	// Read returns every managed record set at <cluster>.k8s and below, including the generation record and pending
	// changes that are already applied, and the sets by which other programs mark names as theirs (record.Marks). A
	// partial reading is an error.
	Read(ctx context.Context, cluster string) ([]record.Set, error)
	// CompareAndSwap replaces the sets remove (exactly as read) by create in one atomic batch, or changes nothing: if a
	// set of remove differs, or a set with the name and type of one of create exists, the error matches ErrConflict.
	CompareAndSwap(ctx context.Context, cluster string, remove, create []record.Set) error
	// Limits returns the limits of a set and of a batch.
	Limits() record.Limits
}

// Fleet reads groups and their machines.
type Fleet interface {
	// Read returns the groups of the cluster, never a part of them. A cluster without groups is a Fleet without groups
	// and no error.
	Read(ctx context.Context, cluster string) (record.Fleet, error)
}

// Hooks completes the lifecycle hooks of waiting machines.
type Hooks interface {
	// Complete completes the machine's hook with CONTINUE. A machine that is no longer waiting is no error.
	Complete(ctx context.Context, group, instanceID string) error
}
