package nemesis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// torn is a learner's loss of power after which etcd's own data contradict each other.
//
// A learner gets the leader's database as a file beside its own, and etcd renames it into the place of its own
// (storage/backend.go, OpenSnapshotBackend) without syncing the directory. It then closes the database that was there before,
// which by now has no name, and writes into that one as its last word the index of the snapshot (BackendHooks.OnPreCommitUnsafe
// asks for the index of the new one). That write is synced. A loss of power that comes before the file system has written the
// rename leaves an empty database that says it has the whole snapshot: etcd skips the snapshot, knows no member, and panics at
// the first entry of the log that is about one.
const torn = "a volume is lost, and the machine that joins in its place loses power when it has just taken the leader's data"

var tornFault = fault{torn, func(s *schedule) {
	seat, m := s.any()
	s.lose(seat, m)
	s.launch(seat)
	s.replace(seat)
	s.tear(seat)
}}

// tornVoter is the same loss a moment later, when a learner has been promoted: nobody gives a voter's data up, so that what it
// has must be on stable storage before.
const tornVoter = "two members more come, and lose power when they have just got their votes"

var tornVoterFault = fault{tornVoter, func(s *schedule) {
	s.widen()
	for _, seat := range spare {
		m := s.at[seat]
		if !s.until(func() bool { return s.votes(m) }) {
			s.breach("%s gets no vote", seat)
		}
	}
	for _, seat := range spare {
		s.at[seat].crash()
	}
	for _, seat := range spare {
		m := s.at[seat]
		m.start(s.ctx, s.run)
		if !s.until(func() bool { return s.votes(m) }) {
			s.breach("%s does not come back with its vote", seat)
		}
	}
	s.becomes()
	s.shrink()
}}

// votes reports whether a machine's etcd says that it is a voter.
func (s *schedule) votes(m *machine) bool {
	said, err := m.ask(s.ctx, "https://"+m.address.String()+":"+clientPort)
	return err == nil && said.Applied > 0 && !said.Learner
}

// keptName is the second name of the database that a learner begins with.
const keptName = "database-before"

// tear takes the power of a seat's machine when its learner has exchanged its database. Mostly ext4 has not written the exchange
// by then. If it has, the exchange is taken back: the old database with all that was synced of it, and the new one under the name
// that it came with, are what a file system may leave that was asked to sync neither name.
func (s *schedule) tear(seat string) {
	m := s.at[seat]
	top := m.mountpoint()
	dir := filepath.Join(top, etcd.DataDir, "member", "snap")
	kept := filepath.Join(top, keptName)
	// An agent that begins anew makes a new directory, with a new first database.
	exchanged := s.until(func() bool {
		now, err := os.Stat(filepath.Join(dir, "db"))
		if err != nil {
			return false
		}
		if snapshotIndex(dir) == "" {
			before, err := os.Stat(kept)
			if err != nil || !os.SameFile(before, now) {
				_ = os.Remove(kept)
				_ = os.Link(filepath.Join(dir, "db"), kept)
			}
			return false
		}
		before, err := os.Stat(kept)
		return err == nil && !os.SameFile(before, now) && closed(kept)
	})
	v := m.volume()
	m.crash()
	if !exchanged || v == nil {
		s.logf("the learner of %s did not exchange its database under our eyes", seat)
	} else if err := v.untie(); err != nil {
		s.breach("%s: %v", v.id, err)
	} else {
		s.torn.Add(1)
	}
	m.start(s.ctx, s.run)
}

// snapshotIndex is the index of the snapshot that a member has taken, in the form of its file's name
// (api/snap/snapshotter.go: term and index); "" if it has none.
func snapshotIndex(dir string) string {
	names, _ := filepath.Glob(filepath.Join(dir, "*.snap"))
	if len(names) == 0 {
		return ""
	}
	_, index, _ := strings.Cut(strings.TrimSuffix(filepath.Base(names[len(names)-1]), ".snap"), "-")
	return index
}

// closed reports whether no process has a database open: bbolt locks it while it has.
func closed(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// untie takes the exchange of the databases back on a volume that is not mounted.
func (v *ebs) untie() (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, err := os.MkdirTemp(v.w.dir, "untie-")
	if err != nil {
		return err
	}
	if err := unix.Mount(v.device, at, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mounting what is left: %w", err)
	}
	defer func() {
		for range 200 {
			busy := unix.Unmount(at, 0)
			if !errors.Is(busy, unix.EBUSY) {
				err = errors.Join(err, busy)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	dir, kept := filepath.Join(at, etcd.DataDir, "member", "snap"), filepath.Join(at, keptName)
	db := filepath.Join(dir, "db")
	before, err := os.Stat(kept)
	if err != nil {
		return err
	}
	now, err := os.Stat(db)
	if err != nil {
		return err
	}
	if os.SameFile(before, now) { // the loss of power did it by itself
		v.w.logf("the exchange of the databases on %s is lost", v.id)
		return os.Remove(kept)
	}
	v.w.logf("the exchange of the databases on %s is taken back", v.id)
	return errors.Join(os.Rename(db, filepath.Join(dir, snapshotIndex(dir)+".snap.db")), os.Rename(kept, db))
}
