package cloudformation

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// The actions of a change, as CloudFormation spells them.
const (
	Add    = "Add"
	Modify = "Modify"
	Remove = "Remove"
)

// The types of resources, as CloudFormation spells them, whose changes are checked.
const (
	TypeZone     = "AWS::Route53::HostedZone"
	TypeVolume   = "AWS::EC2::Volume"
	TypeBucket   = "AWS::S3::Bucket"
	TypeGroup    = "AWS::AutoScaling::AutoScalingGroup"
	TypeTemplate = "AWS::EC2::LaunchTemplate"
)

// Change is the effect of a change set on one resource.
type Change struct {
	Action   string `json:"action"`
	Resource string `json:"resource"`
	Type     string `json:"type"`
	ID       string `json:"id,omitempty"`
	// Replacement is "True", "Conditional" or "False" where the action is Modify.
	Replacement string `json:"replacement,omitempty"`
	// Kept reports whether the resource stays in the account after its removal from the stack.
	Kept bool `json:"kept,omitempty"`
	// Properties are the properties that change. Each names its cause unless that is the template.
	Properties []Property `json:"properties,omitempty"`
}

// Property is a property that changes.
type Property struct {
	Name string `json:"name"`
	// Recreates is "Never", "Conditionally" or "Always".
	Recreates string `json:"recreates"`
	// Cause is the parameter or resource whose change causes this one; empty is the template itself.
	Cause string `json:"cause,omitempty"`
}

func changeOf(in *types.ResourceChange) Change {
	out := Change{
		Action: string(in.Action), Resource: aws.ToString(in.LogicalResourceId), Type: aws.ToString(in.ResourceType),
		ID: aws.ToString(in.PhysicalResourceId), Replacement: string(in.Replacement), Kept: in.PolicyAction == types.PolicyActionRetain,
	}
	for _, d := range in.Details {
		if d.Target == nil {
			continue
		}
		p := Property{Name: aws.ToString(d.Target.Name), Recreates: string(d.Target.RequiresRecreation), Cause: aws.ToString(d.CausingEntity)}
		if p.Name == "" {
			p.Name = string(d.Target.Attribute)
		}
		if !slices.Contains(out.Properties, p) {
			out.Properties = append(out.Properties, p)
		}
	}
	return out
}

// Ends reports whether the present resource would be lost, certainly or possibly.
func (c Change) Ends() bool {
	switch c.Action {
	case Remove:
		return !c.Kept
	case Modify:
		return c.Replacement == string(types.ReplacementTrue) || c.Replacement == string(types.ReplacementConditional) && !c.staysInPlace()
	}
	return false
}

// inPlace are the properties of which CloudFormation's documentation says "Update requires: Some interruptions" and its change sets
// say Conditionally, although the resource stays: a group whose image or subnets change keeps its machines, and takes the new
// ones when machines are replaced, for which a stack of ours has no UpdatePolicy. Without this every new image would be refused.
var inPlace = map[string][]string{
	TypeGroup: {"LaunchConfigurationName", "LaunchTemplate", "MixedInstancesPolicy", "VPCZoneIdentifier"},
}

// Replaces reports whether the property's change replaces the resource, and whether that is certain.
func (c Change) Replaces(p Property) (replaces, certain bool) {
	switch p.Recreates {
	case string(types.RequiresRecreationAlways):
		return true, true
	case string(types.RequiresRecreationConditionally):
		return !slices.Contains(inPlace[c.Type], p.Name), false
	}
	return false, false
}

// staysInPlace reports whether properties are named that may replace the resource, and none of them does.
func (c Change) staysInPlace() bool {
	named := false
	for _, p := range c.Properties {
		if replaces, _ := c.Replaces(p); replaces {
			return false
		}
		named = named || p.Recreates == string(types.RequiresRecreationConditionally)
	}
	return named
}

// guarded are the types whose removal is a loss, and the loss.
var guarded = map[string]string{
	TypeZone:   "every record in it, of every cluster",
	TypeVolume: "what is on it",
	TypeBucket: "the backups in it",
	TypeGroup:  "all its machines at once, with the disks of etcd's members",
}

// Gate returns a *LossError if the changes would remove a resource that holds data, or all machines of a group at
// once, and allowed does not have its logical name. A name in allowed that matches no such change is an error as
// well: it would be permission for a loss that was not reviewed.
func Gate(changes []Change, allowed []string) error {
	e := LossError{Unneeded: slices.Clone(allowed)}
	for _, c := range changes {
		if guarded[c.Type] == "" || !c.Ends() {
			continue
		}
		if i := slices.Index(e.Unneeded, c.Resource); i >= 0 {
			e.Unneeded = slices.Delete(e.Unneeded, i, i+1)
			continue
		}
		e.Losses = append(e.Losses, c)
	}
	if len(e.Losses) == 0 && len(e.Unneeded) == 0 {
		return nil
	}
	return &e
}

// fate is the effect of the change on the present resource.
func (c Change) fate() string {
	switch {
	case c.Action == Remove:
		return "removed"
	case c.Replacement == string(types.ReplacementConditional):
		return "replaced, perhaps"
	}
	return "replaced"
}

// because names the properties that replace the resource.
func (c Change) because() string {
	var names []string
	for _, p := range c.Properties {
		if replaces, _ := c.Replaces(p); replaces && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " by its " + strings.Join(names, ", ")
}
