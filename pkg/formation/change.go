package formation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// The actions of a change, as CloudFormation has them.
const (
	Add    = "Add"
	Modify = "Modify"
	Remove = "Remove"
)

// Change is what a change set would do to one resource.
type Change struct {
	Action   string `json:"action"`
	Resource string `json:"resource"`
	Type     string `json:"type"`
	ID       string `json:"id,omitempty"`
	// Replacement is "True", "Conditional" or "False" where the action is Modify.
	Replacement string `json:"replacement,omitempty"`
	// Kept: what is removed stays in the account.
	Kept bool `json:"kept,omitempty"`
	// Properties are those that change, each with what makes it change, where that is not the template.
	Properties []Property `json:"properties,omitempty"`
}

// Property is one that changes.
type Property struct {
	Name string `json:"name"`
	// Recreates is "Never", "Conditionally" or "Always".
	Recreates string `json:"recreates"`
	// Cause is the parameter or resource whose change this follows; empty is the template itself.
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

// Ends reports whether what the resource is now would be gone, for certain or perhaps.
func (c Change) Ends() bool {
	switch c.Action {
	case Remove:
		return !c.Kept
	case Modify:
		return c.Replacement == string(types.ReplacementTrue) || c.Replacement == string(types.ReplacementConditional)
	}
	return false
}

// guarded are the types whose end is a loss, and of what.
var guarded = []struct{ kind, loss string }{
	{"AWS::Route53::HostedZone", "every record in it, of every cluster"},
	{"AWS::EC2::Volume", "what is on it"},
	{"AWS::AutoScaling::AutoScalingGroup", "all its machines at once, with the disks of etcd's members"},
}

// Gate is an error where the changes would end what holds data, or all machines of a group at once, unless it is in
// allowed, by its logical name. An allowed name that is no such change is an error too: it would be leave for something
// that nobody looked at.
func Gate(changes []Change, allowed []string) error {
	var lines []string
	left := slices.Clone(allowed)
	for _, c := range changes {
		if !c.Ends() {
			continue
		}
		for _, g := range guarded {
			if g.kind != c.Type {
				continue
			}
			if i := slices.Index(left, c.Resource); i >= 0 {
				left = slices.Delete(left, i, i+1)
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s (%s) would be %s%s: that loses %s; to have it so, --allow-replacement %s",
				c.Resource, c.ID, c.Type, c.fate(), c.because(), g.loss, c.Resource))
		}
	}
	for _, name := range left {
		lines = append(lines, fmt.Sprintf("%s is allowed to be replaced, and these changes do not: leave --allow-replacement %s out", name, name))
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("looking at what would change:\n  %s", strings.Join(lines, "\n  "))
}

// fate is what becomes of what the resource is now.
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
		if p.Recreates != string(types.RequiresRecreationNever) && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " by its " + strings.Join(names, ", ")
}
