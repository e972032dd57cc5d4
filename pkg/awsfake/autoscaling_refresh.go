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
)

// The events of refreshes beyond start, success and cancellation
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/instance-refresh-eventbridge-events.html).
const (
	EventRefreshCheckpoint     = "EC2 Auto Scaling Instance Refresh Checkpoint Reached"
	EventRefreshFailed         = "EC2 Auto Scaling Instance Refresh Failed"
	EventRefreshRollback       = "EC2 Auto Scaling Instance Refresh Rollback Started"
	EventRefreshRollbackDone   = "EC2 Auto Scaling Instance Refresh Rollback Succeeded"
	EventRefreshRollbackFailed = "EC2 Auto Scaling Instance Refresh Rollback Failed"
	refreshPatience            = time.Hour // how long launches may fail
	defaultCheckpointDelay     = 3600
	defaultMinHealthy          = 90
)

// refreshPreferences are those of the API, without alarms.
type refreshPreferences struct {
	MinHealthy      *int  `cfn:"MinHealthyPercentage" xml:"MinHealthyPercentage"`
	MaxHealthy      *int  `cfn:"MaxHealthyPercentage" xml:"MaxHealthyPercentage"`
	Warmup          *int  `cfn:"InstanceWarmup" xml:"InstanceWarmup"`
	Checkpoints     []int `cfn:"CheckpointPercentages" xml:"CheckpointPercentages>member"`
	CheckpointDelay *int  `cfn:"CheckpointDelay" xml:"CheckpointDelay"`
	SkipMatching    bool  `cfn:"SkipMatching" xml:"SkipMatching"`
	AutoRollback    bool  `cfn:"AutoRollback" xml:"AutoRollback"`
}

// refresh is one rolling replacement of a group's instances.
type refresh struct {
	id, status, reason string
	refreshPreferences
	// desired is the launch template of the group once the refresh has succeeded; nil leaves it unchanged.
	desired *LaunchRef
	// mixed is the desired policy; nil makes the machines alike, whatever the group had.
	mixed *mixedPolicy
	// total is how many instances the group had at the start.
	total   int
	started time.Time
	refreshWaits
	refreshEnd
	rollback *rollback
	// ahead is how many replacements are still to be made up to the next checkpoint: no more are launched ahead.
	ahead int
}

// refreshWaits is the state of a refresh's waits.
type refreshWaits struct {
	// next is the index of the next checkpoint, until the end of the wait at it.
	next  int
	until time.Time
	// failing is when launches began to fail; zero if they do not.
	failing time.Time
}

// refreshEnd is the progress of a refresh when it ended.
type refreshEnd struct {
	ended             time.Time
	percent, toUpdate int
}

// rollback is the progress of a refresh when its rollback began.
type rollback struct {
	Reason   string `xml:"RollbackReason"`
	Started  string `xml:"RollbackStartTime"`
	Percent  int    `xml:"PercentageCompleteOnRollback"`
	ToUpdate int    `xml:"InstancesToUpdateOnRollback"`
}

func (r *refresh) active() bool {
	return slices.Contains([]string{refreshRunning, refreshCancelling, refreshRollback}, r.status)
}

func (g *group) refreshing() *refresh {
	if n := len(g.refreshes); n > 0 && g.refreshes[n-1].active() {
		return g.refreshes[n-1]
	}
	return nil
}

// startRefresh is startRefreshTo for machines that are alike.
func (s *AutoScaling) startRefresh(name string, wants refreshPreferences, desired *LaunchRef) (string, error) {
	return s.startRefreshTo(name, wants, desired, nil)
}

// startRefreshTo marks every instance that has to be replaced as old; refreshStep replaces them a few at a time.
func (s *AutoScaling) startRefreshTo(name string, wants refreshPreferences, desired *LaunchRef, mixed *mixedPolicy) (string, error) {
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
	r := &refresh{id: uuidOf("refresh", s.serial), refreshPreferences: wants, desired: desired, mixed: mixed, status: refreshRunning, started: s.now()}
	g.refreshes = append(g.refreshes, r)
	target, policy := g.template()
	for _, i := range g.active() {
		r.total++
		i.Old = !wants.SkipMatching || !s.matches(i, target, policy)
	}
	s.announceRefresh(EventRefreshStarted, g, r)
	s.account.regional.agenda.after(0, func() { s.settle(g) })
	return r.id, nil
}

