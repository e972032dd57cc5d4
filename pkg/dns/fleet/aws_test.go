package fleet_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// region is a fake account and its readers over the wire.
func region(t *testing.T, o awsfake.Options) (*awsfake.Account, *fleet.AWS, *autoscaling.Client) {
	t.Helper()
	a := awsfake.New(o)
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	keys := credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")
	client := awshttp.Client(nil)
	groups := autoscaling.New(autoscaling.Options{Region: "eu-central-1", BaseEndpoint: &server.URL, Credentials: keys, HTTPClient: client, RetryMaxAttempts: 1})
	machines := ec2.New(ec2.Options{Region: "eu-central-1", BaseEndpoint: &server.URL, Credentials: keys, HTTPClient: client, RetryMaxAttempts: 1})
	return a, &fleet.AWS{Scaling: groups, Machines: machines}, groups
}

func group(t *testing.T, a *awsfake.Account, name, of string, n int, more map[string]string) {
	t.Helper()
	tags := map[string]string{role.TagCluster: "demo", role.TagRole: of}
	for k, v := range more {
		tags[k] = v
	}
	err := a.AutoScaling().Create(awsfake.Group{Name: name, Max: n, Desired: n, Tags: tags, Zones: []string{"eu-central-1a"}})
	if err != nil {
		t.Fatal(err)
	}
	a.Tick()
}

// terminate has a group end a machine; smaller says that none takes its place.
func terminate(t *testing.T, groups *autoscaling.Client, id string, smaller bool) {
	t.Helper()
	_, err := groups.TerminateInstanceInAutoScalingGroup(t.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: &id, ShouldDecrementDesiredCapacity: &smaller})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAWSReadsEveryPage(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{EC2: awsfake.EC2Options{IPv6: true, Public: true}})
	for i := range 120 { // two pages of groups
		group(t, a, fmt.Sprintf("minions-%03d", i), "minions", 9, nil) // two of machines
	}
	group(t, a, "other", "masters", 1, map[string]string{role.TagCluster: "other"})
	got, err := f.Read(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	if want := "aws:123456789012:us-west-2"; got.Owner != want {
		t.Errorf("the owner is %q, want %q", got.Owner, want)
	}
	if len(got.Groups) != 120 {
		t.Fatalf("%d groups", len(got.Groups))
	}
	for _, g := range got.Groups {
		if g.Role != role.Minions || g.Desired != 9 || len(g.Members) != 9 || g.Cluster != "demo" {
			t.Fatalf("%+v", g)
		}
		for _, m := range g.Members {
			if m.Lifecycle != record.InService || !m.Healthy || !m.Running || !m.Private.Is4() || !m.Private6.Is6() || !m.Public.Is4() {
				t.Fatalf("%+v", m)
			}
		}
	}
	calls := a.Calls()
	if calls["autoscaling:DescribeAutoScalingGroups"] != 2 || calls["ec2:DescribeInstances"] != 2 || calls["ec2:DescribeVolumes"] != 0 {
		t.Errorf("%v", calls)
	}
	f.Allowed = func(string) []string { return []string{"minions-007"} }
	if got, err = f.Read(t.Context(), "demo"); err != nil || len(got.Groups) != 1 {
		t.Errorf("allowed one: %d groups, %v", len(got.Groups), err)
	}
}

