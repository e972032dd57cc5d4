package template

import (
	"fmt"
	"maps"
	"slices"
)

// Settled are the parameters with which a template is deployed.
type Settled struct {
	// Values are set, Keep keep the stack's value; every other parameter has the template's default.
	Values map[string]string
	Keep   []string
}

// ParameterError lists every parameter that is missing or unknown.
type ParameterError struct{ Wrong []WrongParameter }

// WrongParameter is a parameter that is missing, or one that was given and is not in the template.
type WrongParameter struct {
	Name string
	// Text follows the parameter's name: " is needed: the VPC".
	Text string
}

func (e *ParameterError) Error() string {
	return e.Named(func(parameter string) string { return parameter })
}

// Named is the text of the error with other names of the parameters, such as a command's flags.
func (e *ParameterError) Named(name func(parameter string) string) string {
	text := "settling the stack's parameters:"
	for _, w := range e.Wrong {
		text += "\n  " + name(w.Name) + w.Text
	}
	return text
}

// Settle decides the value of each parameter: the given one, else the stack's, else the default. have is nil if the
// stack does not exist. The error is a *ParameterError.
func (t *Template) Settle(given, have map[string]string) (Settled, error) {
	out := Settled{Values: map[string]string{}}
	var wrong []WrongParameter
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, ok := t.Parameters[key]; !ok {
			wrong = append(wrong, WrongParameter{key, fmt.Sprintf(": this cluster's template has no parameter %s (it goes with %s)", key, goesWith(key))})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Parameters)) {
		value, isGiven := given[key]
		_, has := have[key]
		switch {
		case isGiven:
			out.Values[key] = value
		case key == ParameterImage:
			// This is the name of a parameter in Parameter Store. Setting it makes CloudFormation read its value again.
			out.Values[key] = *t.Parameters[key].Default
		case has:
			out.Keep = append(out.Keep, key)
		case t.Parameters[key].Default == nil && !t.missing(t.Parameters[key].follows, given, have):
			wrong = append(wrong, WrongParameter{key, " is needed: " + t.Parameters[key].Description})
		}
	}
	if len(wrong) > 0 {
		return out, &ParameterError{wrong}
	}
	return out, nil
}

// missing reports whether a parameter is needed and nobody has given it. No parameter is not missing.
func (t *Template) missing(key string, given, have map[string]string) bool {
	_, isGiven := given[key]
	_, has := have[key]
	p, ok := t.Parameters[key]
	return ok && p.Default == nil && !isGiven && !has
}

// goesWith names the part of a cluster's document that adds the parameter to the template.
func goesWith(key string) string {
	switch key {
	case ParameterMembers:
		return "members of a group with the role etcd, or etcd.storage: volume"
	case ParameterSubnets:
		return "a group that is not a member of etcd"
	case ParameterZones:
		return "etcd.storage: volume"
	case ParameterBalancer:
		return "aws.loadBalancer"
	case ParameterClients:
		return "a group with the role masters"
	}
	return "another version of this program"
}
