package cluster_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// alone is a cluster whose only member of etcd has no name in the document, and runs. Its subnets are in three zones.
type alone struct {
	*testing.T
	account *awsfake.Account
	conf    aws.Config
	store   *store.SSM
	volume  string
	machine string
}

func storeOf(conf aws.Config) *store.SSM {
	return store.NewSSM("/hardtack/demo", func(context.Context) (aws.Config, error) { return conf, nil })
}

func (a *alone) cloud() *cloud.EC2 { return cloud.New(a.conf, "demo") }

const growSubnets = "subnet-0000000000000000a,subnet-0000000000000000b,subnet-0000000000000000c"

func newAlone(t *testing.T, document string) *alone {
	t.Helper()
	_, account, conf, _ := newCluster(t)
	a := &alone{T: t, account: account, conf: conf, store: storeOf(conf)}
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	for _, zone := range []string{"b", "c"} {
		account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000" + zone, VPC: "vpc-00000000000000001", Zone: "us-west-2" + zone})
	}
	_, err = a.apply(document, nil, template.ParameterVPC, "vpc-00000000000000001", template.ParameterSubnets, growSubnets)
	assert.NilError(t, err)
	_, err = a.apply(document, nil, template.ParameterMachines, template.MachinesYes)
	assert.NilError(t, err)
	account.Tick()
	a.machine = account.AutoScaling().Instances("demo-masters")[0].ID
	return a
}

func (a *alone) apply(document string, allow []string, parameters ...string) (*cluster.Applied, error) {
	deploy := cluster.Deployment{Parameters: map[string]string{}}
	for i := 0; i < len(parameters); i += 2 {
		deploy.Parameters[parameters[i]] = parameters[i+1]
	}
	c := cluster.New(cluster.Config{Document: complete(a.T, document), AWS: a.conf, Poll: time.Millisecond})
	return c.Apply(a.Context(), cluster.ApplyOptions{Deployment: deploy, AllowReplacement: allow})
}

func (a *alone) put(object string, content []byte) {
	a.Helper()
	assert.NilError(a, a.store.Put(a.Context(), object, content))
}

// runs has the member report from its machine that its data are on its volume.
func (a *alone) runs(backup time.Duration) {
	a.Helper()
	v := a.account.EC2().Volumes()[0]
	if a.volume == "" {
		_, err := a.account.EC2().AttachVolume(v.ID, a.machine, "/dev/sdf")
		assert.NilError(a, err)
	}
	a.volume = v.ID
	a.put(etcd.StatusObject("a"), etcd.Encode(etcd.Status{At: time.Now(), Instance: a.machine, Volume: v.ID, Epoch: 1, MemberID: 7, Leader: 7, Row: etcd.SRuns,
		Backup: &etcd.Backup{At: time.Now().Add(-backup)}}))
}

// drains completes the hook of the group's machine as the function does, until it is told to end.
func (a *alone) drains(group string) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				_ = a.account.AutoScaling().Complete(group, template.DrainHook, a.machine, "CONTINUE") // refused until it waits
			}
		}
	}()
	return func() { close(stop); <-done }
}

func (a *alone) agreed() string {
	p, ok := a.account.SSM().Parameter("/hardtack/demo/" + pki.PublicInfo)
	assert.Assert(a, ok)
	info, err := machine.ParseInfo(pki.PublicInfo, []byte(p.Value))
	assert.NilError(a, err)
	return machine.JoinMembers(info.Etcd.Members)
}

func (a *alone) volumes() map[string]string {
	of := map[string]string{}
	for _, v := range a.account.EC2().Volumes() {
		of[v.Tags["EtcdMember"]] = v.ID
	}
	return of
}

