package awsfake

import (
	"slices"
	"strconv"
)

// mixedPolicy is a group's mixed instances policy, without weights, requirements and templates of single types. The group's launch
// template is the policy's.
type mixedPolicy struct {
	types         []string
	base, percent int
	onDemand      string
	spot          string
}

// mixedShape is a policy in a call or a template (API reference, MixedInstancesPolicy); other fields are refused.
type mixedShape struct {
	Template struct {
		Spec struct {
			ID      string `cfn:"LaunchTemplateId" xml:"LaunchTemplateId"`
			Name    string `cfn:"LaunchTemplateName" xml:"LaunchTemplateName,omitempty"`
			Version string `cfn:"Version" xml:"Version"`
		} `cfn:"LaunchTemplateSpecification,required" xml:"LaunchTemplateSpecification"`
		Overrides []overrideShape `cfn:"Overrides" xml:"Overrides>member"`
	} `cfn:"LaunchTemplate,required" xml:"LaunchTemplate"`
	Distribution *distributionShape `cfn:"InstancesDistribution" xml:"InstancesDistribution"`
}

type overrideShape struct {
	Type string `cfn:"InstanceType,required" xml:"InstanceType"`
}

type distributionShape struct {
	OnDemand string `cfn:"OnDemandAllocationStrategy" xml:"OnDemandAllocationStrategy,omitempty"`
	Base     *int   `cfn:"OnDemandBaseCapacity" xml:"OnDemandBaseCapacity"`
	Percent  *int   `cfn:"OnDemandPercentageAboveBaseCapacity" xml:"OnDemandPercentageAboveBaseCapacity"`
	Spot     string `cfn:"SpotAllocationStrategy" xml:"SpotAllocationStrategy,omitempty"`
}

// maxOverrides is how many types a policy has at most (API reference, LaunchTemplateOverrides).
const maxOverrides = 40

// policy returns the policy and its launch template. What is left out has the documented default, which for the share of on-demand
// instances is all of them (API reference, InstancesDistribution).
func (m *mixedShape) policy() (*mixedPolicy, LaunchRef, error) {
	spec := m.Template.Spec
	out, ref := &mixedPolicy{percent: 100, onDemand: "prioritized", spot: "lowest-price"}, LaunchRef{spec.ID, spec.Name, spec.Version}
	for _, o := range m.Template.Overrides {
		if !instanceType.MatchString(o.Type) {
			return nil, ref, malformed("The instance type %s is not valid.", o.Type)
		}
		if slices.Contains(out.types, o.Type) {
			return nil, ref, malformed("Duplicate override instance type %s", o.Type)
		}
		out.types = append(out.types, o.Type)
	}
	if len(out.types) > maxOverrides {
		return nil, ref, malformed("The number of launch template overrides must not be more than %d", maxOverrides)
	}
	d := m.Distribution
	if d == nil {
		return out, ref, nil
	}
	if d.Base != nil {
		out.base = *d.Base
	}
	if d.Percent != nil {
		out.percent = *d.Percent
	}
	if d.OnDemand != "" {
		out.onDemand = d.OnDemand
	}
	if d.Spot != "" {
		out.spot = d.Spot
	}
	switch {
	case out.base < 0 || out.percent < 0 || out.percent > 100:
		return nil, ref, malformed("OnDemandBaseCapacity must be 0 or more, and OnDemandPercentageAboveBaseCapacity between 0 and 100")
	case !slices.Contains([]string{"lowest-price", "prioritized"}, out.onDemand):
		return nil, ref, malformed("Invalid OnDemandAllocationStrategy %s", out.onDemand)
	case !slices.Contains([]string{"lowest-price", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized"}, out.spot):
		return nil, ref, malformed("Invalid SpotAllocationStrategy %s", out.spot)
	}
	return out, ref, nil
}

// xml is the policy with its launch template.
func (m *mixedPolicy) xml(ref LaunchRef) *mixedShape {
	if m == nil {
		return nil
	}
	out := &mixedShape{Distribution: &distributionShape{m.onDemand, &m.base, &m.percent, m.spot}}
	out.Template.Spec.ID, out.Template.Spec.Name, out.Template.Spec.Version = ref.ID, ref.Name, ref.Version
	for _, name := range m.types {
		out.Template.Overrides = append(out.Template.Overrides, overrideShape{name})
	}
	return out
}

// form adds the policy to the parameters of a call.
func (m *mixedShape) form(set func(key, value string)) {
	if m == nil {
		return
	}
	const at = "MixedInstancesPolicy."
	set(at+"LaunchTemplate.LaunchTemplateSpecification.LaunchTemplateId", m.Template.Spec.ID)
	set(at+"LaunchTemplate.LaunchTemplateSpecification.LaunchTemplateName", m.Template.Spec.Name)
	set(at+"LaunchTemplate.LaunchTemplateSpecification.Version", m.Template.Spec.Version)
	for i, o := range m.Template.Overrides {
		set(at+"LaunchTemplate.Overrides.member."+strconv.Itoa(i+1)+".InstanceType", o.Type)
	}
	if d := m.Distribution; d != nil {
		set(at+"InstancesDistribution.OnDemandAllocationStrategy", d.OnDemand)
		set(at+"InstancesDistribution.SpotAllocationStrategy", d.Spot)
		for name, n := range map[string]*int{"OnDemandBaseCapacity": d.Base, "OnDemandPercentageAboveBaseCapacity": d.Percent} {
			if n != nil {
				set(at+"InstancesDistribution."+name, strconv.Itoa(*n))
			}
		}
	}
}

// next returns the type of the group's next machine, and whether it is a spot instance. AWS does not say which of several pools has
// room: the types of spot instances take turns, the last one first, which is the harder case.
func (m *mixedPolicy) next(g *group, machines func(id string) Machine) (kind string, spot bool) {
	active := g.active()
	onDemand := 0
	for _, i := range active {
		if !machines(i.ID).Spot {
			onDemand++
		}
	}
	beyond := max(0, len(active)+1-m.base)
	wanted := min(len(active)+1, m.base) + (beyond*m.percent+99)/100
	spot = onDemand >= wanted
	switch {
	case len(m.types) == 0:
		return "", spot
	case spot:
		return m.types[len(m.types)-1-(len(active)-onDemand)%len(m.types)], true
	}
	return m.types[0], false
}
