package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// The waits of a leader's machine.
const (
	// upkeepPatience is how long a member may be unwell before an order is given up.
	upkeepPatience = 2 * time.Minute
	// upkeepStep is how long a compaction or a defragmentation may take: 4 GiB are read and written in minutes.
	upkeepStep = 10 * time.Minute
	// upkeepRest is the time between two defragmentations that nobody asked for.
	upkeepRest = time.Hour
	// answerTries is how often the answer to an order is written before it is left to the next look.
	answerTries = 20
)

// upkeep is what this machine does for all members while its own leads. It works beside the loop, since a defragmentation
// takes minutes; it asks members and the store, and touches nothing else of the Member.
type upkeep struct {
	*Member
	epoch  int
	number int // of the order; 0 if nobody asked
	order  etcd.Order
	unread error // why the order cannot be read; nil if it can
	peers  map[string]Peer
	self   etcd.ID
	// recorded: the place of the member to remove has the record of it, without which its machine would join again.
	recorded bool

	mu   sync.Mutex
	work etcd.Work
	over bool
}

// lead looks after all members while this machine's own one leads: what a person asks for, and free space.
func (m *Member) lead(ctx context.Context, f etcd.Facts, said Status) error {
	if m.busy != nil && !m.busy.ended() {
		return nil
	}
	m.busy = nil
	if said.ID == 0 || said.Leader != said.ID || f.Store.Outcome == nil || f.Store.Outcome.Formed == nil {
		return nil
	}
	u := &upkeep{Member: m, epoch: f.Store.Epoch, self: said.ID, peers: map[string]Peer{}}
	number, order, err := m.ordered(ctx, f.Store.Epoch)
	now := m.Clock.Now()
	switch {
	case errors.As(err, new(unreadable)):
		u.number, u.unread = number, err
	case err != nil:
		return err
	case order != nil:
		u.number, u.order = number, *order
	case now.Sub(m.tended) < StatusEvery || !m.rested.IsZero() && now.Sub(m.rested) < upkeepRest:
		return nil
	default:
		m.tended = now
		if facts, _ := u.facts(ctx); etcd.DecideDefrag(facts).Do != etcd.UpkeepDefrag {
			return nil
		}
		m.rested, u.order = now, etcd.Order{Verb: etcd.AskDefrag}
	}
	u.work = etcd.Work{Order: u.number, Verb: u.order.Verb, Doing: "look at all members"}
	m.busy = u
	go u.run(ctx)
	return nil
}

// ordered is the epoch's first order without an answer; nil if there is none. With one that is unreadable, the error is that, and
// the number is the order's: it is to be answered as well, since no order after it is carried out before.
func (m *Member) ordered(ctx context.Context, epoch int) (int, *etcd.Order, error) {
	if m.orders.epoch != epoch {
		m.orders.epoch, m.orders.answered = epoch, 0
	}
	for {
		n := m.orders.answered + 1
		order, unread := read[etcd.Order](ctx, m, etcd.OrderObject(epoch, n))
		if !errors.As(unread, new(unreadable)) && (unread != nil || order == nil) {
			return 0, nil, unread
		}
		answer, err := read[etcd.Answer](ctx, m, etcd.AnswerObject(epoch, n))
		switch {
		case errors.As(err, new(unreadable)): // that there is one is enough
		case err != nil:
			return 0, nil, err
		case answer == nil:
			return n, order, unread
		}
		m.orders.answered = n
	}
}

// progress is what is being done; nil if nothing.
func (m *Member) progress() *etcd.Work {
	if m.busy == nil || m.busy.ended() {
		return nil
	}
	m.busy.mu.Lock()
	defer m.busy.mu.Unlock()
	work := m.busy.work
	work.Done = slices.Clone(work.Done)
	return &work
}

func (u *upkeep) ended() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.over
}

// doing notes what is begun; what was done before is done.
func (u *upkeep) doing(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.work.Doing = fmt.Sprintf(format, args...)
}

func (u *upkeep) did(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.work.Done = append(u.work.Done, fmt.Sprintf(format, args...))
}

// hindered is why an order was given up.
type hindered struct{ etcd.Explanation }

func (h hindered) Error() string { return h.Cause }

// errMoved: another machine leads now, and goes on.
var errMoved = errors.New("another member leads")

// run carries the work out and answers the order.
func (u *upkeep) run(ctx context.Context) {
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.over = true
	}()
	err := u.carry(ctx)
	if ctx.Err() != nil || errors.Is(err, errMoved) {
		return // whoever leads next finds the order without an answer
	}
	if u.number == 0 {
		if err != nil {
			u.Say(Report{Step: "defragment", Err: err})
		}
		return
	}
	u.answer(ctx, err)
}

