package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// retry is how long a group rests after EC2 has refused a launch or a termination.
const retry = time.Minute

// counts reports whether an instance in this state counts towards the desired capacity.
func counts(state string) bool {
	return state == StateInService || state == StatePending || strings.HasPrefix(state, StatePending+":")
}

// settle starts whatever brings the group nearer to what is wanted of it. It may be called at any time.
func (s *AutoScaling) settle(g *group) {
	if s.groups[g.Name] != g {
		return // deleted meanwhile
	}
	for _, i := range slices.Clone(g.instances) {
		if i.State == StateInService && i.Health == Unhealthy {
			s.terminate(g, i)
		}
	}
	s.refreshStep(g)
	active := g.active()
	want := g.Desired + s.surge(g)
	for n := len(active); n < want; n++ {
		if !s.scaleOut(g) {
			break
		}
	}
	for n := len(active); n > want; n-- {
		s.scaleIn(g)
	}
	s.fillPool(g)
	s.show(g)
}

// active lists the instances that count, the oldest first.
func (g *group) active() []*instance {
	var list []*instance
	for _, i := range g.instances {
		if counts(i.State) {
			list = append(list, i)
		}
	}
	return list
}

// scaleOut adds one instance, from the warm pool where one is ready.
func (s *AutoScaling) scaleOut(g *group) bool {
	for _, i := range g.instances {
		if isWarm(i.State) {
			i.route = route{originPool, originGroup}
			s.begin(i, fmt.Sprintf("At %s an instance was started in response to a difference between desired and actual capacity.", s.now().UTC().Format(eventTime)))
			s.move(g, i, StatePending)
			s.ec2().start(i.ID)
			s.later(i, s.options.Step, func() { s.launched(g, i) })
			return true
		}
	}
	return s.launch(g, StatePending, route{originEC2, originGroup})
}

// launch starts a machine for the group or its pool; false where EC2 refuses, or has a moment ago.
func (s *AutoScaling) launch(g *group, state string, way route) bool {
	if s.now().Before(g.resting) {
		return false
	}
	cause := fmt.Sprintf("At %s an instance was started in response to a difference between desired and actual capacity, increasing the capacity from %d to %d.",
		s.now().UTC().Format(eventTime), len(g.active()), len(g.active())+1)
	at, err := s.choose(g)
	var m Machine
	var from LaunchRef
	if err == nil {
		m, from, err = s.run(g, at)
	}
	if err != nil {
		s.launchesFail(g, true)
		i := &instance{Instance: Instance{Group: g.Name, Zone: at.zone}, route: way}
		s.begin(i, cause)
		s.announce(EventLaunchFailed, g, i, eventStatusFailed, err.Error())
		s.rest(g)
		return false
	}
	i := &instance{Instance: Instance{ID: m.ID, Group: g.Name, Zone: at.zone, Health: Healthy, Template: from}, actions: map[string]*action{}, route: way}
	s.begin(i, cause)
	g.instances = append(g.instances, i)
	s.move(g, i, state)
	s.later(i, s.options.Step, func() { s.launched(g, i) })
	return true
}

func (s *AutoScaling) refused(what string, g *group) error {
	if s.options.Refuse == nil {
		return nil
	}
	return s.options.Refuse(what, g.Name)
}

// rest pauses launches and tries again later.
func (s *AutoScaling) rest(g *group) {
	g.resting = s.now().Add(retry)
	s.account.regional.agenda.after(retry, func() { s.settle(g) })
}

// begin opens an activity of an instance.
func (s *AutoScaling) begin(i *instance, cause string) {
	s.serial++
	i.activity, i.cause, i.started = uuidOf("activity", s.serial), cause, s.now()
}

