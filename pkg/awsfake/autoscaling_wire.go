package awsfake

import (
	"reflect"
	"slices"
)

// actions are the calls of AutoScaling's Query protocol (version 2011-01-01) that are understood.
func (s *AutoScaling) actions() actions {
	return actions{
		"DescribeAccountLimits":  s.groupLimits,
		"CreateAutoScalingGroup": s.createGroup, "UpdateAutoScalingGroup": s.updateGroup,
		"DescribeAutoScalingGroups": s.describeGroups, "DescribeAutoScalingInstances": s.describeInstances,
		"DescribeLaunchConfigurations": s.describeConfigurations,
		"DescribeLifecycleHooks":       s.describeHooks,
		"DescribeScalingActivities":    s.describeActivities,
		"CompleteLifecycleAction":      s.completeAction, "RecordLifecycleActionHeartbeat": s.recordHeartbeat,
		"SetDesiredCapacity": s.setDesiredCall, "TerminateInstanceInAutoScalingGroup": s.terminateInstanceCall,
		"StartInstanceRefresh": s.startRefreshCall, "CancelInstanceRefresh": s.cancelRefreshCall,
		"RollbackInstanceRefresh": s.rollbackRefreshCall, "DescribeInstanceRefreshes": s.describeRefreshes,
	}
}

func (s *AutoScaling) serve(c *call) (any, error) { return s.actions().serve(c) }

// integers reads several numbers; absent parameters leave their destination unchanged.
func (p params) integers(into map[string]*int) error {
	for _, name := range sortedKeys(into) {
		n, err := p.integer(name, *into[name])
		if err != nil {
			return err
		}
		*into[name] = n
	}
	return nil
}

func (s *AutoScaling) createGroup(p params) (any, error) {
	config := Group{
		Name: p.get("AutoScalingGroupName"), Zones: p.list("AvailabilityZones.member"), Subnet: p.get("VPCZoneIdentifier"),
		Image: "ami-" + hexID("image", 0, 17), Type: "t3.medium", Desired: -1,
		Tags: map[string]string{}, Unpropagated: map[string]bool{},
	}
	if err := p.integers(map[string]*int{"MinSize": &config.Min, "MaxSize": &config.Max, "DesiredCapacity": &config.Desired}); err != nil {
		return nil, err
	}
	if config.Desired < 0 {
		config.Desired = config.Min
	}
	for _, tag := range p.structs("Tags.member") {
		if err := setTag(&config, tag); err != nil {
			return nil, err
		}
	}
	settings, err := s.settingsOf(p, groupSettings{Health: "EC2"})
	if err != nil {
		return nil, err
	}
	if (settings.Template == LaunchRef{}) == (p.get("LaunchConfigurationName") == "") {
		return nil, malformed("Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
	}
	if len(config.Zones) == 0 && config.Subnet == "" {
		return nil, malformed("At least one Availability Zone or VPC Subnet is required.")
	}
	if err := s.create(config); err != nil {
		return nil, err
	}
	s.groups[config.Name].settings = settings
	return nil, nil
}

func (s *AutoScaling) updateGroup(p params) (any, error) {
	g, err := s.find(p.get("AutoScalingGroupName"))
	if err != nil {
		return nil, err
	}
	lowest, most, desired := g.Min, g.Max, g.Desired
	if err := p.integers(map[string]*int{"MinSize": &lowest, "MaxSize": &most, "DesiredCapacity": &desired}); err != nil {
		return nil, err
	}
	if !p.has("DesiredCapacity") {
		desired = min(max(desired, lowest), most)
	}
	if lowest < 0 || lowest > most || desired < lowest || desired > most {
		return nil, malformed("Desired capacity:%d must be between the specified min size:%d and max size:%d", desired, lowest, most)
	}
	settings, err := s.settingsOf(p, g.settings)
	if err != nil {
		return nil, err
	}
	if r := g.refreshing(); r != nil && r.desired != nil && (settings.Template != g.settings.Template || !reflect.DeepEqual(settings.mixed, g.settings.mixed)) {
		return nil, malformed("An active instance refresh with a desired configuration exists. All configuration options derived from the desired configuration are not available for update while the instance refresh is active.")
	}
	to := g.Group
	if p.has("VPCZoneIdentifier") {
		to.Subnet, to.Zones = p.get("VPCZoneIdentifier"), p.list("AvailabilityZones.member")
		if err := s.settleZones(&to); err != nil {
			return nil, err
		}
	}
	to.Min, to.Max = lowest, most
	g.Group, g.settings = to, settings
	return nil, s.setDesired(g, desired)
}

// deleteHook removes a hook and completes its pending actions: with CONTINUE for a termination, ABANDON for a launch
// (API reference, DeleteLifecycleHook).
func (s *AutoScaling) deleteHook(g *group, name string) {
	h, ok := g.hooks[name]
	if !ok {
		return
	}
	delete(g.hooks, name)
	result := Abandon
	if h.Transition == transitionTerminating {
		result = Continue
	}
	for _, i := range slices.Clone(g.instances) {
		if a, waits := i.actions[name]; waits {
			s.complete(g, i, a, result)
		}
	}
}

func (s *AutoScaling) completeAction(p params) (any, error) {
	return nil, s.completeCall(p.get("AutoScalingGroupName"), p.get("LifecycleHookName"), p.get("LifecycleActionToken"), p.get("InstanceId"), p.get("LifecycleActionResult"))
}

func (s *AutoScaling) recordHeartbeat(p params) (any, error) {
	return nil, s.heartbeat(p.get("AutoScalingGroupName"), p.get("LifecycleHookName"), p.get("LifecycleActionToken"), p.get("InstanceId"))
}

func (s *AutoScaling) setDesiredCall(p params) (any, error) {
	g, err := s.find(p.get("AutoScalingGroupName"))
	if err != nil {
		return nil, err
	}
	desired, err := p.integer("DesiredCapacity", -1)
	if err != nil {
		return nil, err
	}
	return nil, s.setDesired(g, desired)
}

type xmlActivity struct {
	ActivityID  string `xml:"ActivityId"`
	Group       string `xml:"AutoScalingGroupName"`
	Cause       string `xml:"Cause"`
	Started     string `xml:"StartTime"`
	Status      string `xml:"StatusCode"`
	Description string `xml:"Description"`
}

func (s *AutoScaling) terminateInstanceCall(p params) (any, error) {
	decrement, err := p.flag("ShouldDecrementDesiredCapacity", false)
	if err != nil {
		return nil, err
	}
	g, i, err := s.terminateCall(p.get("InstanceId"), decrement)
	if err != nil {
		return nil, err
	}
	return struct {
		Activity xmlActivity `xml:"Activity"`
	}{xmlActivity{ActivityID: i.activity, Group: g.Name, Cause: i.cause, Started: stamp(i.started), Status: eventStatusInProgress, Description: "Terminating EC2 instance: " + i.ID}}, nil
}
