// Package check examines a zone with a cluster's records while it is in use: whether it can be read and written, whether
// changes are conditional and signed, how large sets may be, and whether the records are as the fleet is.
//
// Its rule: every check is made, whatever another one found. What it tries in the zone leaves nothing behind.
package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// The names of the checks. Where the next step is a call of the program that checks, Next is left empty for it to word.
const (
	Minimum       = "SOA minimum"
	Reading       = "reading"
	Signature     = "signature"
	Unsigned      = "unsigned updates"
	Prerequisites = "compare-and-swap"
	Limit         = "record limit"
	Serial        = "SOA serial"
	Agreement     = "records"
)

// Zone is a zone that is examined.
type Zone interface {
	prepare.Zone
	// Signer says how requests are signed; "" is not at all.
	Signer() string
}

// UpdateServer is a Zone on a server that may be open to everybody.
type UpdateServer interface {
	// AcceptsUnsigned reports whether the server carries out an update without a signature from this machine.
	AcceptsUnsigned(ctx context.Context) (bool, error)
}

// SerialZone is a Zone with secondary servers, which see a change by the zone's serial.
type SerialZone interface {
	Serial(ctx context.Context) (uint32, error)
}

// Planner says what a reconcile would change.
type Planner interface {
	Plan(ctx context.Context, cluster string) (reconcile.Plan, error)
}

// Options say what to examine. All but Write are needed.
type Options struct {
	Cluster string
	Policy  record.Policy
	Zone    Zone
	Planner Planner
	// Write tries the limit with a set as large as that, and removes it again.
	Write bool
}

// Run makes every check, in the order in which one depends on another.
func Run(ctx context.Context, o Options) doctor.List {
	checks := doctor.List{o.minimum(ctx), o.reading(ctx), o.signature()}
	if s, ok := o.Zone.(UpdateServer); ok {
		checks = append(checks, unsigned(ctx, s))
	}
	checks = append(checks, o.prerequisites(ctx), o.limit(ctx))
	if s, ok := o.Zone.(SerialZone); ok && o.Write {
		checks = append(checks, o.serial(ctx, s))
	}
	return append(checks, o.agreement(ctx))
}

func ok(name, format string, args ...any) doctor.Check {
	return doctor.Check{Name: name, State: doctor.OK, Text: fmt.Sprintf(format, args...)}
}

func warning(name, text, next string) doctor.Check {
	return doctor.Check{Name: name, State: doctor.Warning, Text: text, Next: next}
}

func failed(name string, err error, next string) doctor.Check {
	return doctor.Check{Name: name, State: doctor.Error, Text: err.Error(), Next: next}
}

// NegativeTTL judges how long a zone's "no such name" is kept; name is the check's.
func NegativeTTL(name string, d time.Duration) doctor.Check {
	if d > record.NegativeTTL {
		return warning(name, fmt.Sprintf("a \"no such name\" is kept for %s: a machine that asks too early waits as long", d), "")
	}
	return ok(name, "a \"no such name\" is kept for %s", d)
}

func (o Options) minimum(ctx context.Context) doctor.Check {
	d, err := o.Zone.NegativeTTL(ctx)
	if err != nil {
		return failed(Minimum, err, "see that the server runs and has the zone")
	}
	return NegativeTTL(Minimum, d)
}

func (o Options) reading(ctx context.Context) doctor.Check {
	have, err := o.Zone.Read(ctx, o.Cluster)
	if err != nil {
		return failed(Reading, err, "let this key or role read the whole zone")
	}
	return ok(Reading, "%d record sets of %s", len(have), o.Cluster)
}

func (o Options) signature() doctor.Check {
	if by := o.Zone.Signer(); by != "" {
		return ok(Signature, "requests are signed with %s", by)
	}
	return warning(Signature, "requests are not signed: who has this machine's address may change the records", "")
}

// unsigned is about the server, whatever this caller signs with.
func unsigned(ctx context.Context, s UpdateServer) doctor.Check {
	switch open, err := s.AcceptsUnsigned(ctx); {
	case err != nil:
		return failed(Unsigned, err, "see that the server runs and has the zone")
	case open:
		return warning(Unsigned, "the server takes updates without a signature from this machine: whoever can send from its address may change the records",
			"name keys and no addresses in the zone's allow-update")
	}
	return ok(Unsigned, "the server refuses them from this machine")
}

