package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Action is the kind of a step.
type Action string

// The actions.
const (
	// Finished means that nothing is left to do.
	Finished Action = "finished"
	// Wait waits for a change that happens without us, such as a machine that boots.
	Wait Action = "wait"
	// Point sets the version of the launch template from which the group launches machines.
	Point Action = "point"
	// Replace ends a machine; its group launches another.
	Replace Action = "replace"
	// Start starts AutoScaling's refresh of the group to version To. If it fails, AutoScaling rolls it back to From.
	Start Action = "start"
	// Watch waits for AutoScaling's refresh, which is under way.
	Watch Action = "watch"
)

// Step is the next step of a rollout and its reason.
type Step struct {
	Action Action `json:"action"`
	// Group is the name of the AutoScaling group, Machine an instance id; empty if the step is about none.
	Group   string `json:"group,omitempty"`
	Machine string `json:"machine,omitempty"`
	// From and To are versions of the group's launch template. If From is 0, a failed refresh is not rolled back.
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
	// Percent is the progress of a watched refresh.
	Percent int    `json:"percent,omitempty"`
	Reason  string `json:"reason"`
}

// Next decides the next step for the groups in only, by either of their names; empty is all groups. A machine of etcd is
// replaced only while all members report that they are in order, unless its group is in lose.
func Next(s State, only, lose []string) Step {
	var control, pools []Group
	for _, g := range s.ordered() {
		switch {
		case !g.Chosen(only):
		case g.Control():
			control = append(control, g)
		default:
			pools = append(pools, g)
		}
	}
	for _, g := range control {
		if g.Launches.Number != g.Wanted.Number {
			return Step{Action: Point, Group: g.Name, From: g.Launches.Number, To: g.Wanted.Number,
				Reason: fmt.Sprintf("it launches machines of version %d", g.Launches.Number)}
		}
	}
	if step, ok := s.handover(control); ok {
		return step
	}
	if step, ok := nextControl(s, control, lose); ok {
		return step
	}
	for _, g := range pools {
		if step, ok := nextPool(s, g); ok {
			return step
		}
	}
	return Step{Action: Finished, Reason: "every machine is as wanted"}
}

// Chosen reports whether only has either name of the group, or is empty.
func (g Group) Chosen(only []string) bool { return len(only) == 0 || g.in(only) }

func (g Group) in(names []string) bool {
	return slices.Contains(names, g.Name) || slices.Contains(names, g.Key)
}

// nextControl returns the next step for groups of the control plane; false if nothing is left to do for them.
func nextControl(s State, chosen []Group, lose []string) (Step, bool) {
	first := slices.IndexFunc(chosen, func(g Group) bool { return len(g.Stale()) > 0 })
	short := shortfalls(s)
	if first < 0 && !slices.ContainsFunc(short, func(f shortfall) bool { return f.group.chosenFrom(chosen) }) {
		return Step{}, false // nothing to do, or not ours to wait for: nextPool decides
	}
	if len(short) == 1 && short[0].one && short[0].group.chosenFrom(chosen) {
		// Begin with the machine that does not serve: replacing it costs no redundancy.
		if m, ok := short[0].group.replaceable(); ok {
			return s.replace(short[0].group, m, "is "+m.condition()+" and not as wanted: ", lose), true
		}
	}
	if len(short) > 0 {
		return Step{Action: Wait, Group: short[0].group.Name, Reason: short[0].text}, true
	}
	if s.API != "" {
		return Step{Action: Wait, Reason: "the API servers are not ready: " + s.API}, true
	}
	return s.replace(chosen[first], chosen[first].Stale()[0], "differs: ", lose), true
}

func (g Group) chosenFrom(groups []Group) bool {
	return slices.ContainsFunc(groups, func(other Group) bool { return other.Name == g.Name })
}

// replace is the step that ends a machine, or waits until no member of etcd stands against it.
func (s State) replace(g Group, m Machine, why string, lose []string) Step {
	if g.Roles.Has(role.Etcd) && !g.in(lose) {
		if in, text := s.unfit(g); text != "" {
			return Step{Action: Wait, Group: in.Name, Reason: text}
		}
	}
	return Step{Action: Replace, Group: g.Name, Machine: m.ID, From: m.From.Number, To: g.Wanted.Number,
		Reason: why + strings.Join(g.Lacks(m), ", ")}
}

