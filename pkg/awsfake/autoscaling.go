package awsfake

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// The lifecycle states of an instance, as the API reference spells them (LifecycleState).
const (
	StatePending            = "Pending"
	StatePendingWait        = "Pending:Wait"
	StatePendingProceed     = "Pending:Proceed"
	StateInService          = "InService"
	StateTerminating        = "Terminating"
	StateTerminatingWait    = "Terminating:Wait"
	StateTerminatingProceed = "Terminating:Proceed"
	StateTerminated         = "Terminated"
	StateDetaching          = "Detaching"
	StateDetached           = "Detached"
	StateEnteringStandby    = "EnteringStandby"
	StateStandby            = "Standby"
	// Warmed is put before the states of a warm pool: "Warmed:Pending:Wait", "Warmed:Stopped".
	Warmed = "Warmed:"
)

// What a group thinks of an instance.
const (
	Healthy   = "Healthy"
	Unhealthy = "Unhealthy"
)

// AutoScalingOptions sets how groups move. The zero value moves them at once.
type AutoScalingOptions struct {
	// Step is how long each state lasts that passes by itself: Pending, Terminating:Proceed …
	Step time.Duration
	// HealthCheck is the time until a group notices that a machine has failed.
	HealthCheck time.Duration
	// Lag is how long ago the state was that describe calls show.
	Lag time.Duration
	// Refuse may make EC2 fail a group's "launch" or "terminate"; the group tries again after a minute.
	Refuse func(action, group string) error
}

// Group is what its owner says of a group. All its machines get its tags, unless Unpropagated has the key.
type Group struct {
	Name              string
	Min, Max, Desired int
	Tags              map[string]string
	Unpropagated      map[string]bool
	Zones             []string
	Image, Type       string
	Subnet            string
	// Role is the IAM role of its machines, UserData what they are started with; both may be empty.
	Role, UserData string
}

// Instance is a group's view of a machine.
type Instance struct {
	ID, Group, Zone, State, Health string
	// Old is set by an instance refresh for what it has to replace.
	Old bool
	// Template is the version of a launch template that it was launched from, as a number; empty where it was none.
	Template LaunchRef
	// Tokens are those of the lifecycle actions that wait, by hook.
	Tokens map[string]string
}

// Transition is one step of an instance's life.
type Transition struct {
	Instance, From, To string
	At                 time.Time
}

// AutoScaling is the account's groups. Its exported methods may be called by several goroutines; they are
// no API calls.
type AutoScaling struct {
	account *Account
	options AutoScalingOptions

	groups map[string]*group
	// history is every transition so far.
	history []Transition
	serial  int
}

type group struct {
	Group
	settings  groupSettings
	arn       string
	created   time.Time
	hooks     map[string]Hook
	instances []*instance
	pool      *WarmPool
	refreshes []*refresh
	// activities are those that have ended, the newest last.
	activities []xmlActivity
	// seen is what describe calls show, with its past.
	seen past[[]Instance]
	// resting is until when launches pause after one has failed.
	resting time.Time
}

type instance struct {
	Instance
	actions map[string]*action
	route   route
	// boots is true while the instance waits for its machine to run.
	boots bool
	// epoch counts the states, so that what was planned for a state that is over does not happen.
	epoch    int
	activity string
	// since is when the state began.
	since   time.Time
	cause   string
	started time.Time
}

func newAutoScaling(a *Account, o AutoScalingOptions) *AutoScaling {
	s := &AutoScaling{account: a, options: o, groups: map[string]*group{}}
	a.regional.ec2.changed = s.machineChanged
	return s
}

func (s *AutoScaling) now() time.Time { return s.account.regional.agenda.now }

func (s *AutoScaling) ec2() *EC2 { return s.account.regional.ec2 }

// Create makes a group, which then launches its machines.
func (s *AutoScaling) Create(config Group) (err error) {
	s.account.locked(func() { err = s.create(config) })
	return err
}

func (s *AutoScaling) create(config Group) error {
	if _, ok := s.groups[config.Name]; ok {
		return refuse("AlreadyExists", "AutoScalingGroup by this name already exists - A group with the name %s already exists", config.Name)
	}
	if config.Name == "" || config.Min < 0 || config.Min > config.Max || config.Desired < config.Min || config.Desired > config.Max {
		return malformed("Desired capacity:%d must be between the specified min size:%d and max size:%d", config.Desired, config.Min, config.Max)
	}
	if err := s.settleZones(&config); err != nil {
		return err
	}
	if len(config.Zones) == 0 {
		config.Zones = []string{homeRegion + "a"}
	}
	config.Tags, config.Unpropagated = maps.Clone(config.Tags), maps.Clone(config.Unpropagated)
	if config.Tags == nil {
		config.Tags = map[string]string{}
	}
	if config.Unpropagated == nil {
		config.Unpropagated = map[string]bool{}
	}
	s.serial++
	g := &group{Group: config, settings: defaultSettings(), created: s.now(), hooks: map[string]Hook{}}
	g.arn = fmt.Sprintf("arn:aws:autoscaling:%s:%s:autoScalingGroup:%s:autoScalingGroupName/%s", homeRegion, owner, uuidOf("group", s.serial), config.Name)
	s.groups[config.Name] = g
	s.account.regional.agenda.after(0, func() { s.settle(g) })
	s.show(g)
	return nil
}

// Delete removes a group and ends its machines; hooks do not hold them.
func (s *AutoScaling) Delete(name string) (err error) {
	s.account.locked(func() { err = s.remove(name, true) })
	return err
}

