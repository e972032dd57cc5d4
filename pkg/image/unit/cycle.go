package unit

import (
	"slices"
	"strings"
)

// edge says that one unit is started before another.
type edge struct {
	before, after string
	// at is the assignment that says so; its zero value is systemd's or the distribution's own ordering.
	at Option
}

// distribution is the ordering of the units around ours, each chain from early to late: what systemd 252
// to 257 and Debian's cloud-init ship. Only units that Hardtack's units can be ordered between are listed.
var distribution = [][]string{
	{"local-fs-pre.target", "local-fs.target", "systemd-tmpfiles-setup.service", "sysinit.target", "basic.target",
		"multi-user.target", "graphical.target"},
	{"systemd-remount-fs.service", "local-fs-pre.target"},
	{"systemd-remount-fs.service", "systemd-sysusers.service", "systemd-tmpfiles-setup.service"},
	{"systemd-sysusers.service", "systemd-networkd.service"},
	{"systemd-modules-load.service", "systemd-sysctl.service", "systemd-networkd.service", "network.target",
		"network-online.target", "multi-user.target"},
	{"systemd-sysctl.service", "sysinit.target"},
	{"systemd-udevd.service", "systemd-udev-trigger.service", "sysinit.target"},
	{"systemd-udevd.service", "systemd-networkd.service"},
	{"systemd-journald.socket", "systemd-journald.service", "sysinit.target"},
	{"network-pre.target", "systemd-networkd.service", "systemd-networkd-wait-online.service", "network-online.target"},
	{"systemd-resolved.service", "nss-lookup.target", "multi-user.target"},
	{"sysinit.target", "systemd-timesyncd.service", "time-set.target", "time-sync.target"},
	{"sysinit.target", "dbus.socket", "sockets.target", "basic.target"},
	{"slices.target", "basic.target"},
	{"sysinit.target", "paths.target", "basic.target"},
	{"sysinit.target", "timers.target", "multi-user.target"},
	{"basic.target", "remote-fs.target", "multi-user.target"},
	{"basic.target", "getty.target", "multi-user.target"},
	{"cloud-init-local.service", "network-pre.target"},
	{"cloud-init-local.service", "cloud-init.service", "network-online.target", "cloud-config.service",
		"cloud-final.service", "cloud-init.target"},
	{"multi-user.target", "cloud-final.service"},
}

// edges returns every ordering that concerns the units. It is the same for every role: systemd orders the
// start jobs before it looks at any condition.
func (l *linter) edges() []edge {
	var all []edge
	for _, chain := range distribution {
		for i := range len(chain) - 1 {
			all = append(all, edge{before: chain[i], after: chain[i+1]})
		}
	}
	for _, u := range l.units {
		all = append(all, ownEdges(u)...)
		all = append(all, l.defaultEdges(u)...)
	}
	return all
}

// ownEdges are the orderings that the unit's assignments declare.
func ownEdges(u Unit) []edge {
	var all []edge
	for _, o := range u.words("Unit", "After") {
		all = append(all, edge{before: o.Value, after: u.Name, at: o})
	}
	for _, o := range u.words("Unit", "Before") {
		all = append(all, edge{before: u.Name, after: o.Value, at: o})
	}
	return all
}

// defaultEdges are what systemd adds: a service comes after the early boot, a socket, timer or path before
// its target, a target after what it wants, everything after its slice.
func (l *linter) defaultEdges(u Unit) []edge {
	var all []edge
	if o := u.Value(section(u), "Slice"); o.Value != "" {
		all = append(all, edge{before: o.Value, after: u.Name, at: o})
	}
	if !u.defaultDependencies() {
		return all
	}
	all = append(all, kindEdges(u)...)
	if u.Kind() == "target" {
		for _, o := range u.words("Unit", "Wants", "Requires", "Requisite", "BindsTo", "Upholds") {
			all = append(all, l.targetEdges(u.Name, o.Value, o)...)
		}
	}
	for _, o := range u.words("Install", "WantedBy", "RequiredBy", "UpheldBy") {
		if strings.HasSuffix(o.Value, ".target") {
			all = append(all, l.targetEdges(o.Value, u.Name, o)...)
		}
	}
	return all
}

// kindEdges are what systemd adds for the unit's kind alone.
func kindEdges(u Unit) []edge {
	switch u.Kind() {
	case "service":
		return []edge{{before: "sysinit.target", after: u.Name}, {before: "basic.target", after: u.Name}}
	case "socket", "timer", "path":
		return []edge{{before: "sysinit.target", after: u.Name}, {before: u.Name, after: u.Kind() + "s.target"}}
	}
	return nil
}

// plainTargets are those targets of the distribution that have no default dependencies.
var plainTargets = []string{"local-fs.target", "remote-fs.target", "timers.target"}

// targetEdges puts a target after a unit that it wants, as systemd does, unless one of them has no default dependencies, or the target
// comes before the unit already (systemd's src/core/unit.c, unit_add_default_target_dependency: "Don't create loops").
func (l *linter) targetEdges(target, wanted string, at Option) []edge {
	// The zero Unit stands for one of the distribution's.
	t, _ := l.find(target)
	u, _ := l.find(wanted)
	declared := u.lists("After", target) || t.lists("Before", wanted) || slices.Contains(kindEdges(u), edge{before: target, after: wanted})
	if declared || !t.defaultDependencies() || !u.defaultDependencies() || slices.Contains(plainTargets, target) {
		return nil
	}
	return []edge{{before: wanted, after: target, at: at}}
}

// cycles finds orderings that lead back to where they begin. systemd breaks such a circle by dropping a
// start job, whose unit then just does not run. Each circle is reported once, at the first assignment of
// ours on it.
func (l *linter) cycles() {
	all := l.edges()
	next := map[string][]string{}
	for _, e := range all {
		next[e.before] = append(next[e.before], e.after)
	}
	seen := map[string]bool{}
	for _, e := range all {
		if e.at.Line == 0 {
			continue
		}
		way := shortest(next, e.after, e.before)
		if way == nil {
			continue
		}
		members := slices.Clone(way)
		slices.Sort(members)
		key := strings.Join(slices.Compact(members), " ")
		if seen[key] {
			continue
		}
		seen[key] = true
		l.report(Unit{}, e.at, RuleCycle, "drop one of these orderings: systemd would drop a start job",
			"%s= closes an ordering cycle: %s comes before %s", e.at.Name, strings.Join(way, " before "), way[0])
	}
}

// shortest returns the units on the shortest way between two, both ends with it; nil where there is none.
func shortest(next map[string][]string, from, to string) []string {
	came := map[string]string{from: from}
	queue := []string{from}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		if at == to {
			return wayBack(came, from, to)
		}
		for _, n := range next[at] {
			if _, been := came[n]; !been {
				came[n] = at
				queue = append(queue, n)
			}
		}
	}
	return nil
}

func wayBack(came map[string]string, from, to string) []string {
	way := []string{to}
	for at := to; at != from; at = came[at] {
		way = append(way, came[at])
	}
	slices.Reverse(way)
	return way
}
