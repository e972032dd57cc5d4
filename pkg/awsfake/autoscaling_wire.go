package awsfake

import "time"

// actions are the calls of AutoScaling's Query protocol (version 2011-01-01) that are understood.
func (s *AutoScaling) actions() actions {
	return actions{
		"CreateAutoScalingGroup": s.createGroup, "UpdateAutoScalingGroup": s.updateGroup, "DeleteAutoScalingGroup": s.deleteGroup,
		"DescribeAutoScalingGroups": s.describeGroups, "DescribeAutoScalingInstances": s.describeInstances,
		"DescribeLaunchConfigurations": s.describeConfigurations,
		"DescribeTags":                 s.describeTags, "CreateOrUpdateTags": s.createOrUpdateTags, "DeleteTags": s.deleteTags,
		"PutLifecycleHook": s.putHookCall, "DeleteLifecycleHook": s.deleteHook, "DescribeLifecycleHooks": s.describeHooks,
		"CompleteLifecycleAction": s.completeAction, "RecordLifecycleActionHeartbeat": s.recordHeartbeat,
		"SetDesiredCapacity": s.setDesiredCall, "SetInstanceHealth": s.setHealthCall,
		"EnterStandby": s.enterStandbyCall, "ExitStandby": s.exitStandbyCall, "DetachInstances": s.detachCall,
		"TerminateInstanceInAutoScalingGroup": s.terminateInstanceCall,
		"StartInstanceRefresh":                s.startRefreshCall, "CancelInstanceRefresh": s.cancelRefreshCall, "RollbackInstanceRefresh": s.rollbackRefreshCall, "DescribeInstanceRefreshes": s.describeRefreshes,
		"DescribeScalingActivities": s.describeActivities,
		"PutWarmPool":               s.putPoolCall, "DeleteWarmPool": s.deletePool, "DescribeWarmPool": s.describePool,
	}
}

func (s *AutoScaling) serve(c *call) (any, error) { return s.actions().serve(c) }

// integers reads several numbers into where they belong; fields that are absent leave it as it is.
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
	settings, err := s.settingsOf(p, defaultSettings())
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
	for _, hook := range p.structs("LifecycleHookSpecificationList.member") {
		h, err := hookOf(hook)
		if err == nil {
			err = s.putHook(config.Name, h)
		}
		if err != nil {
			delete(s.groups, config.Name)
			return nil, err
		}
	}
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
	if r := g.refreshing(); r != nil && r.desired != nil && settings.Template != g.settings.Template {
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

func (s *AutoScaling) deleteGroup(p params) (any, error) {
	force, err := p.flag("ForceDelete", false)
	if err != nil {
		return nil, err
	}
	return nil, s.remove(p.get("AutoScalingGroupName"), force)
}

func hookOf(p params) (Hook, error) {
	seconds, err := p.integer("HeartbeatTimeout", 0)
	return Hook{
		Name: p.get("LifecycleHookName"), Transition: p.get("LifecycleTransition"), Heartbeat: time.Duration(seconds) * time.Second,
		Default: p.get("DefaultResult"), Metadata: p.get("NotificationMetadata"), Target: p.get("NotificationTargetARN"), Role: p.get("RoleARN"),
	}, err
}

func (s *AutoScaling) putHookCall(p params) (any, error) {
	h, err := hookOf(p)
	if err != nil {
		return nil, err
	}
	return nil, s.putHook(p.get("AutoScalingGroupName"), h)
}

func (s *AutoScaling) deleteHook(p params) (any, error) {
	g, err := s.find(p.get("AutoScalingGroupName"))
	if err != nil {
		return nil, err
	}
	name := p.get("LifecycleHookName")
	if _, ok := g.hooks[name]; !ok {
		return nil, malformed("No Lifecycle Hook found with name %s", name)
	}
	delete(g.hooks, name)
	for _, i := range g.snapshot() {
		if _, waits := i.Tokens[name]; waits {
			// "If there are any outstanding lifecycle actions, they are completed first": CONTINUE for a
			// termination, ABANDON for a launch (API reference, DeleteLifecycleHook).
			g, held, a, err := s.findAction(g.Name, name, "", i.ID)
			if err != nil {
				return nil, err
			}
			result := Abandon
			if a.hook.Transition == transitionTerminating {
				result = Continue
			}
			s.complete(g, held, a, result)
		}
	}
	return nil, nil
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

func (s *AutoScaling) setHealthCall(p params) (any, error) {
	return nil, s.setHealth(p.get("InstanceId"), p.get("HealthStatus"))
}

func (s *AutoScaling) enterStandbyCall(p params) (any, error) {
	name, ids := p.get("AutoScalingGroupName"), p.list("InstanceIds.member")
	decrement, err := p.flag("ShouldDecrementDesiredCapacity", false)
	if err != nil {
		return nil, err
	}
	if err := s.enterStandby(name, ids, decrement); err != nil {
		return nil, err
	}
	return s.activities(name, "Moving EC2 instance to Standby", ids), nil
}

func (s *AutoScaling) exitStandbyCall(p params) (any, error) {
	name, ids := p.get("AutoScalingGroupName"), p.list("InstanceIds.member")
	if err := s.exitStandby(name, ids); err != nil {
		return nil, err
	}
	return s.activities(name, "Moving EC2 instance out of Standby", ids), nil
}

func (s *AutoScaling) detachCall(p params) (any, error) {
	name, ids := p.get("AutoScalingGroupName"), p.list("InstanceIds.member")
	decrement, err := p.flag("ShouldDecrementDesiredCapacity", false)
	if err != nil {
		return nil, err
	}
	if err := s.detach(name, ids, decrement); err != nil {
		return nil, err
	}
	return s.activities(name, "Detaching EC2 instance", ids), nil
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

func (s *AutoScaling) putPoolCall(p params) (any, error) {
	pool := WarmPool{Prepared: -1, State: p.get("PoolState")}
	if err := p.integers(map[string]*int{"MinSize": &pool.Min, "MaxGroupPreparedCapacity": &pool.Prepared}); err != nil {
		return nil, err
	}
	reuse, err := p.flag("InstanceReusePolicy.ReuseOnScaleIn", false)
	if err != nil {
		return nil, err
	}
	pool.Reuse = reuse
	return nil, s.putPool(p.get("AutoScalingGroupName"), pool)
}

func (s *AutoScaling) deletePool(p params) (any, error) {
	g, err := s.find(p.get("AutoScalingGroupName"))
	if err != nil {
		return nil, err
	}
	if g.pool == nil {
		return nil, malformed("No warm pool found for Auto Scaling group %s", g.Name)
	}
	g.pool = nil
	s.settle(g)
	return nil, nil
}
