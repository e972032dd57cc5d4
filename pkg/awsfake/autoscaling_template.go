package awsfake

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// groupSettings are the settings that Group does not have.
type groupSettings struct {
	// Template is the group's launch template; zero means that Group's image and type are used.
	Template LaunchRef
	// mixed is nil for a group whose machines are alike.
	mixed   *mixedPolicy
	Health  string // "EC2", "ELB"
	Grace   int    // seconds
	Targets []string
	groupExtras
}

// groupExtras are settings that change nothing here.
type groupExtras struct {
	Rebalance bool
	Lifetime  int // seconds, 0 for no limit
}

// The bounds of MaxInstanceLifetime (API reference, CreateAutoScalingGroup).
const leastLifetime, mostLifetime = 86400, 31536000

// groupFields are the modelled parameters of CreateAutoScalingGroup and UpdateAutoScalingGroup.
var groupFields = []string{
	"Action", "Version", "AutoScalingGroupName", "MinSize", "MaxSize", "DesiredCapacity", "AvailabilityZones", "VPCZoneIdentifier", "Tags",
	"LaunchConfigurationName", "LaunchTemplate", "HealthCheckType", "HealthCheckGracePeriod", "TargetGroupARNs",
	"MixedInstancesPolicy", "CapacityRebalance", "MaxInstanceLifetime",
}

// knownFields refuses a call about a group that has fields beyond the modelled ones.
func knownFields(p params) error {
	for key := range p {
		if name, _, _ := strings.Cut(key, "."); !slices.Contains(groupFields, name) {
			return malformed("awsfake does not model %s of a group", name)
		}
	}
	return nil
}