func (s *AutoScaling) remove(name string, force bool) error {
	g, err := s.find(name)
	if err != nil {
		return err
	}
	if len(g.instances) > 0 && !force {
		return refuse("ResourceInUse", "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) still in the group.")
	}
	delete(s.groups, name)
	for _, i := range g.instances {
		i.epoch++
		s.ec2().terminate(i.ID)
	}
	return nil
}

func (s *AutoScaling) find(name string) (*group, error) {
	g, ok := s.groups[name]
	if !ok {
		return nil, malformed("AutoScalingGroup name not found - AutoScalingGroup %s not found", name)
	}
	return g, nil
}

// byID finds a machine's group.
func (s *AutoScaling) byID(id string) (*group, *instance, error) {
	for _, key := range sortedKeys(s.groups) {
		g := s.groups[key]
		for _, i := range g.instances {
			if i.ID == id {
				return g, i, nil
			}
		}
	}
	return nil, nil, malformed("Instance Id not found - No managed instance found for instance ID: %s", id)
}

// Instances lists a group's instances as they are, the warm pool's included, in the order of their launch.
func (s *AutoScaling) Instances(name string) (list []Instance) {
	s.account.locked(func() {
		if g, ok := s.groups[name]; ok {
			list = g.snapshot()
		}
	})
	return list
}

// Group returns a group's settings as they are.
func (s *AutoScaling) Group(name string) (config Group, ok bool) {
	s.account.locked(func() {
		var g *group
		if g, ok = s.groups[name]; ok {
			config = g.Group
			config.Tags, config.Unpropagated = maps.Clone(g.Tags), maps.Clone(g.Unpropagated)
		}
	})
	return config, ok
}

// Update changes a group's settings; what runs already stays as it is, until StartRefresh replaces it. change is
// called with the account locked, on a copy; the group's name stays.
func (s *AutoScaling) Update(name string, change func(*Group)) (err error) {
	s.account.locked(func() {
		var g *group
		if g, err = s.find(name); err != nil {
			return
		}
		to := g.Group
		to.Tags, to.Unpropagated = maps.Clone(to.Tags), maps.Clone(to.Unpropagated)
		change(&to)
		if to.Min < 0 || to.Min > to.Max || to.Desired < to.Min || to.Desired > to.Max {
			err = malformed("Desired capacity:%d must be between the specified min size:%d and max size:%d", to.Desired, to.Min, to.Max)
			return
		}
		to.Name = name
		g.Group = to
		s.settle(g)
	})
	return err
}

// History lists every transition of every instance so far.
func (s *AutoScaling) History() (list []Transition) {
	s.account.locked(func() { list = slices.Clone(s.history) })
	return list
}

func (g *group) snapshot() []Instance {
	list := make([]Instance, 0, len(g.instances))
	for _, i := range g.instances {
		copied := i.Instance
		copied.Tokens = map[string]string{}
		for name, a := range i.actions {
			copied.Tokens[name] = a.token
		}
		list = append(list, copied)
	}
	return list
}

// show adds what is to what describe calls will see.
func (s *AutoScaling) show(g *group) { g.seen.put(s.now(), s.options.Lag, g.snapshot()) }

// shown is what describe calls see of a group.
func (s *AutoScaling) shown(g *group) []Instance {
	list, _ := g.seen.at(s.now().Add(-s.options.Lag))
	return list
}

// move puts an instance into a state.
func (s *AutoScaling) move(g *group, i *instance, to string) {
	s.history = append(s.history, Transition{i.ID, i.State, to, s.now()})
	i.State, i.boots, i.since = to, false, s.now()
	i.epoch++
	if to == StateTerminated || to == StateDetached || to == Warmed+StateTerminated {
		g.instances = slices.DeleteFunc(g.instances, func(other *instance) bool { return other == i })
	}
	s.show(g)
}

// later plans what follows the state that an instance is in, unless it has left it by then.
func (s *AutoScaling) later(i *instance, d time.Duration, f func()) {
	epoch := i.epoch
	s.account.regional.agenda.after(d, func() {
		if i.epoch == epoch {
			f()
		}
	})
}

// machineChanged is EC2's word that a machine has changed by itself.
func (s *AutoScaling) machineChanged(m Machine) {
	g, i, err := s.byID(m.ID)
	runs := m.State == MachineRunning || m.State == MachinePending
	switch {
	case err != nil:
	case i.boots && m.State == MachineRunning:
		i.boots = false
		s.hold(g, i, transitionLaunching)
	case i.boots && !runs:
		s.launchLost(g, i)
	case counts(i.State) && (!runs || m.Impaired):
		s.failed(g, i)
	}
}

// launchLost gives up an instance whose machine never ran.
func (s *AutoScaling) launchLost(g *group, i *instance) {
	s.announce(EventLaunchFailed, g, i, eventStatusFailed, "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: Server.InternalError: Internal error on launch")
	s.move(g, i, StateTerminated)
	s.ec2().terminate(i.ID)
	s.launchesFail(g, true)
	s.rest(g)
	s.show(g)
}

// failed lets the group notice that an instance's machine runs no longer.
func (s *AutoScaling) failed(g *group, i *instance) {
	s.account.regional.agenda.after(s.options.HealthCheck, func() {
		if m, _ := s.ec2().machine(i.ID); counts(i.State) && (m.Impaired || m.State != MachineRunning && m.State != MachinePending) {
			i.Health = Unhealthy
			i.cause = fmt.Sprintf("At %s an instance was taken out of service in response to an EC2 health check indicating it has been terminated or stopped.", s.now().UTC().Format(eventTime))
			s.show(g)
			s.settle(g)
		}
	})
}
