package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// leaderView is which leader a voter has named, and since when.
type leaderView struct {
	leader etcd.ID
	since  time.Time
}

// join takes one step towards being a voter of the formed cluster. more is false if there is something to wait for.
func (m *Member) join(ctx context.Context, f etcd.Facts) (step string, more bool, why etcd.Explanation, err error) {
	j, voters := m.joinFacts(ctx, f)
	a := m.DecideJoin(j)
	step, why = "join: "+a.Do.String(), a.Explain(f)
	asking, cancel := m.answer(ctx)
	defer cancel()
	switch a.Do {
	case etcd.JoinWait, etcd.JoinStop:
		return step, false, why, nil
	case etcd.JoinDone:
		return step, false, why, m.watch(ctx, f)
	case etcd.JoinRecord:
		err = m.record(asking, f, a.ID)
	case etcd.JoinStart:
		err = m.joined(ctx, a, f)
	default:
		if len(voters) == 0 {
			return step, false, why, errors.New("no voter answers")
		}
		err = m.ask(ctx, a, f, voters[0])
	}
	return step, err == nil, why, err
}

// ask takes a step that another member takes for us.
func (m *Member) ask(ctx context.Context, a etcd.JoinAction, f etcd.Facts, voter Peer) (err error) {
	if a.Do == etcd.JoinBackup {
		return m.Backups.Take(ctx, f.Store.Epoch, voter) // as long as it takes
	}
	ctx, cancel := m.answer(ctx)
	defer cancel()
	switch a.Do {
	case etcd.JoinLock:
		m.lease, err = voter.Lock(ctx, m.Instance, etcd.LockFor)
	case etcd.JoinRemove:
		err = voter.Remove(ctx, a.ID)
	case etcd.JoinAdd:
		m.added, err = voter.AddLearner(ctx, m.PeerURL)
	case etcd.JoinPromote:
		if err = m.syncDatabase(); err == nil {
			err = voter.Promote(ctx, a.ID)
		}
	default:
		err = fmt.Errorf("the step %q is not one to ask for", a.Do)
	}
	return err
}

// record writes down under which ID the member will have data, before it has any.
func (m *Member) record(ctx context.Context, f etcd.Facts, id etcd.ID) error {
	if err := m.use(ctx, f, etcd.ByJoin); err != nil {
		return err
	}
	return WriteMarker(m.Dir, etcd.Marker{Cluster: m.Cluster, Member: m.Member, Epoch: f.Store.Epoch, Volume: volume(f), MemberID: id, ClusterID: f.Store.Outcome.Formed.ClusterID})
}

// joined starts etcd under the ID that was added. The ID is forgotten before: it starts once.
func (m *Member) joined(ctx context.Context, a etcd.JoinAction, f etcd.Facts) error {
	if err := m.empty(); err != nil {
		return err
	}
	m.added, m.target = 0, 0
	if err := m.write(a.Environment(f), environment{etcd.Open, etcd.Joining}); err != nil {
		return err
	}
	return m.Service.Start(ctx)
}

// joinFacts gathers what a replacement depends on, and the voters that answer, the leader first.
func (m *Member) joinFacts(ctx context.Context, f etcd.Facts) (etcd.JoinFacts, []Peer) {
	j := etcd.JoinFacts{Facts: f, Added: m.added, Backups: m.Backups != nil, BackupAge: -1}
	voters := m.voters(ctx, &j)
	if f.Etcd.Running {
		m.catchingUp(ctx, &j)
		return j, voters
	}
	now := m.Clock.Now()
	asking, cancel := m.answer(ctx)
	defer cancel()
	if _, err := m.peer(clientURL(m.PeerURL)).Status(asking); err == nil {
		m.silent = time.Time{}
	} else if m.silent.IsZero() {
		m.silent = now
	}
	if !m.silent.IsZero() {
		j.Silent = now.Sub(m.silent)
	}
	if m.lease != 0 && len(voters) > 0 {
		switch err := voters[0].Renew(asking, m.lease); {
		case err == nil:
			j.Lock = etcd.LockMine
		case errors.Is(err, ErrHeld):
			m.lease = 0
		}
	}
	if m.Backups != nil {
		if newest, err := m.Backups.Newest(ctx, f.Store.Epoch); err == nil && newest != nil {
			j.BackupAge = now.Sub(newest.At)
		}
	}
	return j, voters
}

// voters asks every other voter about itself.
func (m *Member) voters(ctx context.Context, j *etcd.JoinFacts) []Peer {
	if j.Facts.List == nil {
		return nil
	}
	var peers []Peer
	now := m.Clock.Now()
	for _, member := range j.Facts.List.Members {
		if member.Learner || m.isMine(member) {
			continue
		}
		peer := m.peer(clientURL(member.PeerURL))
		asking, cancel := m.answer(ctx)
		said, err := peer.Status(asking)
		cancel()
		if err != nil || said.ID != member.ID {
			delete(m.leaders, member.ID)
			continue
		}
		view := m.leaders[member.ID]
		if view.leader != said.Leader {
			view = leaderView{said.Leader, now}
			m.leaders[member.ID] = view
		}
		j.Voters = append(j.Voters, etcd.Voter{ID: said.ID, ClusterID: said.ClusterID, Leader: said.Leader, LeaderFor: now.Sub(view.since), Alarms: len(said.Alarms) > 0})
		if said.Leader == said.ID {
			peers = append([]Peer{peer}, peers...)
			if m.target == 0 && j.Facts.Etcd.Running {
				m.target = said.Applied
			}
			continue
		}
		peers = append(peers, peer)
	}
	return peers
}

// catchingUp asks the own member, a learner, how far it is. It counts when it has said the same twice running.
func (m *Member) catchingUp(ctx context.Context, j *etcd.JoinFacts) {
	j.Target = m.target
	asking, cancel := m.answer(ctx)
	defer cancel()
	said, err := m.mine().Status(asking)
	if err != nil {
		m.said = nil
		return
	}
	before := m.said
	m.said = &etcd.Own{ID: said.ID, Learner: said.Learner, Applied: said.Applied}
	if before != nil && before.ID == said.ID && before.Learner == said.Learner {
		j.Own = m.said
	}
}
