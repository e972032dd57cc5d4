package awsfake

import (
	"fmt"
	"strings"
	"time"
)

// The results of a lifecycle action.
const (
	Continue = "CONTINUE"
	Abandon  = "ABANDON"
)

// The limits of hooks (API reference, PutLifecycleHook: 30 to 7200 s, 3600 by default, in all 48 h or a
// hundred heartbeats).
const (
	minHeartbeat     = 30 * time.Second
	maxHeartbeat     = 7200 * time.Second
	defaultHeartbeat = 3600 * time.Second
	maxHold          = 48 * time.Hour
	maxHeartbeats    = 100
)

// Hook is a lifecycle hook. Zero values are the API's defaults: one hour, ABANDON.
type Hook struct {
	Name       string
	Transition string // "autoscaling:EC2_INSTANCE_LAUNCHING" or "…_TERMINATING"
	Heartbeat  time.Duration
	Default    string
	Metadata   string
	Target     string
	Role       string
}

// action is a pending lifecycle action of one instance.
type action struct {
	hook  Hook
	token string
	// until is when the default result is taken, limit how far heartbeats can move it.
	until, limit time.Time
}

// PutHook adds or replaces a hook of a group. Pending lifecycle actions keep the hook they started with.
func (s *AutoScaling) PutHook(name string, h Hook) (err error) {
	s.account.locked(func() { err = s.putHook(name, h) })
	return err
}

func (s *AutoScaling) putHook(name string, h Hook) error {
	g, err := s.find(name)
	if err != nil {
		return err
	}
	if old, ok := g.hooks[h.Name]; ok && h.Transition == "" {
		h.Transition = old.Transition
	}
	h, err = h.checked()
	if err == nil {
		g.hooks[h.Name] = h
	}
	return err
}

// checked returns the hook with defaults filled in, or AutoScaling's refusal.
func (h Hook) checked() (Hook, error) {
	if h.Heartbeat == 0 {
		h.Heartbeat = defaultHeartbeat
	}
	if h.Default == "" {
		h.Default = Abandon
	}
	switch {
	case h.Name == "":
		return h, malformed("LifecycleHookName is required")
	case h.Transition != transitionLaunching && h.Transition != transitionTerminating:
		return h, malformed("Invalid LifecycleTransition: %s", h.Transition)
	case h.Heartbeat < minHeartbeat || h.Heartbeat > maxHeartbeat:
		return h, malformed("HeartbeatTimeout must be between %d and %d seconds", int(minHeartbeat.Seconds()), int(maxHeartbeat.Seconds()))
	case h.Default != Continue && h.Default != Abandon:
		return h, malformed("Invalid DefaultResult: %s", h.Default)
	}
	return h, nil
}

// startActions starts the lifecycle actions of a transition, or goes on if the group has no hook for it.
func (s *AutoScaling) startActions(g *group, i *instance, transition string) {
	var hooks []Hook
	for _, name := range sortedKeys(g.hooks) {
		if g.hooks[name].Transition == transition {
			hooks = append(hooks, g.hooks[name])
		}
	}
	if len(hooks) == 0 {
		s.finish(g, i)
		return
	}
	i.actions = map[string]*action{}
	for _, h := range hooks {
		s.serial++
		a := &action{hook: h, token: uuidOf("token", s.serial), until: s.now().Add(h.Heartbeat), limit: s.now().Add(min(maxHold, maxHeartbeats*h.Heartbeat))}
		i.actions[h.Name] = a
	}
	s.move(g, i, i.State+":Wait")
	for _, h := range hooks {
		a := i.actions[h.Name]
		s.watch(g, i, a)
		detailType := EventLaunchAction
		if transition == transitionTerminating {
			detailType = EventTerminateAction
		}
		s.account.regional.events.emit(detailType, []string{g.arn}, actionDetail{
			LifecycleActionToken: a.token, AutoScalingGroupName: g.Name, LifecycleHookName: h.Name, EC2InstanceID: i.ID,
			LifecycleTransition: transition, NotificationMetadata: h.Metadata, route: i.route,
		})
	}
}

// watch takes an action's default result when its time is over.
func (s *AutoScaling) watch(g *group, i *instance, a *action) {
	s.later(i, a.until.Sub(s.now()), func() {
		switch {
		case i.actions[a.hook.Name] != a:
		case s.now().Before(a.until):
			s.watch(g, i, a)
		default:
			s.complete(g, i, a, a.hook.Default)
		}
	})
}

