package dnssync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// The defaults of Config.
const (
	// DefaultMargin leaves a Lambda time to send its report and its delayed message.
	DefaultMargin = 3 * time.Second
	// DefaultSettle covers the time a write is under way and Route 53's propagation, which AWS says
	// takes up to 60 seconds.
	DefaultSettle = 60 * time.Second
	// DefaultBudget is far above what a call without trouble needs (one read, one write).
	DefaultBudget = 24
	// MaxConflicts is how often one call reads again because of another's write. By then others have
	// committed newer readings five times over, and the next poke is on its way.
	MaxConflicts = 5
)

// Config is what a Syncer works with. Zone and Fleet are needed; of the others zero has a meaning.
type Config struct {
	Zone  Zone
	Fleet Fleet
	// Hooks nil: no machine's hook is ever completed here.
	Hooks Hooks
	// Clock nil: System.
	Clock Clock
	// Policy with a zero TTL: record.DefaultPolicy.
	Policy record.Policy
	// Metrics nil: none. Log nil: none.
	Metrics Metrics
	Log     *slog.Logger
	// Margin is what is left of the caller's deadline when Sync gives up; zero: DefaultMargin.
	Margin time.Duration
	// Settle is how much longer than the TTL a removed address may still be answered; zero: DefaultSettle.
	Settle time.Duration
	// Pace is how long after a write the next one may follow, so that a storm's changes are written
	// together; zero: the TTL, since resolvers keep an answer as long anyway; negative: at once. While
	// changes go on and on it grows to four times as long.
	Pace time.Duration
	// Budget is how many reads and writes of the zone one call may make; zero: DefaultBudget.
	Budget int
	// Random spreads waiting and makes every commit unlike any other; nil: math/rand/v2's own.
	Random func() uint64
}

// Syncer reconciles clusters. It holds no state: any number may run at once, in any number of
// processes.
type Syncer struct{ c Config }

// New checks the configuration and fills in the defaults.
func New(c Config) (*Syncer, error) {
	if c.Zone == nil || c.Fleet == nil {
		return nil, errors.New("making a reconcile: a zone and a fleet are needed")
	}
	if c.Clock == nil {
		c.Clock = System{}
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
	if c.Settle == 0 {
		c.Settle = DefaultSettle
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

// Sync makes the cluster's records equal to its groups' members, and completes the hooks of machines
// that have left the records for long enough. Without pokes the call is the schedule's sweep. An error
// says that the records may not be right yet: call again. The records are never left half changed.
func (s *Syncer) Sync(ctx context.Context, cluster string, pokes ...Poke) (Report, error) {
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
		r.summarize(view, len(pokes) == 0)
		if oldest := oldestPoke(pokes); !oldest.IsZero() {
			r.log.InfoContext(ctx, "records are right", "changed", r.report.Changed, "since_event", s.c.Clock.Now().Sub(oldest))
		}
		err = r.finishHooks(short, view)
	}
	if s.c.Metrics != nil {
		s.c.Metrics.Observe(ctx, r.report, err)
	}
	return r.report, err
}

// oldestPoke is when the first of the events happened that say when; zero when none does.
func oldestPoke(pokes []Poke) time.Time {
	var oldest time.Time
	for _, p := range pokes {
		if !p.At.IsZero() && (oldest.IsZero() || p.At.Before(oldest)) {
			oldest = p.At
		}
	}
	return oldest
}

// Plan is what Sync would do now. Change is the first batch of it, nearly always all.
type Plan struct {
	Have   []record.Set  `json:"have"`
	Want   []record.Set  `json:"want"`
	Change record.Change `json:"change"`
	Report Report        `json:"report"`
}

// Plan reads as Sync does and changes nothing.
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
	return Plan{Have: v.have, Want: v.want, Change: change, Report: r.report}, nil
}
