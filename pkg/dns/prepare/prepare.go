// Package prepare makes a zone ready for a cluster before the cluster's first machine asks for a name: it lowers how long
// resolvers keep a "no such name", and creates the cluster's placeholder records.
//
// Its rule: every step may be repeated, by several callers at once, and only does what is still missing. What was found and
// what was done are in the report, which a dry run fills in as well.
package prepare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// NewZoneNegativeTTL is what Route 53 gives a new zone: its SOA's TTL is 900 s.
const NewZoneNegativeTTL = 15 * time.Minute

// lowerTries is how often the SOA is read again because somebody else's update came between.
const lowerTries = 5

// Zone is a zone whose SOA can be read and lowered.
type Zone interface {
	reconcile.Zone
	// ID is what the service calls the zone, "" where it has only its name.
	ID() string
	// NegativeTTL is how long a resolver keeps a "no such name" of the zone.
	NegativeTTL(ctx context.Context) (time.Duration, error)
	// LowerMinimum lowers that to record.NegativeTTL at most. It is reconcile.ErrConflict where somebody else has updated
	// the zone meanwhile: read again.
	LowerMinimum(ctx context.Context) error
}

// Hosted is a zone that can be created.
type Hosted interface {
	// Find returns the zone's id, "" where there is no such zone.
	Find(ctx context.Context) (id string, err error)
	// Ensure returns the zone's id, and whether it created the zone. Both are valid with an error as well.
	Ensure(ctx context.Context) (id string, created bool, err error)
	// Open is the zone with this id.
	Open(id string) (Zone, error)
}

// Options say what to prepare.
type Options struct {
	// Cluster is the cluster's name, and Policy has the zone's name as its suffix. Both are needed.
	Cluster string
	Policy  record.Policy
	// DryRun changes nothing; the report says what would be done.
	DryRun bool
}

// Report is what was found and done, or would be done.
type Report struct {
	Zone    string `json:"zone"`
	ZoneID  string `json:"zone_id,omitempty"` // Route 53's; empty for a zone that would be created
	Cluster string `json:"cluster"`
	DryRun  bool   `json:"dry_run"`
	Created bool   `json:"created"`
	// Lowered: the SOA minimum. A resolver kept a "no such name" for NegativeBefore seconds, and now does
	// for Negative.
	Lowered        bool  `json:"lowered"`
	NegativeBefore int64 `json:"negative_seconds_before"`
	Negative       int64 `json:"negative_seconds"`
	// Placeholders are the sets that were created ("masters.demo.k8s. A"); Records those that were there.
	Placeholders []string `json:"placeholders"`
	Records      int      `json:"records"`
}

// String is the report for people.
func (r *Report) String() string {
	would, title := "", "zone "+r.Zone
	if r.DryRun {
		would = "would be "
	}
	if r.ZoneID != "" {
		title += " (" + r.ZoneID + ")"
	}
	lines := []string{title + ": is there", fmt.Sprintf("SOA minimum: a \"no such name\" is kept for %d s", r.Negative),
		fmt.Sprintf("records of %s: %d are there", r.Cluster, r.Records)}
	if r.Created {
		lines[0] = fmt.Sprintf("%s: %screated", title, would)
	}
	if r.Lowered {
		lines[1] = fmt.Sprintf("SOA minimum: %slowered from %d to %d s", would, r.NegativeBefore, r.Negative)
	}
	if len(r.Placeholders) > 0 {
		lines[2] = fmt.Sprintf("placeholders of %s: %screated, %s", r.Cluster, would, strings.Join(r.Placeholders, ", "))
	}
	return strings.Join(lines, "\n") + "\n"
}

// CreatedError is an error after which there is a zone that was not there before. Create may be called again.
type CreatedError struct {
	ZoneID string
	Err    error
}

func (e *CreatedError) Error() string { return e.Err.Error() }

func (e *CreatedError) Unwrap() error { return e.Err }

// Check reports what is wrong with the names of the cluster and the zone, before anything is made of them.
func (o Options) Check() error {
	_, problems := record.Desired(record.Fleet{Cluster: o.Cluster}, o.Policy, record.Limits{})
	return problems.Err()
}

// Run lowers the SOA minimum of a zone, and creates the cluster's placeholders, where either is missing.
func Run(ctx context.Context, z Zone, o Options) (*Report, error) {
	r := &Report{ZoneID: z.ID(), DryRun: o.DryRun}
	return r, o.run(ctx, z, r)
}

// Create makes sure that there is a zone, and prepares it. An error is a *CreatedError where the zone is new.
func Create(ctx context.Context, h Hosted, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	r := &Report{DryRun: o.DryRun}
	var err error
	if o.DryRun {
		r.ZoneID, err = h.Find(ctx)
		r.Created = r.ZoneID == ""
	} else {
		r.ZoneID, r.Created, err = h.Ensure(ctx)
	}
	if r.Created {
		r.Lowered, r.NegativeBefore = true, seconds(NewZoneNegativeTTL)
	}
	switch {
	case err != nil:
	case o.DryRun && r.Created:
		o.describe(r, nil)
	default:
		var z Zone
		if z, err = h.Open(r.ZoneID); err == nil {
			err = o.run(ctx, z, r)
		}
	}
	if err != nil && r.ZoneID != "" && r.Created {
		return r, &CreatedError{ZoneID: r.ZoneID, Err: err}
	}
	return r, err
}

func (o Options) run(ctx context.Context, z Zone, r *Report) error {
	if err := o.Check(); err != nil {
		return err
	}
	z = Patient(z)
	have, err := z.Read(ctx, o.Cluster)
	if err != nil {
		return err
	}
	before, err := z.NegativeTTL(ctx)
	if err != nil {
		return err
	}
	if !r.Created {
		r.NegativeBefore, r.Lowered = seconds(before), before > record.NegativeTTL
	}
	o.describe(r, have)
	if o.DryRun {
		return nil
	}
	if err := o.lower(ctx, z, before); err != nil {
		return err
	}
	if len(have) > 0 {
		return nil
	}
	made, err := Placeholders(ctx, z, o.Cluster, o.Policy, reconcile.NewGeneration(time.Now(), rand.Uint64()))
	if err == nil && !made { // somebody else was faster
		have, err = z.Read(ctx, o.Cluster)
		o.describe(r, have)
	}
	return err
}

// lower lowers what is too high, and makes sure that the server has it so.
func (o Options) lower(ctx context.Context, z Zone, now time.Duration) error {
	for range lowerTries {
		if now <= record.NegativeTTL {
			return nil
		}
		err := z.LowerMinimum(ctx)
		if err != nil && !errors.Is(err, reconcile.ErrConflict) {
			return err
		}
		if now, err = z.NegativeTTL(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("lowering the SOA minimum of zone %s: it still is %s after %d tries (is the server asked the zone's primary?)", o.Policy.Zone(), now, lowerTries)
}

// describe fills in what comes of these records.
func (o Options) describe(r *Report, have []record.Set) {
	r.Zone, r.Cluster, r.Records, r.Placeholders = o.Policy.Zone(), o.Cluster, len(have), []string{}
	r.Negative = min(r.NegativeBefore, seconds(record.NegativeTTL))
	if len(have) > 0 {
		return
	}
	for _, s := range record.Placeholders(o.Cluster, o.Policy) {
		r.Placeholders = append(r.Placeholders, s.Name+" "+s.Type)
	}
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
