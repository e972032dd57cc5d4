package autoscaling

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Records reads the records of a cluster from DNS.
type Records interface {
	Read(ctx context.Context, cluster string) ([]record.Set, error)
}

// Members reads what the members of etcd report.
type Members interface {
	// Reports returns the newest report of each of these members. What may not be read is no error: the reports say so.
	Reports(ctx context.Context, members []string) (rollout.Reports, error)
}

// Cluster reads and changes the groups of a cluster. It implements rollout.Reader and rollout.Executor.
type Cluster struct {
	Name string
	// Names are the groups' names: those that the stack, or Terraform, has made. They are read by their names alone, since other groups
	// may have the cluster's tag, and one of these may have lost it. Nil is every group with the tag.
	Names    []string
	Groups   *autoscaling.Client
	Machines *ec2.Client
	// Records is nil to skip the check that DNS lists a machine.
	Records Records
	Policy  record.Policy
	// Members is nil if nothing is known of etcd's members: their data then end with their machines.
	Members Members
	// Ready checks the API servers; nil skips the check.
	Ready func(ctx context.Context) error
	// Wanted has versions of launch templates by the names of groups; a group without an entry wants the latest.
	Wanted      map[string]int
	Preferences Preferences
	Log         *slog.Logger
}

// Preferences are the settings of AutoScaling's instance refreshes.
type Preferences struct {
	// MinHealthy is the percentage of a group that stays in service; 0 allows replacing all its machines at once.
	MinHealthy int
	// MaxHealthy is the percentage of a group that may exist meanwhile: above 100, machines are launched before others end. 0 is
	// AutoScaling's own way, which ends a machine and launches its replacement at the same time.
	MaxHealthy int
	// Checkpoints are ascending percentages at which the refresh waits for Delay seconds; the last is 100. Empty is no
	// waits.
	Checkpoints []int
	Delay       int
}

// DefaultPreferences keep all of the group in service, with a tenth of it or one machine more while others are replaced, and wait
// for five minutes at 25 % and at 50 % of the group.
func DefaultPreferences() Preferences {
	return Preferences{MinHealthy: 100, MaxHealthy: 110, Checkpoints: []int{25, 50, 100}, Delay: 300}
}

// minHealthyWithoutRoom is the percentage that stays in service where a group has no room for more machines: AutoScaling's default.
const minHealthyWithoutRoom = 90

// Check reports every value that AutoScaling would refuse.
func (p Preferences) Check() error {
	var errs []error
	if p.MinHealthy < 0 || p.MinHealthy > 100 {
		errs = append(errs, fmt.Errorf("minimum of healthy machines: %d %% is not between 0 and 100", p.MinHealthy))
	}
	switch {
	case p.MaxHealthy == 0:
	case p.MaxHealthy < 100 || p.MaxHealthy > 200:
		errs = append(errs, fmt.Errorf("maximum of machines: %d %% is not between 100 and 200, and not 0", p.MaxHealthy))
	case p.MaxHealthy-p.MinHealthy > 100:
		errs = append(errs, fmt.Errorf("minimum of healthy machines and maximum of machines: %d %% and %d %% are more than 100 apart: with this minimum the most is %d %%", p.MinHealthy, p.MaxHealthy, 100+p.MinHealthy))
	}
	last := 0
	for _, percent := range p.Checkpoints {
		if percent <= last || percent > 100 {
			errs = append(errs, fmt.Errorf("checkpoints %v: not ascending percentages from 1 to 100", p.Checkpoints))
			break
		}
		last = percent
	}
	if n := len(p.Checkpoints); n > 0 && p.Checkpoints[n-1] != 100 {
		errs = append(errs, fmt.Errorf("checkpoints %v: the last is not 100, and AutoScaling would end there", p.Checkpoints))
	}
	if p.Delay < 0 || p.Delay > 172_800 {
		errs = append(errs, fmt.Errorf("checkpoint delay: %d s is not between 0 and two days", p.Delay))
	}
	return errors.Join(errs...)
}

var (
	_ rollout.Reader   = (*Cluster)(nil)
	_ rollout.Executor = (*Cluster)(nil)
)

// wantedError is of a version that the caller wants and the template does not have: what is asked for is wrong, not the group.
type wantedError struct{ error }

// Read reads the groups of the cluster, their machines, and the launch template versions of both. A group that cannot be read is in
// Unread, and the others are read.
func (c *Cluster) Read(ctx context.Context) (rollout.State, error) {
	s := rollout.State{Cluster: c.Name}
	groups, err := c.groups(ctx)
	if err != nil {
		return s, err
	}
	observed, err := c.observe(ctx, groups)
	if err != nil {
		return s, err
	}
	s.Etcd = observed.reports
	for _, g := range groups {
		group, err := c.group(ctx, g, observed)
		var wanted *wantedError
		switch {
		case err == nil:
			s.Groups = append(s.Groups, group)
		case ctx.Err() != nil || errors.As(err, &wanted):
			return s, fmt.Errorf("group %s: %w", aws.ToString(g.AutoScalingGroupName), err)
		default:
			s.Unread = append(s.Unread, c.unread(g, err))
		}
	}
	s.Unread = append(s.Unread, c.gone(groups)...)
	if c.Ready != nil {
		if err := c.Ready(ctx); err != nil {
			s.API = err.Error()
		}
	}
	return s, ctx.Err()
}

