package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// EvictionsAPI is the part of AutoScaling's client that Evictions uses.
type EvictionsAPI interface {
	HooksAPI
	autoscaling.DescribeAutoScalingGroupsAPIClient
	RecordLifecycleActionHeartbeat(ctx context.Context, in *autoscaling.RecordLifecycleActionHeartbeatInput, opts ...func(*autoscaling.Options)) (*autoscaling.RecordLifecycleActionHeartbeatOutput, error)
}

// Evictions reads the lifecycle states of a cluster's machines, and answers role.EvictionHook: for the masters, and for who
// deletes the cluster.
type Evictions struct {
	API     EvictionsAPI
	Cluster string

	// drains are the hooks' times by group, and when they were read.
	drains map[string]drain
}

type drain struct {
	time time.Duration
	read time.Time
}

// drainLife is how long a hook's time is taken to be what it was.
const drainLife = 5 * time.Minute

var _ evict.Machines = (*Evictions)(nil)

// Sight reads the groups, with one call for each hundred.
func (e *Evictions) Sight(ctx context.Context) (evict.Sight, error) {
	groups, err := account.Groups(ctx, e.API, e.Cluster)
	if err != nil {
		return evict.Sight{}, awserr.Explain(err, "autoscaling:DescribeAutoScalingGroups")
	}
	var out evict.Sight
	var masters, wanted int32
	for _, g := range groups {
		of := role.NewSet(roles(account.GroupTag(g, role.TagRole))...)
		if of.Has(role.Masters) {
			masters++
			wanted += aws.ToInt32(g.DesiredCapacity)
		}
		if !of.Has(role.Minions) {
			continue
		}
		// A tag that nobody can read is not the stack's, and stands for the default.
		policy, _ := notice.ParsePolicy(account.GroupTag(g, role.TagNotices))
		for _, i := range g.Instances {
			out.Machines = append(out.Machines, evict.Machine{ID: aws.ToString(i.InstanceId), Group: aws.ToString(g.AutoScalingGroupName), State: string(i.LifecycleState), Policy: policy})
		}
	}
	out.Closing = masters > 0 && wanted == 0
	return out, nil
}

// Drain returns the hook's time, as it was within the last minutes. It is not safe for concurrent use.
func (e *Evictions) Drain(ctx context.Context, group string) (time.Duration, error) {
	if d := e.drains[group]; time.Since(d.read) < drainLife { // a hook that was never read is as old as can be
		return d.time, nil
	}
	hook, err := e.hook(ctx, group)
	if err != nil {
		return 0, err
	}
	if e.drains == nil {
		e.drains = map[string]drain{}
	}
	e.drains[group] = drain{hook, time.Now()}
	return hook, nil
}

// Hold restarts the hook's time.
func (e *Evictions) Hold(ctx context.Context, m evict.Machine) (time.Duration, error) {
	hook, err := e.hook(ctx, m.Group)
	if err != nil || hook == 0 {
		return 0, err
	}
	_, err = e.API.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: &m.Group, LifecycleHookName: aws.String(role.EvictionHook), InstanceId: &m.ID,
	})
	if isCompleted(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("restarting the time of hook %s of machine %s in group %s: %w", role.EvictionHook, m.ID, m.Group,
			awserr.Explain(err, "autoscaling:RecordLifecycleActionHeartbeat on this group"))
	}
	return hook, nil
}

// Release completes the hook.
func (e *Evictions) Release(ctx context.Context, m evict.Machine) (bool, error) {
	_, err := e.API.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: &m.Group, LifecycleHookName: aws.String(role.EvictionHook), InstanceId: &m.ID, LifecycleActionResult: aws.String("CONTINUE"),
	})
	if isCompleted(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("completing hook %s of machine %s in group %s, which goes on by itself when the hook's time is over: %w", role.EvictionHook, m.ID, m.Group,
			awserr.Explain(err, "autoscaling:CompleteLifecycleAction on this group"))
	}
	return true, nil
}

// hook returns the time of the group's role.EvictionHook; 0 if it has none.
func (e *Evictions) hook(ctx context.Context, group string) (time.Duration, error) {
	held, err := account.HookTime(ctx, e.API, group, role.EvictionHook)
	return held, awserr.Explain(err, "autoscaling:DescribeLifecycleHooks")
}