// probe is a record that nobody has.
func (o Options) probe(values ...string) []record.Set {
	return []record.Set{{Name: "_hardtack-doctor." + o.Policy.Domain(o.Cluster), Type: record.TXT, TTL: time.Second, Values: values}}
}

// prerequisites removes a record that does not exist: a server that honours prerequisites refuses,
// and for one that does not nothing changes.
func (o Options) prerequisites(ctx context.Context) doctor.Check {
	err := o.Zone.CompareAndSwap(ctx, o.Cluster, o.probe(fmt.Sprint("probe=", time.Now().UnixNano())), nil)
	switch {
	case errors.Is(err, reconcile.ErrConflict):
		return ok(Prerequisites, "a change of what is not there is refused")
	case err == nil:
		return failed(Prerequisites, errors.New("the server carries out changes whose prerequisites do not hold"), "use a server that honours RFC 2136 prerequisites, such as BIND")
	}
	return failed(Prerequisites, err, "let this key or role change the zone")
}

func (o Options) limit(ctx context.Context) doctor.Check {
	limit := o.Zone.Limits().SetValues
	if !o.Write || limit == 0 {
		return ok(Limit, "sets are kept to %d records (not tried)", limit)
	}
	values := make([]string, limit)
	for i := range values {
		values[i] = fmt.Sprintf("probe=%04d", i)
	}
	probe := o.probe(values...)
	if err := o.Zone.CompareAndSwap(ctx, o.Cluster, nil, probe); err != nil {
		return failed(Limit, err, "")
	}
	if err := o.Zone.CompareAndSwap(ctx, o.Cluster, probe, nil); err != nil {
		return failed(Limit, err, "remove the records of "+probe[0].Name)
	}
	return ok(Limit, "a set of %d records was taken, and removed again", limit)
}

// serial writes a record and removes it again: each must give the zone another serial, or else secondary servers do not get
// what is written.
func (o Options) serial(ctx context.Context, z SerialZone) doctor.Check {
	probe := o.probe("probe=serial")
	before, err := z.Serial(ctx)
	if err != nil {
		return failed(Serial, err, "see that the server runs and has the zone")
	}
	if err := o.Zone.CompareAndSwap(ctx, o.Cluster, nil, probe); err != nil {
		return failed(Serial, err, "let this key or role change the zone")
	}
	after, err := z.Serial(ctx)
	if undo := o.Zone.CompareAndSwap(ctx, o.Cluster, probe, nil); undo != nil {
		return failed(Serial, errors.Join(err, undo), "remove the records of "+probe[0].Name)
	}
	switch {
	case err != nil:
		return failed(Serial, err, "see that the server runs and has the zone")
	case int32(after-before) <= 0: // RFC 1982
		return failed(Serial, fmt.Errorf("it was %d before a change, and is %d after it: secondary servers do not get the change", before, after),
			"let the server raise the serial with every update (BIND and Knot do; PowerDNS: SOA-EDIT-DNSUPDATE)")
	}
	return ok(Serial, "a change raises it (%d, then %d)", before, after)
}

func (o Options) agreement(ctx context.Context) doctor.Check {
	plan, err := o.Planner.Plan(ctx, o.Cluster)
	if err != nil {
		return failed(Agreement, err, "put right what the line above names")
	}
	if n := differ(plan); n > 0 {
		return warning(Agreement, fmt.Sprintf("%d sets are not as the fleet is", n), "")
	}
	return ok(Agreement, "all %d sets are as the fleet is", len(plan.Have))
}

// Records says what of a cluster's records is as it should be.
func Records(plan reconcile.Plan, cluster string) doctor.Records {
	out := doctor.Records{Sets: len(plan.Have), Differ: differ(plan)}
	if g, ok := record.Generation(plan.Have, cluster); ok {
		var err error
		if out.Written, err = reconcile.GenerationTime(g); err != nil {
			out.Problems = append(out.Problems, err.Error())
		}
	}
	for _, p := range plan.Report.Problems {
		out.Problems = append(out.Problems, p.String())
	}
	return out
}

// differ is how many sets are not as the fleet is.
func differ(p reconcile.Plan) int { return max(len(p.Change.Create), len(p.Change.Remove)) }
