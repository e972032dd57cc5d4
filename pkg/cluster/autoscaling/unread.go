package autoscaling

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// unread is what is known of a group that could not be read. Without its roles it may be of the control plane.
func (c *Cluster) unread(g types.AutoScalingGroup, why error) rollout.Unread {
	name := aws.ToString(g.AutoScalingGroupName)
	roles, err := rolesOf(g)
	return rollout.Unread{
		Group: name, Key: strings.TrimPrefix(name, c.Name+"-"), Control: err != nil || rollout.Group{Roles: roles}.Control(),
		Member: account.GroupTag(g, role.TagEtcdMember), Members: account.EtcdMembers(g), Why: fmt.Sprintf("group %s: %s", name, awserr.Steady(why)),
	}
}

// rolesOf are the roles of a group. A group without the tag is not one without roles, which has the tag as well.
func rolesOf(g types.AutoScalingGroup) (role.Set, error) {
	text := account.GroupTag(g, role.TagRole)
	if text == "" {
		return nil, errors.New("there is none")
	}
	return role.ParseSet(text)
}

// gone are the groups that were made and that AutoScaling does not have: somebody has deleted them beside the stack.
func (c *Cluster) gone(found []types.AutoScalingGroup) (all []rollout.Unread) {
	for _, name := range c.Names {
		if slices.ContainsFunc(found, func(g types.AutoScalingGroup) bool { return aws.ToString(g.AutoScalingGroupName) == name }) {
			continue
		}
		all = append(all, rollout.Unread{Group: name, Key: strings.TrimPrefix(name, c.Name+"-"), Control: true, Gone: true,
			Why: fmt.Sprintf("group %s: AutoScaling has no such group, although it was made: terraform apply makes it again, and a stack once the document has been applied without the group", name)})
	}
	return all
}
