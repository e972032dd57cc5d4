package scaling

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
)

// sight is what EC2 and DNS say of a cluster's machines.
type sight struct {
	domain   string
	machines map[string]types.Instance
	// records are addresses by name; nil where DNS is not asked.
	records map[string][]string
	// volumes are the members of etcd whose disk outlives its machine.
	volumes []string
}

func (c *Cluster) look(ctx context.Context) (*sight, error) {
	s := &sight{domain: c.Policy.Domain(c.Name), machines: map[string]types.Instance{}}
	ours := []types.Filter{{Name: aws.String("tag:" + tagCluster), Values: []string{c.Name}}}
	pages := ec2.NewDescribeInstancesPaginator(c.Machines, &ec2.DescribeInstancesInput{Filters: ours, MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the machines of %s: %w", c.Name, explain(err, "ec2:DescribeInstances"))
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				s.machines[aws.ToString(i.InstanceId)] = i
			}
		}
	}
	if err := c.volumes(ctx, s, ours); err != nil {
		return nil, err
	}
	if c.Records == nil {
		return s, nil
	}
	sets, err := c.Records.Read(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	s.records = map[string][]string{}
	for _, set := range sets {
		if set.Type == record.A || set.Type == record.AAAA {
			s.records[set.Name] = append(s.records[set.Name], set.Values...)
		}
	}
	return s, nil
}

// volumes finds the members of etcd whose disk stays when its machine ends.
func (c *Cluster) volumes(ctx context.Context, s *sight, ours []types.Filter) error {
	pages := ec2.NewDescribeVolumesPaginator(c.Machines, &ec2.DescribeVolumesInput{
		Filters: append(slices.Clone(ours), types.Filter{Name: aws.String("tag-key"), Values: []string{tagEtcdMember}}), MaxResults: aws.Int32(500),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("reading etcd's volumes of %s: %w", c.Name, explain(err, "ec2:DescribeVolumes"))
		}
		for _, v := range page.Volumes {
			if slices.ContainsFunc(v.Attachments, func(a types.VolumeAttachment) bool { return aws.ToBool(a.DeleteOnTermination) }) {
				continue
			}
			for _, t := range v.Tags {
				if aws.ToString(t.Key) == tagEtcdMember {
					s.volumes = append(s.volumes, aws.ToString(t.Value))
				}
			}
		}
	}
	return nil
}

func (s *sight) durable(g rollout.Group) bool { return slices.Contains(s.volumes, g.Member) }

// machine is one of a group's.
func (s *sight) machine(g rollout.Group, i astypes.Instance, versions versions) rollout.Machine {
	id := aws.ToString(i.InstanceId)
	m := rollout.Machine{ID: id, State: string(i.LifecycleState), Healthy: strings.EqualFold(aws.ToString(i.HealthStatus), "Healthy")}
	if t := i.LaunchTemplate; t != nil && aws.ToString(t.LaunchTemplateId) == versions.template {
		m.From, _ = versions.find(aws.ToString(t.Version)) // one that is gone has its number alone, and so differs
	}
	seen, ok := s.machines[id]
	if !ok {
		return m
	}
	m.Running = seen.State != nil && seen.State.Name == types.InstanceStateNameRunning
	m.Published = s.records == nil || s.published(g, seen)
	return m
}

// published reports whether DNS has the machine's address under every name that is its own.
func (s *sight) published(g rollout.Group, i types.Instance) bool {
	var addresses []string
	for _, a := range []*string{i.PrivateIpAddress, i.Ipv6Address} {
		if aws.ToString(a) != "" {
			addresses = append(addresses, *a)
		}
	}
	named := func(name string) bool {
		return slices.ContainsFunc(s.records[name], func(v string) bool { return slices.Contains(addresses, v) })
	}
	for _, r := range g.Roles {
		if !named(string(r)+"."+s.domain) && !s.sharded(r, named) {
			return false
		}
	}
	return g.Member == "" || !g.Roles.Has(role.Etcd) || named(string(role.Etcd)+"-"+g.Member+"."+s.domain)
}

// sharded looks in the parts of a record that is too long for one: minions-0, minions-1, …
func (s *sight) sharded(r role.Role, named func(string) bool) bool {
	for n := 0; ; n++ {
		name := string(r) + "-" + strconv.Itoa(n) + "." + s.domain
		if _, ok := s.records[name]; !ok {
			return false
		}
		if named(name) {
			return true
		}
	}
}
