package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// RefreshOptions are the options of Refresh.
type RefreshOptions struct {
	// Groups are the groups, by the document's names, whose machines are replaced; empty is all groups.
	Groups []string
	// AllowDataLoss are groups whose machines may be replaced although their etcd data is lost. Any other such group
	// makes Refresh fail with a *rollout.Refusal.
	AllowDataLoss []string
	// AllowSkew allows versions of Kubernetes to meet that do not go together. Without it the error is a *rollout.SkewError.
	AllowSkew bool
	// Preferences configure AutoScaling's refreshes of minions; autoscaling.DefaultPreferences are cautious.
	Preferences autoscaling.Preferences
	// Ready checks the API servers before a machine of the control plane is ended; nil skips the check.
	Ready func(context.Context) error
	// Patience is how long to wait for a machine before failing with a *rollout.StuckError; 0 is rollout.DefaultPatience.
	Patience time.Duration
	// CancelOnInterrupt cancels AutoScaling's refresh when the context ends; otherwise the refresh continues.
	CancelOnInterrupt bool
	// DryRun reports the machines that Refresh would replace and the first step, and changes nothing.
	DryRun bool
}

// RollbackOptions are the options of Rollback.
type RollbackOptions struct {
	RefreshOptions
	// To has a version of the launch template for groups, by the document's names. A group that is left out goes to
	// the latest version before the current one that makes a different machine.
	To map[string]int
}

// Refreshed is the result of Refresh or Rollback; in a dry run, the planned changes.
type Refreshed struct {
	Cluster string `json:"cluster"`
	DryRun  bool   `json:"dry_run"`
	// Refresh are the groups with machines to replace, First is the first step.
	Refresh []Behind `json:"refresh"`
	// TakenBack are the groups whose refresh by AutoScaling is rolled back first.
	TakenBack []string     `json:"taken_back,omitempty"`
	First     rollout.Step `json:"first"`
	// Pruned is how many old versions of launch templates were deleted in the end.
	Pruned int `json:"pruned,omitempty"`
	// Unread are groups that could not be read, and of which no machine is replaced.
	Unread []rollout.Unread `json:"unread,omitempty"`
	// Done is nil in a dry run.
	Done *rollout.Done `json:"done,omitempty"`
	// Ahead is set if the channel has another image than the group that was rolled back.
	Ahead *Ahead `json:"ahead,omitempty"`
}

// Ahead describes a channel whose image the next Apply would use instead of the one that a group was rolled back to.
type Ahead struct {
	Channel string `json:"channel"`
	Image   string `json:"image"`
	// Group is a group that was rolled back, Runs its image.
	Group string `json:"group"`
	Runs  string `json:"runs"`
}

// Refresh replaces machines whose image or configuration differs from the stack: etcd and masters one by one, minions by
// AutoScaling. After an error it continues when it is called again.
func (c *Cluster) Refresh(ctx context.Context, o RefreshOptions) (*Refreshed, error) {
	machines, _, err := c.prepareRollout(ctx, o)
	if err != nil {
		return nil, err
	}
	out, err := c.run(ctx, machines, o, nil)
	if err == nil && !o.DryRun {
		out.Pruned = c.prune(ctx, machines)
	}
	return out, err
}

// Rollback replaces machines with machines of an earlier version of their launch template, with its image and
// configuration.
func (c *Cluster) Rollback(ctx context.Context, o RollbackOptions) (*Refreshed, error) {
	machines, s, err := c.prepareRollout(ctx, o.RefreshOptions)
	if err != nil {
		return nil, err
	}
	// Nothing is taken back if the rest would be refused, whatever versions the groups go back to.
	back := s
	back.Groups = slices.Clone(s.Groups)
	for i := range back.Groups {
		back.Groups[i].Wanted = rollout.Version{}
	}
	if err := rollout.RefuseUnread(back, o.Groups); err != nil {
		return nil, err
	}
	takenBack, err := selectVersions(ctx, machines, s, o)
	if err != nil {
		return nil, err
	}
	if len(takenBack) > 0 && !o.DryRun {
		if err := c.takeBack(ctx, machines, o.RefreshOptions, takenBack); err != nil {
			return nil, err
		}
	}
	out, err := c.run(ctx, machines, o.RefreshOptions, takenBack)
	if err == nil && !o.DryRun {
		out.Ahead, err = c.ahead(ctx, machines)
	}
	return out, err
}