// An etcd machine is the member whose volume it holds, whatever its own tag says.
func TestAWSEtcdMembersFollowTheirVolumes(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	group(t, a, "control", "masters+etcd", 2, map[string]string{role.TagEtcdMembers: "a, b", role.TagEtcdMember: "z"})
	group(t, a, "work", "minions", 1, nil) // the last one read has no etcd
	machines := a.AutoScaling().Instances("control")
	v := a.EC2().CreateVolume("eu-central-1a", 20, map[string]string{role.TagCluster: "demo", role.TagEtcdMember: "a"})
	if _, err := a.EC2().AttachVolume(v.ID, machines[1].ID, "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
	a.EC2().CreateVolume("eu-central-1a", 20, map[string]string{role.TagCluster: "demo", role.TagEtcdMember: "b"}) // held by none
	got, err := f.Read(t.Context(), "demo")
	if err != nil || len(got.Groups) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	masters, etcd := got.Groups[0], got.Groups[1]
	if masters.Role != role.Masters || masters.Members[1].EtcdMember != "" || len(masters.EtcdMembers) != 0 {
		t.Errorf("%+v", masters)
	}
	i := slices.IndexFunc(etcd.Members, func(m record.Member) bool { return m.InstanceID == machines[1].ID })
	if etcd.Role != role.Etcd || !slices.Equal(etcd.EtcdMembers, []string{"a", "b"}) || etcd.Members[i].EtcdMember != "a" || etcd.Members[1-i].EtcdMember != "z" {
		t.Errorf("%+v", etcd)
	}
}

// A member's name goes with its volume from machine to machine. The old machine keeps the volume until it has ended; the new
// one, which waits for it, has the same tag and not the name. A volume that nobody has yet takes no name away.
func TestAWSNameFollowsTheVolume(t *testing.T) {
	clock := awsfake.NewVirtualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	slow := awsfake.VolumeOptions{Attach: time.Minute, Release: time.Minute}
	a, f, groups := region(t, awsfake.Options{Clock: clock, EC2: awsfake.EC2Options{Volumes: slow}})
	group(t, a, "demo-etcd-a", "etcd", 1, map[string]string{role.TagEtcdMembers: "a", role.TagEtcdMember: "a"})
	pass := func() {
		clock.Advance(time.Minute)
		a.Tick()
	}
	pass()
	for name, transition := range map[string]string{"up": "autoscaling:EC2_INSTANCE_LAUNCHING", "down": "autoscaling:EC2_INSTANCE_TERMINATING"} {
		if err := a.AutoScaling().PutHook("demo-etcd-a", awsfake.Hook{Name: name, Transition: transition, Heartbeat: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	named := func(when, instance string) {
		t.Helper()
		fleet, err := f.Read(t.Context(), "demo")
		if err != nil {
			t.Fatal(err)
		}
		policy := record.DefaultPolicy()
		want := policy.Placeholder.String()
		if m, ok := a.EC2().Machine(instance); ok {
			want = m.Private.String()
		}
		sets, found := record.Desired(fleet, policy, record.Limits{})
		i := slices.IndexFunc(sets, func(s record.Set) bool { return s.Name == "etcd-a.demo.k8s." && s.Type == record.A })
		if found.Err() != nil || i < 0 || !slices.Equal(sets[i].Values, []string{want}) {
			t.Errorf("%s: %v, %v; want %s", when, sets, found, want)
		}
	}
	old := a.AutoScaling().Instances("demo-etcd-a")[0].ID
	named("no volume", old)
	v := a.EC2().CreateVolume("eu-central-1a", 20, map[string]string{role.TagCluster: "demo", role.TagEtcdMember: "a"})
	named("a volume that nobody has", old)
	if _, err := a.EC2().AttachVolume(v.ID, old, "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
	named("attaching", old)
	pass()
	named("attached", old)
	terminate(t, groups, old, false)
	pass()
	pass()
	var next string
	for _, i := range a.AutoScaling().Instances("demo-etcd-a") {
		if i.ID != old && i.State == awsfake.StatePendingWait {
			next = i.ID
		}
	}
	if next == "" {
		t.Fatalf("%+v", a.AutoScaling().Instances("demo-etcd-a"))
	}
	named("the old one leaves", "")
	_, err := groups.CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{AutoScalingGroupName: aws.String("demo-etcd-a"), InstanceId: &old,
		LifecycleHookName: aws.String("down"), LifecycleActionResult: aws.String("CONTINUE")})
	if err != nil {
		t.Fatal(err)
	}
	a.Tick()
	named("the old one has ended, and EC2 detaches", "")
	pass()
	pass()
	named("free", next)
	if _, err := a.EC2().AttachVolume(v.ID, next, "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
	named("attaching to the new one", next)
	pass()
	named("attached to the new one", next)
}

// Part of a reading is none: each call that fails gives an error and no group.
func TestAWSGivesNoPart(t *testing.T) {
	for _, action := range []string{"DescribeAutoScalingGroups", "DescribeInstances", "DescribeVolumes"} {
		for _, n := range []int{0, 1} { // which page
			if n == 1 && action == "DescribeVolumes" {
				continue // there is one page
			}
			s := &awsfake.Script{}
			a, f, _ := region(t, awsfake.Options{Faults: s})
			var names []string
			for i := range 101 {
				names = append(names, fmt.Sprintf("g%03d", i))
				group(t, a, names[i], "etcd", 10, nil)
			}
			f.Allowed = func(string) []string { return names }
			s.Add(action, append(make([]awsfake.Fault, n), awsfake.Fault{Refuse: awsfake.Throttled()})...)
			got, err := f.Read(t.Context(), "demo")
			if !errors.Is(err, reconcile.ErrThrottled) || len(got.Groups) != 0 {
				t.Errorf("%s, page %d: %d groups, %v", action, n+1, len(got.Groups), err)
			}
		}
	}
}

func TestAWSSaysWhatIsMissing(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	err := a.AutoScaling().Create(awsfake.Group{Name: "g", Max: 1, Desired: 1, Zones: []string{"eu-central-1a"},
		Tags:         map[string]string{role.TagCluster: "demo", role.TagRole: "masters"},
		Unpropagated: map[string]bool{role.TagCluster: true}})
	if err != nil {
		t.Fatal(err)
	}
	a.Tick()
	if _, err := f.Read(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "PropagateAtLaunch") {
		t.Errorf("%v", err)
	}
	a.SetPolicy("AKIDEXAMPLE", awsfake.Policy{})
	if _, err := f.Read(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), "allow autoscaling:DescribeAutoScalingGroups") {
		t.Errorf("%v", err)
	}
	if got, err := f.Read(t.Context(), "nobody"); err == nil {
		t.Errorf("without rights: %+v", got)
	}
}

// A machine that waits to be terminated goes on; completing it again is no error.
func TestHooksComplete(t *testing.T) {
	a, _, groups := region(t, awsfake.Options{})
	group(t, a, "g", "masters", 1, nil)
	for name, transition := range map[string]string{"leave-dns": "autoscaling:EC2_INSTANCE_TERMINATING", "join": "autoscaling:EC2_INSTANCE_LAUNCHING"} {
		if err := a.AutoScaling().PutHook("g", awsfake.Hook{Name: name, Transition: transition, Heartbeat: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	id := a.AutoScaling().Instances("g")[0].ID
	terminate(t, groups, id, true)
	a.Tick()
	if i := a.AutoScaling().Instances("g"); len(i) != 1 || i[0].State != "Terminating:Wait" {
		t.Fatalf("%+v", i)
	}
	h := &fleet.Hooks{API: groups, Name: "leave-dns"}
	for range 2 {
		if err := h.Complete(t.Context(), "g", id); err != nil {
			t.Fatal(err)
		}
		a.Tick()
	}
	if i := a.AutoScaling().Instances("g"); len(i) != 0 {
		t.Errorf("%+v", i)
	}
	if err := h.Complete(t.Context(), "none", id); err == nil {
		t.Error("a group that is not there")
	}
}
