package fleet_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
)

// TestLaunches restarts the time of the launch hook and completes it, for the machine that is named and no other.
func TestLaunches(t *testing.T) {
	clock := awsfake.NewVirtualClock(time.Now())
	faults := &awsfake.Script{}
	a := awsfake.New(awsfake.Options{Clock: clock, Faults: faults})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	l := &fleet.Launches{Hook: "join", API: autoscaling.New(autoscaling.Options{Region: "eu-central-1", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")})}
	const group = "demo-minions"
	groups := a.AutoScaling()
	if err := groups.Create(awsfake.Group{Name: group, Max: 2}); err != nil {
		t.Fatal(err)
	}
	if err := groups.PutHook(group, awsfake.Hook{Name: "join", Transition: "autoscaling:EC2_INSTANCE_LAUNCHING", Heartbeat: 20 * time.Minute, Default: awsfake.Abandon}); err != nil {
		t.Fatal(err)
	}
	if err := groups.SetDesired(group, 2); err != nil {
		t.Fatal(err)
	}
	a.Tick()
	states := func() (all []string) {
		for _, i := range groups.Instances(group) {
			all = append(all, i.State)
		}
		return all
	}
	first := groups.Instances(group)[0].ID
	clock.Advance(15 * time.Minute)
	if open, err := l.Heartbeat(t.Context(), group, first); err != nil || !open {
		t.Fatalf("%v, %v", open, err)
	}
	clock.Advance(15 * time.Minute)
	a.Tick()
	for i := range 2 {
		if open, err := l.Complete(t.Context(), group, first); err != nil || open != (i == 0) {
			t.Errorf("completed: %v, %v; %v", open, err, states())
		}
		a.Tick()
	}
	kept := 0
	for _, i := range groups.Instances(group) {
		if i.ID == first && i.State == awsfake.StateInService {
			kept++
		} else if i.State == awsfake.StateInService {
			t.Errorf("machine %s, for which nobody spoke, is in service", i.ID)
		}
	}
	if kept != 1 {
		t.Errorf("the machine is not in service: %v", states())
	}
	if open, err := l.Heartbeat(t.Context(), group, first); err != nil || open {
		t.Errorf("held in service: %v, %v", open, err)
	}
	for _, action := range []string{"CompleteLifecycleAction", "RecordLifecycleActionHeartbeat"} {
		faults.Add(action, awsfake.Fault{Refuse: &awsfake.Error{Code: "AccessDenied", Status: 403}})
		call := l.Complete
		if action != "CompleteLifecycleAction" {
			call = l.Heartbeat
		}
		if _, err := call(t.Context(), group, first); err == nil || !strings.Contains(err.Error(), "allow autoscaling:"+action) {
			t.Errorf("%s: %v", action, err)
		}
	}
}
