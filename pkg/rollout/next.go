package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what is to be done next.
type Action string

// The actions.
const (
	// Finished: nothing is left to do.
	Finished Action = "finished"
	// Wait: something has to happen by itself first.
	Wait Action = "wait"
	// Point: the group is to launch machines of version To.
	Point Action = "point"
	// Replace: the machine is to be ended; its group launches another.
	Replace Action = "replace"
	// Start: AutoScaling is to refresh the group, to version To, and back to From where that fails.
	Start Action = "start"
	// Watch: a refresh of AutoScaling's is under way.
	Watch Action = "watch"
)

// Step is what is to be done next, and why.
type Step struct {
	Action Action `json:"action"`
	// Group is AutoScaling's name, Machine an instance id; empty where the step is not about one.
	Group   string `json:"group,omitempty"`
	Machine string `json:"machine,omitempty"`
	// From and To are versions of the group's launch template. From 0: there is no way back.
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
	// Percent is how far a refresh has come that is watched.
	Percent int    `json:"percent,omitempty"`
	Reason  string `json:"reason"`
}

// Next decides what is to be done next for the groups that are named, by either of their names; none named are all.
func Next(s State, only []string) Step {
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
	if step, ok := nextControl(s, control); ok {
		return step
	}
	for _, g := range pools {
		if step, ok := nextPool(s, g); ok {
			return step
		}
	}
	return Step{Action: Finished, Reason: "every machine is as wanted"}
}

// Chosen reports whether the group is named, by either of its names; none named are all.
func (g Group) Chosen(only []string) bool {
	return len(only) == 0 || slices.Contains(only, g.Name) || slices.Contains(only, g.Key)
}

// nextControl is the step of the control plane's groups; false where they have none left.
func nextControl(s State, chosen []Group) (Step, bool) {
	stale := false
	for _, g := range chosen {
		stale = stale || len(g.Stale()) > 0
	}
	gaps := gaps(s)
	switch {
	case !stale && len(gaps) == 0:
		return Step{}, false
	case !stale && !slices.ContainsFunc(gaps, func(gap gap) bool { return gap.group.chosenFrom(chosen) }):
		return Step{}, false // not ours to wait for; nextPool decides
	}
	if len(gaps) == 1 && gaps[0].open == 1 && gaps[0].group.chosenFrom(chosen) {
		// The seat that is not filled is the one to begin with: its machine serves nobody.
		if m, ok := gaps[0].group.idle(); ok {
			return replace(gaps[0].group, m, "is "+m.doing()+" and not as wanted: "), true
		}
	}
	if len(gaps) > 0 {
		return Step{Action: Wait, Group: gaps[0].group.Name, Reason: gaps[0].text}, true
	}
	if s.API != "" {
		return Step{Action: Wait, Reason: "the API servers are not ready: " + s.API}, true
	}
	for _, g := range chosen {
		if m := g.Stale(); len(m) > 0 {
			return replace(g, m[0], "differs: "), true
		}
	}
	return Step{}, false
}

func (g Group) chosenFrom(groups []Group) bool {
	return slices.ContainsFunc(groups, func(other Group) bool { return other.Name == g.Name })
}

func replace(g Group, m Machine, why string) Step {
	return Step{Action: Replace, Group: g.Name, Machine: m.ID, From: m.From.Number, To: g.Wanted.Number,
		Reason: why + strings.Join(m.From.Differs(g.Wanted), ", ")}
}

// gap is a group of the control plane in which not every seat is filled.
type gap struct {
	group Group
	open  int
	text  string
}

// gaps looks at all of the control plane, whatever was chosen: a quorum is of all members.
func gaps(s State) []gap {
	var out []gap
	for _, g := range s.ordered() {
		if !g.Control() {
			continue
		}
		open := g.Desired - g.serving()
		for _, m := range g.Machines {
			if !m.serves() {
				out = append(out, gap{g, max(open, 1), fmt.Sprintf("%s of %s is %s", m.ID, g.Name, m.doing())})
				break
			}
		}
		switch {
		case len(out) > 0 && out[len(out)-1].group.Name == g.Name:
		case open > 0:
			out = append(out, gap{g, open, fmt.Sprintf("%s has %d of %d machines", g.Name, len(g.Machines), g.Desired)})
		case g.Roles.Has("etcd") && g.Member == "" && g.Desired > 1:
			out = append(out, gap{g, 1, g.Name + " has several machines of etcd without a member's name"})
		}
	}
	return out
}

// idle is the group's one machine that does not serve, is not on its way out and is not as wanted.
func (g Group) idle() (Machine, bool) {
	var found []Machine
	for _, m := range g.Machines {
		if !m.serves() {
			found = append(found, m)
		}
	}
	if len(found) != 1 || !strings.HasPrefix(found[0].State, "Pending") && found[0].State != inService || len(found[0].From.Differs(g.Wanted)) == 0 {
		return Machine{}, false
	}
	return found[0], true
}

// doing is what keeps a machine from serving.
func (m Machine) doing() string {
	switch {
	case m.State != inService:
		return m.State
	case !m.Running:
		return "not running"
	case !m.Healthy:
		return "unhealthy"
	case !m.Published:
		return "not in DNS"
	}
	return "in service"
}

// nextPool is the step of a group that AutoScaling refreshes; false where it has none left.
func nextPool(s State, g Group) (Step, bool) {
	if g.Refresh.Active() {
		return Step{Action: Watch, Group: g.Name, To: g.Refresh.To, Percent: g.Refresh.Percent,
			Reason: strings.TrimSpace(fmt.Sprintf("%s, %d %% %s", g.Refresh.Status, g.Refresh.Percent, g.Refresh.Reason))}, true
	}
	if !g.Behind() {
		return Step{}, false
	}
	if gaps := gaps(s); len(gaps) > 0 {
		return Step{Action: Wait, Group: gaps[0].group.Name, Reason: gaps[0].text + ", and new machines need it"}, true
	}
	if len(g.Stale()) == 0 {
		return Step{Action: Point, Group: g.Name, From: g.Launches.Number, To: g.Wanted.Number, Reason: "its machines are as wanted already"}, true
	}
	return Step{Action: Start, Group: g.Name, From: g.wayBack(), To: g.Wanted.Number, Reason: "differs: " + strings.Join(g.Why(), ", ")}, true
}

// wayBack is the version that all machines of the group have which are not as wanted; 0 where they have several.
func (g Group) wayBack() int {
	back := 0
	for _, m := range g.Stale() {
		if back != 0 && m.From.Number != back {
			return 0
		}
		back = m.From.Number
	}
	return back
}
