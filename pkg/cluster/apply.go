package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// ApplyOptions are the options of Apply.
type ApplyOptions struct {
	Deployment
	// AllowReplacement are the logical names of resources that may be replaced or removed, with all their data. A
	// change that would replace or remove any other guarded resource fails with a *cloudformation.LossError.
	AllowReplacement []string
	// EndMachines allows ending all machines when the parameter Machines becomes no. Without it Apply fails with an
	// *EndsMachinesError.
	EndMachines bool
	// AllowSkew allows versions of Kubernetes to meet that do not go together. Without it Apply fails with a *rollout.SkewError.
	AllowSkew bool
	// Protect turns the stack's termination protection on or off; nil leaves it unchanged.
	Protect *bool
	// DryRun reports the changes that Apply would make or refuse, and makes none.
	DryRun bool
	// OnDiff is called with the planned changes before any of them is made. It may be nil.
	OnDiff func(*Diff)
	// Confirm is asked once the changes are known and allowed, before any of them is made; an error of it is Apply's. It may
	// be nil, and is not called where nothing changes.
	Confirm func(context.Context, *Applied) error
}

// Applied is the result of Apply.
type Applied struct {
	Stack  string `json:"stack"`
	DryRun bool   `json:"dry_run"`
	// Status is the stack's status in CloudFormation; empty in a dry run.
	Status  string                  `json:"status"`
	Changed bool                    `json:"changed"`
	Changes []cloudformation.Change `json:"changes"`
	ZoneID  string                  `json:"zone_id"`
	// Zone reports the state of the hosted zone and the changes made to it; nil in a dry run.
	Zone   *prepare.Report `json:"zone"`
	Groups []string        `json:"groups"`
	// Regrouped reports whether AutoScaling groups were added or removed, so that the DNS function has to be updated.
	// Empty reports whether the stack has no machines yet.
	Regrouped bool `json:"regrouped"`
	// FunctionBehind reports whether the DNS function's stack keeps other names of the API than the document asks for.
	FunctionBehind bool `json:"function_behind,omitempty"`
	Empty          bool `json:"empty"`
	// Held are the groups of minions that go on launching the version of Kubernetes that they had, until the masters have the new one.
	Held []Held `json:"held,omitempty"`
	// Unmoved are the members of etcd that get a volume while they run on their machine's own disk: it is empty, and stays so.
	Unmoved []string `json:"unmoved,omitempty"`
	// API is the DNS name of the load balancer; empty where the cluster has none.
	API string `json:"load_balancer,omitempty"`
	// PodRoles are the ARNs of the roles for pods, by their names in the document.
	PodRoles map[string]string `json:"pod_roles,omitempty"`
	// Refresh are the groups whose machines Refresh would replace.
	Refresh []Behind `json:"refresh"`
	// Pruned is how many old versions of launch templates were deleted in the end.
	Pruned int `json:"pruned,omitempty"`
	// Unread are groups that could not be read: whether their machines are out of date is not known.
	Unread []rollout.Unread `json:"unread,omitempty"`
}

// Apply shows the changes, checks that they are allowed, executes them, prepares the hosted zone, and returns which
// machines are now out of date. Running machines stay unchanged until Refresh.
func (c *Cluster) Apply(ctx context.Context, o ApplyOptions) (*Applied, error) {
	if err := c.mayChangeMachines(ctx, o); err != nil {
		return nil, err
	}
	d, plan, err := c.plan(ctx, o.Deployment)
	if err != nil {
		return nil, err
	}
	if o.OnDiff != nil {
		o.OnDiff(d)
	}
	var now rollout.State
	err = c.keepsVolumes(d.Changes)
	if err == nil {
		err = c.changesVolumes(ctx, d.Changes)
	}
	if err == nil {
		err = c.keepsBucket(ctx, d.Changes)
	}
	if err == nil {
		now, err = c.readOwn(ctx)
	}
	if err == nil {
		err = c.keepsUnread(now)
	}
	if err == nil {
		err = c.keepsVoters(ctx, now, d.Changes)
	}
	if err == nil {
		err = c.keepsData(ctx, now)
	}
	if err == nil {
		err = cloudformation.Gate(d.Changes, o.AllowReplacement)
	}
	if err == nil {
		err = refuseRefreshing(now, d.Changes)
	}
	if err == nil {
		err = c.checkApply(ctx, now, d.Image, o.AllowSkew)
	}
	if err != nil {
		return nil, errors.Join(err, c.stacks.Discard(ctx, plan))
	}
	out := &Applied{Stack: c.stack, DryRun: o.DryRun, Changed: !plan.Empty(), Changes: d.Changes, Groups: c.Groups(), Refresh: d.Refresh}
	out.Unmoved, out.Unread = c.unmoved(now, d.Changes), now.Unread
	out.Regrouped = slices.ContainsFunc(d.Changes, func(c cloudformation.Change) bool {
		return c.Type == cloudformation.TypeGroup && c.Action != cloudformation.Modify
	})
	if o.DryRun {
		return out, c.stacks.Discard(ctx, plan)
	}
	if o.Confirm != nil && out.Changed {
		if err := o.Confirm(ctx, out); err != nil {
			return nil, errors.Join(err, c.stacks.Discard(context.WithoutCancel(ctx), plan))
		}
	}
	if err := c.agreeMembers(ctx); err != nil {
		return nil, errors.Join(err, c.stacks.Discard(ctx, plan))
	}
	return out, c.execute(ctx, plan, o, now, out)
}

