package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// fakeZone is the same hosted zone in the strict stand-in for Route 53. Every batch goes to both, and
// they have to agree: two readings of AWS's contract, neither of which knows the other.
type fakeZone struct {
	route53 *awsfake.Route53
	id      string
}

// worldClock is a world's time for the account.
type worldClock struct{ *world }

func (c worldClock) Now() time.Time                                   { return c.now }
func (c worldClock) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func newFakeZone(w *world) *fakeZone {
	account := awsfake.New(awsfake.Options{Clock: worldClock{w}, Rates: map[string]float64{"route53": 0}})
	z, err := account.Route53().CreateHostedZone(context.Background(), awsfake.HostedZone{Name: "k8s.", CallerReference: "simulator"})
	if err != nil {
		panic(err)
	}
	return &fakeZone{route53: account.Route53(), id: z.ID}
}

// disagrees says how the stand-in's answer to a batch, or the zone after it, differs from the model's;
// "" is not at all.
func (f *fakeZone) disagrees(model *zone, remove, create []record.Set, modelErr error) string {
	var changes []awsfake.Change
	for _, s := range remove {
		changes = append(changes, awsfake.Change{Action: "DELETE", Set: fakeSet(s)})
	}
	for _, s := range create {
		changes = append(changes, awsfake.Change{Action: "CREATE", Set: fakeSet(s)})
	}
	_, err := f.route53.ChangeResourceRecordSets(context.Background(), f.id, changes)
	if (err == nil) != (modelErr == nil) || errors.Is(modelErr, reconcile.ErrConflict) && !isConflict(err) {
		return fmt.Sprintf("the stand-in answers %v, the model %v", err, modelErr)
	}
	page, err := f.route53.ListResourceRecordSets(context.Background(), f.id, awsfake.Start{}, 300)
	if err != nil {
		return err.Error()
	}
	var theirs, ours []string
	for _, s := range page.Sets {
		if s.Type != "NS" && s.Type != "SOA" {
			theirs = append(theirs, fmt.Sprint(s.Name, s.Type, s.TTL, sorted(s.Values)))
		}
	}
	for _, s := range model.list() {
		s := fakeSet(s)
		ours = append(ours, fmt.Sprint(s.Name, s.Type, s.TTL, sorted(s.Values)))
	}
	if theirs, ours = sorted(theirs), sorted(ours); !slices.Equal(theirs, ours) {
		return fmt.Sprintf("the stand-in holds %v, the model %v", theirs, ours)
	}
	return ""
}

func isConflict(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "already exists") ||
		strings.Contains(err.Error(), "do not match the current values") || strings.Contains(err.Error(), "was not found"))
}

func fakeSet(s record.Set) awsfake.RecordSet {
	values := slices.Clone(s.Values)
	if s.Type == record.TXT {
		for i, v := range values {
			values[i] = `"` + v + `"`
		}
	}
	return awsfake.RecordSet{Name: s.Name, Type: s.Type, TTL: int64(s.TTL / time.Second), Values: values}
}
