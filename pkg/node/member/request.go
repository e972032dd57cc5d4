package member

import (
	"context"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// requests are the operator's requests for a backup in one epoch, as far as they were read.
type requests struct {
	epoch, number int
	last          *etcd.Request // nil if there is none
	// answered is the newest that has its backup, and taking the newest that was read before the one that is being taken.
	answered, taking int
}

// asked reports whether an operator has asked for a backup that nobody has taken since. A store that does not answer is asked
// again with the next status.
func (m *Member) asked(ctx context.Context, epoch int, newest *etcd.Backup) bool {
	r := &m.requests
	if r.epoch != epoch {
		*r = requests{epoch: epoch}
	}
	for {
		next, err := read[etcd.Request](ctx, m, etcd.RequestObject(epoch, r.number+1))
		if err != nil || next == nil {
			break
		}
		r.number, r.last = r.number+1, next
	}
	if r.last != nil && newest != nil && newest.At.After(r.last.At) {
		r.answered = r.number // by the leader before
	}
	return r.number > r.answered
}