// execute executes a plan and adds the result to out; before are the machines as they were.
func (c *Cluster) execute(ctx context.Context, plan *cloudformation.Plan, o ApplyOptions, before rollout.State, out *Applied) error {
	now, err := c.stacks.Execute(ctx, plan)
	if err != nil {
		return err
	}
	out.Empty, out.FunctionBehind = now.Parameters[template.ParameterMachines] != template.MachinesYes, c.functionBehind(ctx)
	if !out.Empty && !o.AllowSkew { // first: until then, groups launch the new version
		if out.Held, err = c.holdBack(ctx, before); err != nil {
			return err
		}
	}
	if o.Protect != nil && now.Protected != *o.Protect {
		if err := c.stacks.Protect(ctx, c.stack, *o.Protect); err != nil {
			return err
		}
		out.Changed = true
	}
	out.Status, out.ZoneID, out.API = now.Status, now.Outputs[template.OutputZone], now.Outputs[template.OutputAPI]
	out.PodRoles = map[string]string{}
	for _, r := range c.config.Document.Cluster.AWS.PodRoles {
		out.PodRoles[r.Name] = now.Outputs[template.PodRoleOutput(r.Name)]
	}
	if out.Zone, err = c.prepareZone(ctx, out.ZoneID); err != nil {
		return &UnpreparedError{Err: err}
	}
	machines, err := c.own(ctx)
	if err != nil {
		return err
	}
	s, err := machines.Read(ctx)
	out.Refresh, out.Unread = behind(s, nil), s.Unread
	if err == nil && out.Changed {
		out.Pruned = c.prune(ctx, machines)
	}
	return err
}

// prune deletes old versions of the groups' launch templates. What has been asked for is done by then: a failure is only logged, and the
// next time deletes what is left.
func (c *Cluster) prune(ctx context.Context, machines *autoscaling.Cluster) int {
	s, err := machines.Read(ctx)
	deleted := 0
	if err == nil {
		deleted, err = machines.Prune(ctx, s)
	}
	if err != nil && ctx.Err() == nil {
		c.config.Log.Warn("old versions of launch templates stay, and keep their images: EC2 takes 10000 of a template", "error", err)
	}
	return deleted
}

// mayChangeMachines refuses to start machines before the stack exists, and to end all of them unless that is allowed.
func (c *Cluster) mayChangeMachines(ctx context.Context, o ApplyOptions) error {
	now, err := c.describe(ctx)
	if err != nil {
		return err
	}
	switch machines := o.Parameters[template.ParameterMachines]; {
	case machines == template.MachinesYes && !now.Made():
		return &TooEarlyError{Stack: c.stack}
	case machines == template.MachinesNo && now.Made() && now.Parameters[template.ParameterMachines] == template.MachinesYes && !o.EndMachines && !o.DryRun:
		return &EndsMachinesError{Cluster: c.name}
	}
	return nil
}

// refuseRefreshing refuses changes of groups that AutoScaling is refreshing.
func refuseRefreshing(s rollout.State, changes []cloudformation.Change) error {
	var moving []rollout.Group
	for _, g := range s.Groups {
		changed := slices.ContainsFunc(changes, func(c cloudformation.Change) bool { return c.Type == cloudformation.TypeGroup && c.ID == g.Name })
		if changed && g.Refresh.Active() {
			moving = append(moving, g)
		}
	}
	if len(moving) > 0 {
		return &RefreshingError{Groups: moving}
	}
	return nil
}

// unmoved are the members whose volume the changes make while a machine of theirs runs without it.
func (c *Cluster) unmoved(s rollout.State, changes []cloudformation.Change) (members []string) {
	for _, g := range c.config.Document.Groups {
		made := slices.ContainsFunc(changes, func(c cloudformation.Change) bool {
			return c.Type == cloudformation.TypeVolume && c.Action == cloudformation.Add && c.Resource == template.VolumeID(g.Member)
		})
		runs := slices.ContainsFunc(s.Groups, func(now rollout.Group) bool { return now.Key == g.Name && len(now.Machines) > 0 })
		if g.Member != "" && made && runs {
			members = append(members, g.Member)
		}
	}
	return members
}

// prepareZone does the part that CloudFormation cannot do: it lowers the SOA minimum, and adds the cluster's
// placeholders to a zone that another cluster made.
func (c *Cluster) prepareZone(ctx context.Context, id string) (*prepare.Report, error) {
	if id == "" {
		return nil, fmt.Errorf("preparing the zone: stack %s has no output %s (was it made from another template?)", c.stack, template.OutputZone)
	}
	z, err := c.zone(id)
	if err != nil {
		return nil, err
	}
	return prepare.Run(ctx, z, prepare.Options{Cluster: c.name, Policy: record.DefaultPolicy()})
}
