package reconcile_test

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// The simulator runs real calls of Sync as coroutines in virtual time. A coroutine gives way at every
// call of an interface, before the call has its effect and again before it returns, so any
// interleaving at call boundaries can come about; which one does follows from the seed alone.

// epoch is far ahead, so that the context package's own timers never fire.
var epoch = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// world is virtual time: events in the order of their time, ties in the order in which they were made.
type world struct {
	now   time.Time
	rng   *rand.Rand
	queue events
	made  int
	// trace takes a line for each thing that happens; nil: nobody reads it.
	trace func(string)
}

func newWorld(seed uint64) *world {
	return &world{now: epoch, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
}

type event struct {
	at  time.Time
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// after makes something happen d from now.
func (w *world) after(d time.Duration, do func()) {
	w.made++
	heap.Push(&w.queue, event{at: w.now.Add(max(d, 0)), seq: w.made, do: do})
}

// run lets time pass until nothing is left to happen, or until the time that it is given.
func (w *world) run(until time.Time) {
	for w.queue.Len() > 0 && !w.queue[0].at.After(until) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	if w.now.Before(until) && w.queue.Len() > 0 {
		w.now = until
	}
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%9.3f  ", w.now.Sub(epoch).Seconds()) + fmt.Sprintf(format, args...))
	}
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// between is a duration in [a, b).
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(b-a)))
}

// latency of one half of a call: mostly short, sometimes so long that much else happens meanwhile.
func (w *world) latency() time.Duration {
	switch n := w.rng.IntN(20); {
	case n == 0:
		return w.between(time.Second, 15*time.Second)
	case n < 5:
		return w.between(100*time.Millisecond, time.Second)
	default:
		return w.between(time.Millisecond, 100*time.Millisecond)
	}
}

// errKilled unwinds a coroutine that is killed.
type errKilled struct{}

// proc is one process: a coroutine that sleeps in virtual time.
type proc struct {
	*world
	name  string
	yield func(time.Duration) bool
	dead  bool
	kill  func()
}

// spawn starts a process now. done is called at its end, unless it was killed.
func (w *world) spawn(name string, body func(*proc), done func()) *proc {
	p := &proc{world: w, name: name}
	next, stop := iter.Pull(func(yield func(time.Duration) bool) {
		p.yield = yield
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(errKilled); !ok {
					panic(r)
				}
			}
		}()
		body(p)
	})
	var resume func()
	resume = func() {
		if p.dead {
			return
		}
		d, more := next()
		if more {
			w.after(d, resume)
			return
		}
		p.dead = true
		done()
	}
	p.kill = func() {
		if !p.dead {
			p.dead = true
			stop()
		}
	}
	w.after(0, resume)
	return p
}

// pause lets d pass for this process.
func (p *proc) pause(d time.Duration) {
	if !p.yield(d) {
		panic(errKilled{})
	}
}

// Now and Sleep make a process a dnssync.Clock.
func (p *proc) Now() time.Time { return p.now }

// Sleep lets d pass.
func (p *proc) Sleep(ctx context.Context, d time.Duration) error {
	p.pause(d)
	return p.expired(ctx)
}

// expired is the context's end in virtual time.
func (p *proc) expired(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && p.now.After(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
