package autoscaling_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// create makes a group beside the stack, with the cluster's tag and what its tag Role says.
func (w *world) create(name, roles string) {
	w.t.Helper()
	assert.NilError(w.t, w.account.AutoScaling().Create(awsfake.Group{Name: name, Max: 2, Desired: 2, Type: "t3.medium", Zones: []string{"us-west-2a"},
		Tags: map[string]string{role.TagCluster: "demo", role.TagRole: roles}}))
}

// A group of kops has the cluster's tag, and is neither read nor counted; one of the stack's own is read although it has lost the tag.
func TestOnlyTheStacksGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.create("kops-nodes", "minions")
	assert.NilError(t, w.account.AutoScaling().SetTag("demo-minions", role.TagCluster, nil))
	w.cluster.Names = w.names
	s, err := w.cluster.Read(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(s.Groups), 2)
	assert.Equal(t, len(s.Unread), 0)
	ids, err := w.cluster.Instances(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(ids), 3)

	w.cluster.Names = []string{}
	s, err = w.cluster.Read(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(s.Groups)+len(s.Unread), 0)
}

// A group of the stack that cannot be read is named, with the reason and what is known of it, and the others are read.
func TestUnreadGroups(t *testing.T) {
	t.Parallel()
	denied := awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."}}
	for name, tt := range map[string]struct {
		broken  func(*world)
		group   string
		control bool
		why     string
	}{
		"without a launch template": {func(w *world) { w.create("demo-old", "minions") }, "demo-old", false, "it has no launch template"},
		"of a role that is none":    {func(w *world) { w.create("demo-old", "master") }, "demo-old", true, `tag Role: role "master" is not known`},
		"without a role": {func(w *world) {
			assert.NilError(t, w.account.AutoScaling().SetTag("demo-masters", role.TagRole, nil))
		}, "demo-masters", true, "tag Role: there is none"},
		"that launches a deleted version": {func(w *world) {
			w.publish(imageB)
			w.deploy("default")
			template := w.read("minions").Template
			w.version(template, "sha256:3", &ec2types.RequestLaunchTemplateData{ImageId: aws.String(imageA)})
			w.drop(template, "2", "3")
		}, "demo-minions", false, "what it launches: version 2 of launch template"},
		"whose template has no versions": {func(w *world) {
			calls := 0
			w.answers(func(out any) {
				if out, ok := out.(*ec2.DescribeLaunchTemplateVersionsOutput); ok {
					if calls++; calls == 2 {
						out.LaunchTemplateVersions = nil
					}
				}
			})
		}, "demo-minions", false, "there are none"},
		"whose policy has no template": {func(w *world) {
			w.answers(func(out any) {
				if out, ok := out.(*sdk.DescribeAutoScalingGroupsOutput); ok {
					g := &out.AutoScalingGroups[slices.IndexFunc(out.AutoScalingGroups, func(g types.AutoScalingGroup) bool { return *g.AutoScalingGroupName == "demo-minions" })]
					g.LaunchTemplate, g.MixedInstancesPolicy = nil, &types.MixedInstancesPolicy{}
				}
			})
		}, "demo-minions", false, "it has no launch template"},
		"that is gone": {func(*world) {}, "demo-old", true, "AutoScaling has no such group"},
		"that is throttled": {func(w *world) {
			w.faults("DescribeLaunchTemplateVersions", 1, awsfake.Fault{Refuse: awsfake.Throttled()})
		}, "demo-masters", true, "RequestLimitExceeded"},
		"whose template may not be read": {func(w *world) { w.faults("DescribeLaunchTemplateVersions", 2, denied) }, "demo-minions", false, "ec2:DescribeLaunchTemplateVersions"},
		"whose refreshes may not be read": {func(w *world) {
			w.faults("DescribeInstanceRefreshes", 1, awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDenied", Message: "no"}})
		}, "demo-minions", false, "autoscaling:DescribeInstanceRefreshes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "default")
			w.cluster.Names = slices.Clone(w.names)
			if !slices.Contains(w.names, tt.group) {
				w.cluster.Names = append(w.cluster.Names, tt.group)
			}
			tt.broken(w)
			s, err := w.cluster.Read(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(s.Unread), 1, "%+v", s)
			assert.Equal(t, len(s.Groups), len(w.cluster.Names)-1)
			u := s.Unread[0]
			assert.Assert(t, !strings.Contains(u.Why, "RequestID"), "the same refusal looks like another one at each reading: %s", u.Why)
			assert.Assert(t, u.Group == tt.group && u.Key == strings.TrimPrefix(tt.group, "demo-") && u.Control == tt.control, "%+v", u)
			assert.Equal(t, u.Gone, name == "that is gone")
			assert.Assert(t, strings.HasPrefix(u.Why, "group "+tt.group+": ") && strings.Contains(u.Why, tt.why), "%s", u.Why)
		})
	}
}

// A seat of etcd that cannot be read is known as such.
func TestUnreadSeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.faults("DescribeLaunchTemplateVersions", 1, awsfake.Fault{Refuse: awsfake.Throttled()})
	s, err := w.cluster.Read(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(s.Unread), 1)
	s.Unread[0].Why = ""
	assert.DeepEqual(t, s.Unread[0], rollout.Unread{Group: "demo-etcd-a", Key: "etcd-a", Control: true, Member: "a", Members: []string{"a", "b", "c"}})
}

// faults answers a call of an action, counted from now, with a fault.
func (w *world) faults(action string, number int, fault awsfake.Fault) {
	script := &awsfake.Script{}
	script.Add(action, append(make([]awsfake.Fault, number-1), fault)...)
	w.account.SetFaults(script)
}

// A version that the caller wants and the template has not is the caller's mistake, and no group that cannot be read.
func TestWantedVersionIsNoUnreadGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.cluster.Wanted = map[string]int{"demo-minions": 99}
	_, err := w.cluster.Read(t.Context())
	assert.ErrorContains(t, err, "group demo-minions: version 99 of launch template")
}

// The minions are refreshed while a group beside them cannot be read; the run says in the end what it has left out. A group that is
// throttled for a while in the middle of its own refresh is waited for.
func TestRefreshBesideUnread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.create("demo-old", "minions")
	w.cluster.Names = append(slices.Clone(w.names), "demo-old")
	w.publish(imageB)
	w.deploy("default")
	calls := 0
	w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Action != "DescribeLaunchTemplateVersions" {
			return awsfake.Fault{}
		}
		if calls++; calls > 10 && calls < 40 {
			return awsfake.Fault{Refuse: awsfake.Throttled()}
		}
		return awsfake.Fault{}
	}))
	done, err := w.run(rollout.Options{Only: []string{"minions"}})
	assert.NilError(t, err)
	assert.DeepEqual(t, done.Refreshed, []string{"demo-minions"})
	assert.Assert(t, calls > 40, "%d: the throttling was not met", calls)
	done, err = w.run(rollout.Options{AllowDataLoss: []string{"masters"}})
	var unread *rollout.UnreadError
	assert.Assert(t, errors.As(err, &unread), "%v", err)
	assert.Equal(t, len(unread.Groups), 1)
	assert.Equal(t, unread.Groups[0].Group, "demo-old")
	assert.Equal(t, len(done.Replaced), 1) // the master, since the group is none of the control plane
}
