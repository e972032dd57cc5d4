package autoscaling_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// policy is the policy of a group, which it must have.
func (w *world) policy(group string) *types.MixedInstancesPolicy {
	w.t.Helper()
	out, err := w.scaling.DescribeAutoScalingGroups(w.t.Context(), &sdk.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{group}})
	if err != nil || len(out.AutoScalingGroups) != 1 || out.AutoScalingGroups[0].MixedInstancesPolicy == nil {
		w.t.Fatalf("%s has no mixed instances policy: %v", group, err)
	}
	return out.AutoScalingGroups[0].MixedInstancesPolicy
}

// kinds are the types of a group's machines, each once.
func (w *world) kinds(group string) (kinds []string) {
	for _, i := range w.account.AutoScaling().Instances(group) {
		if !slices.Contains(kinds, i.Type) {
			kinds = append(kinds, i.Type)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Groups of several types are refreshed to a new image and rolled back from it, and their policy, with its types and shares, is what it was.
// Machines of any of the types are as wanted; those of one that the stack no longer has are replaced.
func TestRefreshMixed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "rich")
	const old, all = "edge 1: a; masters 1: a; minions 1: a a a a; steady 1: a", "m6i.large m7a.large m7i.large"
	w.want(old)
	if got := strings.Join(w.kinds("demo-minions"), " "); got != all {
		t.Fatalf("the types are %s", got)
	}
	if done, err := w.run(rollout.Options{}); err != nil || len(done.Replaced)+len(done.Refreshed) != 0 {
		t.Errorf("machines of other types of the group are replaced: %+v, %v", done, err)
	}
	w.publish(imageB)
	w.deploy("rich")
	only := []string{"minions", "steady"}
	if _, err := w.run(rollout.Options{Only: only}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.want("edge 2: a; masters 2: a; minions 2: b b b b; steady 2: b")
	w.cluster.Wanted = map[string]int{"demo-minions": 1}
	if _, err := w.run(rollout.Options{Only: []string{"minions"}}); err != nil {
		t.Fatal(err)
	}
	w.cluster.Wanted = nil
	w.settle()
	w.want("edge 2: a; masters 2: a; minions 1: a a a a; steady 2: b")
	// One of etcd's masters is replaced by hand, of which the group is pointed at the version.
	if _, err := w.run(rollout.Options{AllowDataLoss: []string{"masters"}}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.want("edge 2: b; masters 2: b; minions 2: b b b b; steady 2: b")
	for group, percent := range map[string]int32{"demo-masters": 100, "demo-minions": 20} {
		p := w.policy(group)
		if len(p.LaunchTemplate.Overrides) != 3 || aws.ToInt32(p.InstancesDistribution.OnDemandPercentageAboveBaseCapacity) != percent {
			t.Errorf("%s: %+v, %+v", group, p.LaunchTemplate, p.InstancesDistribution)
		}
	}

	w.deploy("rich", "                - InstanceType: m6i.large\n", "", "            - InstanceType: m6i.large\n", "")
	if _, err := w.run(rollout.Options{Only: []string{"minions"}}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := strings.Join(w.kinds("demo-minions"), " "); got != "m7a.large m7i.large" {
		t.Errorf("the types are %s", got)
	}
}

// The version that a refresh of such a group leads to is that of its policy; a refresh that names none leads to the group's own.
func TestMixedRefreshLeadsTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "rich")
	_, err := w.cluster.Start(t.Context(), rollout.Step{Group: "demo-minions", To: 1})
	assert.NilError(t, err)
	assert.Equal(t, w.read("minions").Refresh.To, 1)
	w.answers(func(out any) {
		if out, ok := out.(*sdk.DescribeInstanceRefreshesOutput); ok && len(out.InstanceRefreshes) > 0 {
			out.InstanceRefreshes[0].DesiredConfiguration = &types.DesiredConfiguration{}
		}
	})
	assert.Equal(t, w.read("minions").Refresh.To, 0)
}

// A neighbour's group with the cluster's tag is not the stack's: it is neither shown nor touched.
func TestOnlyNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.cluster.Names = []string{"demo-minions"}
	s, err := w.cluster.Read(t.Context())
	if err != nil || len(s.Groups) != 1 || s.Groups[0].Name != "demo-minions" {
		t.Fatalf("%+v, %v", s.Groups, err)
	}
	if err := w.cluster.Empty(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if masters, minions := w.account.AutoScaling().Instances("demo-masters"), w.account.AutoScaling().Instances("demo-minions"); len(masters) != 1 || len(minions) != 0 {
		t.Errorf("%d masters and %d minions are left", len(masters), len(minions))
	}
	w.cluster.Names = []string{}
	if s, err := w.cluster.Read(t.Context()); err != nil || len(s.Groups) != 0 {
		t.Errorf("%+v, %v", s.Groups, err)
	}
}
