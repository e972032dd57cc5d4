package scaling

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
)

// The tags by which groups are found, as pkg/fleet has them.
const (
	tagCluster     = "KubernetesCluster"
	tagRole        = "Role"
	tagEtcdMember  = "EtcdMember"
	tagEtcdMembers = "EtcdMembers"
)

// Records are the cluster's, as DNS has them.
type Records interface {
	Read(ctx context.Context, cluster string) ([]record.Set, error)
}

// Cluster is one cluster's groups.
type Cluster struct {
	Name     string
	Groups   *autoscaling.Client
	Machines *ec2.Client
	// Records nil: it is not asked whether DNS names a machine.
	Records Records
	Policy  record.Policy
	// Ready asks the API servers whether they are ready; nil: they are not asked.
	Ready func(ctx context.Context) error
	// Wanted are versions of launch templates by the names of groups, in place of the latest.
	Wanted      map[string]int
	Preferences Preferences
	Log         *slog.Logger
}

// Preferences are those of AutoScaling's refreshes.
type Preferences struct {
	// MinHealthy is how many percent of a group stay in service.
	MinHealthy int
	// Checkpoints are percentages, ascending, at which the refresh waits for Delay seconds; the last is 100. None: no waits.
	Checkpoints []int
	Delay       int
}

// Check complains about what AutoScaling would refuse.
func (p Preferences) Check() error {
	var errs []error
	if p.MinHealthy < 0 || p.MinHealthy > 100 {
		errs = append(errs, fmt.Errorf("minimum of healthy machines: %d %% is not between 0 and 100", p.MinHealthy))
	}
	last := 0
	for _, percent := range p.Checkpoints {
		if percent <= last || percent > 100 {
			errs = append(errs, fmt.Errorf("checkpoints %v: not ascending percentages from 1 to 100", p.Checkpoints))
			break
		}
		last = percent
	}
	if len(p.Checkpoints) > 0 && last != 100 {
		errs = append(errs, fmt.Errorf("checkpoints %v: the last is not 100, and AutoScaling would end there", p.Checkpoints))
	}
	if p.Delay < 0 || p.Delay > 172_800 {
		errs = append(errs, fmt.Errorf("checkpoint delay: %d s is not between 0 and two days", p.Delay))
	}
	return errors.Join(errs...)
}

var (
	_ rollout.Reader = (*Cluster)(nil)
	_ rollout.Hand   = (*Cluster)(nil)
)

// Read reads all groups of the cluster, their machines, and what both are made from.
func (c *Cluster) Read(ctx context.Context) (rollout.State, error) {
	s := rollout.State{Cluster: c.Name}
	groups, err := c.groups(ctx)
	if err != nil {
		return s, err
	}
	seen, err := c.look(ctx)
	if err != nil {
		return s, err
	}
	for _, g := range groups {
		one, err := c.group(ctx, g, seen)
		if err != nil {
			return s, err
		}
		s.Groups = append(s.Groups, one)
	}
	if c.Ready != nil {
		if err := c.Ready(ctx); err != nil {
			s.API = err.Error()
		}
	}
	return s, ctx.Err()
}

func (c *Cluster) groups(ctx context.Context) ([]types.AutoScalingGroup, error) {
	var out []types.AutoScalingGroup
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(c.Groups, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []types.Filter{{Name: aws.String("tag:" + tagCluster), Values: []string{c.Name}}}, MaxRecords: aws.Int32(100),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the groups of %s: %w", c.Name, explain(err, "autoscaling:DescribeAutoScalingGroups"))
		}
		out = append(out, page.AutoScalingGroups...)
	}
	slices.SortFunc(out, func(a, b types.AutoScalingGroup) int {
		return strings.Compare(aws.ToString(a.AutoScalingGroupName), aws.ToString(b.AutoScalingGroupName))
	})
	return out, nil
}

// group is one as a rollout sees it.
func (c *Cluster) group(ctx context.Context, g types.AutoScalingGroup, seen *sight) (rollout.Group, error) {
	name := aws.ToString(g.AutoScalingGroupName)
	roles, err := role.ParseSet(tagOf(g, tagRole))
	if err != nil {
		return rollout.Group{}, fmt.Errorf("group %s: tag %s: %w", name, tagRole, err)
	}
	out := rollout.Group{
		Name: name, Key: strings.TrimPrefix(name, c.Name+"-"), Roles: roles, Desired: int(aws.ToInt32(g.DesiredCapacity)),
		Member: tagOf(g, tagEtcdMember), Members: strings.FieldsFunc(tagOf(g, tagEtcdMembers), func(r rune) bool { return strings.ContainsRune(" ,;", r) }),
		Machines: []rollout.Machine{},
	}
	out.Durable = roles.Has(role.Etcd) && seen.durable(out)
	if g.LaunchTemplate == nil {
		return out, fmt.Errorf("group %s: it has no launch template, so that what its machines are from cannot be told: is it the stack's?", name)
	}
	out.Template = aws.ToString(g.LaunchTemplate.LaunchTemplateId)
	versions, err := c.versions(ctx, out.Template)
	if err != nil {
		return out, err
	}
	if out.Launches, err = versions.find(aws.ToString(g.LaunchTemplate.Version)); err != nil {
		return out, fmt.Errorf("group %s: %w", name, err)
	}
	out.Wanted = versions.latest()
	if n, ok := c.Wanted[name]; ok {
		if out.Wanted, err = versions.find(strconv.Itoa(n)); err != nil {
			return out, fmt.Errorf("group %s: %w", name, err)
		}
	}
	for _, i := range g.Instances {
		out.Machines = append(out.Machines, seen.machine(out, i, versions))
	}
	slices.SortFunc(out.Machines, func(a, b rollout.Machine) int { return strings.Compare(a.ID, b.ID) })
	if !out.Control() {
		out.Refresh, err = c.refresh(ctx, name, versions)
	}
	return out, err
}

// refresh is the group's newest.
func (c *Cluster) refresh(ctx context.Context, group string, versions versions) (*rollout.Refresh, error) {
	out, err := c.Groups.DescribeInstanceRefreshes(ctx, &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: &group, MaxRecords: aws.Int32(1)})
	if err != nil {
		return nil, fmt.Errorf("reading the refreshes of %s: %w", group, explain(err, "autoscaling:DescribeInstanceRefreshes"))
	}
	if len(out.InstanceRefreshes) == 0 {
		return nil, nil
	}
	r := out.InstanceRefreshes[0]
	seen := &rollout.Refresh{
		ID: aws.ToString(r.InstanceRefreshId), Status: string(r.Status), Reason: aws.ToString(r.StatusReason), Percent: int(aws.ToInt32(r.PercentageComplete)),
	}
	if d := r.DesiredConfiguration; d != nil && d.LaunchTemplate != nil {
		if v, err := versions.find(aws.ToString(d.LaunchTemplate.Version)); err == nil {
			seen.To = v.Number
		}
	}
	return seen, nil
}

func tagOf(g types.AutoScalingGroup, key string) string {
	for _, t := range g.Tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

// explain adds what to allow to a refusal.
func explain(err error, action string) error {
	var api smithy.APIError
	if errors.As(err, &api) && (strings.HasPrefix(api.ErrorCode(), "AccessDenied") || api.ErrorCode() == "UnauthorizedOperation") {
		return fmt.Errorf("%w (allow %s)", err, action)
	}
	return err
}
