package volume

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	zone       = "us-west-2a"
	group      = "demo-etcd-a"
	machinesOf = "etcd-a"
)

// region is an account with the machine of a member, which has a metadata service and the role of its group.
type region struct {
	*awsfake.Account
	clock    *awsfake.VirtualClock
	instance string
}

func (r region) Instance(netip.Addr) (metadata.Instance, bool) {
	return metadata.Instance{ID: r.instance, Type: "m7i.large", Role: machinesOf, LifecycleState: "Pending:Wait",
		Placement: metadata.Placement{Account: "123456789012", Region: "us-west-2", Zone: zone},
		Card:      metadata.Card{Addr: netip.MustParseAddr("127.0.0.1"), Hostname: "ip-127-0-0-1.us-west-2.compute.internal"}}, true
}

func (r region) Credentials(_ context.Context, instanceID, name string) (metadata.Credentials, error) {
	c, err := r.Issue(name, instanceID, time.Hour)
	return metadata.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.Secret, Token: c.Token, Updated: time.Now(), Expires: c.Expires}, err
}

// machinePolicy is what the group's role may do with volumes: attach what has the member's tags to what has them.
const machinePolicy = `{"Version": "2012-10-17", "Statement": [
	{"Effect": "Allow", "Action": ["ec2:DescribeVolumes", "ec2:DescribeInstances"], "Resource": "*"},
	{"Effect": "Allow", "Action": "ec2:AttachVolume", "Resource": ["arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:*:*:instance/*"],
		"Condition": {"StringEquals": {"aws:ResourceTag/KubernetesCluster": "demo", "aws:ResourceTag/EtcdMember": "a"}}}]}`

func newRegion(t *testing.T, o awsfake.EC2Options) (region, *EC2) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	r := region{clock: awsfake.NewVirtualClock(time.Now())}
	r.Account = awsfake.New(awsfake.Options{Clock: r.clock, EC2: o})
	r.instance = r.machine(t, group, "a")
	policy, err := awsfake.ParsePolicy([]byte(machinePolicy))
	if err != nil {
		t.Fatal(err)
	}
	r.AddRole(machinesOf, policy)
	aws := httptest.NewServer(r.Handler())
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
	return r, NewEC2(Options{Endpoint: aws.URL, Metadata: "http://" + l.Addr().String(), Cluster: "demo", Member: "a"})
}

// machine launches the one machine of a group.
func (r region) machine(t *testing.T, group, member string) string {
	t.Helper()
	err := r.AutoScaling().Create(awsfake.Group{Name: group, Max: 1, Desired: 1, Zones: []string{zone},
		Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "etcd", role.TagEtcdMember: member}})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(time.Minute)
	return r.AutoScaling().Instances(group)[0].ID
}

// volume makes a volume of the cluster demo.
func (r region) volume(zone, member string) string {
	id := r.EC2().CreateVolume(zone, 20, map[string]string{role.TagCluster: "demo", role.TagEtcdMember: member}).ID
	r.pass(time.Minute)
	return id
}

func (r region) pass(d time.Duration) {
	r.clock.Advance(d)
	r.Tick()
}

func (r region) hold(t *testing.T, volume, instance string) {
	t.Helper()
	if _, err := r.EC2().AttachVolume(volume, instance, attachPoint); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Minute)
}

func find(t *testing.T, e *EC2, want ...etcd.Volume) {
	t.Helper()
	got, err := e.Find(t.Context())
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %+v, %v\nwant  %+v", got, err, want)
	}
}

