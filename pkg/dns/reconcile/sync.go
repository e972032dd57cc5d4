package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// The defaults of Config.
const (
	// DefaultMargin leaves a Lambda function time to send its report and its delayed message.
	DefaultMargin = 3 * time.Second
	// DefaultPropagation covers a write in progress and Route 53's propagation, which AWS says takes up to 60 seconds.
	DefaultPropagation = 60 * time.Second
	// DefaultBudget is far above the one read and one write of a call without conflicts.
	DefaultBudget = 24
	// MaxConflicts is how often one call reads again because another call has written. By then others have committed
	// newer readings five times, and the next event is on its way.
	MaxConflicts = 5
)

// Config is the configuration of a Syncer. Zone and Fleet are required.
type Config struct {
	Zone  Zone
	Fleet Fleet
	// Hooks may be nil: no hooks are completed then.
	Hooks Hooks
	// Clock is clock.System if nil.
	Clock clock.Clock
	// Policy is record.DefaultPolicy if its TTL is 0.
	Policy record.Policy
	// Metrics and Log may be nil.
	Metrics Metrics
	Log     *slog.Logger
	// Margin is how long before the caller's deadline Sync gives up; 0 is DefaultMargin.
	Margin time.Duration
	// Propagation is how much longer than the TTL a removed address may still be answered; 0 is DefaultPropagation.
	Propagation time.Duration
	// Pace is the minimum time between two writes, so that the changes of a storm are written together; 0 is the TTL,
	// since resolvers cache answers as long anyway; negative is none. While changes continue it grows up to four times.
	Pace time.Duration
	// Budget is the maximum number of reads and writes of the zone in one call; 0 is DefaultBudget.
	Budget int
	// Random is used for jitter and for unique generations; nil is math/rand/v2.Uint64.
	Random func() uint64
}

// Syncer reconciles clusters. It holds no state: any number may run at once, in any number of
// processes.
type Syncer struct{ c Config }

// New validates the configuration and fills in the defaults.
func New(c Config) (*Syncer, error) {
	if c.Zone == nil || c.Fleet == nil {
		return nil, errors.New("making a reconcile: a zone and a fleet are needed")
	}
	if c.Clock == nil {
		c.Clock = clock.System{}
	}
	if c.Policy.TTL == 0 {
		c.Policy = record.DefaultPolicy()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Margin == 0 {
		c.Margin = DefaultMargin
	}
	if c.Propagation == 0 {
		c.Propagation = DefaultPropagation
	}
	if c.Pace == 0 {
		c.Pace = c.Policy.TTL
	}
	if c.Budget == 0 {
		c.Budget = DefaultBudget
	}
	if c.Random == nil {
		c.Random = rand.Uint64
	}
	return &Syncer{c: c}, nil
}

// Sync makes the cluster's records equal to its groups' members, and completes the hooks of machines that left the
// records long enough ago. A call without events is the scheduled sweep. An error means that the records may not be
// correct yet: call again. Records are never left half changed.
func (s *Syncer) Sync(ctx context.Context, cluster string, events ...Event) (Report, error) {
	r := &call{Syncer: s, cluster: cluster, report: Report{Cluster: cluster}}
	r.log = s.c.Log.With("cluster", cluster)
	short := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		short, cancel = context.WithDeadline(ctx, deadline.Add(-s.c.Margin))
		defer cancel()
		r.deadline = deadline.Add(-s.c.Margin)
	}
	view, err := r.reconcile(short)
	if err != nil {
		err = fmt.Errorf("reconciling the records of %s: %w", cluster, err)
	} else {
		r.summarize(view, len(events) == 0)
		if oldest := oldestEvent(events); !oldest.IsZero() {
			r.log.InfoContext(ctx, "records are right", "changed", r.report.Changed, "seconds_since_event", s.c.Clock.Now().Sub(oldest).Seconds())
		}
		err = r.finishHooks(short, view)
	}
	if s.c.Metrics != nil {
		s.c.Metrics.Observe(ctx, r.report, err)
	}
	return r.report, err
}

// oldestEvent is the time of the oldest event with a time; zero if there is none.
func oldestEvent(events []Event) time.Time {
	var oldest time.Time
	for _, p := range events {
		if !p.At.IsZero() && (oldest.IsZero() || p.At.Before(oldest)) {
			oldest = p.At
		}
	}
	return oldest
}

// Plan is what Sync would do now. Change is its first batch, nearly always the only one. Where there are no sets a list is empty,
// not nil.
type Plan struct {
	Have   []record.Set  `json:"have"`
	Want   []record.Set  `json:"want"`
	Change record.Change `json:"change"`
	Report Report        `json:"report"`
}

// Plan reads as Sync does, and changes nothing.
func (s *Syncer) Plan(ctx context.Context, cluster string) (Plan, error) {
	r := &call{Syncer: s, cluster: cluster, report: Report{Cluster: cluster}, log: s.c.Log.With("cluster", cluster)}
	v, err := r.read(ctx)
	if err != nil {
		return Plan{}, fmt.Errorf("planning the records of %s: %w", cluster, err)
	}
	change, _, err := r.change(v)
	if err != nil {
		return Plan{}, fmt.Errorf("planning the records of %s: %w", cluster, err)
	}
	r.report.Values = values(v.want)
	plan := Plan{Have: v.have, Want: v.want, Change: change, Report: r.report}
	for _, sets := range []*[]record.Set{&plan.Have, &plan.Want, &plan.Change.Remove, &plan.Change.Create} {
		*sets = append([]record.Set{}, *sets...)
	}
	return plan, nil
}
