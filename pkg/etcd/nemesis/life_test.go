package nemesis

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// life is a cluster that was formed: an epoch. A restored one begins with what an earlier one had up to a revision.
type life struct {
	epoch    int
	cluster  string // its ID as its answers have it
	from     *life
	revision int64
}

// lives are the clusters that were formed, the first one first.
func (r *records) lives() (all []*life) {
	objects, byEpoch := r.copy(), map[int]*life{}
	for n := 1; n <= r.epoch(); n++ {
		outcome, err := etcd.Parse[etcd.Outcome](objects[etcd.OutcomeObject(n)])
		if err != nil || outcome.Formed == nil {
			continue
		}
		l := &life{epoch: n, cluster: strconv.FormatUint(uint64(outcome.Formed.ClusterID), 10)}
		begin, err := etcd.Parse[etcd.Begin](objects[etcd.BeginObject(n)])
		if err == nil && begin.Restore != nil {
			of, _ := strconv.Atoi(strings.Split(begin.Restore.Object, "/")[1]) // <cluster>/<epoch>/<time>-<revision>.db
			l.from, l.revision = byEpoch[of], begin.Restore.Revision
		}
		byEpoch[n] = l
		all = append(all, l)
	}
	return all
}

// of is whose answer an operation got; nil if of a cluster that was never formed. Restored clusters begin with revisions
// that are bump ahead, so that two can be told apart which wrongly have one ID.
func of(o operation, lives []*life) (found *life) {
	for _, l := range lives {
		if o.known && o.cluster == l.cluster && (l.from == nil || o.revision >= l.revision+bump) {
			found = l
		}
	}
	return found
}

// clusters finds a cluster that answers and was never formed, and one that answers after its successor has: so two
// clusters under one name.
func clusters(ops []operation, lives []*life) (wrong []string) {
	first := map[*life]time.Duration{}
	for _, l := range lives {
		first[l] = math.MaxInt64
	}
	unknown := map[string]bool{}
	for _, o := range ops {
		switch l := of(o, lives); {
		case !o.known:
		case l == nil && !unknown[o.cluster]:
			unknown[o.cluster] = true
			wrong = append(wrong, fmt.Sprintf("%s answers for cluster %s, which was never formed", o.by, o.cluster))
		case l != nil:
			first[l] = min(first[l], o.answer)
		}
	}
	for _, o := range ops {
		for _, l := range lives {
			if mine := of(o, lives); mine != nil && mine.epoch < l.epoch && o.call > first[l] {
				return append(wrong, fmt.Sprintf("two clusters: %s answers for epoch %d at %.3f s, and epoch %d has answered at %.3f s", o.by, mine.epoch, o.call.Seconds(), l.epoch, first[l].Seconds()))
			}
		}
	}
	return wrong
}

// prefix holds what a restored cluster returns against the backup: of what was acknowledged before, exactly what had a
// revision up to the backup's is there.
func prefix(ops []operation, lives []*life) (wrong []string) {
	for _, l := range lives {
		for _, o := range ops {
			if l.from == nil || o.write || of(o, lives) != l || o.modified > l.revision+bump {
				continue
			}
			if text := l.restored(o, ops, lives); text != "" {
				wrong = append(wrong, fmt.Sprintf("%s of epoch %d reads %s=%q: %s", o.by, l.epoch, o.key, o.value, text))
			}
		}
	}
	return wrong[:min(len(wrong), 3)]
}

// bump is how far the revisions of a restored cluster are ahead of its backup's, as pkg/etcd/backup makes it.
const bump = 1_000_000_000

// restored compares what was read, and was written in an earlier life, with what that one acknowledged.
func (l *life) restored(o operation, ops []operation, lives []*life) string {
	from, limit := l.from, l.revision
	for o.modified <= from.revision && from.from != nil { // the backup's own epoch was restored
		from, limit = from.from, from.revision
	}
	if o.modified > limit {
		return fmt.Sprintf("revision %d is later than the backup's, %d", o.modified, limit)
	}
	for _, before := range ops {
		if !before.write || of(before, lives) != from || before.key != o.key || before.revision > limit {
			continue
		}
		if before.revision > o.modified {
			return fmt.Sprintf("revision %d is older than %d, which the backup of revision %d has", o.modified, before.revision, limit)
		}
		if before.revision == o.modified && before.value != o.value {
			return fmt.Sprintf("revision %d was acknowledged as %q", o.modified, before.value)
		}
	}
	return ""
}
