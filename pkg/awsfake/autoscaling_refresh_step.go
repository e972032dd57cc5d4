package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

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

// warmup is how long a new instance serves before it counts: as the refresh says, else the group's default warmup,
// else its grace period.
func (g *group) warmup(r *refresh) time.Duration {
	seconds := g.settings.Grace
	switch {
	case r.Warmup != nil:
		seconds = *r.Warmup
	case g.settings.Warmup >= 0:
		seconds = g.settings.Warmup
	}
	return time.Duration(seconds) * time.Second
}

// warm reports whether an instance counts as healthy: one that was there before always does.
func (s *AutoScaling) warm(g *group, r *refresh, i *instance) bool {
	return i.State == StateInService && (i.Old || i.since.Before(r.started) || s.now().Sub(i.since) >= g.warmup(r))
}

// updated counts the instances that need no replacement any more.
func (s *AutoScaling) updated(g *group, r *refresh) int {
	n := 0
	for _, i := range g.instances {
		if !i.Old && s.warm(g, r, i) {
			n++
		}
	}
	return min(n, r.total-min(g.old(), r.total))
}

// percent is how far a refresh has come. It goes down while it is rolled back.
func (s *AutoScaling) percent(g *group, r *refresh) int {
	switch {
	case r.total == 0:
		return 100
	case r.rollback != nil:
		return 100 * min(g.old(), r.total) / r.total
	}
	return 100 * s.updated(g, r) / r.total
}

// toUpdate is how many instances of those that a refresh began with it has not updated.
func (s *AutoScaling) toUpdate(g *group, r *refresh) int {
	if r.rollback != nil {
		return r.total - min(g.old(), r.total)
	}
	return r.total - s.updated(g, r)
}

// checkpoint is how many instances the refresh may replace before it waits, and whether it waits now.
func (s *AutoScaling) checkpoint(g *group, r *refresh) (target int, waits bool) {
	if r.status != refreshRunning || len(r.Checkpoints) == 0 {
		return r.total, false
	}
	upTo := func() int { return (r.total*r.Checkpoints[r.next] + 99) / 100 }
	for s.updated(g, r) >= upTo() && r.next < len(r.Checkpoints)-1 {
		if r.until.IsZero() {
			delay := defaultCheckpointDelay
			if r.CheckpointDelay != nil {
				delay = *r.CheckpointDelay
			}
			r.until = s.now().Add(time.Duration(delay) * time.Second)
			r.reason = fmt.Sprintf("Checkpoint of %d percent reached; the refresh goes on at %s.", r.Checkpoints[r.next], stamp(r.until))
			s.announceRefresh(EventRefreshCheckpoint, g, r)
			s.account.regional.agenda.after(time.Duration(delay)*time.Second, func() { s.settle(g) })
		}
		if s.now().Before(r.until) {
			return upTo(), true
		}
		r.next++
		r.until, r.reason = time.Time{}, ""
	}
	return upTo(), false
}

// refreshStep brings a group's refresh on as far as it may go now.
func (s *AutoScaling) refreshStep(g *group) {
	r := g.refreshing()
	if r == nil || r.status == refreshBaking {
		return
	}
	if r.status == refreshCancelling {
		busy := func(i *instance) bool {
			return strings.HasPrefix(i.State, StatePending) || strings.HasPrefix(i.State, StateTerminating)
		}
		if !slices.ContainsFunc(g.instances, busy) {
			s.endRefresh(g, r, refreshCancelled, EventRefreshCancelled)
		}
		return
	}
	if s.stuck(g, r) {
		return
	}
	target, waits := s.checkpoint(g, r)
	if waits {
		return
	}
	left := g.old() - (r.total - target)
	if left <= 0 {
		s.refreshed(g, r, target)
		return
	}
	s.replace(g, r, left)
}

// refreshed ends a refresh, once all that replaces something serves and is warm.
func (s *AutoScaling) refreshed(g *group, r *refresh, target int) {
	serving := 0
	for _, i := range g.instances {
		if s.warm(g, r, i) {
			serving++
		}
	}
	switch {
	case serving < g.Desired || s.updated(g, r) < min(target, g.Desired):
	case r.status == refreshRollback:
		s.endRefresh(g, r, refreshRolledBack, EventRefreshRollbackDone)
	case r.BakeTime != nil && *r.BakeTime > 0:
		r.status = refreshBaking
		s.account.regional.agenda.after(time.Duration(*r.BakeTime)*time.Second, func() {
			if r.status == refreshBaking {
				s.endRefresh(g, r, refreshDone, EventRefreshSucceeded)
			}
		})
	default:
		s.endRefresh(g, r, refreshDone, EventRefreshSucceeded)
	}
}

