package awsfake

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// givenParameter is a parameter's value as its caller gives it.
type givenParameter struct {
	Key      string
	Value    string
	Previous bool
}

// ssmValue is the part of a parameter's type that says what the parameter of Parameter Store holds.
var ssmValue = regexp.MustCompile(`^AWS::SSM::Parameter::Value<(.+)>$`)

// stackValues are a stack's parameters: what was given, what Parameter Store said, and what functions see.
type stackValues struct {
	given    map[string]string
	resolved map[string]string
	values   map[string]any
}

// parameters settles a template's parameters: what the caller says, else what was before where the caller says so,
// else the default.
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

// check holds a value to what its declaration allows.
func (p cfnParameter) check(name, value string) error {
	why := p.Constraint
	if why == "" {
		why = "Member must satisfy regular expression pattern: " + p.Pattern
	}
	n, notNumber := strconv.Atoi(value)
	switch {
	case len(p.AllowedValues) > 0 && !slices.Contains(p.AllowedValues, value):
		return malformed("Parameter '%s' must be one of AllowedValues", name)
	case p.MinLength != nil && len(value) < *p.MinLength, p.MaxLength != nil && len(value) > *p.MaxLength:
		return malformed("Parameter '%s' does not have the length that MinLength and MaxLength allow", name)
	case p.Type == "Number" && notNumber != nil:
		return malformed("Parameter '%s' must be a number", name)
	case p.MinValue != nil && n < *p.MinValue, p.MaxValue != nil && n > *p.MaxValue:
		return malformed("Parameter '%s' is not between MinValue and MaxValue", name)
	}
	if p.Pattern != "" {
		pattern, err := regexp.Compile(`\A(?:` + p.Pattern + `)\z`)
		if err != nil {
			return formatError("Invalid AllowedPattern of parameter %s: %v", name, err)
		}
		if !pattern.MatchString(value) {
			return malformed("Parameter %s failed to satisfy constraint: %s", name, why)
		}
	}
	return nil
}

// settle finds what functions see of a parameter.
func (c *CloudFormation) settle(name string, p cfnParameter, v *stackValues) error {
	kind, value := p.Type, v.given[name]
	if match := ssmValue.FindStringSubmatch(kind); match != nil {
		held, _, err := c.account.regional.ssm.find(value)
		if err != nil {
			return malformed("Unable to fetch parameters [%s] from parameter store for this account.", value)
		}
		if held.Type == ParameterSecure {
			return malformed("Parameters [%s] referenced by template have types not supported by CloudFormation.", value)
		}
		kind, value = match[1], held.Value
		v.resolved[name] = value
	}
	item, isList := kind, false
	if inner, ok := strings.CutPrefix(kind, "List<"); ok {
		item, isList = strings.TrimSuffix(inner, ">"), true
	}
	if kind == "CommaDelimitedList" {
		item, isList = "String", true
	}
	values := []string{value}
	if isList {
		values = nil
		for _, one := range strings.Split(value, ",") {
			values = append(values, strings.TrimSpace(one))
		}
	}
	for _, one := range values {
		if err := c.exists(item, one); err != nil {
			return malformed("Parameter validation failed: parameter value %s for parameter name %s does not exist. %s", one, name, refusal(err).Message)
		}
	}
	v.values[name] = value
	if isList {
		v.values[name] = anyList(values)
	}
	return nil
}

// exists refuses a value of a type of AWS's that names nothing.
func (c *CloudFormation) exists(kind, value string) error {
	ec2 := c.account.regional.ec2
	switch kind {
	case "String", "Number", "AWS::SSM::Parameter::Name":
		return nil
	case "AWS::EC2::VPC::Id":
		if !vpcID.MatchString(value) {
			return refuse("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", value)
		}
		return ec2.network.hasVPC(value)
	case "AWS::EC2::Subnet::Id":
		_, err := ec2.network.subnet(value)
		if !strings.HasPrefix(value, "subnet-") {
			err = refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", value)
		}
		return err
	case "AWS::EC2::SecurityGroup::Id":
		return ec2.network.hasGroup(value)
	case "AWS::Route53::HostedZone::Id":
		_, err := c.account.route53.find(value)
		return err
	case "AWS::EC2::Image::Id":
		return ec2.canLaunch(value)
	}
	return refuse("ValidationError", "awsfake does not model the parameter type %s", kind)
}
