package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
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