// healthy are the bounds, in instances, that a refresh keeps: how many serve at least, and how many there are at
// most. Without a maximum, one may always be missing; with one, another is launched first where the bounds would
// allow nothing (API reference, RefreshPreferences, MaxHealthyPercentage).
func (g *group) healthy(r *refresh) (lowest, highest int) {
	percent, most := defaultMinHealthy, -1
	if g.settings.MinHealthy >= 0 {
		percent, most = g.settings.MinHealthy, g.settings.MaxHealthy
	}
	if r.MinHealthy != nil {
		percent = *r.MinHealthy
	}
	if r.MaxHealthy != nil {
		most = *r.MaxHealthy
	}
	lowest = (g.Desired*percent + 99) / 100
	if most < 0 {
		return min(lowest, g.Desired-1), g.Desired
	}
	highest = g.Desired * most / 100
	if lowest == g.Desired && highest == g.Desired {
		highest++
	}
	return lowest, highest
}

// surge is how many instances a group has beyond its desired capacity while a refresh launches before it
// terminates.
func (s *AutoScaling) surge(g *group) int {
	r := g.refreshing()
	if r == nil || r.status != refreshRunning && r.status != refreshRollback || s.now().Before(r.until) {
		return 0
	}
	target, _ := s.checkpoint(g, r)
	_, highest := g.healthy(r)
	return max(0, min(highest-g.Desired, g.old()-(r.total-target)))
}

// replace ends as many old instances as may be missing.
func (s *AutoScaling) replace(g *group, r *refresh, left int) {
	serving := 0
	for _, i := range g.instances {
		if s.warm(g, r, i) {
			serving++
		}
	}
	lowest, _ := g.healthy(r)
	for _, i := range g.active() {
		if serving <= lowest || left <= 0 {
			return
		}
		if i.Old && i.State == StateInService {
			i.cause = fmt.Sprintf("At %s an instance was taken out of service in response to an instance refresh.", s.now().UTC().Format(eventTime))
			s.terminate(g, i)
			if i.State == StateInService {
				return // EC2 refuses
			}
			serving--
			left--
		}
	}
}

// stuck deals with what a refresh cannot get past: instances on standby, and launches that fail for an hour.
func (s *AutoScaling) stuck(g *group, r *refresh) bool {
	var standby []*instance
	for _, i := range g.instances {
		if i.State == StateStandby {
			standby = append(standby, i)
		}
	}
	if len(standby) == 0 {
		r.waiting = time.Time{}
	}
	if len(standby) > 0 && r.Standby == refreshTerminate {
		for _, i := range standby {
			s.terminate(g, i)
		}
	}
	if len(standby) > 0 && (r.Standby == "" || r.Standby == refreshWait) && g.old() == 0 {
		return s.patience(g, r, &r.waiting, "instances are in Standby")
	}
	return !r.failing.IsZero() && s.patience(g, r, &r.failing, "replacement instances could not be launched") && !r.active()
}

// patience fails a refresh for which something has been wrong for an hour, and reports that it has to wait.
func (s *AutoScaling) patience(g *group, r *refresh, since *time.Time, what string) bool {
	if since.IsZero() {
		*since = s.now()
		s.account.regional.agenda.after(refreshPatience, func() { s.settle(g) })
	}
	if s.now().Sub(*since) >= refreshPatience {
		s.failRefresh(g, r, fmt.Sprintf("The refresh cannot go on since %s: %s.", stamp(*since), what))
	}
	return true
}

func (s *AutoScaling) failRefresh(g *group, r *refresh, reason string) {
	r.reason = reason
	switch {
	case r.status == refreshRollback:
		s.endRefresh(g, r, refreshNoRollback, EventRefreshRollbackFailed)
	case r.AutoRollback:
		s.announceRefresh(EventRefreshFailed, g, r)
		s.rollBack(g, r, reason)
		return
	default:
		s.endRefresh(g, r, refreshFailed, EventRefreshFailed)
	}
}

// launchesFail notes that a launch has failed, or that one has succeeded again.
func (s *AutoScaling) launchesFail(g *group, fail bool) {
	r := g.refreshing()
	switch {
	case r == nil:
	case !fail:
		r.failing = time.Time{}
	case r.failing.IsZero():
		r.failing = s.now()
		s.account.regional.agenda.after(refreshPatience, func() { s.settle(g) })
	}
}
