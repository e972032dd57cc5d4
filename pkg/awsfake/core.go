package awsfake

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
)

// owner is the account's ID.
const owner = "123456789012"

// Options set up an account. The zero value is an account with the machine's clock, AWS's default rates and no faults.
type Options struct {
	// Clock is the account's time; nil is the machine's clock. Dates of signatures are checked only with the machine's
	// clock, since clients sign with the time of their machine.
	Clock Clock
	// Faults decides which calls fail, and how; nil is no faults.
	Faults Faults
	// Rates are the allowed calls a second by service ("route53") or by action ("ssm:PutParameter"). They replace the
	// defaults: route53 5, ssm 40, ssm:PutParameter 3, and the quotas of the EBS direct APIs. Zero or less is no
	// limit.
	Rates map[string]float64
	// EC2 and AutoScaling set how machines and groups change state.
	EC2         EC2Options
	AutoScaling AutoScalingOptions
	// CloudFormation sets how long stacks take.
	CloudFormation CloudFormationOptions
	// EBS sets how long snapshots and images take, and where blocks are kept.
	EBS EBSOptions
	// Closed accounts refuse every call until they have a role or user. The zero value is open until then: any access
	// key may do everything.
	Closed bool
	// Random is what secrets and session tokens are made of; nil is crypto/rand. It must not end.
	Random io.Reader
	// Web is how STS reads the documents of identity providers that are not in a bucket of the account; nil reads none. STS asks for them
	// at every call: it is not modelled that AWS may keep them for a while.
	Web *http.Client
	// Regions are the account's regions beside its home, us-west-2, each with separate images, snapshots and
	// parameters. A call signed for any other region is answered by the home region.
	Regions []string
}

// Account is one AWS account in one region. Several goroutines may call its methods.
type Account struct {
	clock    Clock
	faults   Faults
	services map[string]endpoint
	route53  *Route53
	regional *regional
	web      *http.Client

	// mu is held while a call is carried out; it guards the state of all services.
	mu         sync.Mutex
	buckets    map[string]*bucket
	policies   map[string]Policy
	identities identities
	// quotas are the account's own values of Service Quotas, by code.
	quotas map[string]float64
	// dated reports whether the dates of signatures are checked.
	dated bool
	tally tally
}

// New returns an empty account.
func New(o Options) *Account {
	a := &Account{
		clock: o.Clock, faults: o.Faults, dated: o.Clock == nil, web: o.Web, identities: newIdentities(o),
		buckets: map[string]*bucket{}, policies: map[string]Policy{},
		tally: newTally(),
	}
	if a.clock == nil {
		a.clock = clock.System{}
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
	a.services = a.endpoints()
	return a
}

// Clock returns the account's clock.
func (a *Account) Clock() Clock { return a.clock }

// SetFaults replaces the account's faults from now on; nil is no faults.
func (a *Account) SetFaults(f Faults) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f == nil {
		f = &Script{}
	}
	a.faults = f
}

// SetPolicy restricts the principal with this access key to what p allows, in an account without roles and users. A
// key without a policy may do everything there.
func (a *Account) SetPolicy(accessKey string, p Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.policies[accessKey] = p
}

// Calls returns how often each action was called ("route53:ChangeResourceRecordSets"), refused calls included.
func (a *Account) Calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tally.calls)
}

// Refused returns how many calls were answered with an error, by error code.
func (a *Account) Refused() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tally.refused)
}

// do passes one call through the gate and carries it out with fn, which runs with the account locked and gets the
// account's time. Every API call goes through it.
func (a *Account) do(ctx context.Context, service, action string, fn func(now time.Time) error) error {
	fault := a.enter(service, action)
	if fault.Delay > 0 {
		if err := a.clock.Sleep(ctx, fault.Delay); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := a.carryOut(service, action, fault, fn)
	if err == nil && fault.LoseReply {
		return ErrReplyLost
	}
	return err
}

// enter counts the call and returns its fault.
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
		return fault.Refuse.forService(service)
	}
	b, own := a.buckets[service+":"+action]
	if !own {
		b = a.buckets[service]
	}
	if b != nil && !b.take(now) {
		return Throttled().forService(service)
	}
	a.regional.agenda.run(now)
	defer a.regional.agenda.run(now)
	return fn(now)
}

// bucket allows rate calls a second, and as many at once as one second allows.
type bucket struct {
	rate, tokens float64
	at           time.Time
}

// newBucket returns a full bucket; nil if there is no limit.
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
