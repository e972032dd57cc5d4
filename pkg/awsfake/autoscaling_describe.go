package awsfake

import (
	"encoding/xml"
	"slices"
	"strings"
)

// The page sizes of AutoScaling (API reference: MaxRecords "default 50, maximum 100"; 50 for instances).
const (
	defaultRecords  = 50
	maxRecords      = 100
	maxInstanceRecs = 50
)

// launchConfiguration is the name that groups without a launch template show.
const launchConfiguration = "hardtack"

type xmlGroup struct {
	Name      string           `xml:"AutoScalingGroupName"`
	ARN       string           `xml:"AutoScalingGroupARN"`
	Template  string           `xml:"LaunchConfigurationName,omitempty"`
	Min       int              `xml:"MinSize"`
	Max       int              `xml:"MaxSize"`
	Desired   int              `xml:"DesiredCapacity"`
	Zones     []string         `xml:"AvailabilityZones>member"`
	Created   string           `xml:"CreatedTime"`
	Instances []xmlASGInstance `xml:"Instances>member"`
	Tags      []xmlASGTag      `xml:"Tags>member"`
	xmlSettings
}

// xmlSettings are the fields that come from a group's settings.
type xmlSettings struct {
	Launch      *xmlLaunchRef `xml:"LaunchTemplate"`
	Mixed       *mixedShape   `xml:"MixedInstancesPolicy"`
	Rebalance   bool          `xml:"CapacityRebalance,omitempty"`
	Lifetime    int           `xml:"MaxInstanceLifetime,omitempty"`
	Subnets     string        `xml:"VPCZoneIdentifier"`
	HealthCheck string        `xml:"HealthCheckType"`
	Grace       int           `xml:"HealthCheckGracePeriod"`
	Targets     []string      `xml:"TargetGroupARNs>member"`
}

func (g *group) settingsXML() xmlSettings {
	set := g.settings
	x := xmlSettings{Launch: set.Template.xml(), Mixed: set.mixed.xml(set.Template), Subnets: g.Subnet, HealthCheck: set.Health, Grace: set.Grace, Targets: set.Targets,
		Rebalance: set.Rebalance, Lifetime: set.Lifetime}
	if x.Mixed != nil {
		x.Launch = nil
	}
	return x
}

type xmlASGInstance struct {
	ID        string        `xml:"InstanceId"`
	Zone      string        `xml:"AvailabilityZone"`
	Type      string        `xml:"InstanceType,omitempty"`
	State     string        `xml:"LifecycleState"`
	Health    string        `xml:"HealthStatus"`
	Template  string        `xml:"LaunchConfigurationName,omitempty"`
	Launch    *xmlLaunchRef `xml:"LaunchTemplate"`
	Protected bool          `xml:"ProtectedFromScaleIn"`
	// Group is only in the answer of DescribeAutoScalingInstances.
	Group string `xml:"AutoScalingGroupName,omitempty"`
}

type xmlASGTag struct {
	Resource  string `xml:"ResourceId"`
	Type      string `xml:"ResourceType"`
	Key       string `xml:"Key"`
	Value     string `xml:"Value"`
	Propagate bool   `xml:"PropagateAtLaunch"`
}

func (g *group) tagsXML() []xmlASGTag {
	var list []xmlASGTag
	for _, key := range sortedKeys(g.Tags) {
		list = append(list, xmlASGTag{g.Name, "auto-scaling-group", key, g.Tags[key], !g.Unpropagated[key]})
	}
	return list
}

func instanceXML(i Instance) xmlASGInstance {
	x := xmlASGInstance{ID: i.ID, Zone: i.Zone, Type: i.Type, State: i.State, Health: i.Health, Launch: i.Template.xml()}
	if x.Launch == nil {
		x.Template = launchConfiguration
	}
	return x
}

// records is the page size that a call asks for.
func (p params) records(limit int) (int, error) {
	n, err := p.integer("MaxRecords", min(defaultRecords, limit))
	if err == nil && (n < 1 || n > limit) {
		err = malformed("1 validation error detected: Value '%d' at 'maxRecords' failed to satisfy constraint: Member must have value between 1 and %d", n, limit)
	}
	return n, err
}

// sorted lists the groups by name.
func (s *AutoScaling) sorted() []*group {
	var list []*group
	for _, name := range sortedKeys(s.groups) {
		list = append(list, s.groups[name])
	}
	return list
}

