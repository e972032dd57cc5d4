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
)

// The health states of an instance.
const (
	Healthy   = "Healthy"
	Unhealthy = "Unhealthy"
)

// AutoScalingOptions set how groups change state. With the zero value they do at once.
type AutoScalingOptions struct {
	// Step is how long each state lasts that ends without a decision: Pending, Terminating:Proceed …
	Step time.Duration
	// HealthCheck is the time until a group notices that a machine has failed.
	HealthCheck time.Duration
	// Refuse may return an error with which EC2 fails a group's "launch" or "terminate"; the group tries again after a
	// minute. Nil refuses nothing.
	Refuse func(action, group string) error
}

// Group is a group's configuration. Its machines get all Tags whose keys are not in Unpropagated.
type Group struct {
	Name              string
	Min, Max, Desired int
	Tags              map[string]string
	Unpropagated      map[string]bool
	Zones             []string
	Image, Type       string
	Subnet            string
	// Role is the IAM role of its machines, UserData their user data; both may be empty.
	Role, UserData string
}

// Instance is a group's view of a machine.
type Instance struct {
	ID, Group, Zone, State, Health string
	// Type is the machine's instance type.
	Type string
	// Old is set while an instance refresh has to replace the instance.
	Old bool
	// Template is the launch template and the number of the version that it was launched from; zero for none.
	Template LaunchRef
	// Tokens are those of the pending lifecycle actions, by hook.
	Tokens map[string]string
}

// Transition is one step of an instance's life.
type Transition struct {
	Instance, From, To string
	At                 time.Time
}

// AutoScaling is the account's groups. Several goroutines may call its exported methods, which are not API calls.
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
	refreshes []*refresh
	// activities are what the group did, the oldest first.
	activities []*activity
	// pausedUntil is until when launches pause after one has failed.
	pausedUntil time.Time
}

type instance struct {
	Instance
	actions map[string]*action
	route   route
	// boots is true while the instance waits for its machine to run.
	boots bool
	// epoch counts the instance's states; a timer of an earlier state is void.
	epoch    int
	activity string
	// since is when the state began.
	since   time.Time
	cause   string
	started time.Time
}

func newAutoScaling(a *Account, o AutoScalingOptions) *AutoScaling {
	s := &AutoScaling{account: a, options: o, groups: map[string]*group{}}
	a.regional.ec2.onChange = s.machineChanged
	return s
}

func (s *AutoScaling) now() time.Time { return s.account.regional.agenda.now }

func (s *AutoScaling) ec2() *EC2 { return s.account.regional.ec2 }

// Create makes a group, which then launches its machines. The error is an *Error with AutoScaling's code.
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
		config.Zones = []string{HomeRegion + "a"}
	}
	config.Tags, config.Unpropagated = maps.Clone(config.Tags), maps.Clone(config.Unpropagated)
	if config.Tags == nil {
		config.Tags = map[string]string{}
	}
	if config.Unpropagated == nil {
		config.Unpropagated = map[string]bool{}
	}
	s.serial++
	g := &group{Group: config, settings: groupSettings{Health: "EC2"}, created: s.now(), hooks: map[string]Hook{}}
	g.arn = fmt.Sprintf("arn:aws:autoscaling:%s:%s:autoScalingGroup:%s:autoScalingGroupName/%s", HomeRegion, owner, uuidOf("group", s.serial), config.Name)
	s.groups[config.Name] = g
	s.account.regional.agenda.after(0, func() { s.settle(g) })
	return nil
}

// Delete removes a group and ends its machines without running hooks.
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

// Instances returns a group's instances in the order of their launch; none if the group does not exist.
func (s *AutoScaling) Instances(name string) (list []Instance) {
	s.account.locked(func() {
		if g, ok := s.groups[name]; ok {
			list = g.snapshot()
		}
	})
	return list
}

// Group returns a group's configuration; false if it does not exist.
func (s *AutoScaling) Group(name string) (config Group, ok bool) {
	s.account.locked(func() {
		var g *group
		if g, ok = s.groups[name]; ok {
			config = g.copy()
		}
	})
	return config, ok
}

// Groups returns all groups' configurations, by name.
func (s *AutoScaling) Groups() (list []Group) {
	s.account.locked(func() {
		for _, g := range s.sorted() {
			list = append(list, g.copy())
		}
	})
	return list
}

func (g *group) copy() Group {
	config := g.Group
	config.Tags, config.Unpropagated = maps.Clone(g.Tags), maps.Clone(g.Unpropagated)
	return config
}

// History returns every transition of every instance so far.
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

// move puts an instance into a state.
func (s *AutoScaling) move(g *group, i *instance, to string) {
	s.history = append(s.history, Transition{i.ID, i.State, to, s.now()})
	i.State, i.boots, i.since = to, false, s.now()
	i.epoch++
	if to == StateTerminated {
		g.instances = slices.DeleteFunc(g.instances, func(other *instance) bool { return other == i })
	}
}

// later calls f in d, unless the instance has left its current state by then.
func (s *AutoScaling) later(i *instance, d time.Duration, f func()) {
	epoch := i.epoch
	s.account.regional.agenda.after(d, func() {
		if i.epoch == epoch {
			f()
		}
	})
}

// machineChanged is called by EC2 when a machine's state has changed.
func (s *AutoScaling) machineChanged(m Machine) {
	g, i, err := s.byID(m.ID)
	runs := m.State == MachineRunning || m.State == MachinePending
	switch {
	case err != nil:
	case i.boots && m.State == MachineRunning:
		i.boots = false
		s.startActions(g, i, transitionLaunching)
	case i.boots && !runs:
		s.launchLost(g, i)
	case counts(i.State) && !runs:
		s.failed(g, i)
	}
}

// launchLost gives up an instance whose machine never ran.
func (s *AutoScaling) launchLost(g *group, i *instance) {
	s.announce(EventLaunchFailed, g, i, eventStatusFailed, "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: Server.InternalError: Internal error on launch")
	s.move(g, i, StateTerminated)
	s.ec2().terminate(i.ID)
	s.launchesFail(g, true)
	s.pauseLaunches(g)
}

// failed marks an instance unhealthy after the health check's time, if its machine still does not run.
func (s *AutoScaling) failed(g *group, i *instance) {
	s.account.regional.agenda.after(s.options.HealthCheck, func() {
		if m, _ := s.ec2().machine(i.ID); counts(i.State) && m.State != MachineRunning && m.State != MachinePending {
			i.Health = Unhealthy
			i.cause = fmt.Sprintf("At %s an instance was taken out of service in response to an EC2 health check indicating it has been terminated or stopped.", s.now().UTC().Format(eventTime))
			s.settle(g)
		}
	})
}
