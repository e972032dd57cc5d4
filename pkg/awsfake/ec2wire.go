package awsfake

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// actions are the calls of EC2's Query protocol (version 2016-11-15) that are understood.
func (e *EC2) actions() actions {
	all := actions{
		"DescribeInstances":     e.describeInstances,
		"RunInstances":          e.runInstances,
		"TerminateInstances":    e.terminateInstances,
		"DescribeInstanceTypes": strict(e.describeTypes, "InstanceType", "Filter", "MaxResults", "NextToken"),
		"DescribeSubnets":       strict(e.describeSubnets, "SubnetId", "Filter", "MaxResults", "NextToken"),
		"DescribeVpcAttribute":  strict(e.describeVPCAttribute, "VpcId", "Attribute"),
		"DescribeRouteTables":   strict(e.describeRouteTables, "RouteTableId", "Filter", "MaxResults", "NextToken"),
		"DescribeVpcEndpoints":  strict(e.describeEndpoints, "VpcEndpointId", "Filter", "MaxResults", "NextToken"),

		"DeleteLaunchTemplateVersions": strict(e.deleteVersionsCall, "LaunchTemplateId", "LaunchTemplateName", "LaunchTemplateVersion"),
		"ModifyLaunchTemplate":         strict(e.setDefaultCall, "LaunchTemplateId", "LaunchTemplateName", "SetDefaultVersion", "ClientToken"),
		"CreateLaunchTemplate":         e.createTemplateCall, "CreateLaunchTemplateVersion": e.createVersionCall,
		"DescribeLaunchTemplates": e.describeTemplates, "DescribeLaunchTemplateVersions": e.describeVersions,
	}
	maps.Copy(all, e.volumeCalls())
	return all
}

type xmlTag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type xmlState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type xmlMachine struct {
	InstanceID   string       `xml:"instanceId"`
	ImageID      string       `xml:"imageId"`
	State        xmlState     `xml:"instanceState"`
	InstanceType string       `xml:"instanceType"`
	Lifecycle    string       `xml:"instanceLifecycle,omitempty"`
	LaunchTime   string       `xml:"launchTime"`
	Zone         string       `xml:"placement>availabilityZone"`
	SubnetID     string       `xml:"subnetId,omitempty"`
	PrivateIP    string       `xml:"privateIpAddress,omitempty"`
	PublicIP     string       `xml:"ipAddress,omitempty"`
	PublicName   string       `xml:"dnsName,omitempty"`
	IPv6         string       `xml:"ipv6Address,omitempty"`
	Disks        []xmlMapping `xml:"blockDeviceMapping>item"`
	Profile      *xmlProfile  `xml:"iamInstanceProfile"`
	machineLists
}

// lifecycle is how the machine is paid for, empty for an on-demand instance.
func (m Machine) lifecycle() string {
	if m.Spot {
		return "spot"
	}
	return ""
}

type xmlProfile struct {
	ARN string `xml:"arn"`
}

// machineLists are the fields of xmlMachine that are structures.
type machineLists struct {
	Tags       []xmlTag         `xml:"tagSet>item"`
	Interfaces []xmlInterface   `xml:"networkInterfaceSet>item"`
	Groups     []xmlGroupID     `xml:"groupSet>item"`
	Metadata   *MetadataOptions `xml:"metadataOptions"`
}

type xmlGroupID struct {
	ID string `xml:"groupId"`
}

type xmlInterface struct {
	PrivateIP  string   `xml:"privateIpAddress"`
	PublicIP   string   `xml:"association>publicIp,omitempty"`
	PublicName string   `xml:"association>publicDnsName,omitempty"`
	IPv6       []string `xml:"ipv6AddressesSet>item>ipv6Address"`
}

type xmlMapping struct {
	Device     string `xml:"deviceName"`
	VolumeID   string `xml:"ebs>volumeId"`
	Status     string `xml:"ebs>status"`
	AttachTime string `xml:"ebs>attachTime"`
	Delete     bool   `xml:"ebs>deleteOnTermination"`
}