func (s *AutoScaling) describeGroups(p params) (any, error) {
	size, err := p.records(maxRecords)
	if err != nil {
		return nil, err
	}
	include, err := p.flag("IncludeInstances", true)
	if err != nil {
		return nil, err
	}
	names, filters := p.list("AutoScalingGroupNames.member"), filtersOf(p.structs("Filters.member"), "Values.member", false)
	var kept []*group
	for _, g := range s.sorted() {
		ok, err := g.passes(filters)
		if err != nil {
			return nil, err
		}
		if ok && (len(names) == 0 || slices.Contains(names, g.Name)) {
			kept = append(kept, g)
		}
	}
	kept, token, err := page(kept, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	out := struct {
		Groups    []xmlGroup `xml:"AutoScalingGroups>member"`
		NextToken string     `xml:"NextToken,omitempty"`
	}{NextToken: token}
	for _, g := range kept {
		x := xmlGroup{
			Name: g.Name, ARN: g.arn, Min: g.Min, Max: g.Max, Desired: g.Desired,
			Zones: g.Zones, Created: stamp(g.created), Tags: g.tagsXML(), xmlSettings: g.settingsXML(),
		}
		if x.Launch == nil && x.Mixed == nil {
			x.Template = launchConfiguration
		}
		for _, i := range g.snapshot() {
			if include {
				x.Instances = append(x.Instances, instanceXML(i))
			}
		}
		out.Groups = append(out.Groups, x)
	}
	return out, nil
}

// passes evaluates filters as DescribeAutoScalingGroups knows them.
func (g *group) passes(filters []filter) (bool, error) {
	for _, f := range filters {
		key, byKey := strings.CutPrefix(f.name, "tag:")
		var ok bool
		switch {
		case byKey:
			value, has := g.Tags[key]
			ok = has && f.matches(value)
		case f.name == "tag-key":
			ok = f.matches(sortedKeys(g.Tags)...)
		case f.name == "tag-value":
			for _, value := range g.Tags {
				ok = ok || f.matches(value)
			}
		default:
			return false, malformed("Filter type %s is not correct. Allowed Filter types are: tag-key tag-value tag:<key>", f.name)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

func (s *AutoScaling) describeInstances(p params) (any, error) {
	size, err := p.records(maxInstanceRecs)
	if err != nil {
		return nil, err
	}
	ids := p.list("InstanceIds.member")
	var list []xmlASGInstance
	for _, g := range s.sorted() {
		for _, i := range g.snapshot() {
			if len(ids) == 0 || slices.Contains(ids, i.ID) {
				x := instanceXML(i)
				x.Health, x.Group = strings.ToUpper(i.Health), g.Name // this call shouts, the other does not
				list = append(list, x)
			}
		}
	}
	list, token, err := page(list, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	return struct {
		Instances []xmlASGInstance `xml:"AutoScalingInstances>member"`
		NextToken string           `xml:"NextToken,omitempty"`
	}{list, token}, nil
}

// setTag reads one tag into a group. Machines that run already keep the tags that they have.
func setTag(g *Group, tag params) error {
	propagate, err := tag.flag("PropagateAtLaunch", false)
	if err != nil {
		return err
	}
	key := tag.get("Key")
	if key == "" || len(key) > 128 || len(tag.get("Value")) > 256 {
		return malformed("The tag key %q is empty or it or its value is too long", key)
	}
	g.Tags[key] = tag.get("Value")
	if delete(g.Unpropagated, key); !propagate {
		g.Unpropagated[key] = true
	}
	return nil
}

// SetTag sets a tag of a group, or removes it if value is nil. AWS emits no event for it, and neither does awsfake.
func (s *AutoScaling) SetTag(name, key string, value *string) (err error) {
	s.account.locked(func() {
		var g *group
		if g, err = s.find(name); err != nil {
			return
		}
		if delete(g.Tags, key); value != nil {
			g.Tags[key] = *value
		}
	})
	return err
}

type xmlHook struct {
	Group      string `xml:"AutoScalingGroupName"`
	Name       string `xml:"LifecycleHookName"`
	Transition string `xml:"LifecycleTransition"`
	Default    string `xml:"DefaultResult"`
	Heartbeat  int    `xml:"HeartbeatTimeout"`
	Global     int    `xml:"GlobalTimeout"`
	Metadata   string `xml:"NotificationMetadata,omitempty"`
	Target     string `xml:"NotificationTargetARN,omitempty"`
	Role       string `xml:"RoleARN,omitempty"`
}

func (s *AutoScaling) describeHooks(p params) (any, error) {
	g, err := s.find(p.get("AutoScalingGroupName"))
	if err != nil {
		return nil, err
	}
	out := struct {
		Hooks []xmlHook `xml:"LifecycleHooks>member"`
	}{}
	names := p.list("LifecycleHookNames.member")
	for _, name := range sortedKeys(g.hooks) {
		if h := g.hooks[name]; len(names) == 0 || slices.Contains(names, name) {
			out.Hooks = append(out.Hooks, xmlHook{
				Group: g.Name, Name: name, Transition: h.Transition, Default: h.Default, Heartbeat: int(h.Heartbeat.Seconds()),
				Global: int(min(maxHold, maxHeartbeats*h.Heartbeat).Seconds()), Metadata: h.Metadata, Target: h.Target, Role: h.Role,
			})
		}
	}
	return out, nil
}

// describeConfigurations answers an empty list: accounts that were opened after 2023 cannot make launch configurations
// ("Migrate your Auto Scaling groups to launch templates").
func (s *AutoScaling) describeConfigurations(params) (any, error) {
	return struct {
		XMLName xml.Name `xml:"DescribeLaunchConfigurationsResult"`
		List    struct{} `xml:"LaunchConfigurations"`
	}{}, nil
}