// complete ends an action. ABANDON ends the instance's other actions too.
func (s *AutoScaling) complete(g *group, i *instance, a *action, result string) {
	delete(i.actions, a.hook.Name)
	if result == Abandon {
		i.actions = map[string]*action{}
	}
	if len(i.actions) > 0 {
		return
	}
	if result == Abandon && a.hook.Transition == transitionLaunching {
		s.abandon(g, i, a)
		return
	}
	s.move(g, i, strings.TrimSuffix(i.State, ":Wait")+":Proceed")
	s.later(i, s.options.Step, func() { s.finish(g, i) })
}

// abandon ends an instance whose launch was abandoned; the group will launch another. AWS does not say whether
// termination hooks run then; here they do, which is the harder case.
func (s *AutoScaling) abandon(g *group, i *instance, a *action) {
	message := fmt.Sprintf("Instance failed to complete user's Lifecycle Action: Lifecycle Action with token %s was abandoned: Lifecycle Action Completed with ABANDON Result", a.token)
	s.announce(EventLaunchFailed, g, i, eventStatusFailed, message)
	s.launchesFail(g, true)
	s.terminate(g, i)
	s.settle(g)
}

// launched starts the launch actions of an instance whose machine runs, or waits for the hypervisor to start it.
func (s *AutoScaling) launched(g *group, i *instance) {
	switch m, _ := s.ec2().machine(i.ID); {
	case s.ec2().options.Hypervisor == nil || m.State == MachineRunning:
		s.startActions(g, i, transitionLaunching)
	case m.State == MachinePending:
		i.boots = true
	default:
		s.launchLost(g, i)
	}
}

// finish ends a transition once its lifecycle actions are complete.
func (s *AutoScaling) finish(g *group, i *instance) {
	if strings.TrimSuffix(i.State, ":Proceed") == StatePending {
		s.move(g, i, StateInService)
		s.launchesFail(g, false)
		if r := g.refreshing(); r != nil && g.warmup(r) > 0 {
			s.later(i, g.warmup(r), func() { s.settle(g) })
		}
		s.announce(EventLaunch, g, i, eventStatusInProgress, "")
	} else {
		s.move(g, i, StateTerminated)
		s.ec2().terminate(i.ID)
		s.announce(EventTerminate, g, i, eventStatusInProgress, "")
	}
	s.settle(g)
}

// findAction finds a lifecycle action by its token, or by the instance's ID if token is empty.
func (s *AutoScaling) findAction(name, hook, token, id string) (*group, *instance, *action, error) {
	g, err := s.find(name)
	if err != nil {
		return nil, nil, nil, err
	}
	if token == "" && id == "" {
		return nil, nil, nil, malformed("Either LifecycleActionToken or InstanceId must be given")
	}
	for _, i := range g.instances {
		a, ok := i.actions[hook]
		if ok && (token != "" && a.token == token || token == "" && i.ID == id) {
			return g, i, a, nil
		}
	}
	if token != "" {
		return nil, nil, nil, malformed("No active Lifecycle Action found with token %s", token)
	}
	return nil, nil, nil, malformed("No active Lifecycle Action found with instance ID %s", id)
}

// Complete ends a pending lifecycle action of an instance with CONTINUE or ABANDON.
func (s *AutoScaling) Complete(groupName, hook, id, result string) (err error) {
	s.account.locked(func() { err = s.completeCall(groupName, hook, "", id, result) })
	return err
}

func (s *AutoScaling) completeCall(name, hook, token, id, result string) error {
	if result != Continue && result != Abandon {
		return malformed("LifecycleActionResult must be CONTINUE or ABANDON, is %q", result)
	}
	g, i, a, err := s.findAction(name, hook, token, id)
	if err != nil {
		return err
	}
	s.complete(g, i, a, result)
	return nil
}

// heartbeat gives an action another heartbeat timeout from now, up to its limit.
func (s *AutoScaling) heartbeat(name, hook, token, id string) error {
	_, _, a, err := s.findAction(name, hook, token, id)
	if err != nil {
		return err
	}
	a.until = s.now().Add(a.hook.Heartbeat)
	if a.until.After(a.limit) {
		a.until = a.limit
	}
	return nil
}
