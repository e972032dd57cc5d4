package awsfake

import (
	"container/heap"
	"context"
	"time"
)

// HomeRegion is the region of the account's machines, whatever region a call is signed for.
const HomeRegion = "us-west-2"

// regional holds the services other than Route 53: those of the home region, and each region's images and parameters.
// The account's lock guards all of it.
type regional struct {
	agenda agenda
	// outbox holds the calls of the hypervisor that Tick makes once the account is not locked.
	outbox         []func()
	events         *Events
	ec2            *EC2
	autoscaling    *AutoScaling
	cloudformation *CloudFormation
	sqs            *SQS
	ssm            *SSM
	s3             *S3
	places         map[string]*place
	blocks         *blockStore
}

func newRegional(a *Account, o Options) *regional {
	r := &regional{agenda: agenda{now: a.clock.Now(), wake: make(chan struct{}, 1)}}
	a.regional = r
	r.events = &Events{account: a}
	r.ec2 = newEC2(a, o.EC2)
	r.sqs = newSQS(a)
	r.s3 = newS3(a)
	r.blocks = newBlockStore(o.EBS.Directory)
	r.places = newPlaces(a, o)
	r.ssm = r.places[HomeRegion].ssm
	r.autoscaling = newAutoScaling(a, o.AutoScaling)
	r.cloudformation = newCloudFormation(a, o.CloudFormation)
	return r
}

// EC2 returns the account's machines and volumes.
func (a *Account) EC2() *EC2 { return a.regional.ec2 }

// AutoScaling returns the account's AutoScaling groups.
func (a *Account) AutoScaling() *AutoScaling { return a.regional.autoscaling }

// SQS returns the account's queues.
func (a *Account) SQS() *SQS { return a.regional.sqs }

// SSM returns the Parameter Store of the account's home region.
func (a *Account) SSM() *SSM { return a.regional.ssm }

// Events returns the account's default event bus.
func (a *Account) Events() *Events { return a.regional.events }

// locked runs fn, which is not an API call, with the account locked. Events that are due happen before and after it.
func (a *Account) locked(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.regional.agenda.run(now)
	fn()
	a.regional.agenda.run(now)
}

// later has Tick call f, after the calls that are already in the outbox.
func (r *regional) later(f func()) {
	r.outbox = append(r.outbox, f)
	r.agenda.signal()
}

// Tick carries out everything that is due by the clock, and then calls the hypervisor. API calls carry out what is due
// too, but only Tick calls the hypervisor.
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

// Next returns when the next timer is due: a timeout, the arrival of an event … False means that none is set.
func (a *Account) Next() (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.regional.agenda.next()
}

// Run calls Tick whenever something is due, until ctx ends; it returns the error of ctx.
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

// pause sleeps for d, until a new timer is set, or until ctx ends.
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

// agenda is the account's timers. Its time advances only in run, so that a virtual clock may jump over many entries:
// each entry still happens at its own time, in order.
type agenda struct {
	now    time.Time
	queue  entries
	serial int
	// wake receives a value for every new entry and every new call in the outbox.
	wake chan struct{}
}

type entry struct {
	at     time.Time
	serial int
	do     func()
}

// after calls f in d. Entries of one instant happen in the order in which they were added.
func (g *agenda) after(d time.Duration, f func()) {
	g.serial++
	heap.Push(&g.queue, entry{g.now.Add(d), g.serial, f})
	g.signal()
}

// signal wakes Run.
func (g *agenda) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// run carries out the entries that are due by now.
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
