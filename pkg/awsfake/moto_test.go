package awsfake_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
)

// outcome is the result of a list of batches for a client: each batch's error code, and the sets at the end.
type outcome struct {
	Codes []string
	Sets  []string
}

func play(t *testing.T, c *route53.Client, zone string, batches [][]types.Change) outcome {
	t.Helper()
	var o outcome
	for _, batch := range batches {
		_, err := change(t.Context(), c, zone, batch...)
		var refusal smithy.APIError
		switch {
		case err == nil:
			o.Codes = append(o.Codes, "ok")
		case errors.As(err, &refusal):
			o.Codes = append(o.Codes, refusal.ErrorCode())
		default:
			t.Fatal(err)
		}
	}
	sets, _ := listAll(t, c, zone, 2)
	for _, s := range sets {
		if s.Type == types.RRTypeSoa || s.Type == types.RRTypeNs {
			continue
		}
		var values []string
		for _, v := range s.ResourceRecords {
			values = append(values, *v.Value)
		}
		slices.Sort(values)
		o.Sets = append(o.Sets, fmt.Sprintf("%s %s %d %s", *s.Name, s.Type, *s.TTL, strings.Join(values, " ")))
	}
	return o
}

type motoCase struct {
	name    string
	batches [][]types.Change
	// ours and theirs are the different outcomes where moto is wrong.
	ours, theirs outcome
}

func x(last ...string) *types.ResourceRecordSet {
	var values []string
	for _, l := range last {
		values = append(values, "10.0.0."+l)
	}
	return set("x.k8s", "A", 5, values...)
}

func one(changes ...types.Change) []types.Change { return changes }

// motoAgrees are the calls for which moto holds AWS's contract, so that it can witness ours.
func motoAgrees() []motoCase {
	return []motoCase{
		{name: "create", batches: [][]types.Change{
			one(create(x("1")), create(set("y.b.k8s", "TXT", 60, `"one" "two"`)), create(set("a.k8s", "AAAA", 5, "fd00::1"))),
			one(create(set("_s._tcp.k8s", "SRV", 5, "0 0 2380 x.k8s.")))}},
		{name: "delete as it is", batches: [][]types.Change{one(create(x("1"))), one(remove(x("1")))}},
		{name: "upsert", batches: [][]types.Change{one(upsert(x("1"))), one(upsert(x("2")))}},
		{name: "another zone's name", batches: [][]types.Change{one(create(set("x.example", "A", 5, "10.0.0.1")))}},
		{name: "create what is there", batches: [][]types.Change{one(create(x("1"))), one(create(x("1")))}},
	}
}