// check refuses preferences that contradict each other (API reference, RefreshPreferences).
func (w refreshPreferences) check() error {
	if w.MinHealthy != nil && (*w.MinHealthy < 0 || *w.MinHealthy > 100) {
		return malformed("MinHealthyPercentage must be between 0 and 100, is %d", *w.MinHealthy)
	}
	if w.MaxHealthy != nil {
		switch {
		case *w.MaxHealthy < 100 || *w.MaxHealthy > 200:
			return malformed("MaxHealthyPercentage must be between 100 and 200, is %d", *w.MaxHealthy)
		case w.MinHealthy == nil:
			return malformed("You must specify MinHealthyPercentage when you specify MaxHealthyPercentage")
		case *w.MaxHealthy-*w.MinHealthy > 100:
			return malformed("The difference between MaxHealthyPercentage and MinHealthyPercentage cannot be greater than 100, is %d", *w.MaxHealthy-*w.MinHealthy)
		}
	}
	last := 0
	for _, percent := range w.Checkpoints {
		if percent <= last || percent > 100 {
			return malformed("CheckpointPercentages must be unique, in ascending order and from 1 to 100")
		}
		last = percent
	}
	for name, value := range map[string]*int{"CheckpointDelay": w.CheckpointDelay, "InstanceWarmup": w.Warmup} {
		if value != nil && (*value < 0 || *value > 172800) {
			return malformed("%s must be between 0 and 172800 seconds, is %d", name, *value)
		}
	}
	if w.CheckpointDelay != nil && len(w.Checkpoints) == 0 {
		return malformed("You must specify CheckpointPercentages when you specify CheckpointDelay")
	}
	return nil
}

// irreversible returns why a group's refresh cannot be rolled back; "" if it can (API reference,
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

// cancelRefresh stops a refresh or its rollback once no launch or termination is under way. Replaced instances stay,
// and the group keeps its former launch template.
func (s *AutoScaling) cancelRefresh(name string) (string, error) {
	g, r, err := s.running(name)
	if err != nil {
		return "", err
	}
	r.status, r.reason = refreshCancelling, "Cancelled due to user request"
	s.account.regional.agenda.after(0, func() { s.settle(g) })
	return r.id, nil
}

func (s *AutoScaling) rollbackRefresh(name string) (string, error) {
	g, r, err := s.running(name)
	if err != nil {
		return "", err
	}
	if r.status != refreshRunning {
		return "", refuse("ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found for Auto Scaling group %s", name)
	}
	if why := s.irreversible(g, r.desired); why != "" {
		return "", refuse("IrreversibleInstanceRefresh", "%s", why)
	}
	s.rollBack(g, r, "Rollback initiated by user")
	return r.id, nil
}

// rollBack replaces the instances that the refresh has launched by instances of the group's former launch template.
func (s *AutoScaling) rollBack(g *group, r *refresh, reason string) {
	r.rollback = &rollback{Reason: reason, Started: stamp(s.now()), Percent: s.percent(g, r), ToUpdate: s.toUpdate(g, r)}
	r.status, r.reason, r.failing = refreshRollback, reason, time.Time{}
	for _, i := range g.active() {
		i.Old = !s.matches(i, g.settings.Template, g.settings.mixed)
	}
	s.announceRefresh(EventRefreshRollback, g, r)
	s.account.regional.agenda.after(0, func() { s.settle(g) })
}

func (s *AutoScaling) endRefresh(g *group, r *refresh, status, event string) {
	if status == refreshDone && r.desired != nil {
		g.settings.Template, g.settings.mixed = *r.desired, r.mixed
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
