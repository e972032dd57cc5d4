package awsfake

import "strings"

// WarmPool is a group's pool of machines that are ready to be taken.
type WarmPool struct {
	Min int
	// Prepared is how many instances group and pool have together; below zero it is the group's maximum.
	Prepared int
	// State is "Stopped", "Running" or "Hibernated".
	State string
	// Reuse returns instances to the pool on scale in.
	Reuse bool
}

// isWarm reports whether an instance is ready in a pool.
func isWarm(state string) bool {
	return state == Warmed+"Stopped" || state == Warmed+"Running" || state == Warmed+"Hibernated"
}

// PutPool gives a group a warm pool.
func (s *AutoScaling) PutPool(name string, p WarmPool) (err error) {
	s.account.locked(func() { err = s.putPool(name, p) })
	return err
}

func (s *AutoScaling) putPool(name string, p WarmPool) error {
	g, err := s.find(name)
	if err != nil {
		return err
	}
	if p.State == "" {
		p.State = "Stopped"
	}
	if p.State != "Stopped" && p.State != "Running" && p.State != "Hibernated" || p.Min < 0 {
		return malformed("Invalid warm pool: state %s, minimum %d", p.State, p.Min)
	}
	g.pool = &p
	s.settle(g)
	return nil
}

// fillPool brings the pool to its size: what is prepared less the desired capacity, and its minimum.
func (s *AutoScaling) fillPool(g *group) {
	var pooled []*instance
	for _, i := range g.instances {
		if isWarm(i.State) || strings.HasPrefix(i.State, Warmed+StatePending) {
			pooled = append(pooled, i)
		}
	}
	size := 0
	if g.pool != nil {
		prepared := g.pool.Prepared
		if prepared < 0 {
			prepared = g.Max
		}
		size = max(g.pool.Min, prepared-g.Desired)
	}
	for n := len(pooled); n < size; n++ {
		if !s.launch(g, Warmed+StatePending, route{originEC2, originPool}) {
			return
		}
	}
	for n := len(pooled); n > size; n-- {
		if victim := pooled[n-1]; isWarm(victim.State) {
			s.terminate(g, victim)
		}
	}
}

// returnToPool begins an instance's way back. It waits for hooks on termination in Warmed:Pending:Wait
// ("Warm pool example events", scale-in): the event looks like a termination but for its destination.
func (s *AutoScaling) returnToPool(g *group, i *instance) {
	s.begin(i, "At "+s.now().UTC().Format(eventTime)+" instance "+i.ID+" was selected for return to the warm pool.")
	i.route = route{originGroup, originPool}
	s.move(g, i, Warmed+StatePending)
	s.later(i, s.options.Step, func() { s.hold(g, i, transitionTerminating) })
}

// poolReady puts an instance into the pool. Whether it was launched or has returned, its event says.
func (s *AutoScaling) poolReady(g *group, i *instance) {
	state, event := "Stopped", EventLaunch
	if g.pool != nil {
		state = g.pool.State
	}
	if i.route.Origin == originGroup {
		event = EventTerminate
	}
	s.move(g, i, Warmed+state)
	if state != "Running" {
		s.ec2().stop(i.ID)
	}
	s.announce(event, g, i, eventStatusInProgress, "")
}