// motoErrs are the calls for which it does not. A case fails when moto learns better: move it then.
func motoErrs() []motoCase {
	many := make([]string, 401)
	for i := range many {
		many[i] = fmt.Sprintf("10.1.%d.%d", i/200, i%200)
	}
	return []motoCase{
		{name: "a stale base is taken", batches: [][]types.Change{one(create(x("1"))), one(remove(x("1")), create(x("2"))), one(remove(x("1")), create(x("3")))},
			ours:   outcome{Codes: []string{"ok", "ok", "InvalidChangeBatch"}, Sets: []string{"x.k8s. A 5 10.0.0.2"}},
			theirs: outcome{Codes: []string{"ok", "ok", "ok"}, Sets: []string{"x.k8s. A 5 10.0.0.3"}}},
		{name: "a former value deletes", batches: [][]types.Change{one(create(x("1"))), one(upsert(x("2"))), one(remove(x("1")))},
			ours:   outcome{Codes: []string{"ok", "ok", "InvalidChangeBatch"}, Sets: []string{"x.k8s. A 5 10.0.0.2"}},
			theirs: outcome{Codes: []string{"ok", "ok", "ok"}}},
		{name: "there and back", batches: [][]types.Change{one(create(x("1"))), one(remove(x("1")), create(x("2"))), one(remove(x("2")), create(x("1")))},
			ours:   outcome{Codes: []string{"ok", "ok", "ok"}, Sets: []string{"x.k8s. A 5 10.0.0.1"}},
			theirs: outcome{Codes: []string{"ok", "ok", "InvalidChangeBatch"}, Sets: []string{"x.k8s. A 5 10.0.0.2"}}},
		{name: "a second set of the name and type", batches: [][]types.Change{one(create(x("1"))), one(create(x("2")))},
			ours:   outcome{Codes: []string{"ok", "InvalidChangeBatch"}, Sets: []string{"x.k8s. A 5 10.0.0.1"}},
			theirs: outcome{Codes: []string{"ok", "ok"}, Sets: []string{"x.k8s. A 5 10.0.0.1", "x.k8s. A 5 10.0.0.2"}}},
		{name: "half of a batch", batches: [][]types.Change{one(create(x("1"))), one(create(set("y.k8s", "A", 5, "10.0.0.1")), create(set("x.example", "A", 5, "10.0.0.1")))},
			ours:   outcome{Codes: []string{"ok", "InvalidChangeBatch"}, Sets: []string{"x.k8s. A 5 10.0.0.1"}},
			theirs: outcome{Codes: []string{"ok", "InvalidChangeBatch"}, Sets: []string{"x.k8s. A 5 10.0.0.1", "y.k8s. A 5 10.0.0.1"}}},
		{name: "delete what is not there", batches: [][]types.Change{one(remove(x("1")))},
			ours:   outcome{Codes: []string{"InvalidChangeBatch"}},
			theirs: outcome{Codes: []string{"InvalidInput"}}},
		{name: "an address that is none", batches: [][]types.Change{one(create(x("256")))},
			ours:   outcome{Codes: []string{"InvalidChangeBatch"}},
			theirs: outcome{Codes: []string{"ok"}, Sets: []string{"x.k8s. A 5 10.0.0.256"}}},
		{name: "a value twice", batches: [][]types.Change{one(create(x("1", "1")))},
			ours:   outcome{Codes: []string{"InvalidChangeBatch"}},
			theirs: outcome{Codes: []string{"ok"}, Sets: []string{"x.k8s. A 5 10.0.0.1 10.0.0.1"}}},
		{name: "401 values", batches: [][]types.Change{one(create(set("x.k8s", "A", 5, many...)))},
			ours:   outcome{Codes: []string{"InvalidChangeBatch"}},
			theirs: outcome{Codes: []string{"ok"}, Sets: []string{"x.k8s. A 5 " + strings.Join(slices.Sorted(slices.Values(many)), " ")}}},
		{name: "A beside CNAME", batches: [][]types.Change{one(create(set("x.k8s", "CNAME", 5, "y.k8s."))), one(create(x("1")))},
			ours:   outcome{Codes: []string{"ok", "InvalidChangeBatch"}, Sets: []string{"x.k8s. CNAME 5 y.k8s."}},
			theirs: outcome{Codes: []string{"ok", "ok"}, Sets: []string{"x.k8s. A 5 10.0.0.1", "x.k8s. CNAME 5 y.k8s."}}},
		{name: "a bare TXT", batches: [][]types.Change{one(create(set("x.k8s", "TXT", 5, "text")))},
			ours:   outcome{Codes: []string{"InvalidChangeBatch"}},
			theirs: outcome{Codes: []string{"ok"}, Sets: []string{"x.k8s. TXT 5 text"}}},
	}
}

func TestAgainstMoto(t *testing.T) {
	moto := client(moto.Start(t), "AKIDEXAMPLE", 1)
	both := func(t *testing.T, tt motoCase) (ours, theirs outcome) {
		t.Helper()
		_, fake := serve(t, awsfake.Options{Rates: unlimited})
		return play(t, fake, motoZone(t, fake), tt.batches), play(t, moto, motoZone(t, moto), tt.batches)
	}
	for _, tt := range motoAgrees() {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := both(t, tt)
			if diff := cmp.Diff(theirs, ours); diff != "" {
				t.Errorf("the fake differs from moto (-moto +fake):\n%s", diff)
			}
		})
	}
	for _, tt := range motoErrs() {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := both(t, tt)
			if diff := cmp.Diff(tt.ours, ours); diff != "" {
				t.Errorf("the fake (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.theirs, theirs); diff != "" {
				t.Errorf("moto (-want +got):\n%s", diff)
			}
		})
	}
}

func motoZone(t *testing.T, c *route53.Client) string {
	t.Helper()
	out, err := c.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
		Name: aws.String("k8s"), CallerReference: aws.String(t.Name()), VPC: &vpc,
		HostedZoneConfig: &types.HostedZoneConfig{PrivateZone: true}})
	if err != nil {
		t.Fatal(err)
	}
	return *out.HostedZone.Id
}
