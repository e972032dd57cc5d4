package awsfake

import (
	"container/heap"
	"context"
	"time"
)

// homeRegion is the region that the account's machines are in, whatever region a call is signed for.
const homeRegion = "us-west-2"

// regional is what the account holds beside DNS: its home region, and what each region has of its own. All of it
// is behind the account's lock.
type regional struct {
	agenda agenda
	// outbox is what others are to be told, by Tick, once the account is not locked.
	outbox         []func()
	events         *Events
	ec2            *EC2
	autoscaling    *AutoScaling
	cloudformation *CloudFormation
	sqs            *SQS
	ssm            *SSM
	places         map[string]*place
	blocks         *blockStore
}

func newRegional(a *Account, o Options) *regional {
	r := &regional{agenda: agenda{now: a.clock.Now(), wake: make(chan struct{}, 1)}}
	a.regional = r
	r.events = &Events{account: a, deliver: o.Deliver}
	r.ec2 = newEC2(a, o.EC2)
	r.sqs = newSQS(a)
	r.blocks = newBlockStore(o.EBS.Directory)
	r.places = newPlaces(a, o)
	r.ssm = r.places[homeRegion].ssm
	r.autoscaling = newAutoScaling(a, o.AutoScaling)
	r.cloudformation = newCloudFormation(a, o.CloudFormation)
	return r
}

// EC2 is the account's machines and volumes.
func (a *Account) EC2() *EC2 { return a.regional.ec2 }

// AutoScaling is the account's groups.
func (a *Account) AutoScaling() *AutoScaling { return a.regional.autoscaling }

// SQS is the account's queues.
func (a *Account) SQS() *SQS { return a.regional.sqs }

// SSM is the account's Parameter Store.
func (a *Account) SSM() *SSM { return a.regional.ssm }

// Events is the account's default event bus.
func (a *Account) Events() *Events { return a.regional.events }

// locked carries out what is no API call: time first catches up, then fn runs, then what is due at once.
func (a *Account) locked(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.regional.agenda.run(now)
	fn()
	a.regional.agenda.run(now)
}

// later has Tick call f, after all that it was to call before.
func (r *regional) later(f func()) {
	r.outbox = append(r.outbox, f)
	r.agenda.poke()
}

// Tick lets everything happen that is due by the clock, and calls the subscribers of events that have arrived
// and the hypervisor. Calls to the APIs also let happen what is due, but only Tick calls others.
func (a *Account) Tick() {
	a.locked(func() {})
	for {
		a.mu.Lock()
		outbox := a.regional.outbox
		a.regional.outbox = nil
		a.mu.Unlock()
		if len(outbox) == 0 {
			return
		}
		for _, f := range outbox {
			f()
		}
	}
}

// Next is when the next thing happens by itself: a timeout, a boot, the arrival of an event. False: nothing will.
func (a *Account) Next() (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.regional.agenda.next()
}

// Run ticks whenever something is due, until ctx ends, whose error it returns.
func (a *Account) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		a.Tick()
		wait := time.Minute
		if next, ok := a.Next(); ok {
			wait = min(wait, max(next.Sub(a.clock.Now()), 0))
		}
		a.pause(ctx, wait)
	}
	return ctx.Err()
}

// pause sleeps for d, until something nearer is planned, or until ctx ends.
func (a *Account) pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.clock.Sleep(ctx, d) // ends early when cancelled: Run looks at its own context
	}()
	select {
	case <-done:
	case <-a.regional.agenda.wake:
		cancel()
		<-done
	}
}

// agenda is what will happen by itself. Time passes in it only when it is run, so that a virtual clock
// may jump over many entries: each one still happens at its own time, in order.
type agenda struct {
	now    time.Time
	queue  entries
	serial int
	// wake is told of every new entry, and of everything that Tick is to tell others.
	wake chan struct{}
}

type entry struct {
	at     time.Time
	serial int
	do     func()
}

// after plans f for d from now. Entries of one instant happen in the order in which they were planned.
func (g *agenda) after(d time.Duration, f func()) {
	g.serial++
	heap.Push(&g.queue, entry{g.now.Add(d), g.serial, f})
	g.poke()
}

// poke wakes Run.
func (g *agenda) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// run lets happen what is due by now.
func (g *agenda) run(now time.Time) {
	for len(g.queue) > 0 && !g.queue[0].at.After(now) {
		e := heap.Pop(&g.queue).(entry)
		if e.at.After(g.now) {
			g.now = e.at
		}
		e.do()
	}
	if now.After(g.now) {
		g.now = now
	}
}

func (g *agenda) next() (time.Time, bool) {
	if len(g.queue) == 0 {
		return time.Time{}, false
	}
	return g.queue[0].at, true
}

type entries []entry

func (e entries) Len() int      { return len(e) }
func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(x any)   { *e = append(*e, x.(entry)) }
func (e *entries) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

func (e entries) Less(i, j int) bool {
	if e[i].at.Equal(e[j].at) {
		return e[i].serial < e[j].serial
	}
	return e[i].at.Before(e[j].at)
}