// scaleIn takes one instance out: an unhealthy one, else the oldest that serves, else the oldest.
func (s *AutoScaling) scaleIn(g *group) {
	active := g.active()
	rank := func(i *instance) int {
		switch {
		case i.Health == Unhealthy:
			return 0
		case i.State == StateInService:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(active, func(a, b *instance) int { return rank(a) - rank(b) })
	victim := active[0]
	if g.pool != nil && g.pool.Reuse && victim.State == StateInService && victim.Health == Healthy {
		s.returnToPool(g, victim)
		return
	}
	s.terminate(g, victim)
}

// terminate begins the end of an instance. Where EC2 refuses, it stays and the group tries again.
func (s *AutoScaling) terminate(g *group, i *instance) {
	cause := i.cause
	if i.Health != Unhealthy {
		cause = fmt.Sprintf("At %s instance %s was selected for termination.", s.now().UTC().Format(eventTime), i.ID)
	}
	if s.now().Before(g.resting) && s.options.Refuse != nil {
		return
	}
	if err := s.refused("terminate", g); err != nil {
		s.begin(i, cause)
		s.announce(EventTerminateFailed, g, i, eventStatusFailed, err.Error())
		s.rest(g)
		return
	}
	prefix, origin := "", originGroup
	if strings.HasPrefix(i.State, Warmed) {
		prefix, origin = Warmed, originPool
	}
	s.begin(i, cause)
	i.route = route{origin, originEC2}
	i.actions = map[string]*action{}
	s.move(g, i, prefix+StateTerminating)
	s.later(i, s.options.Step, func() { s.hold(g, i, transitionTerminating) })
}

// announce emits the event of an activity's end.
func (s *AutoScaling) announce(detailType string, g *group, i *instance, status, message string) {
	m, _ := s.ec2().machine(i.ID)
	subnet := m.Subnet
	if subnet == "" {
		subnet = "subnet-" + hexID("subnet "+i.Zone, 0, 17)
	}
	descriptions := map[string]string{
		EventLaunch: "Launching a new EC2 instance: " + i.ID, EventTerminate: "Terminating EC2 instance: " + i.ID, EventDetach: "Detaching EC2 instance: " + i.ID,
	}
	s.finished(g, i, descriptions[detailType], status, message)
	resources := []string{g.arn}
	if i.ID != "" {
		resources = append(resources, fmt.Sprintf("arn:aws:ec2:%s:%s:instance/%s", homeRegion, owner, i.ID))
	}
	s.account.regional.events.emit(detailType, resources, scalingDetail{
		StatusCode: status, Description: descriptions[detailType], AutoScalingGroupName: g.Name, ActivityID: i.activity,
		Details: scalingDetails{i.Zone, subnet}, RequestID: i.activity, StatusMessage: message,
		EndTime: s.now().UTC().Format(eventTime), EC2InstanceID: i.ID, StartTime: i.started.UTC().Format(eventTime), Cause: i.cause, route: i.route,
	})
}

// setDesired changes the desired capacity within the group's limits.
func (s *AutoScaling) setDesired(g *group, desired int) error {
	if desired > g.Max {
		return malformed("New SetDesiredCapacity value %d is above max value %d for the AutoScalingGroup.", desired, g.Max)
	}
	if desired < g.Min {
		return malformed("New SetDesiredCapacity value %d is below min value %d for the AutoScalingGroup.", desired, g.Min)
	}
	g.Desired = desired
	s.settle(g)
	return nil
}

// decrement lowers the desired capacity by n where the group's minimum allows it.
func (s *AutoScaling) decrement(g *group, n int) error {
	if g.Desired-n < g.Min {
		return malformed("Currently, desiredSize equals minSize (%d). Terminating instance(s) without replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.", g.Min)
	}
	g.Desired -= n
	return nil
}

// SetDesired changes a group's desired capacity.
func (s *AutoScaling) SetDesired(name string, desired int) (err error) {
	s.account.locked(func() {
		var g *group
		if g, err = s.find(name); err == nil {
			err = s.setDesired(g, desired)
		}
	})
	return err
}
