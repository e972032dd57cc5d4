package autoscaling_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	member "github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// What the stack has made is in the reading: the group's seat in etcd and its volume, and of each machine all that a rollout decides by.
func TestRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	m := newMembers(w, "a", "b", "c")
	w.settle()
	s, err := w.cluster.Read(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, s.Cluster, "demo")
	assert.Equal(t, s.Etcd.Members["a"].Volume, m.volumes["a"])
	all, err := w.cluster.Versions(t.Context(), "demo-etcd-a")
	assert.NilError(t, err)
	machine := w.account.AutoScaling().Instances("demo-etcd-a")[0]
	assert.DeepEqual(t, s.Groups[0], rollout.Group{
		Name: "demo-etcd-a", Key: "etcd-a", Roles: role.Set{role.Etcd}, Desired: 1, Member: "a", Members: []string{"a", "b", "c"},
		Template: s.Groups[0].Template, Launches: all[0], Wanted: all[0], Volume: &rollout.Volume{ID: m.volumes["a"], Holder: machine.ID},
		Machines: []rollout.Machine{{ID: machine.ID, From: all[0], Type: machine.Type, Image: imageA, State: "InService", Healthy: true, Running: true, Published: true}},
	})

	refresh, err := w.cluster.Start(t.Context(), rollout.Step{Group: "demo-minions", To: 1})
	assert.NilError(t, err)
	got := *w.read("minions").Refresh
	got.Reason = "" // AutoScaling's words about the checkpoint
	assert.DeepEqual(t, got, rollout.Refresh{ID: refresh, Status: "InProgress", Percent: 100, To: 1})
	assert.NilError(t, w.cluster.Cancel(t.Context(), "demo-minions"))
	w.settle()
	assert.Equal(t, w.read("minions").Refresh.Reason, "Cancelled due to user request")
	// A refresh without a version of its own leads to the group's.
	_, err = w.scaling.StartInstanceRefresh(t.Context(), &sdk.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("demo-minions")})
	assert.NilError(t, err)
	assert.Equal(t, w.read("minions").Refresh.To, 0)
}

// The reading is the same in whatever order AWS answers.
func TestReadOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	for _, image := range []string{imageB, imageA, imageB} {
		w.publish(image)
		w.deploy("default")
	}
	read := func() (rollout.State, []string, []rollout.Version) {
		t.Helper()
		s, err := w.cluster.Read(t.Context())
		assert.NilError(t, err)
		ids, err := w.cluster.Instances(t.Context())
		assert.NilError(t, err)
		all, err := w.cluster.Versions(t.Context(), "demo-minions")
		assert.NilError(t, err)
		return s, ids, all
	}
	s, ids, all := read()
	assert.Assert(t, slices.IsSorted(ids), "%v", ids)
	assert.Assert(t, slices.IsSortedFunc(all, func(a, b rollout.Version) int { return a.Number - b.Number }), "%v", all)
	for _, of := range []func(n int) int{func(n int) int { return n - 1 }, func(int) int { return 1 }} {
		w.answers(func(out any) {
			switch out := out.(type) {
			case *sdk.DescribeAutoScalingGroupsOutput:
				rotate(out.AutoScalingGroups, of)
				for _, g := range out.AutoScalingGroups {
					rotate(g.Instances, of)
				}
			case *ec2.DescribeLaunchTemplateVersionsOutput:
				rotate(out.LaunchTemplateVersions, of)
			}
		})
		other, otherIDs, otherAll := read()
		assert.DeepEqual(t, other, s)
		assert.DeepEqual(t, otherIDs, ids)
		assert.DeepEqual(t, otherAll, all)
	}
}

// rotate moves the last ones of a list to its front: as many as of says.
func rotate[T any](list []T, of func(int) int) {
	if n := len(list); n > 1 {
		copy(list, append(slices.Clone(list[n-of(n):]), list[:n-of(n)]...))
	}
}

// told answers for the members of etcd what a test says, and keeps who was asked for.
type told struct {
	reports rollout.Reports
	err     error
	asked   []string
}

func (m *told) Reports(_ context.Context, members []string) (rollout.Reports, error) {
	m.asked = append(m.asked, members...)
	return m.reports, m.err
}

// records are a zone with these sets.
type records struct {
	sets []record.Set
	err  error
}

func (r records) Read(context.Context, string) ([]record.Set, error) { return r.sets, r.err }

