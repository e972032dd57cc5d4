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

// warmup is how long a new instance serves before it counts: as the refresh says, else the group's grace period.
func (g *group) warmup(r *refresh) time.Duration {
	seconds := g.settings.Grace
	if r.Warmup != nil {
		seconds = *r.Warmup
	}
	return time.Duration(seconds) * time.Second
}

// warm reports whether an instance counts as healthy. An instance that is older than the refresh always does.
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

// percent returns a refresh's progress. It decreases during a rollback.
func (s *AutoScaling) percent(g *group, r *refresh) int {
	switch {
	case r.total == 0:
		return 100
	case r.rollback != nil:
		return 100 * min(g.old(), r.total) / r.total
	}
	return 100 * s.updated(g, r) / r.total
}

// toUpdate returns how many of the instances at the start of the refresh are not updated yet.
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

// refreshStep advances a group's refresh as far as possible now.
func (s *AutoScaling) refreshStep(g *group) {
	r := g.refreshing()
	if r == nil {
		return
	}
	if r.status == refreshCancelling {
		r.ahead = 0
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
		r.ahead = 0
		return
	}
	left := g.old() - (r.total - target)
	r.ahead = max(0, left)
	if left <= 0 {
		s.refreshed(g, r, target)
		return
	}
	s.replace(g, r, left)
	r.ahead = max(0, g.old()-(r.total-target))
}

// refreshed ends a refresh once all replacements are in service and warm.
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
	default:
		s.endRefresh(g, r, refreshDone, EventRefreshSucceeded)
	}
}

// healthy returns how many instances a refresh leaves in service. One may always be missing, unless MaxHealthyPercentage is
// given: then what cannot be replaced otherwise is launched ahead (API reference, RefreshPreferences).
func (g *group) healthy(r *refresh) int {
	percent := defaultMinHealthy
	if r.MinHealthy != nil {
		percent = *r.MinHealthy
	}
	lowest := (g.Desired*percent + 99) / 100
	if r.MaxHealthy != nil {
		return lowest
	}
	return min(lowest, g.Desired-1)
}

// ahead returns how many instances a group's refresh has beyond the desired capacity: those that MaxHealthyPercentage allows, and
// one where both percentages leave no way to replace any. Whether these may exceed the group's maximum is not documented; the
// harder reading is that they may not, and such a refresh makes no progress.
func (g *group) ahead() int {
	r := g.refreshing()
	if r == nil || r.MaxHealthy == nil || !r.active() {
		return 0
	}
	most := g.Desired * *r.MaxHealthy / 100
	if most == g.Desired && g.healthy(r) >= g.Desired {
		most++
	}
	return max(0, min(most-g.Desired, r.ahead, g.Max-g.Desired))
}

// replace terminates as many old instances as the healthy percentage allows.
func (s *AutoScaling) replace(g *group, r *refresh, left int) {
	serving := 0
	for _, i := range g.instances {
		if s.warm(g, r, i) {
			serving++
		}
	}
	lowest := g.healthy(r)
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

// stuck fails a refresh whose launches have failed for an hour, and reports whether it did.
func (s *AutoScaling) stuck(g *group, r *refresh) bool {
	return !r.failing.IsZero() && s.patience(g, r, &r.failing, "replacement instances could not be launched") && !r.active()
}

// patience fails a refresh whose problem has lasted an hour. It always returns true: the refresh has to wait.
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