// TestGrow: the only member of a cluster that names none becomes the first of three by a change of the document, with its
// volume. What would lose its data is refused before anything changes.
func TestGrow(t *testing.T) {
	const (
		three = "groups:\n- {name: masters, roles: [masters, etcd], members: [a, b, c]}\n- {name: minions, roles: [minions], size: 2}\n"
		old   = "GroupMasters"
	)
	a := newAlone(t, "")
	apply := func(document string) error {
		_, err := a.apply(document, []string{old}, template.ParameterMembers, growSubnets)
		return err
	}
	refused := func(want string) {
		t.Helper()
		assert.ErrorContains(t, typed[*cluster.VolumesError](t, apply(three)), want)
		assert.Equal(t, a.agreed(), machine.JoinMembers(nil))
		assert.Equal(t, len(a.account.EC2().Volumes()), 1)
	}
	assert.ErrorContains(t, apply(strings.Replace(three, "a, b, c", "x, b, c", 1)), "the cluster's only member of etcd is a, and the document names x, b, c: one of them has to be a")
	refused("member a: it moves from group masters to masters-a, whose machine goes on with its volume, and its member does not report that its data are on a volume")
	a.runs(time.Hour)
	refused("demo-masters: the newest backup is ")
	a.runs(time.Minute)
	refused("it has not formed a cluster yet (epoch 1)")
	a.put(etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 5, Members: map[string]etcd.ID{"a": 7}}}))

	_, err := a.apply(three, nil, template.ParameterMembers, growSubnets)
	loss := typed[*cloudformation.LossError](t, err)
	assert.Equal(t, len(loss.Losses), 1)
	assert.Equal(t, loss.Losses[0].Resource, old)
	_, err = a.apply(three, []string{old}, template.ParameterMembers, "subnet-0000000000000000b,subnet-0000000000000000a,subnet-0000000000000000c")
	assert.ErrorContains(t, typed[*cluster.VolumesError](t, err), "a volume stays in its zone")

	ended := a.drains("demo-masters")
	assert.NilError(t, apply(three))
	ended()
	assert.Equal(t, a.agreed(), "a b c")
	of := a.volumes()
	assert.Equal(t, len(of), 3)
	assert.Equal(t, of["a"], a.volume)
	a.account.Tick()
	_, there := a.account.AutoScaling().Group("demo-masters")
	assert.Assert(t, !there)
	for _, group := range []string{"demo-masters-a", "demo-masters-b", "demo-masters-c"} {
		assert.Equal(t, len(a.account.AutoScaling().Instances(group)), 1)
	}
	v, _ := a.account.EC2().Volume(a.volume)
	assert.Assert(t, v.Attachment.Instance != a.machine)
	// There is no way back to a member without a name.
	_, err = a.apply("", nil)
	assert.ErrorContains(t, err, "written once, for all machines")
}

// TestGrowBesideMasters: the three are groups of their own, and that of the masters keeps its name. No group ends: a refresh
// replaces the machine that has the first one's data.
func TestGrowBesideMasters(t *testing.T) {
	a := newAlone(t, "")
	a.runs(time.Minute)
	a.put(etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 5, Members: map[string]etcd.ID{"a": 7}}}))
	const beside = "groups:\n- {name: masters, roles: [masters]}\n- {name: etcd, roles: [etcd], members: [a, b, c]}\n- {name: minions, roles: [minions], size: 2}\n"
	out, err := a.apply(beside, nil, template.ParameterMembers, growSubnets)
	assert.NilError(t, err)
	assert.Equal(t, a.agreed(), "a b c")
	assert.Equal(t, a.volumes()["a"], a.volume)
	a.account.Tick()
	v, _ := a.account.EC2().Volume(a.volume)
	assert.Equal(t, v.Attachment.Instance, a.machine)
	assert.Assert(t, slices.ContainsFunc(out.Refresh, func(b cluster.Behind) bool { return b.Group == "demo-masters" }), "%+v", out.Refresh)
	c := cluster.New(cluster.Config{Document: complete(t, beside), AWS: a.conf, Poll: time.Millisecond})
	dry, err := c.Refresh(t.Context(), cluster.RefreshOptions{DryRun: true})
	assert.NilError(t, err)
	assert.Equal(t, string(dry.First.Action)+" "+dry.First.Machine, "replace "+a.machine, dry.First.Reason)
}

