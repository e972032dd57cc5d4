package deployment

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// groupNames is the maximum number of names in a call of DescribeAutoScalingGroups (AutoScalingGroupNames.member.N).
const groupNames = 50

// groups reads the groups of the allow-list and their lifecycle hooks.
func (r *Reader) groups(ctx context.Context, s doctor.Known[doctor.Settings]) (list []doctor.Group, err error) {
	if s.Err != nil {
		return nil, unread("the groups", "the function's environment")
	}
	for names := range slices.Chunk(s.Value.AllGroups(), groupNames) {
		found, err := r.described(ctx, names)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			g, there := found[name]
			if g.Name, g.Missing = name, !there; there {
				if g.Hooks, err = r.hooks(ctx, name); err != nil {
					return nil, err
				}
			}
			list = append(list, g)
		}
	}
	return list, nil
}

func (r *Reader) described(ctx context.Context, names []string) (map[string]doctor.Group, error) {
	found := map[string]doctor.Group{}
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(r.scaling, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, g := range page.AutoScalingGroups {
			tags := map[string]string{}
			for _, t := range g.Tags {
				tags[text(t.Key)] = text(t.Value)
			}
			found[text(g.AutoScalingGroupName)] = doctor.Group{Tags: tags}
		}
	}
	return found, nil
}

func (r *Reader) hooks(ctx context.Context, group string) (list []doctor.Hook, err error) {
	out, err := r.scaling.DescribeLifecycleHooks(ctx, &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: &group})
	if err != nil {
		return nil, err
	}
	for _, h := range out.LifecycleHooks {
		list = append(list, doctor.Hook{Name: text(h.LifecycleHookName), Transition: text(h.LifecycleTransition), Default: text(h.DefaultResult), Heartbeat: seconds(aws.ToInt32(h.HeartbeatTimeout))})
	}
	return list, nil
}
