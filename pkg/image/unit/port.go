package unit

import (
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ownSection is the section for Hardtack, which systemd does not read; its keys are Role and Port.
const ownSection = "X-Hardtack"

// opened is an opening with the assignment that it is in.
type opened struct {
	role.Opening
	at Option
}

// openings lists the ports that the unit opens, and reports those that it cannot.
func (u Unit) openings(report func(at Option, err error)) (list []opened) {
	r, one := u.Role()
	for _, at := range u.Values(ownSection, "Port") {
		o, err := role.ParseOpening(at.Value)
		switch {
		case err != nil:
			report(at, err)
		case one || u.EveryMachine():
			o.Role, o.Unit = r, u.Name
			list = append(list, opened{o, at})
		}
		// What is wrong with a unit that has no role is told by another rule.
	}
	return list
}

// openingsOf lists the ports that units open, sorted; what cannot be read is left out.
func openingsOf(units []Unit) (list []role.Opening) {
	for _, u := range units {
		for _, o := range u.openings(func(Option, error) {}) {
			list = append(list, o.Opening)
		}
	}
	slices.SortStableFunc(list, func(a, b role.Opening) int {
		return strings.Compare(role.FormatOpenings([]role.Opening{a}), role.FormatOpenings([]role.Opening{b}))
	})
	return list
}

// ports finds ports that cannot be opened, or that two units would listen at.
func (l *linter) ports() {
	own := ownRoles(l.units)
	var before []opened
	for _, u := range l.units {
		l.keys(u)
		list := u.openings(func(at Option, err error) {
			l.report(u, at, RulePort, "write Port=80/tcp minions 10.0.0.0/8, for example", "%v", err)
		})
		for _, o := range list {
			for _, from := range o.From {
				if !from.Known() && !slices.Contains(own, from) {
					l.report(u, o.at, RulePort, "the roles are "+role.Join(append(role.All(), own...), ", "), "%s is open to the role %s, which no unit of the image has", o.Port(), from)
				}
			}
			if program := hardtacks(o.Opening); program != "" {
				l.report(u, o.at, RulePort, "choose another port; to open that one further, say so in a drop-in of its unit", "%s is already %s's", o.Port(), program)
			}
			for _, other := range before {
				if other.Overlaps(o.Opening) {
					l.report(u, o.at, RulePort, "choose another port for one of them", "%s listens at %s too", other.Unit, other.Port())
				}
			}
		}
		before = append(before, list...)
	}
}

// hardtacks names Hardtack's own program that listens at a port of an opening; none for an opening of Hardtack's own units, which a
// drop-in has made.
func hardtacks(o role.Opening) string {
	if role.UnitOf(o.Unit).Name == o.Unit {
		return ""
	}
	for _, r := range role.All() {
		for _, p := range r.Ports() {
			if o.Overlaps(role.Opening{Role: r, Protocol: p.Protocol, First: p.Number, Last: p.Number}) {
				return p.What()
			}
		}
	}
	return ""
}

// keys finds keys of the section for Hardtack that mean nothing.
func (l *linter) keys(u Unit) {
	known := []string{"Port", "Role"}
	for _, o := range u.Options {
		if o.Section != ownSection || slices.Contains(known, o.Name) {
			continue
		}
		hint := "its keys are " + strings.Join(known, " and ")
		if meant := near.To(o.Name, known); meant != "" {
			hint = "did you mean " + meant + "=?"
		}
		l.report(u, o, RulePort, hint, "[%s] has no key %s", ownSection, o.Name)
	}
}
