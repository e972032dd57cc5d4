package prepare_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// model is a zone in memory, and the service that creates it.
type model struct {
	id       string // "" is not there
	negative time.Duration
	sets     []record.Set
	// conflicts is how many updates of the SOA somebody else comes between; broken is why none works.
	conflicts int
	broken    error
	// changes counts what was changed.
	changes int
}

func (m *model) ID() string { return m.id }

func (m *model) Limits() record.Limits { return record.Limits{} }

func (m *model) Read(context.Context, string) ([]record.Set, error) { return m.sets, nil }

func (m *model) CompareAndSwap(_ context.Context, _ string, remove, create []record.Set) error {
	if len(remove) > 0 || len(m.sets) > 0 {
		return reconcile.ErrConflict
	}
	m.changes++
	m.sets = create
	return nil
}

func (m *model) NegativeTTL(context.Context) (time.Duration, error) { return m.negative, nil }

func (m *model) LowerMinimum(context.Context) error {
	if m.broken != nil {
		return m.broken
	}
	if m.conflicts > 0 {
		m.conflicts--
		return reconcile.ErrConflict
	}
	m.changes++
	m.negative = record.NegativeTTL
	return nil
}

func (m *model) Find(context.Context) (string, error) { return m.id, nil }

func (m *model) Ensure(context.Context) (string, bool, error) {
	if m.id != "" {
		return m.id, false, nil
	}
	m.changes++
	m.id, m.negative = "Z1", prepare.NewZoneNegativeTTL
	return m.id, true, nil
}

func (m *model) Open(string) (prepare.Zone, error) { return m, nil }

func options() prepare.Options {
	return prepare.Options{Cluster: "demo", Policy: record.DefaultPolicy()}
}

// TestRun: what is missing is done once; a dry run says the same and does nothing.
func TestRun(t *testing.T) {
	z := &model{id: "Z1", negative: time.Minute, conflicts: 2}
	dry := options()
	dry.DryRun = true
	would, err := prepare.Run(t.Context(), z, dry)
	if err != nil || z.changes != 0 {
		t.Fatalf("a dry run: %d changes, %v", z.changes, err)
	}
	did, err := prepare.Run(t.Context(), z, options())
	if err != nil {
		t.Fatal(err)
	}
	if len(did.Placeholders) == 0 || !did.Lowered || did.NegativeBefore != 60 || did.Negative != 5 || did.ZoneID != "Z1" || did.Zone != "k8s." {
		t.Errorf("%+v", did)
	}
	would.DryRun = false
	if diff := cmp.Diff(would, did); diff != "" {
		t.Errorf("the dry run said otherwise:\n%s", diff)
	}
	changes := z.changes
	again, err := prepare.Run(t.Context(), z, options())
	if err != nil || z.changes != changes {
		t.Errorf("the second run: %d changes, %v", z.changes-changes, err)
	}
	if again.Lowered || len(again.Placeholders) > 0 || again.Records != len(z.sets) {
		t.Errorf("%+v", again)
	}
}

func TestRunGivesUp(t *testing.T) {
	z := &model{negative: time.Minute, conflicts: 100}
	_, err := prepare.Run(t.Context(), z, options())
	if err == nil || !strings.Contains(err.Error(), "it still is 1m0s after 5 tries") {
		t.Errorf("%v", err)
	}
	bad := options()
	bad.Cluster = "My_Cluster"
	if _, err := prepare.Run(t.Context(), z, bad); err == nil || len(z.sets) > 0 {
		t.Errorf("a name that is none: %v, %v", err, z.sets)
	}
}

func TestCreate(t *testing.T) {
	z := &model{}
	dry := options()
	dry.DryRun = true
	would, err := prepare.Create(t.Context(), z, dry)
	if err != nil || z.changes != 0 || !would.Created || would.ZoneID != "" || would.NegativeBefore != 900 {
		t.Fatalf("a dry run: %+v, %d changes, %v", would, z.changes, err)
	}

	// What stops half way says that there is a new zone, and goes on from there.
	z.broken = errors.New("no permission")
	_, err = prepare.Create(t.Context(), z, options())
	created := new(prepare.CreatedError)
	if !errors.As(err, &created) || created.ZoneID != "Z1" || !errors.Is(err, z.broken) {
		t.Errorf("%v", err)
	}
	if _, err = prepare.Create(t.Context(), z, options()); errors.As(err, &created) || !errors.Is(err, z.broken) {
		t.Errorf("the zone was there already: %v", err)
	}
	z.broken = nil
	did, err := prepare.Create(t.Context(), z, options())
	if err != nil || did.Created || !did.Lowered || did.NegativeBefore != 900 || len(did.Placeholders) == 0 {
		t.Errorf("%+v, %v", did, err)
	}
}