// shortfall is a group of the control plane with fewer serving machines than desired.
type shortfall struct {
	group Group
	// one is whether it lacks one, in whose place it has a machine that does not serve.
	one  bool
	text string
}

// shortfalls checks the machines of the whole control plane, also groups that were not chosen: a quorum counts all members.
func shortfalls(s State) []shortfall {
	var out []shortfall
	for _, g := range s.ordered() {
		if !g.Control() {
			continue
		}
		missing := g.Desired - g.serving()
		i := slices.IndexFunc(g.Machines, func(m Machine) bool { return !m.serves() })
		switch {
		case i >= 0:
			out = append(out, shortfall{g, missing <= 1, fmt.Sprintf("%s of %s is %s", g.Machines[i].ID, g.Name, g.Machines[i].condition())})
		case missing > 0:
			out = append(out, shortfall{group: g, text: fmt.Sprintf("%s has %d of %d machines", g.Name, len(g.Machines), g.Desired)})
		case g.Roles.Has(role.Etcd) && g.Member == "" && g.Desired > 1:
			out = append(out, shortfall{group: g, text: g.Name + " has several machines of etcd without a member's name"})
		}
	}
	return out
}

// replaceable returns the group's only machine that does not serve, if it is out of date and not already terminating.
func (g Group) replaceable() (Machine, bool) {
	var found []Machine
	for _, m := range g.Machines {
		if !m.serves() {
			found = append(found, m)
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0].State, "Pending") && found[0].State != inService || len(g.Lacks(found[0])) == 0 {
		return Machine{}, false
	}
	return found[0], true
}

// condition says why a machine does not serve.
func (m Machine) condition() string {
	switch {
	case m.State != inService:
		return m.State
	case !m.Running:
		return "not running"
	case !m.Healthy:
		return "unhealthy"
	}
	return "not in DNS"
}

// nextPool returns the next step for a group that AutoScaling refreshes; false if nothing is left to do for it.
func nextPool(s State, g Group) (Step, bool) {
	if g.Refresh.Active() {
		return Step{Action: Watch, Group: g.Name, To: g.Refresh.To, Percent: g.Refresh.Percent,
			Reason: strings.TrimSpace(fmt.Sprintf("%s, %d %% %s", g.Refresh.Status, g.Refresh.Percent, g.Refresh.Reason)) + g.waiting()}, true
	}
	if !g.Behind() {
		return g.gone()
	}
	if short := shortfalls(s); len(short) > 0 {
		return Step{Action: Wait, Group: short[0].group.Name, Reason: short[0].text + ", and new machines need it"}, true
	}
	if len(g.Stale()) == 0 {
		return Step{Action: Point, Group: g.Name, From: g.Launches.Number, To: g.Wanted.Number, Reason: "its machines are as wanted already"}, true
	}
	return Step{Action: Start, Group: g.Name, From: g.rollbackVersion(), To: g.Wanted.Number, Reason: "differs: " + strings.Join(g.Why(), ", ")}, true
}

// waiting names the machines that wait for their hooks, for a reason that another precedes; empty if none does.
func (g Group) waiting() string {
	var ids []string
	for _, m := range g.Machines {
		if m.State == terminatingWait {
			ids = append(ids, m.ID)
		}
	}
	switch {
	case len(ids) == 0:
		return ""
	case g.Drain > 0:
		return fmt.Sprintf("; held for their pods, for at most %s each: %s", g.Drain, strings.Join(ids, ", "))
	}
	return "; held by hooks: " + strings.Join(ids, ", ")
}

// gone waits until the machines that were replaced have ended: AutoScaling calls a refresh successful before, and their pods
// still run. False if none is left.
func (g Group) gone() (Step, bool) {
	for _, m := range g.Machines {
		if len(g.Lacks(m)) > 0 {
			return Step{Action: Wait, Group: g.Name, Reason: fmt.Sprintf("%s is %s%s", m.ID, m.State, g.waiting())}, true
		}
	}
	return Step{}, false
}

// rollbackVersion is the common version of all out-of-date machines of the group; 0 if they have several.
func (g Group) rollbackVersion() int {
	back := 0
	for _, m := range g.Stale() {
		if back != 0 && m.From.Number != back {
			return 0
		}
		back = m.From.Number
	}
	return back
}
