package stack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Settled are the parameters with which a template is deployed.
type Settled struct {
	// Values are given, Keep stay as the stack has them; every other one has the template's default.
	Values map[string]string
	Keep   []string
}

// Settle decides each of the template's parameters: what is given, else what the stack has, else the default. have is
// nil for a stack that there is not. The error names all that are missing, and all that are given and not the
// template's; flags are how the caller lets each be given.
func (t *Template) Settle(given, have map[string]string, flags map[string]string) (Settled, error) {
	out := Settled{Values: map[string]string{}}
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, ok := t.Parameters[key]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s: this cluster's template has no parameter %s (it goes with %s)", flag(flags, key), key, goesWith(key)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Parameters)) {
		value, isGiven := given[key]
		_, has := have[key]
		switch {
		case isGiven:
			out.Values[key] = value
		case key == ParameterImage:
			// The name of a parameter: given anew, it is certainly read anew.
			out.Values[key] = *t.Parameters[key].Default
		case has:
			out.Keep = append(out.Keep, key)
		case t.Parameters[key].Default == nil:
			wrong = append(wrong, fmt.Sprintf("%s is needed: %s", flag(flags, key), t.Parameters[key].Description))
		}
	}
	if len(wrong) > 0 {
		return out, fmt.Errorf("settling the stack's parameters:\n  %s", strings.Join(wrong, "\n  "))
	}
	return out, nil
}

func flag(flags map[string]string, key string) string {
	if name, ok := flags[key]; ok {
		return "--" + name
	}
	return key
}

// goesWith is what in a cluster's document gives the template a parameter that not every template has.
func goesWith(key string) string {
	switch key {
	case ParameterMembers:
		return "members of a group with the role etcd"
	case ParameterBalancer:
		return "aws.loadBalancer"
	case ParameterClients:
		return "a group with the role masters"
	}
	return "another version of this program"
}
