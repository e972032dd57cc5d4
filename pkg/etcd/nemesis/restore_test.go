package nemesis

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/backup"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// backupEvery is how old the newest backup becomes, by the agents' clock: seconds of a schedule.
const backupEvery = 3 * time.Minute

// place is where the backups of the world's cluster are.
func (w *world) place() (backup.Place, error) {
	root := filepath.Join(w.dir, "backups")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	return backup.Open("dir:"+root, backup.Options{Cluster: clusterName})
}

// keeper takes and restores backups for a machine, with the programs of the image; nil if the world has no place for them.
func (m *machine) keeper() (member.Backups, error) {
	if !m.w.backups {
		return nil, nil
	}
	place, err := m.w.place()
	if err != nil {
		return nil, err
	}
	return &backup.Keeper{Place: place, Cluster: clusterName, Scratch: filepath.Join(m.mountpoint(), etcd.BackupDir), Program: filepath.Join(m.w.etcd, "etcdutl"), Clock: fast{m}}, nil
}

// shelf is the place of backups to an operator's commands.
type shelf struct{ backup.Place }

func (s shelf) List(ctx context.Context) ([]operate.Object, error) {
	list, err := s.Place.List(ctx)
	all := make([]operate.Object, 0, len(list))
	for _, o := range list {
		all = append(all, operate.Object(o))
	}
	return all, err
}

// saved waits for a backup of the newest epoch, which its leader takes.
func (s *schedule) saved() []operate.Object {
	place, err := s.place()
	if err != nil {
		s.t.Fatal(err)
	}
	var all []operate.Object
	s.until(func() bool {
		newest, err := place.Newest(s.ctx, s.store.epoch())
		return err == nil && newest != nil
	})
	if all, err = (shelf{place}).List(s.ctx); err != nil {
		s.breach("listing the backups: %v", err)
	}
	return all
}

// restore is the operator who restores a backup, the newest or any other, and repeats the command. It reports whether there
// was a backup.
func (s *schedule) restore() bool {
	all := s.saved()
	if len(all) == 0 {
		s.logf("there is no backup to restore")
		return false
	}
	from := all[s.rng.IntN(len(all))]
	var err error
	for range 300 { // the members' reports may be old, and then it is refused
		var done *operate.Restored
		if done, err = s.operator().Restore(s.ctx, operate.RestoreOptions{From: from.Name, LoseSince: s.began}); err == nil {
			s.logf("hardtack etcd restore --from %s: epoch %d, begun %t", from.Name, done.Epoch, done.Begun)
			s.wiped = false
			break
		}
		if sleep(s.ctx, 100*time.Millisecond) != nil {
			return false
		}
	}
	if err != nil {
		s.breach("hardtack etcd restore --from %s refuses, and nothing changes that: %v", from.Name, err)
		return false
	}
	before := s.store.epoch()
	for range s.rng.IntN(3) {
		again, err := s.operator().Restore(s.ctx, operate.RestoreOptions{From: from.Name, LoseSince: s.began})
		if err == nil && again.Begun && s.store.epoch() > before {
			s.logf("the repeated command begins epoch %d", again.Epoch)
		}
	}
	return true
}

// restores are faults after which an operator restores a backup. A schedule has one of them at most.
var restores = []fault{
	{"two lose their volumes while the third is off, and the operator restores", func(s *schedule) {
		if len(s.saved()) == 0 {
			return
		}
		third := s.loseOthers()
		s.sleep(100, 1500)
		if s.rng.IntN(2) == 0 {
			third.start(s.ctx, s.run)
			s.restore()
			return
		}
		s.restore()
		s.sleep(100, 3000)
		third.start(s.ctx, s.run)
	}},
	{"the operator restores while all runs", func(s *schedule) { s.restore() }},
	{"the operator restores, and all machines lose power", func(s *schedule) {
		s.restore()
		s.sleep(1, 2500)
		s.blackout()
		for _, m := range s.at {
			m.start(s.ctx, s.run)
		}
	}},
	{unseen, func(s *schedule) {
		seat, m := s.any()
		s.saved()
		m.remembers(s.store.copy())
		s.cut(m, true)
		if s.restore() && s.rng.IntN(3) > 0 {
			s.until(s.store.formed)
			s.acknowledges(5, 5*time.Second, s.others(seat)...)
		}
		s.join(m)
		s.sleep(100, 3000)
		m.remembers(nil)
	}},
	{oneOnly, func(s *schedule) {
		all := s.saved()
		if len(all) == 0 {
			return
		}
		seat, _ := s.any()
		before := s.store.copy()
		for _, m := range s.others(seat) {
			m.remembers(before)
		}
		s.beginFor(seat, all[0])
		alone := s.at[seat]
		s.until(func() bool { // its etcd runs for its own machine, and it is that one's agent to say whether for clients too
			said, err := alone.ask(s.ctx, etcd.ClosedURL())
			return err == nil && said.Leader == said.ID || s.store.formed()
		})
		if s.within(time.Second, s.store.formed) {
			s.acknowledges(3, 5*time.Second, alone)
			s.acknowledges(3, time.Second, s.others(seat)...)
		}
		for _, m := range s.others(seat) {
			m.remembers(nil)
		}
		s.sleep(500, 1500)
		s.again(all[0])
	}},
}

// unseen is a restore of which one machine learns late, when it already reaches the others.
const unseen = "the operator restores, and a machine neither sees it nor the others"

// oneOnly is a restore as operate's Restore refuses it: as if the other members were off.
const oneOnly = "an epoch begins for one member alone, while the two others do not see it"

// beginFor begins an epoch from a backup for one seat alone.
func (s *schedule) beginFor(seat string, from operate.Object) {
	begin := etcd.Begin{Token: etcd.NewToken(), Members: []etcd.Peer{{Name: seat, URL: peerURL(seat)}}, Previous: slices.Clone(s.seats),
		Restore: &etcd.Restore{Object: from.Name, SHA256: from.SHA256, Revision: from.Revision}}
	object := etcd.BeginObject(s.store.epoch() + 1)
	err := s.store.Create(s.ctx, object, etcd.Encode(begin))
	s.logf("%s for %s alone: %v", object, seat, err)
}

// again is the operator who begins once more, for all seats.
func (s *schedule) again(from operate.Object) {
	var err error
	for range 300 {
		var done *operate.Restored
		if done, err = s.operator().Restore(s.ctx, operate.RestoreOptions{From: from.Name, LoseSince: s.began, Again: true}); err == nil {
			s.logf("hardtack etcd restore --again --from %s: epoch %d, begun %t", from.Name, done.Epoch, done.Begun)
			break
		}
		if sleep(s.ctx, 100*time.Millisecond) != nil {
			return
		}
	}
	if err != nil {
		s.breach("hardtack etcd restore --again refuses, and nothing changes that: %v", err)
	}
}