// answer creates the answer to the order.
func (u *upkeep) answer(ctx context.Context, err error) {
	a := etcd.Answer{At: u.Clock.Now().UTC(), Instance: u.Instance, Member: u.Member.Member, Done: u.work.Done}
	if err != nil {
		a.Error = err.Error()
		a.Next = "hardtack etcd status shows every member; then ask again"
	}
	var h hindered
	if errors.As(err, &h) {
		a.Next = h.Next
	}
	for range answerTries {
		asking, cancel := u.Member.answer(ctx)
		err := u.Records.Create(asking, etcd.AnswerObject(u.epoch, u.number), etcd.Encode(a))
		cancel()
		if err == nil || errors.Is(err, pki.ErrExists) || u.Clock.Sleep(ctx, u.Poll) != nil {
			return
		}
	}
}

// carry does what the order asks for.
func (u *upkeep) carry(ctx context.Context) error {
	if u.unread != nil {
		return hindered{etcd.Explanation{Cause: "this machine's version cannot read it: " + u.unread.Error(), Next: "refresh etcd's machines to the version of the command that gave the order, then ask again"}}
	}
	var decide func(etcd.UpkeepFacts) etcd.UpkeepAction
	switch u.order.Verb {
	case etcd.AskBackup:
		return u.backUp(ctx)
	case etcd.AskDefrag:
		decide = etcd.DecideDefrag
	case etcd.AskRemove:
		decide = func(f etcd.UpkeepFacts) etcd.UpkeepAction { return etcd.DecideRemove(f, u.order.ID, u.recorded) }
	default:
		return fmt.Errorf("this machine's version knows no order %q: refresh etcd's machines", u.order.Verb)
	}
	return u.locked(ctx, func(ctx context.Context) error { return u.steps(ctx, decide) })
}

// backUp takes a backup. It changes nothing, so that it needs neither the lock nor the other members.
func (u *upkeep) backUp(ctx context.Context) error {
	if u.Backups == nil {
		return hindered{etcd.Explanation{Cause: "this machine knows no place for backups", Next: "set etcd.backup.to in the document, and refresh etcd's machines"}}
	}
	u.doing("take a backup")
	if err := u.backup.take(ctx, u.Backups, u.epoch, u.peer(u.Own)); err != nil {
		return err
	}
	newest, err := u.Backups.Newest(ctx, u.epoch)
	if err == nil && newest != nil {
		u.did("took backup %s of revision %d", newest.Object, newest.Revision)
	}
	return err
}

// locked works while it holds the lock of etcd's members, so that nobody joins or is replaced meanwhile.
func (u *upkeep) locked(ctx context.Context, work func(context.Context) error) error {
	lease, err := u.lock(ctx)
	switch {
	case errors.Is(err, ErrNoSpace):
		return work(ctx) // nobody else can take it either, nor go on with what it is for, before the alarm has ended
	case errors.Is(err, ErrHeld):
		return hindered{etcd.UpkeepAction{Why: etcd.Locked}.Explain()}
	case err != nil:
		return err
	}
	own := u.peer(u.Own)
	ctx, stop := context.WithCancelCause(ctx)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		for u.Clock.Sleep(ctx, etcd.LockFor/3) == nil {
			asking, cancel := u.Member.answer(ctx)
			if err := own.Renew(asking, lease); errors.Is(err, ErrHeld) {
				stop(errMoved)
			}
			cancel()
		}
	}()
	err = work(ctx)
	if lost := context.Cause(ctx); err != nil && errors.Is(lost, errMoved) {
		err = errors.New("the lock of etcd's members was lost")
	}
	stop(nil)
	<-renewing
	u.unlock(context.WithoutCancel(ctx), lease)
	return err
}

// lock takes the lock, which may still be that of a machine that has ended: its lease is shorter than the patience.
func (u *upkeep) lock(ctx context.Context) (Lease, error) {
	began := u.Clock.Now()
	for {
		asking, cancel := u.Member.answer(ctx)
		lease, err := u.peer(u.Own).Lock(asking, u.Instance, etcd.LockFor)
		cancel()
		if !errors.Is(err, ErrHeld) || u.number == 0 || u.Clock.Now().Sub(began) > upkeepPatience {
			return lease, err
		}
		if err := u.Clock.Sleep(ctx, u.Poll); err != nil {
			return 0, err
		}
	}
}

// unlock ends the lock, at another member where the own one has just been removed. Otherwise it ends with its lease.
func (u *upkeep) unlock(ctx context.Context, lease Lease) {
	own := u.peer(u.Own)
	peers := []Peer{own}
	for _, p := range u.peers {
		if p != own {
			peers = append(peers, p)
		}
	}
	for _, p := range peers {
		asking, cancel := u.Member.answer(ctx)
		err := p.Unlock(asking, lease)
		cancel()
		if err == nil {
			return
		}
	}
}