// Without all groups, machines, records or reports there is no reading, and who asks is told why.
func TestReadFails(t *testing.T) {
	t.Parallel()
	reports := rollout.Reports{Epoch: 1, Members: map[string]member.Status{"a": {Volume: "vol-a"}}}
	for name, tt := range map[string]struct {
		broken func(*world)
		want   string
	}{
		"groups":                   {func(w *world) { w.faults("DescribeAutoScalingGroups", 1, denied) }, "autoscaling:DescribeAutoScalingGroups"},
		"machines":                 {func(w *world) { w.faults("DescribeInstances", 1, denied) }, "ec2:DescribeInstances"},
		"volumes":                  {func(w *world) { w.faults("DescribeVolumes", 1, denied) }, "ec2:DescribeVolumes"},
		"records":                  {func(w *world) { w.cluster.Records = records{err: errors.New("no zone")} }, "no zone"},
		"reports":                  {func(w *world) { w.cluster.Members = &told{err: errors.New("no store")} }, "no store"},
		"reports of some of them":  {func(w *world) { w.cluster.Members = &told{reports: reports, err: errors.New("no store")} }, "no store"},
		"by the names, and groups": {func(w *world) { w.cluster.Names = w.names; w.faults("DescribeAutoScalingGroups", 1, denied) }, "autoscaling:DescribeAutoScalingGroups"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "three")
			w.cluster.Members = &told{reports: reports}
			tt.broken(w)
			_, err := w.cluster.Read(t.Context())
			assert.ErrorContains(t, err, tt.want)
		})
	}
	w := newWorld(t, "default")
	w.faults("DescribeAutoScalingGroups", 1, denied)
	_, err := w.cluster.Instances(t.Context())
	assert.ErrorContains(t, err, "autoscaling:DescribeAutoScalingGroups")
}

// The API servers are asked, and what they say is in the reading. A reading whose caller has gone meanwhile is none: what could not be
// asked any more would be reported as a fault of the cluster.
func TestReadAsksTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	for _, want := range []error{nil, errors.New("etcd failed")} {
		w.cluster.Ready = func(context.Context) error { return want }
		s, err := w.cluster.Read(t.Context())
		assert.NilError(t, err)
		if want == nil {
			assert.Equal(t, s.API, "")
		} else {
			assert.Equal(t, s.API, "etcd failed")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.cluster.Ready = func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}
	_, err := w.cluster.Read(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

// Only members with a name are asked for. Where none has one, or nothing may be read of them, neither their store nor their volumes are.
func TestReadReports(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		document string
		reports  rollout.Reports
		asked    string
	}{
		"three members":        {"three", rollout.Reports{Epoch: 1}, "a b c"},
		"one without a name":   {"default", rollout.Reports{Epoch: 1}, ""},
		"what may not be read": {"three", rollout.Reports{Unread: "no permission"}, "a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tt.document)
			m := &told{reports: tt.reports}
			w.cluster.Members = m
			if tt.asked == "" {
				assert.NilError(t, w.account.AutoScaling().SetTag("demo-masters", role.TagEtcdMember, nil))
			}
			w.faults("DescribeVolumes", 1, denied)
			s, err := w.cluster.Read(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, strings.Join(m.asked, " "), tt.asked)
			want := tt.reports
			if tt.asked == "" {
				want = rollout.Reports{}
			}
			assert.DeepEqual(t, s.Etcd, want)
		})
	}
}

// A volume is held by the machine that has it, and no longer by one that has given it back; one that is not there is not shown.
func TestReadVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	newMembers(w, "a", "b", "c")
	w.settle()
	w.answers(func(out any) {
		if out, ok := out.(*ec2.DescribeVolumesOutput); ok {
			for _, v := range out.Volumes {
				if len(v.Attachments) > 0 && aws.ToString(v.AvailabilityZone) == "us-west-2b" {
					v.Attachments[0].State = types.VolumeAttachmentStateDetached
				}
			}
			out.Volumes = slices.DeleteFunc(out.Volumes, func(v types.Volume) bool { return aws.ToString(v.AvailabilityZone) == "us-west-2c" })
		}
	})
	a, b, c := w.read("etcd-a"), w.read("etcd-b"), w.read("etcd-c")
	assert.Equal(t, a.Volume.Holder, a.Machines[0].ID)
	assert.Equal(t, b.Volume.Holder, "")
	assert.Assert(t, c.Volume == nil)
}

