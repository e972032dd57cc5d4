package cluster_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

// TestMoveToAnotherZone: a member's group gets a subnet of another zone once the member has a volume there, and the one that the stack
// made has lost its tag. That one stays, in the stack and in its zone, which CloudFormation could not change.
func TestMoveToAnotherZone(t *testing.T) {
	const three = "groups:\n- {name: masters, roles: [masters]}\n- {name: etcd, roles: [etcd], members: [a, b, c]}\n"
	_, account, conf, _ := newCluster(t)
	a := &alone{T: t, account: account, conf: conf, store: storeOf(conf)}
	createAuthorities(t, conf, complete(t, three))
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	const first = "subnet-0000000000000000a"
	account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000c", VPC: "vpc-00000000000000001", Zone: "us-west-2c"})
	_, err = a.apply(three, nil, template.ParameterVPC, "vpc-00000000000000001", template.ParameterSubnets, first, template.ParameterMembers, first+","+first+","+first)
	assert.NilError(t, err)
	_, err = a.apply(three, nil, template.ParameterMachines, template.MachinesYes)
	assert.NilError(t, err)
	account.Tick()
	old := a.volumes()["c"]

	c := cluster.New(cluster.Config{Document: complete(t, three), AWS: conf})
	to, err := c.MemberSubnets(t.Context(), "c", "subnet-0000000000000000c")
	assert.NilError(t, err)
	assert.DeepEqual(t, to, []string{first, first, "subnet-0000000000000000c"})
	subnets := first + "," + first + ",subnet-0000000000000000c"
	move := func() error {
		_, err := a.apply(three, nil, template.ParameterMembers, subnets)
		return err
	}
	assert.ErrorContains(t, typed[*cluster.VolumesError](t, move()), "a volume stays in its zone")
	assert.NilError(t, a.cloud().Release(t.Context(), old))
	assert.ErrorContains(t, typed[*cluster.VolumesError](t, move()), "AutoScaling would end it")
	made, err := a.cloud().Make(t.Context(), operate.NewVolume{Member: "c", Zone: "us-west-2c", Size: 20, IOPS: 3000, Throughput: 125, Token: "once"})
	assert.NilError(t, err)
	assert.NilError(t, move())

	assert.Equal(t, len(account.EC2().Volumes()), 4)
	assert.Equal(t, a.volumes()["c"], made)
	kept, ok := account.EC2().Volume(old)
	assert.Assert(t, ok && kept.Zone == "us-west-2a" && kept.Tags["EtcdMember"] == "" && kept.Tags["KubernetesCluster"] == "demo", "%+v", kept)
	group, _ := account.AutoScaling().Group("demo-etcd-c")
	assert.Equal(t, group.Subnet, "subnet-0000000000000000c")
	assert.NilError(t, move())
	// Its new volume stays in its zone as any other.
	_, err = a.apply(three, nil, template.ParameterMembers, first+","+first+","+first)
	_ = typed[*cluster.VolumesError](t, err)
}
