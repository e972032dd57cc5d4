package check_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/check"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// zone is one in memory.
type zone struct {
	sets     []record.Set
	negative time.Duration
	signer   string
	// careless carries out changes whose base does not hold; limit is how many values a set may have.
	careless bool
	limit    int
	err      error
}

func (z *zone) ID() string { return "" }

func (z *zone) Signer() string { return z.signer }

func (z *zone) Limits() record.Limits { return record.Limits{SetValues: 3} }

func (z *zone) NegativeTTL(context.Context) (time.Duration, error) { return z.negative, z.err }

func (z *zone) LowerMinimum(context.Context) error { return nil }

func (z *zone) Read(context.Context, string) ([]record.Set, error) { return z.sets, z.err }

func (z *zone) CompareAndSwap(_ context.Context, _ string, remove, create []record.Set) error {
	if z.err != nil {
		return z.err
	}
	for _, s := range remove {
		i := slices.IndexFunc(z.sets, func(have record.Set) bool { return cmp.Equal(have, s) })
		if i < 0 && !z.careless {
			return reconcile.ErrConflict
		}
		if i >= 0 {
			z.sets = slices.Delete(z.sets, i, i+1)
		}
	}
	for _, s := range create {
		if len(s.Values) > z.limit {
			return errors.New("too large")
		}
	}
	z.sets = append(z.sets, create...)
	return nil
}

// server is a zone on a server of one's own.
type server struct {
	*zone
	open bool
}

func (s server) AcceptsUnsigned(context.Context) (bool, error) { return s.open, s.err }

// planner says what a reconcile would change.
type planner struct {
	plan reconcile.Plan
	err  error
}

func (p planner) Plan(context.Context, string) (reconcile.Plan, error) { return p.plan, p.err }

func TestRun(t *testing.T) {
	const good, warn, bad = doctor.OK, doctor.Warning, doctor.Error
	differs := reconcile.Plan{Change: record.Change{Create: []record.Set{{Name: "masters.demo.k8s."}}}}
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		zone    check.Zone
		planner planner
		write   bool
		want    []doctor.State
	}{
		"as it should be":    {server{&zone{negative: 5 * time.Second, signer: "key a", limit: 3}, false}, planner{}, true, []doctor.State{good, good, good, good, good, good, good}},
		"no server of ones":  {&zone{negative: 5 * time.Second, signer: "AWS credentials", limit: 3}, planner{}, true, []doctor.State{good, good, good, good, good, good}},
		"could be better":    {server{&zone{negative: time.Minute, limit: 3}, true}, planner{plan: differs}, false, []doctor.State{warn, good, warn, warn, good, good, warn}},
		"careless and small": {server{&zone{signer: "key a", careless: true, limit: 2}, false}, planner{}, true, []doctor.State{good, good, good, good, bad, bad, good}},
		"not tried":          {&zone{signer: "key a", limit: 2}, planner{}, false, []doctor.State{good, good, good, good, good, good}},
		"out of reach":       {server{&zone{signer: "key a", err: refused}, false}, planner{err: refused}, true, []doctor.State{bad, bad, good, bad, bad, bad, bad}},
	} {
		t.Run(name, func(t *testing.T) {
			checks := check.Run(t.Context(), check.Options{Cluster: "demo", Policy: record.DefaultPolicy(), Zone: tt.zone, Planner: tt.planner, Write: tt.write})
			var got []doctor.State
			for _, c := range checks {
				got = append(got, c.State)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s\n%+v", diff, checks)
			}
			if left, _ := tt.zone.Read(t.Context(), "demo"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
