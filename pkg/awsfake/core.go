package awsfake

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
)

// owner is the account's number.
const owner = "123456789012"

// Options are the account's surroundings; every zero field has a use.
type Options struct {
	// Clock is the account's time; nil is the machine's. Only then must the date of a signature be right, since
	// clients sign with the time of their machine.
	Clock Clock
	// Faults decides what befalls calls; nil is nothing.
	Faults Faults
	// Rates are calls a second by service ("route53") or by action ("ssm:PutParameter"), in place of the
	// defaults: route53 5, ssm 40, ssm:PutParameter 3, and the quotas of the EBS direct APIs. Zero or less is no limit.
	Rates map[string]float64
	// Propagation is how long a committed change takes to reach every name server. AWS says that it
	// is generally within 60 s; zero is at once.
	Propagation time.Duration
	// Processing is how long after a batch its zone answers another with PriorRequestNotComplete.
	Processing time.Duration
	// EC2 and AutoScaling set how machines and groups move.
	EC2         EC2Options
	AutoScaling AutoScalingOptions
	// CloudFormation sets how stacks move.
	CloudFormation CloudFormationOptions
	// EBS sets how snapshots and images come to be.
	EBS EBSOptions
	// Regions are the account's regions beside its home, us-west-2, each with its own images, snapshots and
	// parameters. A call that is signed for another region than these is for the home region.
	Regions []string
	// Deliver decides what becomes of an event: one arrival after each delay, none for a lost one, two for a
	// duplicate. It runs with the account locked. Nil delivers every event once, at once.
	Deliver func(Event) []time.Duration
}

// Account is one AWS account in one region. Its methods may be called by several goroutines.
type Account struct {
	clock    Clock
	faults   Faults
	services map[string]endpoint
	route53  *Route53
	regional *regional

	// mu is held while a call is carried out: all services' state is behind it.
	mu         sync.Mutex
	buckets    map[string]*bucket
	policies   map[string]Policy
	identities identities
	// dated is whether signatures must carry the account's time.
	dated bool
	tally tally
}

// New returns an empty account.
func New(o Options) *Account {
	a := &Account{
		clock: o.Clock, faults: o.Faults, dated: o.Clock == nil, identities: newIdentities(),
		buckets: map[string]*bucket{}, policies: map[string]Policy{},
		tally: newTally(),
	}
	if a.clock == nil {
		a.clock = dnssync.System{}
	}
	if a.faults == nil {
		a.faults = &Script{}
	}
	rates := map[string]float64{"route53": route53Rate, "ssm": parameterReads, "ssm:PutParameter": parameterWrites}
	maps.Copy(rates, ebsRates())
	maps.Copy(rates, o.Rates)
	for name, rate := range rates {
		a.buckets[name] = newBucket(rate, a.clock.Now())
	}
	a.regional = newRegional(a, o)
	a.services = a.endpoints(o)
	return a
}

// Clock is the account's time.
func (a *Account) Clock() Clock { return a.clock }

// SetFaults replaces what befalls calls from now on; nil is nothing.
func (a *Account) SetFaults(f Faults) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f == nil {
		f = &Script{}
	}
	a.faults = f
}

// SetPolicy restricts the principal with this access key to what p allows, in an account that has no roles and
// users. A key without a policy may do everything there.
func (a *Account) SetPolicy(accessKey string, p Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.policies[accessKey] = p
}

// Calls is how often each action was called ("route53:ChangeResourceRecordSets"), the refused calls
// included.
func (a *Account) Calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tally.calls)
}

// Refused is how often calls were answered with an error, by its code.
func (a *Account) Refused() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tally.refused)
}

// do passes one call through the gate and carries it out with fn, which runs with the account locked
// and is given the time. It is the only way to a service's state from outside. The fault is what befell the call.
func (a *Account) do(ctx context.Context, service, action string, fn func(now time.Time) error) (Fault, error) {
	fault := a.enter(service, action)
	if fault.Delay > 0 {
		if err := a.clock.Sleep(ctx, fault.Delay); err != nil {
			return fault, err
		}
	}
	if err := ctx.Err(); err != nil {
		return fault, err
	}
	err := a.carryOut(service, action, fault, fn)
	switch {
	case err == nil && fault.LoseReply:
		return fault, ErrReplyLost
	case err == nil && fault.Stall:
		<-ctx.Done()
		return fault, ctx.Err()
	}
	return fault, err
}

// enter counts the call and asks what befalls it.
func (a *Account) enter(service, action string) Fault {
	name := service + ":" + action
	a.mu.Lock()
	a.tally.calls[name]++
	c := Call{Service: service, Action: action, Number: a.tally.calls[name], At: a.clock.Now()}
	faults := a.faults
	a.mu.Unlock()
	return faults.Fault(c)
}

func (a *Account) carryOut(service, action string, fault Fault, fn func(now time.Time) error) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		var refusal *Error
		if errors.As(err, &refusal) {
			a.tally.refused[refusal.Code]++
		}
	}()
	now := a.clock.Now()
	if fault.Refuse != nil {
		return fault.Refuse.of(service)
	}
	b, own := a.buckets[service+":"+action]
	if !own {
		b = a.buckets[service]
	}
	if b != nil && !b.take(now) {
		return Throttled().of(service)
	}
	a.regional.agenda.run(now)
	defer a.regional.agenda.run(now)
	return fn(now)
}

// bucket allows rate calls a second, and one second's worth at once.
type bucket struct {
	rate, tokens float64
	at           time.Time
}

// newBucket is full; nil, where there is no limit.
func newBucket(rate float64, now time.Time) *bucket {
	if rate <= 0 {
		return nil
	}
	return &bucket{rate: rate, tokens: math.Max(rate, 1), at: now}
}

func (b *bucket) take(now time.Time) bool {
	if d := now.Sub(b.at); d > 0 {
		b.tokens = math.Min(b.tokens+d.Seconds()*b.rate, math.Max(b.rate, 1))
		b.at = now
	}
	// Sums of fractions fall short of 1 by rounding.
	if b.tokens < 1-1e-9 {
		return false
	}
	b.tokens--
	return true
}