// settingsOf reads a group's settings from a call; absent fields stay as they were.
func (s *AutoScaling) settingsOf(p params, was groupSettings) (groupSettings, error) {
	to := was
	if err := knownFields(p); err != nil {
		return to, err
	}
	err := p.integers(map[string]*int{"HealthCheckGracePeriod": &to.Grace})
	if err != nil {
		return to, err
	}
	if p.has("HealthCheckType") {
		to.Health = p.get("HealthCheckType")
	}
	if list := p.list("TargetGroupARNs.member"); len(list) > 0 {
		to.Targets = list
	}
	if err := s.readExtras(p, &to.groupExtras); err != nil {
		return to, err
	}
	ref := launchRef(p, "LaunchTemplate.")
	if ref != (LaunchRef{}) {
		if to.Template, err = s.fullRef(ref); err != nil {
			return to, err
		}
		to.mixed = nil
	}
	if !p.hasBelow("MixedInstancesPolicy") {
		return to, nil
	}
	if ref != (LaunchRef{}) || p.has("LaunchConfigurationName") {
		return to, malformed("Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
	}
	var policy mixedShape
	if err := queryShape(p, "MixedInstancesPolicy", &policy); err != nil {
		return to, err
	}
	if to.mixed, ref, err = policy.policy(); err != nil {
		return to, err
	}
	to.Template, err = s.fullRef(ref)
	return to, err
}

// readExtras reads settings that change nothing here; absent ones stay.
func (s *AutoScaling) readExtras(p params, to *groupExtras) (err error) {
	if to.Rebalance, err = p.flag("CapacityRebalance", to.Rebalance); err != nil {
		return err
	}
	if err := p.integers(map[string]*int{"MaxInstanceLifetime": &to.Lifetime}); err != nil {
		return err
	}
	if n := to.Lifetime; n != 0 && (n < leastLifetime || n > mostLifetime) {
		return malformed("MaxInstanceLifetime must be 0, or between %d and %d", leastLifetime, mostLifetime)
	}
	return nil
}

// hasBelow reports whether the call has any field of a structure.
func (p params) hasBelow(name string) bool {
	for key := range p {
		if strings.HasPrefix(key, name+".") {
			return true
		}
	}
	return false
}

// fullRef completes a reference with the template's id and name, and checks that it can launch a machine.
func (s *AutoScaling) fullRef(ref LaunchRef) (LaunchRef, error) {
	t, v, err := s.ec2().resolved(ref)
	if err == nil {
		_, err = s.ec2().planned(t, v, HomeRegion+"a", "")
	}
	if err != nil {
		return ref, malformed("You must use a valid fully-formed launch template. %s", refusal(err).Message)
	}
	if ref.Version == "" {
		ref.Version = versionDefault
	}
	return LaunchRef{t.ID, t.Name, ref.Version}, nil
}

// spot is where a machine may be launched.
type spot struct{ zone, subnet string }

// spots lists a group's zones, or its subnets where it has them.
func (s *AutoScaling) spots(g *Group) ([]spot, error) {
	var list []spot
	if g.Subnet == "" {
		for _, zone := range g.Zones {
			list = append(list, spot{zone: zone})
		}
		return list, nil
	}
	for n, id := range strings.Split(g.Subnet, ",") {
		subnet, err := s.ec2().network.subnet(strings.TrimSpace(id))
		if err != nil {
			return nil, malformed("%s", refusal(err).Message)
		}
		if subnet.Zone == "" {
			subnet.Zone = HomeRegion + "a"
			if len(g.Zones) > 0 {
				subnet.Zone = g.Zones[n%len(g.Zones)]
			}
		}
		list = append(list, spot{subnet.Zone, subnet.ID})
	}
	return list, nil
}

// settleZones fills in a group's zones from its subnets.
func (s *AutoScaling) settleZones(g *Group) error {
	list, err := s.spots(g)
	if err != nil || g.Subnet == "" {
		return err
	}
	var zones []string
	for _, p := range list {
		if !slices.Contains(zones, p.zone) {
			zones = append(zones, p.zone)
		}
	}
	if len(g.Zones) > 0 && !sameSet(g.Zones, zones) {
		return malformed("The availability zones of the specified subnets and the AutoScalingGroup do not match")
	}
	g.Zones = zones
	return nil
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// choose returns where the next machine is launched: the subnet with the fewest of the group's machines, or the next
// zone.
func (s *AutoScaling) choose(g *group) (spot, error) {
	list, err := s.spots(&g.Group)
	if err != nil {
		return spot{}, err
	}
	if g.Subnet == "" {
		return list[s.serial%len(list)], nil
	}
	load := map[string]int{}
	for _, i := range g.active() {
		m, _ := s.ec2().machine(i.ID)
		load[m.Subnet]++
	}
	return slices.MinFunc(list, func(a, b spot) int { return load[a.subnet] - load[b.subnet] }), nil
}

// template returns the launch template and the policy for the next launch: the refresh's desired ones while a refresh is active.
func (g *group) template() (LaunchRef, *mixedPolicy) {
	if r := g.refreshing(); r != nil && r.desired != nil && r.status != refreshRollback {
		return *r.desired, r.mixed
	}
	return g.settings.Template, g.settings.mixed
}

// run starts a machine for the group, and returns the launch template version that it used.
func (s *AutoScaling) run(g *group, at spot) (Machine, LaunchRef, error) {
	if err := s.refused("launch", g); err != nil {
		return Machine{}, LaunchRef{}, err
	}
	m, from := Machine{Image: g.Image, Type: g.Type, Zone: at.zone, Subnet: at.subnet, Role: g.Role, UserData: g.UserData, Tags: map[string]string{}}, LaunchRef{}
	if ref, mixed := g.template(); ref != (LaunchRef{}) {
		t, v, err := s.ec2().resolved(LaunchRef{ID: ref.ID, Version: ref.Version})
		if err != nil {
			return m, from, err
		}
		if m, err = s.ec2().planned(t, v, at.zone, at.subnet); err != nil {
			return m, from, err
		}
		from = LaunchRef{t.ID, t.Name, strconv.Itoa(v.Number)}
		if mixed != nil {
			kind, spot := mixed.next(g, func(id string) Machine { m, _ := s.ec2().machine(id); return m })
			m.Type, m.Spot = cmp.Or(kind, m.Type), spot
		}
	}
	maps.Copy(m.Tags, map[string]string{"aws:autoscaling:groupName": g.Name})
	for key, value := range g.Tags {
		if !g.Unpropagated[key] {
			m.Tags[key] = value
		}
	}
	m, err := s.ec2().run(m)
	return m, from, err
}

// matches reports whether a launch from ref, by the policy if there is one, could now make the same instance ("Use an instance refresh
// with skip matching", AutoScaling's user guide).
func (s *AutoScaling) matches(i *instance, ref LaunchRef, mixed *mixedPolicy) bool {
	t, v, err := s.ec2().resolved(LaunchRef{ID: ref.ID, Version: ref.Version})
	if err != nil || i.Template != (LaunchRef{t.ID, t.Name, strconv.Itoa(v.Number)}) {
		return false
	}
	m, _ := s.ec2().machine(i.ID)
	kind := m.Type == v.Data.Type || v.Data.Type == ""
	if mixed != nil && len(mixed.types) > 0 {
		kind = slices.Contains(mixed.types, m.Type)
	}
	image, err := s.ec2().image(v.Data.Image)
	return err == nil && m.Image == image && kind
}

type xmlLaunchRef struct {
	ID      string `xml:"LaunchTemplateId"`
	Name    string `xml:"LaunchTemplateName"`
	Version string `xml:"Version"`
}

func (r LaunchRef) xml() *xmlLaunchRef {
	if r == (LaunchRef{}) {
		return nil
	}
	return &xmlLaunchRef{r.ID, r.Name, r.Version}
}
