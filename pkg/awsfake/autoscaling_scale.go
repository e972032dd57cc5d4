package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// retry is how long a group pauses launches after EC2 has refused a launch or a termination.
const retry = time.Minute

// counts reports whether an instance in this state counts towards the desired capacity.
func counts(state string) bool {
	return state == StateInService || state == StatePending || strings.HasPrefix(state, StatePending+":")
}

// settle launches and terminates machines towards the group's desired state. It may be called at any time.
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
	active, wanted := g.active(), g.Desired+g.ahead()
	for n := len(active); n < wanted; n++ {
		if !s.launch(g) {
			break
		}
	}
	for n := len(active); n > wanted; n-- {
		s.scaleIn(g)
	}
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

// launch starts a machine for the group; false if EC2 refuses, or has refused less than a minute ago.
func (s *AutoScaling) launch(g *group) bool {
	if s.now().Before(g.pausedUntil) {
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
		i := &instance{Instance: Instance{Group: g.Name, Zone: at.zone}, route: route{originEC2, originGroup}}
		s.begin(i, cause, textLaunch)
		s.announce(EventLaunchFailed, g, i, eventStatusFailed, err.Error())
		s.pauseLaunches(g)
		return false
	}
	i := &instance{Instance: Instance{ID: m.ID, Group: g.Name, Zone: at.zone, Type: m.Type, Health: Healthy, Template: from}, actions: map[string]*action{}, route: route{originEC2, originGroup}}
	s.begin(i, cause, textLaunch)
	g.instances = append(g.instances, i)
	s.move(g, i, StatePending)
	s.later(i, s.options.Step, func() { s.launched(g, i) })
	return true
}

func (s *AutoScaling) refused(what string, g *group) error {
	if s.options.Refuse == nil {
		return nil
	}
	return s.options.Refuse(what, g.Name)
}

// pauseLaunches pauses launches for a minute and then tries again.
func (s *AutoScaling) pauseLaunches(g *group) {
	g.pausedUntil = s.now().Add(retry)
	s.account.regional.agenda.after(retry, func() { s.settle(g) })
}

// begin opens an activity of an instance.
func (s *AutoScaling) begin(i *instance, cause, what string) {
	s.serial++
	i.activity, i.cause, i.started = uuidOf("activity", s.serial), cause, s.now()
	s.open(i, what)
}

// scaleIn terminates one instance: an unhealthy one, else the oldest in service, else the oldest.
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
	s.terminate(g, active[0])
}

// terminate begins the end of an instance. Where EC2 refuses, it stays and the group tries again.
func (s *AutoScaling) terminate(g *group, i *instance) {
	cause := i.cause
	if i.Health != Unhealthy {
		cause = fmt.Sprintf("At %s instance %s was selected for termination.", s.now().UTC().Format(eventTime), i.ID)
	}
	if s.now().Before(g.pausedUntil) && s.options.Refuse != nil {
		return
	}
	if err := s.refused("terminate", g); err != nil {
		s.begin(i, cause, textTerminate)
		s.announce(EventTerminateFailed, g, i, eventStatusFailed, err.Error())
		s.pauseLaunches(g)
		return
	}
	s.begin(i, cause, textTerminate)
	i.route = route{originGroup, originEC2}
	i.actions = map[string]*action{}
	s.move(g, i, StateTerminating)
	s.later(i, s.options.Step, func() { s.startActions(g, i, transitionTerminating) })
}

// announce emits the event of an activity's end.
func (s *AutoScaling) announce(detailType string, g *group, i *instance, status, message string) {
	g.close(i, s.now(), status, message)
	m, _ := s.ec2().machine(i.ID)
	subnet := m.Subnet
	if subnet == "" {
		subnet = "subnet-" + hexID("subnet "+i.Zone, 0, 17)
	}
	descriptions := map[string]string{
		EventLaunch: "Launching a new EC2 instance: " + i.ID, EventTerminate: "Terminating EC2 instance: " + i.ID,
	}
	resources := []string{g.arn}
	if i.ID != "" {
		resources = append(resources, fmt.Sprintf("arn:aws:ec2:%s:%s:instance/%s", HomeRegion, owner, i.ID))
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

// decrement lowers the desired capacity by one where the group's minimum allows it.
func (s *AutoScaling) decrement(g *group) error {
	if g.Desired <= g.Min {
		return malformed("Currently, desiredSize equals minSize (%d). Terminating instance(s) without replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size.", g.Min)
	}
	g.Desired--
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

// terminateCall ends one instance, with or without a replacement.
func (s *AutoScaling) terminateCall(id string, decrement bool) (*group, *instance, error) {
	g, i, err := s.byID(id)
	if err != nil {
		return nil, nil, err
	}
	if !counts(i.State) {
		return nil, nil, refuse("ScalingActivityInProgress", "The instance %s is already in %s.", id, i.State)
	}
	if decrement {
		if err := s.decrement(g); err != nil {
			return nil, nil, err
		}
	}
	s.terminate(g, i)
	s.settle(g)
	return g, i, nil
}

// Terminate ends an instance; with decrement, without a replacement.
func (s *AutoScaling) Terminate(id string, decrement bool) (err error) {
	s.account.locked(func() { _, _, err = s.terminateCall(id, decrement) })
	return err
}
