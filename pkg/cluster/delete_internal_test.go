package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// ticking is an account's clock whose sleeps pass at once.
type ticking struct {
	*awsfake.VirtualClock
	account *awsfake.Account
}

func (c ticking) Sleep(ctx context.Context, d time.Duration) error {
	c.Advance(d)
	c.account.Tick()
	return ctx.Err()
}

// TestDeleteWaitsForTheHook deletes a cluster whose masters are gone, by somebody who may not answer the hook that holds a
// minion for its pods: the hook's time passes, and the deletion goes on after it. What nothing ever ends is not waited for.
func TestDeleteWaitsForTheHook(t *testing.T) {
	for _, tt := range []struct {
		name  string
		extra bool // another hook, which holds the machine for longer
		want  bool
	}{{"the hook's time", false, true}, {"longer", true, false}} {
		t.Run(tt.name, func(t *testing.T) {
			clock := awsfake.NewVirtualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
			account := awsfake.New(awsfake.Options{Clock: clock})
			server := httptest.NewServer(account.Handler())
			t.Cleanup(server.Close)
			fleet := account.AutoScaling()
			assert.NilError(t, fleet.Create(awsfake.Group{Name: "demo-minions", Max: 1, Desired: 1, Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "minions"}}))
			hook := awsfake.Hook{Name: role.EvictionHook, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: 90 * time.Minute, Default: awsfake.Continue}
			assert.NilError(t, fleet.PutHook("demo-minions", hook))
			if tt.extra {
				hook.Name, hook.Heartbeat = "others", 2*time.Hour
				assert.NilError(t, fleet.PutHook("demo-minions", hook))
			}
			account.Tick()
			assert.NilError(t, fleet.Terminate(fleet.Instances("demo-minions")[0].ID, true))
			account.Tick()
			account.SetPolicy("AKIDEXAMPLE", awsfake.Policy{{Actions: []string{"autoscaling:Describe*"}, Resources: []string{"*"}}})

			c := New(Config{Document: &spec.Complete{Cluster: &spec.Cluster{Name: "demo"}, Groups: []spec.Group{{Name: "minions", AWS: spec.GroupAWS{DrainTimeout: 90}}}},
				Poll: time.Minute, Log: slog.New(slog.DiscardHandler), AWS: aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil),
					Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}})
			c.clock = ticking{clock, account}
			began := clock.Now()
			err := c.awaitEnd(t.Context(), &Made{Stack: &cloudformation.Stack{}, Groups: []string{"demo-minions"}})
			var left *NotEndedError
			if tt.want {
				assert.NilError(t, err)
				assert.Assert(t, clock.Now().Sub(began) >= 89*time.Minute)
				return
			}
			assert.Assert(t, errors.As(err, &left), "%v", err)
			assert.Assert(t, clock.Now().Sub(began) < 2*time.Hour)
		})
	}
}

// TestEmptyZone removes more records than Route 53 takes in a batch, and those of no other cluster. Where a batch fails, the control record is
// still there, and the next time removes the rest.
func TestEmptyZone(t *testing.T) {
	faults := &awsfake.Script{}
	account := awsfake.New(awsfake.Options{Faults: faults, Rates: map[string]float64{"route53": 0}})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
	made, err := account.Route53().CreateHostedZone(t.Context(), awsfake.HostedZone{Name: "k8s", CallerReference: "1"})
	assert.NilError(t, err)
	z, err := zone.NewRoute53(route53.NewFromConfig(conf), made.ID, record.DefaultPolicy())
	assert.NilError(t, err)
	fleet := record.Fleet{Cluster: "demo", Groups: []record.Group{{Name: "demo-minions", Cluster: "demo", Role: role.Minions, Desired: 1100}}}
	for i := range 1100 {
		fleet.Groups[0].Members = append(fleet.Groups[0].Members, record.Member{InstanceID: fmt.Sprintf("i-%d", i), Lifecycle: record.InService, Healthy: true, Running: true, Private: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
	}
	publish(t, z, fleet)
	publish(t, z, record.Fleet{Cluster: "other", Groups: []record.Group{{Name: "other-minions", Cluster: "other", Role: role.Minions, Desired: 1, Members: fleet.Groups[0].Members[:1]}}})
	left := func() map[string]bool {
		have, err := z.Read(t.Context(), "demo")
		assert.NilError(t, err)
		names := map[string]bool{}
		for _, s := range have {
			names[s.Name] = true
		}
		return names
	}
	all := len(left())
	c := New(Config{Document: &spec.Complete{Cluster: &spec.Cluster{Name: "demo"}}, AWS: conf})
	faults.Add("ChangeResourceRecordSets", awsfake.Fault{}, awsfake.Fault{Refuse: awsfake.Unavailable()})
	assert.ErrorContains(t, c.emptyZone(t.Context(), made.ID), "removing the records of demo")
	names := left()
	assert.Assert(t, len(names) > 1 && len(names) < all && names["_hardtack.demo.k8s."], "%v", slices.Collect(maps.Keys(names)))
	assert.NilError(t, c.emptyZone(t.Context(), made.ID))
	assert.Equal(t, len(left()), 0)
	others, err := z.Read(t.Context(), "other")
	assert.NilError(t, err)
	assert.Assert(t, len(others) > 0)
}

// publish publishes the records of a fleet, batch by batch.
func publish(t *testing.T, z *zone.Route53, f record.Fleet) {
	t.Helper()
	want, problems := record.Desired(f, record.DefaultPolicy(), z.Limits())
	assert.Equal(t, len(problems), 0, "%v", problems)
	for i, more := 0, true; more; i++ {
		have, err := z.Read(t.Context(), f.Cluster)
		assert.NilError(t, err)
		var part record.Change
		part, more, err = record.Diff(have, want, fmt.Sprint("g", i)).Fit(z.Limits())
		assert.NilError(t, err)
		assert.NilError(t, z.CompareAndSwap(t.Context(), f.Cluster, part.Remove, part.Create))
	}
}
