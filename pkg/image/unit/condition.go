package unit

import (
	"path"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// condition is one Condition...= of a unit.
type condition struct {
	Option
	// trigger is the prefix "|": of all such conditions one must hold. negate is the prefix "!".
	trigger, negate bool
	// operand is the value without the prefixes.
	operand string
}

// conditions returns the unit's conditions in order. An empty assignment of any of them takes back all
// before it, of every type.
func (u Unit) conditions() []condition {
	var found []condition
	for _, o := range u.Options {
		if o.Section != "Unit" || !strings.HasPrefix(o.Name, "Condition") {
			continue
		}
		if o.Value == "" {
			found = nil
			continue
		}
		c := condition{Option: o}
		c.operand, c.trigger = cutPrefix(o.Value, "|")
		c.operand, c.negate = cutPrefix(c.operand, "!")
		found = append(found, c)
	}
	return found
}

func cutPrefix(text, prefix string) (rest string, found bool) {
	rest, found = strings.CutPrefix(text, prefix)
	return strings.TrimSpace(rest), found
}

// Starts reports whether the unit's conditions hold on a machine with the role files of the set and no
// others. Conditions that are not about role files are taken as met, since the roles do not decide them.
func (u Unit) Starts(set role.Set) bool {
	triggers, triggered := false, false
	for _, c := range u.conditions() {
		met := c.met(set)
		switch {
		case c.trigger:
			triggers = true
			triggered = triggered || met
		case !met:
			return false
		}
	}
	return !triggers || triggered
}

// met evaluates one condition for the role files of a set.
func (c condition) met(set role.Set) bool {
	holds, about := c.holds(set)
	if !about {
		return true
	}
	return holds != c.negate
}

// holds evaluates the condition without its negation. about is false where it is not about role files.
func (c condition) holds(set role.Set) (holds, about bool) {
	operand := path.Clean(c.operand)
	switch c.Name {
	case "ConditionPathExists", "ConditionFileNotEmpty":
		// The file of what is no role never exists: user data that names one is refused.
		r, named, _ := role.OfFile(operand)
		return set.Has(r), named
	case "ConditionPathExistsGlob":
		return globHolds(operand, set)
	}
	return false, false
}

// globHolds matches the pattern with the role files of the set; it is about role files when it could
// match one of any role.
func globHolds(pattern string, set role.Set) (holds, about bool) {
	for _, r := range append(role.All(), role.Own(set)...) {
		if ok, _ := path.Match(pattern, r.File()); ok { // a pattern that is none matches nothing
			about = true
			holds = holds || set.Has(r)
		}
	}
	return holds, about
}
