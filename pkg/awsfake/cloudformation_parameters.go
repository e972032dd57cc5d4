package awsfake

import (
	"regexp"
	"slices"
	"strings"
)

// givenParameter is a parameter in a request.
type givenParameter struct {
	Key      string
	Value    string
	Previous bool
}

// stackValues are a stack's parameters: as given, as resolved from Parameter Store, and as functions see them.
type stackValues struct {
	given    map[string]string
	resolved map[string]string
	values   map[string]any
}

// parameters returns the values of a template's parameters: those of the request, the previous ones where the request
// says so, or the defaults.
func (c *CloudFormation) parameters(t *cfnTemplate, given []givenParameter, before stackValues) (stackValues, error) {
	out := stackValues{given: map[string]string{}, resolved: map[string]string{}, values: map[string]any{}}
	var strange, missing []string
	for _, g := range given {
		if _, ok := t.parameters[g.Key]; !ok {
			strange = append(strange, g.Key)
			continue
		}
		if g.Previous {
			was, ok := before.given[g.Key]
			if !ok {
				return out, malformed("Invalid input for parameter key %s. Cannot specify usePreviousValue as true for a parameter key not in the previous template", g.Key)
			}
			g.Value = was
		}
		out.given[g.Key] = g.Value
	}
	if len(strange) > 0 {
		return out, malformed("Parameters: [%s] do not exist in the template", strings.Join(strange, ", "))
	}
	for _, name := range sortedKeys(t.parameters) {
		if _, ok := out.given[name]; ok {
			continue
		}
		if t.parameters[name].Default == nil {
			missing = append(missing, name)
			continue
		}
		out.given[name] = *t.parameters[name].Default
	}
	if len(missing) > 0 {
		return out, malformed("Parameters: [%s] must have values", strings.Join(missing, ", "))
	}
	for _, name := range sortedKeys(t.parameters) {
		p := t.parameters[name]
		if err := p.check(name, out.given[name]); err != nil {
			return out, err
		}
		if err := c.settle(name, p, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// check checks a value against the parameter's constraints.
func (p cfnParameter) check(name, value string) error {
	if len(p.AllowedValues) > 0 && !slices.Contains(p.AllowedValues, value) {
		return malformed("Parameter '%s' must be one of AllowedValues", name)
	}
	if p.Pattern == "" {
		return nil
	}
	pattern, err := regexp.Compile(`\A(?:` + p.Pattern + `)\z`)
	if err != nil {
		return formatError("Invalid AllowedPattern of parameter %s: %v", name, err)
	}
	if !pattern.MatchString(value) {
		return malformed("Parameter %s failed to satisfy constraint: Member must satisfy regular expression pattern: %s", name, p.Pattern)
	}
	return nil
}

// settle sets the value that functions see of a parameter. The types are those of rendered templates.
func (c *CloudFormation) settle(name string, p cfnParameter, v *stackValues) (err error) {
	value := v.given[name]
	v.values[name] = value
	ec2 := c.account.regional.ec2
	switch p.Type {
	case "String":
	case "AWS::EC2::VPC::Id":
		err = ec2.network.hasVPC(value)
	case "List<AWS::EC2::Subnet::Id>":
		ids := strings.Split(value, ",")
		for _, id := range ids {
			if _, missing := ec2.network.subnet(id); missing != nil {
				err = missing
			}
		}
		v.values[name] = anyList(ids)
	case "List<AWS::EC2::AvailabilityZone::Name>":
		v.values[name], err = zoneList(value)
	case "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>":
		held, _, missing := c.account.regional.ssm.find(value)
		if missing != nil {
			return malformed("Unable to fetch parameters [%s] from parameter store for this account.", value)
		}
		v.values[name], v.resolved[name] = held.Value, held.Value
		value, err = held.Value, ec2.canLaunch(held.Value)
	default:
		return malformed("awsfake does not model the parameter type %s", p.Type)
	}
	if err != nil {
		return malformed("Parameter validation failed: parameter value %s for parameter name %s does not exist. %s", value, name, refusal(err).Message)
	}
	return nil
}
