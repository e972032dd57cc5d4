package unit

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The rules of findings.
const (
	RuleSyntax      = "syntax"
	RuleSection     = "section"
	RuleRole        = "role-condition"
	RuleTarget      = "role-on-target"
	RuleOrder       = "role-order"
	RuleDependency  = "role-dependency"
	RuleEnvironment = "environment"
	RuleExec        = "exec"
	RuleAssert      = "assert"
	RuleCycle       = "cycle"
	RuleInstall     = "install"
	RuleProfile     = "profile"
	RulePort        = "port"
)

// Tree knows the files of the image besides the units.
type Tree interface {
	// Has reports whether an absolute path exists in the image: a file, a directory or a link.
	Has(path string) bool
}

// Lint checks the units of one image together and returns every finding, sorted. Units that are named
// and are not among them are taken to be the distribution's, and to be started for every role.
func Lint(units []Unit, tree Tree) problem.List {
	l := linter{units: units, tree: tree, sets: role.Combinations(ownRoles(units)...)}
	for _, u := range units {
		l.sections(u)
		l.role(u)
		l.order(u)
		l.dependencies(u)
		l.environment(u)
		l.execs(u)
		l.asserts(u)
		l.install(u)
	}
	l.cycles()
	l.ownRoles()
	l.ports()
	l.profiles()
	l.found.Sort()
	return l.found
}

type linter struct {
	units []Unit
	tree  Tree
	sets  []role.Set // every combination of roles that matters to one unit or two
	found problem.List
}

// report adds a finding at an assignment of the unit, or at the whole file for the zero Option.
func (l *linter) report(u Unit, at Option, rule, hint, format string, args ...any) {
	p := problem.Problem{File: u.File, Line: at.Line, Rule: rule, Hint: hint, Text: fmt.Sprintf(format, args...)}
	if at.File != "" {
		p.File = at.File
	}
	l.found.Add(p)
}

func (l *linter) find(name string) (Unit, bool) {
	i := slices.IndexFunc(l.units, func(u Unit) bool { return u.Name == name })
	if i < 0 {
		return Unit{}, false
	}
	return l.units[i], true
}

// needsCondition reports whether a unit of this kind must have a role's condition: what starts something does,
// slices and targets do not.
func needsCondition(u Unit) bool {
	return u.Kind() != "slice" && u.Kind() != "target"
}

// sectionsOf lists the sections that systemd reads in a unit of a kind.
func sectionsOf(kind string) []string {
	own := strings.ToUpper(kind[:1]) + kind[1:]
	return []string{"Unit", "Install", own}
}

// sections finds sections that systemd would skip with no more than a log line.
func (l *linter) sections(u Unit) {
	known, seen := sectionsOf(u.Kind()), map[string]bool{}
	for _, o := range u.Options {
		if slices.Contains(known, o.Section) || strings.HasPrefix(o.Section, "X-") || seen[o.Section] {
			continue
		}
		seen[o.Section] = true
		l.report(u, o, RuleSection, "the sections of a "+u.Kind()+" are "+strings.Join(known, ", "),
			"section [%s] is not read in a %s", o.Section, u.Kind())
	}
}

// role finds units that not exactly one role decides, conditions that name no known role, and
// conditions on targets, which keep nothing from starting.
func (l *linter) role(u Unit) {
	named, unknown := false, false
	for _, c := range u.conditions() {
		if !c.aboutRole() {
			continue
		}
		named = true
		_, _, err := role.OfFile(path.Clean(c.operand))
		if err != nil && c.Name != "ConditionPathExistsGlob" {
			unknown = true
			l.report(u, c.Option, RuleRole, "a role file is "+role.Masters.File()+", for example", "%v", err)
		}
		if u.Kind() == "target" {
			l.report(u, c.Option, RuleTarget, "put the condition into each unit that the target wants",
				"a role's condition on a target keeps none of its units from starting")
		}
	}
	if _, one := u.Role(); one || unknown || !needsCondition(u) {
		return
	}
	if u.EveryMachine() && !named {
		return
	}
	l.reportRole(u, named)
}

// ownRoles finds roles of an operator's own whose name differs by a slip, unless a unit says in [X-Hardtack] that it is meant.
func (l *linter) ownRoles() {
	roles := ownRoles(l.units)
	for _, u := range l.units {
		r, ok := u.Role()
		if !ok {
			continue
		}
		// Hardtack's own are near to none of them: role.Parse sees to it.
		meant := near.Typo(string(r), strings.Fields(role.Join(roles, " ")))
		if meant != "" && u.Value(ownSection, "Role").Value != string(r) {
			l.report(u, u.conditions()[0].Option, RuleRole, "if both are meant, say so in each: Role="+string(r)+" in [X-Hardtack]",
				"the roles %s and %s are nearly the same name", r, meant)
		}
	}
}

