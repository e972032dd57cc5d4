package awsfake

import "slices"

// managed finds the named instances of a group.
func (s *AutoScaling) managed(name string, ids []string) (*group, []*instance, error) {
	g, err := s.find(name)
	if err != nil {
		return nil, nil, err
	}
	var list []*instance
	for _, id := range ids {
		k := slices.IndexFunc(g.instances, func(i *instance) bool { return i.ID == id })
		if k < 0 {
			return nil, nil, malformed("The instance %s is not part of Auto Scaling group %s.", id, name)
		}
		list = append(list, g.instances[k])
	}
	return g, list, nil
}

// enterStandby takes instances out of service; they stay in the group. No event announces it.
func (s *AutoScaling) enterStandby(name string, ids []string, decrement bool) error {
	g, list, err := s.managed(name, ids)
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.State != StateInService {
			return malformed("The instance %s is not in InService.", i.ID)
		}
	}
	if decrement {
		if err := s.decrement(g, len(list)); err != nil {
			return err
		}
	}
	for _, i := range list {
		s.move(g, i, StateEnteringStandby)
		s.later(i, s.options.Step, func() {
			s.move(g, i, StateStandby)
			s.settle(g)
		})
	}
	s.settle(g)
	return nil
}

// exitStandby puts instances back into service, through Pending and its hooks, and raises the desired
// capacity by as many.
func (s *AutoScaling) exitStandby(name string, ids []string) error {
	g, list, err := s.managed(name, ids)
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.State != StateStandby {
			return malformed("The instance %s is not in Standby.", i.ID)
		}
	}
	if g.Desired+len(list) > g.Max {
		return malformed("AutoScalingGroup %s has max-size=%d, exiting standby for %d instance(s) would exceed it.", name, g.Max, len(list))
	}
	g.Desired += len(list)
	for _, i := range list {
		i.route = route{Destination: originGroup} // no launch is announced for what was launched long ago
		s.move(g, i, StatePending)
		s.later(i, s.options.Step, func() { s.launched(g, i) })
	}
	s.settle(g)
	return nil
}

// detach takes instances out of the group; their machines go on.
func (s *AutoScaling) detach(name string, ids []string, decrement bool) error {
	g, list, err := s.managed(name, ids)
	if err != nil {
		return err
	}
	for _, i := range list {
		if i.State != StateInService && i.State != StateStandby {
			return malformed("The instance %s is not in InService or Standby.", i.ID)
		}
	}
	if decrement {
		if err := s.decrement(g, len(list)); err != nil {
			return err
		}
	}
	for _, i := range list {
		s.begin(i, "At "+s.now().UTC().Format(eventTime)+" instance "+i.ID+" was detached in response to a user request.")
		i.route = route{originGroup, originEC2}
		s.move(g, i, StateDetaching)
		s.later(i, s.options.Step, func() {
			s.move(g, i, StateDetached)
			s.announce(EventDetach, g, i, eventStatusInProgress, "")
			s.settle(g)
		})
	}
	s.settle(g)
	return nil
}

// setHealth sets what the group thinks of an instance. No event announces it.
func (s *AutoScaling) setHealth(id, health string) error {
	g, i, err := s.byID(id)
	if err != nil {
		return err
	}
	if health != Healthy && health != Unhealthy {
		return malformed("Valid instance health states are: [Healthy, Unhealthy].")
	}
	i.Health = health
	if health == Unhealthy {
		i.cause = "At " + s.now().UTC().Format(eventTime) + " an instance was taken out of service in response to a user health-check."
		s.account.regional.agenda.after(s.options.HealthCheck, func() { s.settle(g) })
	}
	s.show(g)
	return nil
}

// terminateCall ends one instance, with or without a replacement.
func (s *AutoScaling) terminateCall(id string, decrement bool) (*group, *instance, error) {
	g, i, err := s.byID(id)
	if err != nil {
		return nil, nil, err
	}
	if !counts(i.State) && i.State != StateStandby && !isWarm(i.State) {
		return nil, nil, refuse("ScalingActivityInProgress", "The instance %s is already in %s.", id, i.State)
	}
	if decrement && counts(i.State) {
		if err := s.decrement(g, 1); err != nil {
			return nil, nil, err
		}
	}
	s.terminate(g, i)
	s.settle(g)
	return g, i, nil
}

// SetHealth sets what its group thinks of an instance: Healthy or Unhealthy.
func (s *AutoScaling) SetHealth(id, health string) (err error) {
	s.account.locked(func() { err = s.setHealth(id, health) })
	return err
}

// EnterStandby takes an instance out of service; decrement: without a replacement.
func (s *AutoScaling) EnterStandby(group, id string, decrement bool) (err error) {
	s.account.locked(func() { err = s.enterStandby(group, []string{id}, decrement) })
	return err
}

// ExitStandby puts an instance back into service.
func (s *AutoScaling) ExitStandby(group, id string) (err error) {
	s.account.locked(func() { err = s.exitStandby(group, []string{id}) })
	return err
}

// Terminate ends an instance; decrement: without a replacement.
func (s *AutoScaling) Terminate(id string, decrement bool) (err error) {
	s.account.locked(func() { _, _, err = s.terminateCall(id, decrement) })
	return err
}
