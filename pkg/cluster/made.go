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
)

// Made is what was made for the cluster, by its stack or by Terraform. Commands act on nothing else: others use the cluster's tag too.
type Made struct {
	// By is who made it, for people: "stack hardtack-demo" or "Terraform".
	By string
	// Groups are the names of the AutoScaling groups.
	Groups []string
	// Zone is the id of the hosted zone, empty before there is one. OwnsZone is whether it ends with the rest.
	Zone     string
	OwnsZone bool
	// Stack is nil if Terraform made it.
	Stack *cloudformation.Stack
}

// Made reads what was made for the cluster. The error is cloudformation.ErrNoStack if there is no stack, and nothing of Terraform's
// was given.
func (c *Cluster) Made(ctx context.Context) (*Made, error) {
	if t := c.config.Terraform; t != nil {
		if err := c.checkTerraform(); err != nil {
			return nil, err
		}
		return &Made{By: "Terraform", Groups: t.Groups, Zone: t.Zone, OwnsZone: t.OwnsZone}, nil
	}
	now, err := c.stacks.Describe(ctx, c.stack)
	if err != nil {
		return nil, err
	}
	return c.madeBy(ctx, now)
}

// madeBy reads what a stack has made.
func (c *Cluster) madeBy(ctx context.Context, now *cloudformation.Stack) (*Made, error) {
	out := &Made{By: "stack " + now.Name, Stack: now, Zone: now.Outputs[template.OutputZone], Groups: []string{}}
	resources, err := c.stacks.Resources(ctx, now.ID)
	if err != nil {
		return nil, err
	}
	for _, r := range resources {
		if r.Status == cloudformation.Deleted || r.ID == "" {
			continue
		}
		switch r.Type {
		case cloudformation.TypeGroup:
			out.Groups = append(out.Groups, r.ID)
		case cloudformation.TypeZone:
			out.OwnsZone = true
		}
	}
	slices.Sort(out.Groups)
	return out, nil
}

// checkTerraform refuses another cluster's outputs: its machines would be replaced.
func (c *Cluster) checkTerraform() error {
	t := c.config.Terraform
	switch {
	case t.Cluster != c.name:
		return fmt.Errorf("the outputs are of cluster %s, and the document is of %s", t.Cluster, c.name)
	case c.config.AWS.Region != "" && t.Region != c.config.AWS.Region:
		return fmt.Errorf("the outputs are of region %s, and the AWS configuration names %s", t.Region, c.config.AWS.Region)
	}
	return nil
}

// machinesOf returns a reader of the groups that were made, as machines.
func (c *Cluster) machinesOf(made *Made) *autoscaling.Cluster {
	out := c.machines()
	out.Names = made.Groups
	return out
}

// own returns a reader of the stack's groups; there are none before there is a stack.
func (c *Cluster) own(ctx context.Context) (*autoscaling.Cluster, error) {
	made, err := c.Made(ctx)
	if errors.Is(err, cloudformation.ErrNoStack) {
		made, err = &Made{Groups: []string{}}, nil
	}
	if err != nil {
		return nil, err
	}
	return c.machinesOf(made), nil
}

// readOwn reads the stack's groups and their machines.
func (c *Cluster) readOwn(ctx context.Context) (rollout.State, error) {
	machines, err := c.own(ctx)
	if err != nil {
		return rollout.State{}, err
	}
	return machines.Read(ctx)
}
