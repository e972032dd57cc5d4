package autoscaling

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// observation is the state of a cluster's machines in EC2 and DNS, and what its members of etcd report.
type observation struct {
	domain   string
	machines map[string]types.Instance
	// records are addresses by name; nil if DNS is not checked.
	records map[string][]string
	reports rollout.Reports
	// volumes are etcd's volumes by id.
	volumes map[string]rollout.Volume
}

// observe reads the machines, what etcd's members report and their volumes, and, unless Records is nil, the records of the
// cluster.
func (c *Cluster) observe(ctx context.Context, groups []astypes.AutoScalingGroup) (*observation, error) {
	o := &observation{domain: c.Policy.Domain(c.Name), machines: map[string]types.Instance{}}
	machines, err := account.Machines(ctx, c.Machines, c.Name)
	if err != nil {
		return nil, awserr.Explain(err, account.Actions)
	}
	for _, i := range machines {
		o.machines[aws.ToString(i.InstanceId)] = i
	}
	if err := c.observeEtcd(ctx, groups, o); err != nil {
		return nil, err
	}
	if c.Records == nil {
		return o, nil
	}
	sets, err := c.Records.Read(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	o.records = map[string][]string{}
	for _, set := range sets {
		if set.Type == record.A || set.Type == record.AAAA {
			o.records[set.Name] = append(o.records[set.Name], set.Values...)
		}
	}
	return o, nil
}

// observeEtcd reads the reports first: a volume that a report names was there then.
func (c *Cluster) observeEtcd(ctx context.Context, groups []astypes.AutoScalingGroup, o *observation) (err error) {
	var members []string
	for _, g := range groups {
		if m := account.GroupTag(g, role.TagEtcdMember); m != "" {
			members = append(members, m)
		}
	}
	if c.Members == nil || len(members) == 0 {
		return nil
	}
	if o.reports, err = c.Members.Reports(ctx, members); err != nil || len(o.reports.Members) == 0 {
		return err
	}
	volumes, err := account.EtcdVolumes(ctx, c.Machines, c.Name)
	if err != nil {
		return awserr.Explain(err, account.Actions)
	}
	o.volumes = map[string]rollout.Volume{}
	for _, v := range volumes {
		found := rollout.Volume{ID: aws.ToString(v.VolumeId)}
		for _, a := range v.Attachments {
			if a.State != types.VolumeAttachmentStateDetached {
				found.Holder = aws.ToString(a.InstanceId)
			}
		}
		o.volumes[found.ID] = found
	}
	return nil
}

// volume returns the volume that a member reports; nil if it reports none, or there is no such volume of etcd's.
func (o *observation) volume(member string) *rollout.Volume {
	v, ok := o.volumes[o.reports.Members[member].Volume]
	if !ok {
		return nil
	}
	return &v
}

// machine converts a machine of a group for a rollout.
func (o *observation) machine(g rollout.Group, i astypes.Instance, versions versions) rollout.Machine {
	id := aws.ToString(i.InstanceId)
	m := rollout.Machine{ID: id, State: string(i.LifecycleState), Healthy: account.Healthy(i)}
	if t := i.LaunchTemplate; t != nil && aws.ToString(t.LaunchTemplateId) == versions.template {
		m.From, _ = versions.find(aws.ToString(t.Version)) // a deleted version has only a number, and so differs
		m.Type = aws.ToString(i.InstanceType)
	}
	instance, ok := o.machines[id]
	if !ok {
		return m
	}
	m.Image, m.Running = aws.ToString(instance.ImageId), account.Running(instance)
	m.Published = o.records == nil || o.published(g, instance)
	return m
}

// published reports whether DNS lists the machine's address under each of its names.
func (o *observation) published(g rollout.Group, i types.Instance) bool {
	var addresses []string
	for _, a := range []*string{i.PrivateIpAddress, i.Ipv6Address} {
		if aws.ToString(a) != "" {
			addresses = append(addresses, *a)
		}
	}
	named := func(name string) bool {
		return slices.ContainsFunc(o.records[name], func(v string) bool { return slices.Contains(addresses, v) })
	}
	for _, r := range g.Roles {
		if !named(string(r)+"."+o.domain) && !o.sharded(r, named) {
			return false
		}
	}
	// Nobody asks for the only member of a cluster that names none: its machines of before have no tag, and so no such name.
	return len(g.Members) == 0 || g.Member == "" || !g.Roles.Has(role.Etcd) || named(role.MemberPrefix+g.Member+"."+o.domain)
}

// sharded searches the shards of a record that is too long for one set: minions-0, minions-1, …
func (o *observation) sharded(r role.Role, named func(string) bool) bool {
	for n := 0; ; n++ {
		name := r.Shard(n) + "." + o.domain
		if _, ok := o.records[name]; !ok {
			return false
		}
		if named(name) {
			return true
		}
	}
}
