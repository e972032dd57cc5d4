package lifecycle_test

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/lifecycle"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

const (
	group = "demo-minions"
	hook  = "hardtack-ready"
	role  = "demo-minions"
)

// region is an account with one machine, which has a metadata service and a role.
type region struct {
	*awsfake.Account
	instance string
}

func (r region) Instance(netip.Addr) (metadata.Instance, bool) {
	return metadata.Instance{ID: r.instance, Type: "m7i.large", Role: role, LifecycleState: "InService",
		Placement: metadata.Placement{Account: "123456789012", Region: "us-west-2", Zone: "us-west-2a"},
		Card:      metadata.Card{Addr: netip.MustParseAddr("127.0.0.1"), Hostname: "ip-127-0-0-1.us-west-2.compute.internal"}}, true
}

func (r region) Credentials(_ context.Context, instanceID, name string) (metadata.Credentials, error) {
	c, err := r.Issue(name, instanceID, time.Hour)
	return metadata.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.Secret, Token: c.Token, Updated: time.Now(), Expires: c.Expires}, err
}

// open makes a region whose machine is held by its launch hook, and the machine's launch by the default chain: region,
// instance and credentials come from the metadata service.
func open(t *testing.T, policies ...awsfake.Policy) (region, *lifecycle.Launch) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	account := awsfake.New(awsfake.Options{})
	scaling := account.AutoScaling()
	err := errors.Join(
		scaling.Create(awsfake.Group{Name: group, Max: 1, Zones: []string{"us-west-2a"}}),
		scaling.PutHook(group, awsfake.Hook{Name: hook, Transition: "autoscaling:EC2_INSTANCE_LAUNCHING", Heartbeat: time.Minute}),
		scaling.SetDesired(group, 1))
	if err != nil {
		t.Fatal(err)
	}
	r := region{account, scaling.Instances(group)[0].ID}
	account.AddRole(role, policies...)
	aws := httptest.NewServer(account.Handler())
	t.Cleanup(aws.Close)
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = metadata.New(r, nil).Serve(t.Context(), l) // its error at the end of the test is irrelevant
	}()
	t.Cleanup(func() { <-ended })
	return r, lifecycle.New(lifecycle.Options{Endpoint: aws.URL, Metadata: "http://" + l.Addr().String(), Group: group, Hook: hook})
}

func allow(actions ...string) awsfake.Policy {
	return awsfake.Policy{{Actions: actions, Resources: []string{"*"}}}
}

// state is the machine's as the group has it.
func (r region) state(t *testing.T) string {
	t.Helper()
	list := r.AutoScaling().Instances(group)
	if len(list) != 1 {
		t.Fatalf("%d machines", len(list))
	}
	return list[0].State
}

// TestLaunch keeps a launch open, completes it, and finds it over at the next boot.
func TestLaunch(t *testing.T) {
	r, l := open(t, allow("autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat", "autoscaling:DescribeAutoScalingInstances"))
	if state, err := l.State(t.Context()); err != nil || state != "Pending:Wait" {
		t.Fatalf("%q, %v", state, err)
	}
	if err := l.Heartbeat(t.Context()); err != nil {
		t.Error(err)
	}
	said, err := ready.Complete(t.Context(), l, func(err error) { t.Error(err) })
	if err != nil || said != "the group's launch hook is completed" || r.state(t) != "InService" {
		t.Errorf("%q, %v; the machine is %s", said, err, r.state(t))
	}
	// A reboot.
	if err := l.Heartbeat(t.Context()); !errors.Is(err, ready.ErrNoAction) {
		t.Errorf("heartbeat of what is over: %v", err)
	}
	said, err = ready.Complete(t.Context(), l, func(err error) { t.Error(err) })
	if err != nil || said != "the launch is over already: the machine is InService" {
		t.Errorf("%q, %v", said, err)
	}
}

// TestRefused says which action the role lacks.
func TestRefused(t *testing.T) {
	r, l := open(t, allow("autoscaling:Describe*"))
	for name, call := range map[string]func(context.Context) error{"CompleteLifecycleAction": l.Complete, "RecordLifecycleActionHeartbeat": l.Heartbeat} {
		err := call(t.Context())
		f := reason.Explain("hardtack-ready.service", err)
		if f.Reason != reason.Permission || f.Next != "allow autoscaling:"+name+" for the group's instance role" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if r.state(t) != "Pending:Wait" {
		t.Errorf("the machine is %s", r.state(t))
	}
}

// TestNoMetadata asserts that the error names the service that does not answer.
func TestNoMetadata(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := lifecycle.New(lifecycle.Options{Metadata: "http://127.0.0.1:1"}).State(ctx)
	if reason.Of(err) != reason.Metadata {
		t.Errorf("%v", err)
	}
}
