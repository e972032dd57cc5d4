package awsfake

import (
	"slices"
	"strings"
	"time"
)

// The states of an instance refresh (API reference, InstanceRefreshStatus). Pending is passed at once.
const (
	refreshRunning    = "InProgress"
	refreshDone       = "Successful"
	refreshFailed     = "Failed"
	refreshCancelling = "Cancelling"
	refreshCancelled  = "Cancelled"
	refreshRollback   = "RollbackInProgress"
	refreshRolledBack = "RollbackSuccessful"
	refreshNoRollback = "RollbackFailed"
	refreshBaking     = "Baking"
)

// The events of refreshes beyond start, success and cancellation
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/instance-refresh-eventbridge-events.html).
const (
	EventRefreshCheckpoint        = "EC2 Auto Scaling Instance Refresh Checkpoint Reached"
	EventRefreshFailed            = "EC2 Auto Scaling Instance Refresh Failed"
	EventRefreshRollback          = "EC2 Auto Scaling Instance Refresh Rollback Started"
	EventRefreshRollbackDone      = "EC2 Auto Scaling Instance Refresh Rollback Succeeded"
	EventRefreshRollbackFailed    = "EC2 Auto Scaling Instance Refresh Rollback Failed"
	refreshPatience               = time.Hour // how long launches may fail, or standby instances be waited for
	defaultCheckpointDelay        = 3600
	defaultMinHealthy             = 90
	refreshWait, refreshTerminate = "Wait", "Terminate"
)

// refreshPreferences are how a refresh goes about it; the alarms of the API are not modelled.
type refreshPreferences struct {
	MinHealthy      *int   `cfn:"MinHealthyPercentage" xml:"MinHealthyPercentage"`
	MaxHealthy      *int   `cfn:"MaxHealthyPercentage" xml:"MaxHealthyPercentage"`
	Warmup          *int   `cfn:"InstanceWarmup" xml:"InstanceWarmup"`
	Checkpoints     []int  `cfn:"CheckpointPercentages" xml:"CheckpointPercentages>member"`
	CheckpointDelay *int   `cfn:"CheckpointDelay" xml:"CheckpointDelay"`
	SkipMatching    bool   `cfn:"SkipMatching" xml:"SkipMatching"`
	AutoRollback    bool   `cfn:"AutoRollback" xml:"AutoRollback"`
	Protected       string `cfn:"ScaleInProtectedInstances" xml:"ScaleInProtectedInstances,omitempty"`
	Standby         string `cfn:"StandbyInstances" xml:"StandbyInstances,omitempty"`
	BakeTime        *int   `cfn:"BakeTime" xml:"BakeTime"`
}

// refresh is one rolling replacement of a group's instances.
type refresh struct {
	id, status, reason string
	refreshPreferences
	// desired is what the group is to launch from once the refresh has succeeded; nil is what it has.
	desired *LaunchRef
	// total is how many instances the group had at the start.
	total   int
	started time.Time
	refreshWaits
	refreshEnd
	rollback *rollback
}

// refreshWaits are what a refresh waits for.
type refreshWaits struct {
	// next is the number of the next checkpoint, until when the last one is waited at.
	next  int
	until time.Time
	// failing is since when launches fail, waiting since when standby instances are waited for.
	failing, waiting time.Time
}

// refreshEnd is what a refresh had come to when it ended.
type refreshEnd struct {
	ended             time.Time
	percent, toUpdate int
}

// rollback is what a refresh was like when it was rolled back.
type rollback struct {
	Reason   string `xml:"RollbackReason"`
	Started  string `xml:"RollbackStartTime"`
	Percent  int    `xml:"PercentageCompleteOnRollback"`
	ToUpdate int    `xml:"InstancesToUpdateOnRollback"`
}

func (r *refresh) active() bool {
	return slices.Contains([]string{refreshRunning, refreshCancelling, refreshRollback, refreshBaking}, r.status)
}

func (g *group) refreshing() *refresh {
	if n := len(g.refreshes); n > 0 && g.refreshes[n-1].active() {
		return g.refreshes[n-1]
	}
	return nil
}