// mappingXML is an attachment as an instance shows it; the instance has no word for busy.
func mappingXML(v Volume) xmlMapping {
	at := v.Attachment
	if at.State == AttachmentBusy {
		at.State = Detaching
	}
	return xmlMapping{Device: at.Device, VolumeID: v.ID, Status: at.State, AttachTime: stamp(at.Since)}
}

type xmlReservation struct {
	ID        string       `xml:"reservationId"`
	OwnerID   string       `xml:"ownerId"`
	Instances []xmlMachine `xml:"instancesSet>item"`
}

func tagsXML(tags map[string]string) []xmlTag {
	var list []xmlTag
	for _, key := range sortedKeys(tags) {
		list = append(list, xmlTag{key, tags[key]})
	}
	return list
}

func stateXML(state string) xmlState {
	codes := map[string]int{MachinePending: 0, MachineRunning: 16, MachineShuttingDown: 32, MachineTerminated: 48, MachineStopping: 64, MachineStopped: 80}
	return xmlState{codes[state], state}
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// publicName is the public DNS name that EC2 gives a machine with a public address, in a VPC with DNS host names ("EC2 instance
// hostnames and domains").
func publicName(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return "ec2-" + strings.ReplaceAll(a.String(), ".", "-") + "." + HomeRegion + ".compute.amazonaws.com"
}

func machineXML(m Machine, disks []Volume) xmlReservation {
	x := xmlMachine{
		InstanceID: m.ID, ImageID: m.Image, State: stateXML(m.State), InstanceType: m.Type, Lifecycle: m.lifecycle(), LaunchTime: stamp(m.Launched), Zone: m.Zone,
		SubnetID: m.Subnet, PrivateIP: text(m.Private), PublicIP: text(m.Public), PublicName: publicName(m.Public), IPv6: text(m.Private6),
		machineLists: machineLists{Tags: tagsXML(m.Tags)},
	}
	if m.Role != "" {
		x.Profile = &xmlProfile{"arn:aws:iam::" + owner + ":instance-profile/" + m.Role}
	}
	if m.Launch != nil {
		x.Metadata = m.Launch.Metadata
		for _, id := range m.Launch.SecurityGroups {
			x.Groups = append(x.Groups, xmlGroupID{id})
		}
	}
	for _, v := range disks {
		if v.Attachment.Instance == m.ID {
			x.Disks = append(x.Disks, mappingXML(v))
		}
	}
	if m.Private.IsValid() {
		nic := xmlInterface{PrivateIP: x.PrivateIP, PublicIP: x.PublicIP, PublicName: x.PublicName}
		if x.IPv6 != "" {
			nic.IPv6 = []string{x.IPv6}
		}
		x.Interfaces = []xmlInterface{nic}
	}
	return xmlReservation{ID: "r-" + strings.TrimPrefix(m.ID, "i-"), OwnerID: owner, Instances: []xmlMachine{x}}
}

func noInstance(ids ...string) error {
	if len(ids) == 1 {
		return refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", ids[0])
	}
	return refuse("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(ids, ", "))
}

var instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// selectMachines returns the machines with these IDs: all machines if ids is empty. A missing machine fails the call.
func selectMachines(list []Machine, ids []string) ([]Machine, error) {
	if len(ids) == 0 {
		return list, nil
	}
	var missing []string
	for _, id := range ids {
		if !instanceID.MatchString(id) {
			return nil, refuse("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
		if !slices.ContainsFunc(list, func(m Machine) bool { return m.ID == id }) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return nil, noInstance(missing...)
	}
	return slices.DeleteFunc(list, func(m Machine) bool { return !slices.Contains(ids, m.ID) }), nil
}

func (e *EC2) describeInstances(p params) (any, error) {
	ids := p.list("InstanceId")
	if len(ids) > 0 && p.has("MaxResults") {
		return nil, refuse("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	size, err := p.integer("MaxResults", 1000)
	if err != nil {
		return nil, err
	}
	if size < 5 || size > 1000 {
		return nil, refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between 5 and 1000.", size)
	}
	list, err := selectMachines(e.visible(), ids)
	if err != nil {
		return nil, err
	}
	kept := list[:0]
	filters := filtersOf(p.structs("Filter"), "Value", true)
	for _, m := range list {
		ok, err := machinePasses(m, filters)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, m)
		}
	}
	kept, token, err := page(kept, size, p.get("NextToken"))
	if err != nil {
		return nil, err
	}
	out := struct {
		Reservations []xmlReservation `xml:"reservationSet>item"`
		NextToken    string           `xml:"nextToken,omitempty"`
	}{NextToken: token}
	disks := e.visibleVolumes()
	for _, m := range kept {
		out.Reservations = append(out.Reservations, machineXML(m, disks))
	}
	return out, nil
}

func machinePasses(m Machine, filters []filter) (bool, error) {
	for _, f := range filters {
		fields := map[string][]string{
			"instance-id": {m.ID}, "instance-state-name": {m.State}, "instance-state-code": {strconv.Itoa(stateXML(m.State).Code)},
			"availability-zone": {m.Zone}, "subnet-id": {m.Subnet}, "image-id": {m.Image}, "instance-type": {m.Type},
			"private-ip-address": {text(m.Private)}, "ip-address": {text(m.Public)},
			"network-interface.ipv6-addresses.ipv6-address": {text(m.Private6)},
		}
		ok, err := passes(f, fields, m.Tags)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// passes evaluates one filter over an object's fields and tags; an unknown filter fails the call.
func passes(f filter, fields map[string][]string, tags map[string]string) (bool, error) {
	if key, ok := strings.CutPrefix(f.name, "tag:"); ok {
		value, has := tags[key]
		return has && f.matches(value), nil
	}
	if f.name == "tag-key" {
		return f.matches(sortedKeys(tags)...), nil
	}
	values, known := fields[f.name]
	if !known {
		return false, refuse("InvalidParameterValue", "The filter '%s' is invalid", f.name)
	}
	return f.matches(values...), nil
}

func (e *EC2) runInstances(p params) (any, error) {
	count, err := p.integer("MaxCount", 1)
	if err != nil {
		return nil, err
	}
	template := Machine{Image: p.get("ImageId"), Type: p.get("InstanceType"), Zone: p.get("Placement.AvailabilityZone"), Subnet: p.get("SubnetId"), Tags: map[string]string{}}
	for _, spec := range p.structs("TagSpecification") {
		if spec.get("ResourceType") == "instance" {
			for _, tag := range spec.structs("Tag") {
				template.Tags[tag.get("Key")] = tag.get("Value")
			}
		}
	}
	if template.Zone == "" {
		template.Zone = HomeRegion + "a"
	}
	out := xmlReservation{}
	for range count {
		m, err := e.run(template)
		if err != nil {
			return nil, err
		}
		r := machineXML(m, nil)
		out.ID, out.OwnerID = r.ID, r.OwnerID
		out.Instances = append(out.Instances, r.Instances...)
	}
	return out, nil
}

type xmlChange struct {
	InstanceID string   `xml:"instanceId"`
	Current    xmlState `xml:"currentState"`
	Previous   xmlState `xml:"previousState"`
}

func (e *EC2) terminateInstances(p params) (any, error) {
	out := struct {
		Changes []xmlChange `xml:"instancesSet>item"`
	}{}
	ids := p.list("InstanceId")
	for _, id := range ids {
		if _, ok := e.machine(id); !ok {
			return nil, noInstance(id)
		}
	}
	for _, id := range ids {
		before, _ := e.machine(id)
		e.terminate(id)
		after, _ := e.machine(id)
		out.Changes = append(out.Changes, xmlChange{id, stateXML(after.State), stateXML(before.State)})
	}
	return out, nil
}

// xmlReturn answers calls that return nothing but success.
type xmlReturn struct {
	Return bool `xml:"return"`
}

func (e *EC2) serve(c *call) (any, error) { return e.actions().serve(c) }