// profiles finds units by which readiness is told, and that the image has not, or for another role.
func (l *linter) profiles() {
	if _, complete := l.find(UserData); !complete {
		return // some units alone, and no image's
	}
	for _, r := range role.All() {
		for _, named := range r.Profile().Units {
			u, ok := l.find(named.Name)
			own, _ := u.Role() // a unit that is not there has none, and is no machine's
			switch {
			case named.Proof == role.NoProof, u.EveryMachine(), own == r:
			case !ok:
				l.found.Add(problem.Problem{File: named.Name, Rule: RuleProfile, Hint: "leave it in the image, or put another unit of this name into its place",
					Text: fmt.Sprintf("the image has not this unit, by which a machine with the role %s gets ready", r)})
			default:
				l.report(u, Option{}, RuleProfile, "add ConditionPathExists="+r.File(), "a machine with the role %s gets ready by %s, and it does not start there", r, u.Name)
			}
		}
	}
}

// reportRole reports what is wrong with the role of u: no condition, or one that does not select a single role.
func (l *linter) reportRole(u Unit, named bool) {
	if !named {
		l.report(u, Option{}, RuleRole,
			"add ConditionPathExists="+role.Masters.File()+", or Role=any in [X-Hardtack] if every machine runs it",
			"no role decides whether %s starts", u.Name)
		return
	}
	var sets []string
	for _, s := range l.sets {
		if u.Starts(s) {
			sets = append(sets, s.String())
		}
	}
	when := "never starts"
	if len(sets) > 0 {
		when = "starts for " + strings.Join(sets, ", ")
	}
	first := u.conditions()[0].Option
	l.report(u, first, RuleRole, "role files add up: let one role's file alone decide",
		"%s belongs to no single role: it %s", u.Name, when)
}

// aboutRole reports whether the condition looks at role files, known or not.
func (c condition) aboutRole() bool {
	_, about := c.holds(nil)
	return about
}

// order finds role units whose condition could be looked at before the role file is written.
func (l *linter) order(u Unit) {
	if !needsCondition(u) || u.EveryMachine() {
		return
	}
	for _, after := range u.words("Unit", "After") {
		if after.Value == UserData {
			return
		}
	}
	l.report(u, u.Value("Unit", "After"), RuleOrder, "add After="+UserData,
		"%s is not ordered after %s, so that its condition may be looked at before the role file is there", u.Name, UserData)
}

// pulls are the settings by which a unit depends on another, or stops with it.
var pulls = []string{"Requires", "Requisite", "BindsTo", "Wants", "PartOf", "Upholds"}

// dependencies finds units that depend on a unit that does not run on every machine where they run.
func (l *linter) dependencies(u Unit) {
	for _, dep := range u.words("Unit", pulls...) {
		other, _ := l.find(dep.Value) // one that is not among ours is the zero Unit, which starts everywhere
		for _, set := range l.sets {
			if u.Starts(set) && !other.Starts(set) {
				l.report(u, dep, RuleDependency, "order after it without requiring it, or drop it",
					"%s= names %s, which does not start on a machine with %s, where %s does",
					dep.Name, other.Name, set, u.Name)
				break
			}
		}
	}
}

// environment finds environment files that the image lacks, and role files of another role.
func (l *linter) environment(u Unit) {
	own, hasRole := u.Role()
	for _, o := range u.Values(section(u), "EnvironmentFile") {
		file, optional := strings.CutPrefix(o.Value, "-")
		if optional {
			continue
		}
		r, named, _ := role.OfFile(file)
		switch {
		case hasRole && r == own:
		case named:
			l.report(u, o, RuleEnvironment, "a unit reads the file of its own role, others only with - before the path",
				"%s is not there on every machine on which %s starts", file, u.Name)
		case l.tree.Has(file), awaited(u, file):
		default:
			l.report(u, o, RuleEnvironment, "add it under images/rootfs, or put - before the path",
				"environment file %s is not in the image", file)
		}
	}
}

// awaited reports whether the unit is not started while a file of this boot is missing.
func awaited(u Unit, file string) bool {
	return strings.HasPrefix(file, "/run/") && slices.ContainsFunc(u.conditions(), func(c condition) bool {
		return c.Name == "ConditionPathExists" && !c.trigger && !c.negate && c.operand == file
	})
}

// section is the section of the unit's own kind.
func section(u Unit) string { return sectionsOf(u.Kind())[2] }

// install finds units that nothing would start. Slices start with the units in them.
func (l *linter) install(u Unit) {
	if needsCondition(u) && !u.enabled() && !slices.ContainsFunc(l.units, func(t Unit) bool { return t.enabled() && t.triggeredUnit() == u.Name }) {
		l.report(u, Option{}, RuleInstall, "add [Install] with WantedBy=multi-user.target",
			"nothing starts %s: it has no WantedBy=, RequiredBy= or UpheldBy=", u.Name)
	}
}