// StartRefresh begins the rolling replacement of a group's instances and returns its id.
func (s *AutoScaling) StartRefresh(name string, minHealthyPercent int) (id string, err error) {
	s.account.locked(func() { id, err = s.startRefresh(name, refreshPreferences{MinHealthy: &minHealthyPercent}, nil) })
	return id, err
}

// startRefresh marks every instance as old that has to go; refreshStep replaces them a few at a time.
func (s *AutoScaling) startRefresh(name string, wants refreshPreferences, desired *LaunchRef) (string, error) {
	g, err := s.find(name)
	if err != nil {
		return "", err
	}
	if g.refreshing() != nil {
		return "", refuse("InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh.")
	}
	if err := wants.check(); err != nil {
		return "", err
	}
	if desired != nil {
		full, err := s.fullRef(*desired)
		if err != nil {
			return "", err
		}
		desired = &full
	}
	if why := s.irreversible(g, desired); wants.AutoRollback && why != "" {
		return "", malformed("AutoRollback is not supported: %s", why)
	}
	s.serial++
	r := &refresh{id: uuidOf("refresh", s.serial), refreshPreferences: wants, desired: desired, status: refreshRunning, started: s.now()}
	g.refreshes = append(g.refreshes, r)
	target := g.template()
	for _, i := range g.active() {
		r.total++
		i.Old = !wants.SkipMatching || !s.matches(i, target)
	}
	s.announceRefresh(EventRefreshStarted, g, r)
	s.account.regional.agenda.after(0, func() { s.settle(g) })
	return r.id, nil
}

func healthyBounds(lowest, highest int) error {
	switch {
	case lowest > 100:
		return malformed("MinHealthyPercentage must be between 0 and 100, is %d", lowest)
	case highest >= 0 && (highest < 100 || highest > 200):
		return malformed("MaxHealthyPercentage must be between 100 and 200, is %d", highest)
	case highest >= 0 && lowest < 0:
		return malformed("You must specify MinHealthyPercentage when you specify MaxHealthyPercentage")
	case highest >= 0 && highest-lowest > 100:
		return malformed("The difference between MinHealthyPercentage and MaxHealthyPercentage cannot be greater than 100")
	}
	return nil
}

// check refuses preferences that contradict each other (API reference, RefreshPreferences).
func (w refreshPreferences) check() error {
	lowest, highest := -1, -1
	if w.MinHealthy != nil {
		lowest = *w.MinHealthy
		if lowest < 0 {
			return malformed("MinHealthyPercentage must be between 0 and 100, is %d", lowest)
		}
	}
	if w.MaxHealthy != nil {
		highest = max(*w.MaxHealthy, 0)
	}
	if err := healthyBounds(lowest, highest); err != nil {
		return err
	}
	last := 0
	for _, percent := range w.Checkpoints {
		if percent <= last || percent > 100 {
			return malformed("CheckpointPercentages must be unique, in ascending order and from 1 to 100")
		}
		last = percent
	}
	for _, f := range []struct {
		name    string
		value   *int
		highest int
	}{{"CheckpointDelay", w.CheckpointDelay, 172800}, {"BakeTime", w.BakeTime, 172800}, {"InstanceWarmup", w.Warmup, 172800}} {
		if f.value != nil && (*f.value < 0 || *f.value > f.highest) {
			return malformed("%s must be between 0 and %d seconds, is %d", f.name, f.highest, *f.value)
		}
	}
	switch {
	case w.CheckpointDelay != nil && len(w.Checkpoints) == 0:
		return malformed("You must specify CheckpointPercentages when you specify CheckpointDelay")
	case !slices.Contains([]string{"", refreshWait, "Ignore", refreshTerminate}, w.Standby):
		return malformed("Invalid StandbyInstances: %s", w.Standby)
	case !slices.Contains([]string{"", refreshWait, "Ignore", "Refresh"}, w.Protected):
		return malformed("Invalid ScaleInProtectedInstances: %s", w.Protected)
	}
	return nil
}

