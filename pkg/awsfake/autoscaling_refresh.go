package awsfake

import (
	"fmt"
	"time"
)

// The states of an instance refresh that are modelled (API reference, InstanceRefreshStatus).
const (
	refreshRunning   = "InProgress"
	refreshDone      = "Successful"
	refreshCancelled = "Cancelled"
)

// refresh is one rolling replacement of a group's instances.
type refresh struct {
	id             string
	minHealthy     int
	status         string
	started, ended time.Time
	total          int
}

// startRefresh marks every instance as old; refreshStep replaces them a few at a time.
func (s *AutoScaling) startRefresh(name string, minHealthy int) (string, error) {
	g, err := s.find(name)
	if err != nil {
		return "", err
	}
	if minHealthy < 0 || minHealthy > 100 {
		return "", malformed("MinHealthyPercentage must be between 0 and 100, is %d", minHealthy)
	}
	if r := g.refreshing(); r != nil {
		return "", refuse("InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh.")
	}
	s.serial++
	r := &refresh{id: uuidOf("refresh", s.serial), minHealthy: minHealthy, status: refreshRunning, started: s.now()}
	for _, i := range g.active() {
		i.Old = true
		r.total++
	}
	g.refreshes = append(g.refreshes, r)
	s.announceRefresh(EventRefreshStarted, g, r)
	s.account.regional.agenda.after(0, func() { s.settle(g) })
	return r.id, nil
}

// StartRefresh begins the rolling replacement of a group's instances and returns its id.
func (s *AutoScaling) StartRefresh(name string, minHealthyPercent int) (id string, err error) {
	s.account.locked(func() { id, err = s.startRefresh(name, minHealthyPercent) })
	return id, err
}

func (g *group) refreshing() *refresh {
	if n := len(g.refreshes); n > 0 && g.refreshes[n-1].status == refreshRunning {
		return g.refreshes[n-1]
	}
	return nil
}

// old counts the instances that a refresh has still to replace.
func (g *group) old() int {
	n := 0
	for _, i := range g.instances {
		if i.Old && counts(i.State) {
			n++
		}
	}
	return n
}

// refreshStep ends as many old instances as the minimum of healthy ones allows, at least one at a time
// as AWS does where the percentage would allow none.
func (s *AutoScaling) refreshStep(g *group) {
	r := g.refreshing()
	if r == nil {
		return
	}
	serving := 0
	for _, i := range g.instances {
		if i.State == StateInService {
			serving++
		}
	}
	if g.old() == 0 {
		if serving >= g.Desired {
			r.status, r.ended = refreshDone, s.now()
			s.announceRefresh(EventRefreshSucceeded, g, r)
		}
		return
	}
	floor := min((g.Desired*r.minHealthy+99)/100, g.Desired-1)
	for _, i := range g.active() {
		if serving <= floor {
			return
		}
		if i.Old && i.State == StateInService {
			i.cause = fmt.Sprintf("At %s an instance was taken out of service in response to an instance refresh.", s.now().UTC().Format(eventTime))
			s.terminate(g, i)
			serving--
		}
	}
}

func (s *AutoScaling) cancelRefresh(name string) (string, error) {
	g, err := s.find(name)
	if err != nil {
		return "", err
	}
	r := g.refreshing()
	if r == nil {
		return "", refuse("ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found for Auto Scaling group %s", name)
	}
	r.status, r.ended = refreshCancelled, s.now()
	for _, i := range g.instances {
		i.Old = false
	}
	s.announceRefresh(EventRefreshCancelled, g, r)
	return r.id, nil
}

func (s *AutoScaling) announceRefresh(detailType string, g *group, r *refresh) {
	s.account.regional.events.emit(detailType, []string{g.arn}, refreshDetail{InstanceRefreshID: r.id, AutoScalingGroupName: g.Name})
}