// For how long a hook may hold a machine for its pods is read while one is held, of groups whose machines have pods.
func TestReadDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.pods = time.Hour
	assert.NilError(t, w.account.AutoScaling().PutHook("demo-masters", awsfake.Hook{Name: "slow", Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: time.Hour, Default: awsfake.Continue}))
	assert.NilError(t, w.account.AutoScaling().PutHook("demo-minions", awsfake.Hook{Name: role.EvictionHook, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: 2 * time.Hour, Default: awsfake.Continue}))
	assert.Equal(t, w.read("minions").Drain, time.Duration(0))
	assert.NilError(t, w.cluster.Replace(t.Context(), w.read("masters").Machines[0].ID))
	assert.NilError(t, w.Sleep(t.Context(), 30*time.Second))
	assert.Assert(t, slices.ContainsFunc(w.read("masters").Machines, func(m rollout.Machine) bool { return m.State == "Terminating:Wait" }))
	assert.Equal(t, w.account.Calls()["autoscaling:DescribeLifecycleHooks"], 0)
	assert.NilError(t, w.cluster.Replace(t.Context(), w.read("minions").Machines[0].ID))
	assert.NilError(t, w.Sleep(t.Context(), 30*time.Second))
	assert.Equal(t, w.read("minions").Drain, 2*time.Hour)
	w.faults("DescribeLifecycleHooks", 1, denied)
	s, err := w.cluster.Read(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, len(s.Unread) == 1 && strings.Contains(s.Unread[0].Why, "autoscaling:DescribeLifecycleHooks"), "%+v", s.Unread)
}

// A group without machines has an empty list of them in the JSON of the reading, and no null.
func TestReadEmptyGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	assert.NilError(t, w.cluster.Empty(t.Context()))
	w.settle()
	text, err := json.Marshal(w.read("minions"))
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(text), `"machines":[]`), "%s", text)
	// It is empty already.
	before := w.account.Calls()["autoscaling:UpdateAutoScalingGroup"]
	assert.NilError(t, w.cluster.Empty(t.Context()))
	assert.Equal(t, w.account.Calls()["autoscaling:UpdateAutoScalingGroup"], before)
}

// What AWS may leave out of an answer, and what a person can do to a group beside the stack, is read as it is.
func TestReadOddGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "rich")
	first := w.read("minions")
	for name, tt := range map[string]struct {
		change func(*astypes.AutoScalingGroup)
		right  func(rollout.Group) bool
	}{
		"a machine without a launch template": {func(g *astypes.AutoScalingGroup) { g.Instances[0].LaunchTemplate = nil }, func(g rollout.Group) bool { return g.Machines[0].From == (rollout.Version{}) }},
		"a machine of another launch template": {func(g *astypes.AutoScalingGroup) {
			g.Instances[0].LaunchTemplate.LaunchTemplateId = aws.String("lt-0123456789abcdef0")
		}, func(g rollout.Group) bool { return g.Machines[0].From == (rollout.Version{}) }},
		"types by their properties": {func(g *astypes.AutoScalingGroup) {
			m := g.MixedInstancesPolicy.LaunchTemplate
			m.Overrides = append(m.Overrides, astypes.LaunchTemplateOverrides{InstanceRequirements: &astypes.InstanceRequirements{}})
		}, func(g rollout.Group) bool { return slices.Equal(g.Types, first.Types) }},
		"an unhealthy machine": {func(g *astypes.AutoScalingGroup) { g.Instances[0].HealthStatus = aws.String("Unhealthy") }, func(g rollout.Group) bool { return !g.Machines[0].Healthy && g.Machines[1].Healthy }},
	} {
		t.Run(name, func(t *testing.T) {
			w.answers(func(out any) {
				if out, ok := out.(*sdk.DescribeAutoScalingGroupsOutput); ok {
					for i := range out.AutoScalingGroups {
						if g := &out.AutoScalingGroups[i]; *g.AutoScalingGroupName == "demo-minions" {
							slices.SortFunc(g.Instances, func(a, b astypes.Instance) int { return strings.Compare(*a.InstanceId, *b.InstanceId) })
							tt.change(g)
						}
					}
				}
			})
			g := w.read("minions")
			assert.Assert(t, tt.right(g), "%+v", g)
		})
	}
}