func (c *Cluster) groups(ctx context.Context) ([]types.AutoScalingGroup, error) {
	var out []types.AutoScalingGroup
	var err error
	if c.Names != nil {
		out, err = account.GroupsByName(ctx, c.Groups, c.Names)
	} else {
		out, err = account.Groups(ctx, c.Groups, c.Name)
	}
	slices.SortFunc(out, func(a, b types.AutoScalingGroup) int {
		return strings.Compare(aws.ToString(a.AutoScalingGroupName), aws.ToString(b.AutoScalingGroupName))
	})
	return out, awserr.Explain(err, account.Actions)
}

// Instances returns the ids of all machines in the cluster's groups, sorted.
func (c *Cluster) Instances(ctx context.Context) ([]string, error) {
	groups, err := c.groups(ctx)
	out := []string{}
	for _, g := range groups {
		for _, i := range g.Instances {
			out = append(out, aws.ToString(i.InstanceId))
		}
	}
	slices.Sort(out)
	return out, err
}

// group converts a group for a rollout.
func (c *Cluster) group(ctx context.Context, g types.AutoScalingGroup, observed *observation) (rollout.Group, error) {
	name := aws.ToString(g.AutoScalingGroupName)
	roles, err := rolesOf(g)
	if err != nil {
		return rollout.Group{}, fmt.Errorf("tag %s: %w: give it the tag that the stack has given it again", role.TagRole, err)
	}
	out := rollout.Group{
		Name: name, Key: strings.TrimPrefix(name, c.Name+"-"), Roles: roles, Desired: int(aws.ToInt32(g.DesiredCapacity)),
		Member: account.GroupTag(g, role.TagEtcdMember), Members: account.EtcdMembers(g),
		Machines: []rollout.Machine{},
	}
	out.Volume = observed.volume(out.Member)
	launch := launchTemplate(g)
	if launch == nil {
		return out, errors.New("it has no launch template, so the version of its machines is unknown: give it the one that the stack has made for it again")
	}
	out.Template, out.Types = aws.ToString(launch.LaunchTemplateId), instanceTypes(g)
	versions, err := c.versions(ctx, out.Template)
	if err != nil {
		return out, err
	}
	if out.Launches, err = versions.find(aws.ToString(launch.Version)); err != nil {
		return out, fmt.Errorf("what it launches: %w: point it at another one", err)
	}
	out.Wanted = versions.latest()
	if n, ok := c.Wanted[name]; ok {
		if out.Wanted, err = versions.find(strconv.Itoa(n)); err != nil {
			return out, &wantedError{err}
		}
	}
	for _, i := range g.Instances {
		out.Machines = append(out.Machines, observed.machine(out, i, versions))
	}
	slices.SortFunc(out.Machines, func(a, b rollout.Machine) int { return strings.Compare(a.ID, b.ID) })
	if out.Drain, err = c.drain(ctx, out); err != nil {
		return out, err
	}
	if !out.Control() {
		out.Refresh, err = c.refresh(ctx, name, versions)
	}
	return out, err
}

// drain returns how long the group's hook holds a machine for its pods, while one waits for its hooks.
func (c *Cluster) drain(ctx context.Context, g rollout.Group) (time.Duration, error) {
	waits := func(m rollout.Machine) bool { return m.State == string(types.LifecycleStateTerminatingWait) }
	if !g.Roles.Has(role.Minions) || !slices.ContainsFunc(g.Machines, waits) {
		return 0, nil
	}
	held, err := account.HookTime(ctx, c.Groups, g.Name, role.EvictionHook)
	return held, awserr.Explain(err, "autoscaling:DescribeLifecycleHooks")
}

// refresh returns the newest refresh of the group, or nil if it never had any.
func (c *Cluster) refresh(ctx context.Context, group string, versions versions) (*rollout.Refresh, error) {
	out, err := c.Groups.DescribeInstanceRefreshes(ctx, &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: &group, MaxRecords: aws.Int32(1)})
	if err != nil {
		return nil, fmt.Errorf("reading the refreshes of %s: %w", group, awserr.Explain(err, "autoscaling:DescribeInstanceRefreshes"))
	}
	if len(out.InstanceRefreshes) == 0 {
		return nil, nil
	}
	r := out.InstanceRefreshes[0]
	refresh := &rollout.Refresh{
		ID: aws.ToString(r.InstanceRefreshId), Status: string(r.Status), Reason: aws.ToString(r.StatusReason), Percent: int(aws.ToInt32(r.PercentageComplete)),
	}
	if to := refreshedTo(r.DesiredConfiguration); to != "" {
		v, _ := versions.find(to) // a deleted version has its number still, and is not the group's own
		refresh.To = v.Number
	}
	return refresh, nil
}