// TestGrowOnTheMachinesDisk: data on the machine's own disk end with it, and so its member does not move.
func TestGrowOnTheMachinesDisk(t *testing.T) {
	const disk = "etcd: {storage: machine}\n"
	a := newAlone(t, disk)
	a.put(etcd.StatusObject("a"), etcd.Encode(etcd.Status{At: time.Now(), Instance: a.machine, Epoch: 1, MemberID: 7, Leader: 7, Row: etcd.SRuns}))
	a.put(etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 5, Members: map[string]etcd.ID{"a": 7}}}))
	for _, more := range []string{disk, ""} {
		_, err := a.apply(more+"groups:\n- {name: masters, roles: [masters, etcd], members: [a, b, c]}\n", []string{"GroupMasters", "GroupMinions"}, template.ParameterMembers, growSubnets)
		assert.ErrorContains(t, typed[*cluster.VolumesError](t, err), "member a: it moves from group masters to masters-a, whose machine goes on with its volume, and its member")
	}
	assert.Equal(t, a.account.AutoScaling().Instances("demo-masters")[0].ID, a.machine)
}

// TestGrowFromUnreadGroup: a member of etcd does not move from a group that cannot be read, since nobody knows whether its data stay. The
// same document without the move is applied.
func TestGrowFromUnreadGroup(t *testing.T) {
	a := newAlone(t, "")
	a.runs(time.Minute)
	a.put(etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 5, Members: map[string]etcd.ID{"a": 7}}}))
	assert.NilError(t, a.account.AutoScaling().SetTag("demo-masters", role.TagRole, nil))
	for _, groups := range []string{
		"groups:\n- {name: masters, roles: [masters, etcd], members: [a, b, c]}\n- {name: minions, roles: [minions], size: 2}\n",
		"groups:\n- {name: masters, roles: [masters]}\n- {name: etcd, roles: [etcd], members: [a, b, c]}\n- {name: minions, roles: [minions], size: 2}\n",
	} {
		_, err := a.apply(groups, []string{"GroupMasters"}, template.ParameterMembers, growSubnets)
		e := typed[*cluster.UnreadableError](t, err)
		assert.Equal(t, e.Groups[0].Group, "demo-masters")
		assert.Equal(t, a.agreed(), machine.JoinMembers(nil))
	}
	out, err := a.apply("", nil)
	assert.NilError(t, err)
	assert.Equal(t, out.Unread[0].Key, "masters")
	// A group that is gone has nothing to lose.
	ended := a.drains("demo-masters")
	assert.NilError(t, a.account.AutoScaling().Delete("demo-masters"))
	ended()
	c := cluster.New(cluster.Config{Document: complete(t), AWS: a.conf, Poll: time.Millisecond})
	status, err := c.Status(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, len(status.Unread) == 1 && status.Unread[0].Gone && len(status.Groups) == 1, "%+v", status)
}

// TestRollbackTakesNothingBackOfARefusal: while a group of the control plane cannot be read, a rollback of everything is refused before a
// refresh of minions is rolled back.
func TestRollbackTakesNothingBackOfARefusal(t *testing.T) {
	const document = "groups:\n- {name: masters, roles: [masters, etcd]}\n- {name: minions, roles: [minions], size: 2}\n- {name: others, roles: [minions]}\n"
	_, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	c := cluster.New(cluster.Config{Document: complete(t, document), AWS: conf, Poll: time.Millisecond})
	deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}
	for _, image := range []string{"ami-0000000000000000a", "ami-0000000000000000b"} { // two versions, and every group launches the second
		_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: image}, true)
		assert.NilError(t, err)
		_, err = c.Apply(t.Context(), cluster.ApplyOptions{Deployment: deploy})
		assert.NilError(t, err)
	}
	_, err := c.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{template.ParameterMachines: template.MachinesYes}}})
	assert.NilError(t, err)
	account.Tick()
	_, err = autoscaling.NewFromConfig(conf).StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: aws.String("demo-minions")})
	assert.NilError(t, err)
	assert.NilError(t, account.AutoScaling().SetTag("demo-others", role.TagRole, nil))
	_, err = c.Rollback(t.Context(), cluster.RollbackOptions{RefreshOptions: cluster.RefreshOptions{AllowDataLoss: []string{"masters"}}})
	e := typed[*rollout.UnreadError](t, err)
	assert.DeepEqual(t, e.Blocked, []string{"masters"})
	assert.DeepEqual(t, e.Safe, []string{"minions"})
	assert.Equal(t, account.Calls()["autoscaling:RollbackInstanceRefresh"], 0)
}