// irreversible is why a group's refresh could not be rolled back; empty: it could (API reference,
// RollbackInstanceRefresh).
func (s *AutoScaling) irreversible(g *group, desired *LaunchRef) string {
	was := g.settings.Template
	if desired == nil {
		return "There is no desired configuration specified for the instance refresh."
	}
	if was.Version == versionLatest || was.Version == versionDefault {
		return "The Auto Scaling group uses the launch template's " + was.Version + " version."
	}
	if _, v, err := s.ec2().resolved(LaunchRef{ID: was.ID, Version: was.Version}); err != nil || strings.HasPrefix(v.Data.Image, "resolve:ssm:") {
		return "The Auto Scaling group's launch template uses a Systems Manager parameter instead of an AMI ID."
	}
	return ""
}

// running finds the refresh that a call is about.
func (s *AutoScaling) running(name string) (*group, *refresh, error) {
	g, err := s.find(name)
	if err != nil {
		return nil, nil, err
	}
	r := g.refreshing()
	if r == nil {
		return nil, nil, refuse("ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found for Auto Scaling group %s", name)
	}
	return g, r, nil
}

// cancelRefresh stops a refresh or its rollback. What was replaced stays replaced, and the group launches from what
// it had before. Unless told otherwise it ends once nothing is under way.
func (s *AutoScaling) cancelRefresh(name string, wait bool) (string, error) {
	g, r, err := s.running(name)
	if err != nil {
		return "", err
	}
	r.status, r.reason = refreshCancelling, "Cancelled due to user request"
	if !wait {
		s.endRefresh(g, r, refreshCancelled, EventRefreshCancelled)
	}
	s.account.regional.agenda.after(0, func() { s.settle(g) })
	return r.id, nil
}

// RollbackRefresh undoes what a group's refresh has done so far.
func (s *AutoScaling) RollbackRefresh(name string) (id string, err error) {
	s.account.locked(func() { id, err = s.rollbackRefresh(name) })
	return id, err
}

func (s *AutoScaling) rollbackRefresh(name string) (string, error) {
	g, r, err := s.running(name)
	if err != nil {
		return "", err
	}
	if r.status != refreshRunning && r.status != refreshBaking {
		return "", refuse("ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found for Auto Scaling group %s", name)
	}
	if why := s.irreversible(g, r.desired); why != "" {
		return "", refuse("IrreversibleInstanceRefresh", "%s", why)
	}
	s.rollBack(g, r, "Rollback initiated by user")
	return r.id, nil
}

// rollBack replaces what the refresh has launched by what the group had before.
func (s *AutoScaling) rollBack(g *group, r *refresh, reason string) {
	r.rollback = &rollback{Reason: reason, Started: stamp(s.now()), Percent: s.percent(g, r), ToUpdate: s.toUpdate(g, r)}
	r.status, r.reason, r.failing, r.waiting = refreshRollback, reason, time.Time{}, time.Time{}
	for _, i := range g.active() {
		i.Old = !s.matches(i, g.settings.Template)
	}
	s.announceRefresh(EventRefreshRollback, g, r)
	s.account.regional.agenda.after(0, func() { s.settle(g) })
}

func (s *AutoScaling) endRefresh(g *group, r *refresh, status, event string) {
	if status == refreshDone && r.desired != nil {
		g.settings.Template = *r.desired
	}
	r.percent, r.toUpdate = s.percent(g, r), s.toUpdate(g, r)
	if status == refreshDone && len(r.Checkpoints) == 0 {
		r.percent = 100
	}
	r.status, r.ended = status, s.now()
	for _, i := range g.instances {
		i.Old = false
	}
	s.announceRefresh(event, g, r)
}

func (s *AutoScaling) announceRefresh(detailType string, g *group, r *refresh) {
	detail := refreshDetail{InstanceRefreshID: r.id, AutoScalingGroupName: g.Name}
	if detailType == EventRefreshCheckpoint {
		detail.CheckpointPercentage = r.Checkpoints[r.next]
	}
	s.account.regional.events.emit(detailType, []string{g.arn}, detail)
}