// TestEC2 attaches the member's volume, and none of anybody else's is in sight.
func TestEC2(t *testing.T) {
	r, e := newRegion(t, awsfake.EC2Options{Lag: time.Second, Volumes: awsfake.VolumeOptions{Create: 2 * time.Second, Attach: 3 * time.Second}})
	r.volume("us-west-2b", "a")
	r.volume(zone, "b")
	r.EC2().CreateVolume(zone, 20, map[string]string{role.TagCluster: "other", role.TagEtcdMember: "a"})
	find(t, e)
	id := r.EC2().CreateVolume(zone, 20, map[string]string{role.TagCluster: "demo", role.TagEtcdMember: "a"}).ID
	r.pass(time.Second)
	find(t, e, etcd.Volume{ID: id, State: "creating"})
	r.pass(3 * time.Second)
	free := etcd.Volume{ID: id, State: "available", Free: true}
	find(t, e, free)
	for range 2 { // what EC2 describes is a second old: it seems to be free still
		if err := e.Attach(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		find(t, e, free)
	}
	for _, passed := range []time.Duration{time.Second, time.Minute} { // attaching, attached: there is no such NVMe disk here
		r.pass(passed)
		find(t, e, etcd.Volume{ID: id, Holder: r.instance, State: "running"})
	}
	if who, err := e.Identity(t.Context()); err != nil || who.InstanceID != r.instance || who.AvailabilityZone != zone {
		t.Errorf("%+v, %v", who, err)
	}
}

// TestFewCalls: a machine that has its volume does not go on asking for it, until the device is not there any more; one that
// waits asks less and less often.
func TestFewCalls(t *testing.T) {
	r, e := newRegion(t, awsfake.EC2Options{})
	e.root = t.TempDir()
	describes := func(looks int) int {
		before := r.Calls()["ec2:DescribeVolumes"]
		for range looks {
			if _, err := e.Find(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return r.Calls()["ec2:DescribeVolumes"] - before
	}
	if n := describes(5); n < 4 {
		t.Errorf("%d calls in the first moment", n)
	}
	e.since = e.since.Add(-time.Hour)
	describes(1)
	if n := describes(5); n != 0 {
		t.Errorf("%d calls after an hour", n)
	}
	e.since, e.asked = time.Time{}, time.Time{}
	id := r.volume(zone, "a")
	r.hold(t, id, r.instance)
	controller := filepath.Join(e.root, controllers, "nvme1")
	err := errors.Join(os.MkdirAll(filepath.Join(controller, "nvme1n1"), 0o755), os.WriteFile(filepath.Join(controller, "serial"), []byte(strings.ReplaceAll(id, "-", "")), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	find(t, e, etcd.Volume{ID: id, Holder: r.instance, State: "running", Device: "/dev/nvme1n1"})
	if n := describes(5); n != 0 {
		t.Errorf("%d calls with the device in place", n)
	}
	if err := os.RemoveAll(controller); err != nil {
		t.Fatal(err)
	}
	find(t, e, etcd.Volume{ID: id, Holder: r.instance, State: "running"})
}

// TestHeldVolume waits for a volume that another machine has, until EC2 frees it; two volumes are both there.
func TestHeldVolume(t *testing.T) {
	r, e := newRegion(t, awsfake.EC2Options{Volumes: awsfake.VolumeOptions{Release: time.Minute}})
	id, old := r.volume(zone, "a"), r.machine(t, "demo-etcd-a-old", "a")
	r.hold(t, id, old)
	find(t, e, etcd.Volume{ID: id, Holder: old, State: "running"})
	if err := e.Attach(t.Context(), id); err != nil {
		t.Errorf("somebody was faster: %v", err)
	}
	if _, err := r.EC2().DetachVolume(id); err != nil { // by hand; the machine does not give it back
		t.Fatal(err)
	}
	r.pass(time.Minute)
	find(t, e, etcd.Volume{ID: id, Holder: old, State: "running"})
	if err := r.AutoScaling().SetDesired("demo-etcd-a-old", 0); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Second)
	find(t, e, etcd.Volume{ID: id, Holder: old, State: "terminated"})
	r.pass(2 * time.Minute)
	free := etcd.Volume{ID: id, State: "available", Free: true}
	find(t, e, free)
	both := []etcd.Volume{free, {ID: r.volume(zone, "a"), State: "available", Free: true}}
	slices.SortFunc(both, byVolume)
	find(t, e, both...)
	if n := r.Calls()["ec2:DetachVolume"]; n != 0 {
		t.Errorf("%d calls to take a volume away", n)
	}
}

// TestAttachRefused: the role of member a's machines can attach neither b's volume, nor its own to another machine.
func TestAttachRefused(t *testing.T) {
	r, e := newRegion(t, awsfake.EC2Options{})
	own, foreign, other := r.volume(zone, "a"), r.volume(zone, "b"), r.machine(t, "demo-etcd-b", "b")
	refused := func(e *EC2, volume string) {
		t.Helper()
		err := e.Attach(t.Context(), volume)
		f := reason.Explain("hardtack-member.service", err)
		if f.Reason != reason.Permission || f.Next != "allow ec2:AttachVolume for the group's instance role, on volumes and instances with the tag EtcdMember" {
			t.Errorf("%v: %+v", err, f)
		}
		if v, _ := r.EC2().Volume(volume); v.Attachment.Instance != "" {
			t.Errorf("%s is with %s", volume, v.Attachment.Instance)
		}
	}
	refused(e, foreign)
	find(t, e, etcd.Volume{ID: own, State: "available", Free: true})
	e.identity.InstanceID = other
	refused(e, own)
}

// TestAttachFails: what stands in the way is said, and what a machine could not reach.
func TestAttachFails(t *testing.T) {
	r, e := newRegion(t, awsfake.EC2Options{})
	r.hold(t, r.volume(zone, "z"), r.instance) // another volume has the place
	if err := e.Attach(t.Context(), r.volume(zone, "a")); err == nil || reason.Of(err) != reason.Volume {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := NewEC2(Options{Metadata: "http://127.0.0.1:1"}).Find(ctx); reason.Of(err) != reason.Metadata {
		t.Errorf("%v", err)
	}
	var none *reason.Error
	if err := e.Attach(t.Context(), "vol-0123456789abcdef0"); !errors.As(err, &none) {
		t.Errorf("a volume that there is not: %v", fmt.Sprint(err))
	}
}
