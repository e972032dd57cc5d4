package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// Keeper takes and restores the backups of a cluster for a member's machine. It implements member.Backups, and is safe for
// concurrent use.
type Keeper struct {
	Place   Place
	Cluster string
	// Scratch is a directory for snapshots on their way. What is in it is removed.
	Scratch string
	// Program is etcdutl.
	Program string
	Clock   clock.Clock

	working sync.Mutex // one snapshot at a time is in Scratch
	tidied  bool       // Scratch has nothing of a process before this one; with working locked
	mu      sync.Mutex
	known   map[int]seen // by epoch
}

var _ member.Backups = (*Keeper)(nil)

// seen is the newest backup of an epoch, nil if there was none, and when the place said so.
type seen struct {
	backup *etcd.Backup
	at     time.Time
}

// stale is how old an answer of the place may be: every member asks once a minute, and each answer has a price.
const stale = 5 * time.Minute

// Newest implements member.Backups. What other machines have taken it knows within some minutes.
func (k *Keeper) Newest(ctx context.Context, epoch int) (*etcd.Backup, error) {
	if err := k.tidy(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Clock.Now()
	if s, ok := k.known[epoch]; ok && now.Sub(s.at) < stale {
		return s.backup, nil
	}
	o, err := k.Place.Newest(ctx, epoch)
	if err != nil {
		return nil, err
	}
	s := seen{at: now}
	if o != nil {
		s.backup = o.Backup()
	}
	k.know(epoch, s)
	return s.backup, nil
}

// tidy removes what a process that was killed has left in Scratch: it is the member's own disk, and this machine may not have a
// snapshot to save for weeks.
func (k *Keeper) tidy() error {
	if !k.working.TryLock() {
		return nil
	}
	defer k.working.Unlock()
	if k.tidied {
		return nil
	}
	if err := os.RemoveAll(k.Scratch); err != nil {
		return fmt.Errorf("removing what is left of a backup: %w", err)
	}
	k.tidied = true
	return nil
}

// know remembers the newest backup; k.mu is locked.
func (k *Keeper) know(epoch int, s seen) {
	if k.known == nil {
		k.known = map[int]seen{}
	}
	k.known[epoch] = s
}

// Take implements member.Backups: it gets a snapshot from a member, checks the digest at its end, restores it for a trial
// and compares what came out, and only then stores it.
func (k *Keeper) Take(ctx context.Context, epoch int, from member.Peer) error {
	k.working.Lock()
	defer k.working.Unlock()
	o, err := k.take(ctx, epoch, from)
	// The scratch space is the member's own disk.
	if err = errors.Join(err, os.RemoveAll(k.Scratch)); err != nil {
		return fmt.Errorf("taking a backup: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.know(epoch, seen{backup: o.Backup(), at: k.Clock.Now()})
	return nil
}

func (k *Keeper) take(ctx context.Context, epoch int, from member.Peer) (o Object, err error) {
	status, err := from.Status(ctx)
	if err != nil {
		return o, err
	}
	members, err := from.Members(ctx)
	if err != nil {
		return o, err
	}
	o = Object{Epoch: epoch, ClusterID: status.ClusterID, Version: status.Version}
	for _, m := range members.Members {
		if m.ID == status.ID {
			o.Member = m.Name
		}
	}
	if err := k.room(2 * status.Size); err != nil {
		return o, err
	}
	file := filepath.Join(k.Scratch, "snapshot.db")
	o.Taken = k.Clock.Now().UTC().Truncate(time.Second)
	if o.Size, o.SHA256, err = save(ctx, from, file); err != nil {
		return o, err
	}
	found, err := k.try(ctx, file)
	if err != nil {
		return o, err
	}
	o.Revision, o.Keys = found.Revision, found.TotalKey
	o.Name = Name(k.Cluster, epoch, o.Taken, o.Revision)
	return o, k.Place.Put(ctx, o, file)
}

// logSpace is what etcd allocates for a new log, in bytes, twice: the log and what is prepared for the next.
const logSpace = 128 << 20

// room makes the scratch directory anew, and compares its free space with what is needed beside a log.
func (k *Keeper) room(need int64) error {
	if err := errors.Join(os.RemoveAll(k.Scratch), os.MkdirAll(k.Scratch, 0o700)); err != nil {
		return fmt.Errorf("making room for a snapshot: %w", err)
	}
	has, err := free(k.Scratch)
	if need += logSpace; err == nil && has < need {
		err = fmt.Errorf("%s has %d MiB free, and a snapshot and its trial need %d: make etcd's volume larger (etcd.size)", k.Scratch, has>>20, need>>20)
	}
	return err
}

// save writes a member's snapshot to a file, and returns its size and SHA-256.
func save(ctx context.Context, from member.Peer, file string) (size int64, sha256 string, err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, "", fmt.Errorf("saving a snapshot: %w", err)
	}
	d := newDigest(f)
	err = from.Snapshot(ctx, d)
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.check()
	}
	return d.size, d.sum(), err
}

// Restore implements member.Backups.
func (k *Keeper) Restore(ctx context.Context, begin etcd.Begin, name, dir string) error {
	k.working.Lock()
	defer k.working.Unlock()
	err := k.restore(ctx, begin, name, dir)
	if err = errors.Join(err, os.RemoveAll(k.Scratch)); err != nil {
		return fmt.Errorf("restoring the backup %s: %w", begin.Restore.Object, err)
	}
	return nil
}

func (k *Keeper) restore(ctx context.Context, begin etcd.Begin, name, dir string) error {
	if err := k.room(0); err != nil {
		return err
	}
	file := filepath.Join(k.Scratch, "snapshot.db")
	if err := k.download(ctx, *begin.Restore, math.MaxInt64, file); err != nil {
		return err
	}
	// Where a power loss or a full disk ends this, the directory's name stays free.
	unfinished := dir + ".new"
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(filepath.Dir(dir), 0o700)); err != nil {
		return err
	}
	if err := k.rebuild(ctx, begin, name, file, unfinished); err != nil {
		return err
	}
	return errors.Join(syncTree(unfinished), os.Rename(unfinished, dir), syncDir(filepath.Dir(dir)))
}

// download gets a snapshot of at most some bytes, and compares it with what is known of it. Its error matches
// member.ErrDamaged if it is another one.
func (k *Keeper) download(ctx context.Context, want etcd.Restore, most int64, file string) (err error) {
	in, err := k.Place.Open(ctx, want.Object)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	d := newDigest(f)
	_, err = io.Copy(d, io.LimitReader(in, most))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("getting it from %s: %w", k.Place, err)
	}
	if d.sum() != want.SHA256 {
		return fmt.Errorf("it has the SHA-256 %s in %s, and was stored with %s: %w", d.sum(), k.Place, want.SHA256, member.ErrDamaged)
	}
	return d.check()
}