// prepareRollout reads the cluster's machines and checks that they may be replaced now.
func (c *Cluster) prepareRollout(ctx context.Context, o RefreshOptions) (*autoscaling.Cluster, rollout.State, error) {
	var none rollout.State
	if err := o.Preferences.Check(); err != nil {
		return nil, none, err
	}
	made, err := c.Made(ctx)
	switch {
	case errors.Is(err, cloudformation.ErrNoStack), err == nil && made.Stack != nil && !made.Stack.Made():
		return nil, none, &NoStackError{Stack: c.stack}
	case err != nil:
		return nil, none, err
	case made.Stack.Busy():
		return nil, none, &BusyError{Stack: c.stack, Status: made.Stack.Status}
	}
	machines, err := c.machinesInDNS(made)
	if err != nil {
		return nil, none, err
	}
	machines.Preferences, machines.Ready = o.Preferences, o.Ready
	s, err := machines.Read(ctx)
	if err == nil && len(s.Groups)+len(s.Unread) == 0 {
		err = fmt.Errorf("reading the groups of %s: %w", c.name, ErrNoGroups)
	}
	if err == nil {
		err = rollout.RefuseUnread(s, o.Groups) // before any refresh is rolled back
	}
	return machines, s, err
}

// takeBack rolls back refreshes by AutoScaling, once it is known that the rollback is not refused.
func (c *Cluster) takeBack(ctx context.Context, machines *autoscaling.Cluster, o RefreshOptions, groups []string) error {
	o.DryRun = true
	if _, err := c.run(ctx, machines, o, groups); err != nil {
		return err
	}
	for _, group := range groups {
		if err := machines.TakeBack(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// selectVersions selects, for every chosen group, the version before the latest, or that of To. It returns the groups that AutoScaling is
// refreshing to any other version.
func selectVersions(ctx context.Context, machines *autoscaling.Cluster, s rollout.State, o RollbackOptions) ([]string, error) {
	var takenBack []string
	machines.Wanted = map[string]int{}
	for _, g := range s.Groups {
		if !g.Chosen(o.Groups) {
			continue
		}
		version, ok := o.To[g.Key]
		if !ok {
			all, err := machines.Versions(ctx, g.Name)
			if err != nil {
				return nil, err
			}
			before, found := rollout.Previous(all, g.Wanted)
			if !found {
				continue // the group has had no other version
			}
			version = before.Number
		}
		machines.Wanted[g.Name] = version
		if g.Refresh.Active() && g.Refresh.To != version {
			takenBack = append(takenBack, g.Name)
		}
	}
	if len(machines.Wanted) == 0 {
		return nil, fmt.Errorf("rolling back %s: no launch template has an earlier version that makes another machine", s.Cluster)
	}
	return takenBack, nil
}

// run replaces the machines that differ from the wanted versions.
func (c *Cluster) run(ctx context.Context, machines *autoscaling.Cluster, o RefreshOptions, takenBack []string) (*Refreshed, error) {
	s, err := machines.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := rollout.Refuse(s, o.Groups, o.AllowDataLoss); err != nil {
		return nil, err
	}
	if err := c.checkRollout(ctx, s, o); err != nil {
		return nil, err
	}
	out := &Refreshed{Cluster: c.name, DryRun: o.DryRun, Unread: s.Unread, Refresh: behind(s, o.Groups), TakenBack: takenBack, First: rollout.Next(withoutRefreshes(s, takenBack), o.Groups, o.AllowDataLoss)}
	if o.DryRun {
		return out, nil
	}
	runner := &rollout.Runner{Reader: machines, Executor: machines, Clock: c.clock, OnStep: c.config.OnStep, Options: rollout.Options{
		Poll: c.config.Poll, Checkpoint: time.Duration(o.Preferences.Delay) * time.Second, Only: o.Groups, AllowDataLoss: o.AllowDataLoss,
		Patience: o.Patience, CancelOnInterrupt: o.CancelOnInterrupt,
	}}
	done, err := runner.Run(ctx)
	out.Done = &done
	return out, err
}

// withoutRefreshes returns the state with the refreshes of these groups removed.
func withoutRefreshes(s rollout.State, refreshes []string) rollout.State {
	for i, g := range s.Groups {
		if len(refreshes) > 0 && g.Chosen(refreshes) {
			s.Groups[i].Refresh = nil
		}
	}
	return s
}

// ahead finds a group that was rolled back to another image than the channel's.
func (c *Cluster) ahead(ctx context.Context, machines *autoscaling.Cluster) (*Ahead, error) {
	s, err := machines.Read(ctx)
	if err != nil {
		return nil, err
	}
	image, err := c.image(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range s.Groups {
		if _, ok := machines.Wanted[g.Name]; ok && g.Wanted.Image != image {
			return &Ahead{Channel: c.config.Document.Cluster.AWS.Channel, Image: image, Group: g.Name, Runs: g.Wanted.Image}, nil
		}
	}
	return nil, nil
}
