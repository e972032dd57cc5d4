package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// A machine that lacks the tag and is in service stays in the records, and the findings name it.
func TestAWSPublishesAnUntaggedMachine(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	group(t, a, "new", "masters", 2, nil)
	err := a.AutoScaling().Create(awsfake.Group{Name: "old", Max: 1, Desired: 1, Zones: []string{"eu-central-1a"},
		Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "masters"}, Unpropagated: map[string]bool{role.TagCluster: true}})
	if err != nil {
		t.Fatal(err)
	}
	a.Tick()
	got, err := f.Read(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	sets, found := record.Desired(got, record.DefaultPolicy(), record.Limits{})
	i := slices.IndexFunc(sets, func(s record.Set) bool { return s.Name == "masters.demo.k8s." && s.Type == record.A })
	if i < 0 || len(sets[i].Values) != 3 {
		t.Errorf("%v", sets)
	}
	id := a.AutoScaling().Instances("old")[0].ID
	if len(found) != 1 || found[0].Rule != "untagged" || !strings.Contains(found[0].Field, id) {
		t.Errorf("%v", found)
	}
	if n := a.Calls()["ec2:DescribeInstances"]; n != 2 {
		t.Errorf("%d calls of DescribeInstances, want one by the tag and one by ids", n)
	}
}

// hides is EC2 without one of its machines, as a page that comes back empty.
type hides struct {
	fleet.MachinesAPI
	id string
}

func (h hides) DescribeInstances(ctx context.Context, in *ec2.DescribeInstancesInput, opts ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	out, err := h.MachinesAPI.DescribeInstances(ctx, in, opts...)
	if err == nil {
		for i := range out.Reservations {
			out.Reservations[i].Instances = slices.DeleteFunc(out.Reservations[i].Instances, func(one ec2types.Instance) bool { return aws.ToString(one.InstanceId) == h.id })
		}
	}
	return out, err
}

// A machine in service that EC2 does not show at all: the reading is partial, and nothing is changed from it.
func TestAWSRefusesAReadingWithoutAMachine(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	group(t, a, "g", "masters", 3, nil)
	id := a.AutoScaling().Instances("g")[1].ID
	f.Machines = hides{f.Machines, id}
	if got, err := f.Read(t.Context(), "demo"); err == nil || !strings.Contains(err.Error(), id) || len(got.Groups) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A machine that is not in service may be unknown to EC2: it has just been launched, or has ended for an hour. It is a member of its
// group that does not run, and is neither asked for nor missed, even where the group has no other.
func TestAWSMissesNoMachineOutOfService(t *testing.T) {
	for _, n := range []int{1, 2} {
		a, f, groups := region(t, awsfake.Options{})
		group(t, a, "g", "masters", n, nil)
		hook := awsfake.Hook{Name: role.DrainHook, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: time.Hour}
		if err := a.AutoScaling().PutHook("g", hook); err != nil {
			t.Fatal(err)
		}
		id := a.AutoScaling().Instances("g")[0].ID
		terminate(t, groups, id, true)
		f.Machines = hides{f.Machines, id}
		got, err := f.Read(t.Context(), "demo")
		if err != nil || len(got.Groups) != 1 || len(got.Groups[0].Members) != n {
			t.Fatalf("%d machines: %+v, %v", n, got, err)
		}
		for _, m := range got.Groups[0].Members {
			if m.Running == (m.InstanceID == id) || m.Untagged {
				t.Errorf("%d machines: %+v", n, m)
			}
		}
		// The second asks for the machine by its id: only EC2 knows whether it lacks the tag or is gone.
		if calls := a.Calls()["ec2:DescribeInstances"]; calls != 2 {
			t.Errorf("%d machines: %d calls of DescribeInstances", n, calls)
		}
	}
}

// A machine without the tag that waits for its hooks on termination has its addresses, by which its records are withdrawn.
func TestAWSReadsUntaggedThatLeave(t *testing.T) {
	a, f, groups := region(t, awsfake.Options{})
	group(t, a, "new", "minions", 1, nil)
	err := a.AutoScaling().Create(awsfake.Group{Name: "old", Max: 1, Desired: 1, Zones: []string{"eu-central-1a"},
		Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "masters"}, Unpropagated: map[string]bool{role.TagCluster: true}})
	if err != nil {
		t.Fatal(err)
	}
	a.Tick()
	if err := a.AutoScaling().PutHook("old", awsfake.Hook{Name: role.DrainHook, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: time.Hour}); err != nil {
		t.Fatal(err)
	}
	terminate(t, groups, a.AutoScaling().Instances("old")[0].ID, false)
	got, err := f.Read(t.Context(), "demo")
	i := slices.IndexFunc(got.Groups, func(g record.Group) bool { return g.Name == "old" })
	if err != nil || i < 0 || len(got.Groups[i].Members) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, m := range got.Groups[i].Members { // that machine, and the one in its place
		if !m.Untagged || !m.Private.IsValid() {
			t.Errorf("%+v", m)
		}
	}
}