// steps takes one step after another.
func (u *upkeep) steps(ctx context.Context, decide func(etcd.UpkeepFacts) etcd.UpkeepAction) error {
	var compacted bool
	var done []etcd.ID
	waiting := time.Time{}
	for {
		f, names := u.facts(ctx)
		f.Compacted, f.Done = compacted, done
		a := decide(f)
		var err error
		switch a.Do {
		case etcd.UpkeepDone:
			return nil
		case etcd.UpkeepWait:
			err = hindered{a.Explain()}
			if a.Why == etcd.NotLeader {
				return errMoved
			}
			if a.Why == etcd.StillFull || u.number == 0 {
				return err
			}
		default:
			err = u.take(ctx, a, f, names)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && a.Do == etcd.UpkeepRemove:
			return nil
		case err == nil:
			waiting = time.Time{}
			compacted = compacted || a.Do == etcd.UpkeepCompact
			if a.Do == etcd.UpkeepDefrag {
				done = append(done, a.ID)
			}
			continue
		case waiting.IsZero():
			waiting = u.Clock.Now()
		case u.Clock.Now().Sub(waiting) > upkeepPatience:
			return err
		}
		if err := u.Clock.Sleep(ctx, u.Poll); err != nil {
			return err
		}
	}
}

// take takes a step.
func (u *upkeep) take(ctx context.Context, a etcd.UpkeepAction, f etcd.UpkeepFacts, names map[etcd.ID]named) error {
	name := names[a.ID].name
	switch a.Do {
	case etcd.UpkeepCompact:
		u.doing("compact to the newest revision")
		return u.long(ctx, "compacted to the newest revision", func(ctx context.Context) error { return u.peer(u.Own).Compact(ctx) })
	case etcd.UpkeepDefrag:
		u.doing("defragment member %s", name)
		before := f.Said[a.ID].Size
		return u.long(ctx, fmt.Sprintf("defragmented member %s, which had %d MiB", name, before>>20), func(ctx context.Context) error {
			return u.peer(names[a.ID].url).Defragment(ctx)
		})
	case etcd.UpkeepDisarm:
		u.doing("end the alarm of member %s", name)
		return u.long(ctx, "ended the alarm "+etcd.NoSpace+" of member "+name, func(ctx context.Context) error { return u.peer(u.Own).Disarm(ctx, a.ID) })
	case etcd.UpkeepRecord:
		u.doing("remove member %s", u.order.Member)
		err := create(ctx, u.Member, etcd.RemovedObject(u.order.Place), etcd.Removed{Member: u.order.Member, Epoch: u.epoch, Order: u.number})
		u.recorded = err == nil
		return err
	case etcd.UpkeepRemove:
		return u.remove(ctx, a.ID, names)
	case etcd.UpkeepWait, etcd.UpkeepDone:
	}
	return fmt.Errorf("the step %q is not one to take", a.Do)
}

// long does what may take long, and notes that it is done.
func (u *upkeep) long(ctx context.Context, done string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, upkeepStep)
	defer cancel()
	err := do(ctx)
	if err == nil {
		u.did("%s", done)
	}
	return err
}

// remove removes a member; the own one at another voter, since it ends by it.
func (u *upkeep) remove(ctx context.Context, id etcd.ID, names map[etcd.ID]named) error {
	at := u.Own
	for other, n := range names {
		if id == u.self && other != id {
			at = n.url
		}
	}
	asking, cancel := u.Member.answer(ctx)
	defer cancel()
	err := u.peer(at).Remove(asking, id)
	if err == nil {
		u.did("removed member %s (%s)", u.order.Member, id)
	}
	return err
}

// named is a member's name and its client URL.
type named struct{ name, url string }

// facts asks all members, each at its own address.
func (u *upkeep) facts(ctx context.Context) (etcd.UpkeepFacts, map[etcd.ID]named) {
	f := etcd.UpkeepFacts{Self: u.self, Asked: u.number > 0, Said: map[etcd.ID]etcd.Said{}}
	asking, cancel := u.Member.answer(ctx)
	list, err := u.peer(u.Own).Members(asking)
	cancel()
	if err != nil {
		return f, nil
	}
	f.List = &list
	names := map[etcd.ID]named{}
	for _, member := range list.Members {
		n := named{member.Name, clientURL(member.PeerURL)}
		if member.ID == u.self {
			n.url = u.Own
		}
		names[member.ID] = n
		asking, cancel := u.Member.answer(ctx)
		said, err := u.peer(n.url).Status(asking)
		cancel()
		if err == nil && said.ID == member.ID {
			f.Said[said.ID] = etcd.Said{ClusterID: said.ClusterID, Leader: said.Leader, Applied: said.Applied, Size: said.Size, InUse: said.InUse, Quota: said.Quota, Alarms: said.Alarms}
		}
	}
	return f, names
}

// peer is a member by its client URL; the loop has its own.
func (u *upkeep) peer(url string) Peer {
	p, ok := u.peers[url]
	if !ok {
		p = u.Peer(url)
		u.peers[url] = p
	}
	return p
}