// A refused question for the machines without the tag is told as it is, and not as a partial reading.
func TestAWSUntaggedRefused(t *testing.T) {
	faults := &awsfake.Script{}
	a, f, _ := region(t, awsfake.Options{Faults: faults})
	group(t, a, "g", "masters", 2, nil)
	f.Machines = hides{f.Machines, a.AutoScaling().Instances("g")[0].ID}
	faults.Add("DescribeInstances", awsfake.Fault{}, awsfake.Fault{Refuse: awsfake.Throttled()})
	if got, err := f.Read(t.Context(), "demo"); !errors.Is(err, reconcile.ErrThrottled) || len(got.Groups) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// An etcd without a machine has no volume that a machine could hold: the permission to read volumes is not needed yet.
func TestAWSReadsVolumesForEtcdMachines(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	group(t, a, "demo-masters", "masters", 1, nil)
	group(t, a, "demo-etcd-a", "etcd", 0, nil)
	if _, err := f.Read(t.Context(), "demo"); err != nil || a.Calls()["ec2:DescribeVolumes"] != 0 {
		t.Errorf("%v, %v", a.Calls(), err)
	}
}

// A group that is allowed for one cluster has no records of another, whatever its tags say.
func TestAWSAllowsGroupsByCluster(t *testing.T) {
	a, f, _ := region(t, awsfake.Options{})
	group(t, a, "demo-masters", "masters", 1, nil)
	group(t, a, "other-minions", "minions", 1, nil) // tagged demo
	f.Allowed = func(cluster string) []string {
		return map[string][]string{"demo": {"demo-masters"}, "other": {"other-minions"}}[cluster]
	}
	got, err := f.Read(t.Context(), "demo")
	if err != nil || len(got.Groups) != 1 || got.Groups[0].Name != "demo-masters" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = f.Read(t.Context(), "unknown"); err != nil || len(got.Groups) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Hooks of others are theirs: their work on the machine goes on until they say so.
func TestHooksLeaveForeignHooksAlone(t *testing.T) {
	a, _, groups := region(t, awsfake.Options{})
	group(t, a, "g", "masters", 1, nil)
	for _, name := range []string{role.DrainHook, "nth-drain"} {
		if err := a.AutoScaling().PutHook("g", awsfake.Hook{Name: name, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	id := a.AutoScaling().Instances("g")[0].ID
	terminate(t, groups, id, true)
	a.Tick()
	before := a.Calls()["autoscaling:DescribeLifecycleHooks"]
	if err := (&fleet.Hooks{API: groups}).Complete(t.Context(), "g", id); err != nil {
		t.Fatal(err)
	}
	a.Tick()
	if i := a.AutoScaling().Instances("g"); len(i) != 1 || i[0].State != "Terminating:Wait" {
		t.Errorf("%+v: the foreign hook was completed", i)
	}
	if n := a.Calls()["autoscaling:DescribeLifecycleHooks"] - before; n != 0 {
		t.Errorf("%d calls of DescribeLifecycleHooks for a hook whose name is known", n)
	}
	if err := (&fleet.Hooks{API: groups, Name: role.AllHooks}).Complete(t.Context(), "g", id); err != nil {
		t.Fatal(err)
	}
	a.Tick()
	if i := a.AutoScaling().Instances("g"); len(i) != 0 {
		t.Errorf("%+v: * is every hook", i)
	}
}
