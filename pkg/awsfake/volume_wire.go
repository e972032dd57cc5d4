package awsfake

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// volumeCalls are EC2's calls about volumes.
func (e *EC2) volumeCalls() actions {
	return actions{
		"CreateVolume":                 strict(e.createVolumeCall, "AvailabilityZone", "Size", "VolumeType", "Iops", "Throughput", "Encrypted", "KmsKeyId", "ClientToken", "TagSpecification"),
		"DescribeVolumes":              e.describeVolumes,
		"AttachVolume":                 strict(e.attachVolumeCall, "VolumeId", "InstanceId", "Device"),
		"DetachVolume":                 strict(e.detachVolumeCall, "VolumeId", "InstanceId", "Device", "Force"),
		"DeleteVolume":                 strict(e.deleteVolumeCall, "VolumeId"),
		"ModifyVolume":                 strict(e.modifyVolumeCall, "VolumeId", "Size", "VolumeType", "Iops", "Throughput"),
		"DescribeVolumesModifications": strict(e.describeModifications, "VolumeId", "Filter", "MaxResults", "NextToken"),
	}
}

// strict refuses parameters other than these, and DryRun once the caller's permissions are known to suffice.
func strict(do func(params) (any, error), known ...string) func(params) (any, error) {
	return func(p params) (any, error) {
		for name := range p {
			plain, _, _ := strings.Cut(name, ".")
			if !slices.Contains(known, plain) && plain != "Action" && plain != "Version" && plain != "DryRun" {
				return nil, refuse("UnknownParameter", "The parameter %s is not recognized (or awsfake does not model it)", name)
			}
		}
		switch dry, err := p.flag("DryRun", false); {
		case err != nil:
			return nil, err
		case dry:
			return nil, &Error{Status: 412, Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set."}
		}
		return do(p)
	}
}

var volumeID = regexp.MustCompile(`^vol-([0-9a-f]{8}|[0-9a-f]{17})$`)

// needed returns the values of a call's parameters, all of which must be there. IDs must have their form.
func (p params) needed(names ...string) ([]string, error) {
	var values []string
	for _, name := range names {
		value := p.get(name)
		switch {
		case value == "":
			return nil, refuse("MissingParameter", "The request must contain the parameter %s", strings.ToLower(name[:1])+name[1:])
		case name == "VolumeId" && !volumeID.MatchString(value):
			return nil, badVolumeID(value)
		case name == "InstanceId" && !instanceID.MatchString(value):
			return nil, refuse("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", value)
		}
		values = append(values, value)
	}
	return values, nil
}

func badVolumeID(id string) error {
	return refuse("InvalidVolumeID.Malformed", "Invalid id: \"%s\" (expecting \"vol-...\")", id)
}

type xmlAttachment struct {
	VolumeID   string `xml:"volumeId"`
	InstanceID string `xml:"instanceId"`
	Device     string `xml:"device"`
	Status     string `xml:"status"`
	AttachTime string `xml:"attachTime"`
	Delete     bool   `xml:"deleteOnTermination"`
}

func attachmentXML(v Volume) xmlAttachment {
	at := v.Attachment
	return xmlAttachment{VolumeID: v.ID, InstanceID: at.Instance, Device: at.Device, Status: at.State, AttachTime: stamp(at.Since)}
}

type xmlVolume struct {
	VolumeID    string          `xml:"volumeId"`
	Size        int             `xml:"size"`
	SnapshotID  string          `xml:"snapshotId"`
	Zone        string          `xml:"availabilityZone"`
	Status      string          `xml:"status"`
	CreateTime  string          `xml:"createTime"`
	Attachments []xmlAttachment `xml:"attachmentSet>item"`
	Tags        []xmlTag        `xml:"tagSet>item"`
	xmlVolumeSettings
}

type xmlVolumeSettings struct {
	Type       string `xml:"volumeType"`
	IOPS       int    `xml:"iops,omitempty"`
	Throughput int    `xml:"throughput,omitempty"`
	Encrypted  bool   `xml:"encrypted"`
	Key        string `xml:"kmsKeyId,omitempty"`
	Multi      bool   `xml:"multiAttachEnabled"`
}

func volumeXML(v Volume) xmlVolume {
	x := xmlVolume{
		VolumeID: v.ID, Size: v.Size, Zone: v.Zone, Status: v.State, CreateTime: stamp(v.Created), Tags: tagsXML(v.Tags),
		xmlVolumeSettings: xmlVolumeSettings{Type: v.Type, IOPS: v.IOPS, Throughput: v.Throughput, Encrypted: v.Key != "", Key: v.Key},
	}
	if v.Attachment.Instance != "" {
		x.Attachments = []xmlAttachment{attachmentXML(v)}
	}
	return x
}

var zonePattern = regexp.MustCompile(`^` + HomeRegion + `[a-d]$`)

// settings reads a volume's settings from a call.
func (p params) settings() (s VolumeSettings, err error) {
	s.Type = p.get("VolumeType")
	for name, into := range map[string]*int{"Size": &s.Size, "Iops": &s.IOPS, "Throughput": &s.Throughput} {
		if *into, err = p.integer(name, 0); err != nil {
			return s, err
		}
	}
	return s, nil
}

// createVolumeCall makes an empty volume. A key that does not exist fails it later, and not the call: AWS authenticates
// it asynchronously, and the volume disappears (API reference, CreateVolume, KmsKeyId).
func (e *EC2) createVolumeCall(p params) (any, error) {
	token := p.get("ClientToken")
	switch made, ok := e.volumes.tokens[token]; {
	case !clientToken.MatchString(token):
		return nil, invalidValue(token, "clientToken", "It has at most 64 ASCII characters.")
	case ok && made.call != sameCall(p):
		return nil, refuse("IdempotentParameterMismatch", "The client token %s was used with other parameters.", token)
	case ok:
		v, _ := e.volumes.shelf.get(made.id)
		if v.State == VolumeDeleting || v.State == VolumeDeleted {
			v.State = VolumeCreating // the harder reading: the first answer again ("Ensuring idempotency in Amazon EC2 API requests")
		}
		return volumeXML(v), nil
	}
	v, exists, err := e.newVolume(p)
	if err != nil {
		return nil, err
	}
	v = e.createVolume(v)
	if !exists {
		e.afterwards(e.options.Volumes.Create, func() { e.changeVolume(v.ID, func(v *Volume) { v.State = VolumeDeleted }) })
	}
	if token != "" {
		e.volumes.tokens[token] = tokened{sameCall(p), v.ID}
	}
	return volumeXML(v), nil
}

// newVolume reads the volume that a call asks for, and whether its key exists.
func (e *EC2) newVolume(p params) (v Volume, exists bool, err error) {
	if v.Zone = p.get("AvailabilityZone"); v.Zone == "" {
		return v, false, refuse("MissingParameter", "The request must contain the parameter availabilityZone")
	}
	encrypted, err := p.flag("Encrypted", false)
	if err != nil {
		return v, false, err
	}
	if v.VolumeSettings, err = p.settings(); err != nil {
		return v, false, err
	}
	tags, err := tagsOf(p, "volume")
	if err != nil {
		return v, false, err
	}
	v.Tags = tags["volume"]
	switch {
	case !p.has("Size"):
		return v, false, refuse("MissingParameter", "The request must contain the parameter size/snapshot")
	case p.has("KmsKeyId") && !encrypted:
		return v, false, refuse("InvalidParameterDependency", "The parameter [KmsKeyId] requires the parameter Encrypted to be set.")
	}
	if v.Key, exists = e.account.Images().keyOf(encrypted, p.get("KmsKeyId")); !exists {
		v.Key = e.account.Images().defaultKey()
	}
	return v, exists, v.check()
}

// check holds a new volume to the rules of CreateVolume.
func (v *Volume) check() error {
	if !zonePattern.MatchString(v.Zone) {
		return refuse("InvalidZone.NotFound", "The zone '%s' does not exist.", v.Zone)
	}
	return v.VolumeSettings.check()
}

func (e *EC2) attachVolumeCall(p params) (any, error) {
	values, err := p.needed("VolumeId", "InstanceId", "Device")
	if err != nil {
		return nil, err
	}
	v, err := e.attachVolume(values[0], values[1], values[2])
	if err != nil {
		return nil, err
	}
	return attachmentXML(v), nil
}

func (e *EC2) detachVolumeCall(p params) (any, error) {
	values, err := p.needed("VolumeId")
	if err != nil {
		return nil, err
	}
	d := detachment{volume: values[0], instance: p.get("InstanceId"), device: p.get("Device")}
	if d.force, err = p.flag("Force", false); err != nil {
		return nil, err
	}
	if d.instance != "" {
		if _, ok := e.machine(d.instance); !ok {
			return nil, noInstance(d.instance)
		}
	}
	v, err := e.detachVolume(d)
	if err != nil {
		return nil, err
	}
	return attachmentXML(v), nil
}

func (e *EC2) deleteVolumeCall(p params) (any, error) {
	values, err := p.needed("VolumeId")
	if err != nil {
		return nil, err
	}
	if err := e.deleteVolume(values[0]); err != nil {
		return nil, err
	}
	return xmlReturn{true}, nil
}

// selectVolumes returns the visible volumes with the IDs of a call, all if it names none.
func (e *EC2) selectVolumes(p params) ([]Volume, error) {
	list, ids := e.visibleVolumes(), p.list("VolumeId")
	for _, id := range ids {
		if !volumeID.MatchString(id) {
			return nil, badVolumeID(id)
		}
		if !slices.ContainsFunc(list, func(v Volume) bool { return v.ID == id }) {
			return nil, noVolume(id)
		}
	}
	return slices.DeleteFunc(list, func(v Volume) bool { return len(ids) > 0 && !slices.Contains(ids, v.ID) }), nil
}

func (e *EC2) describeVolumes(p params) (any, error) {
	list, err := e.selectVolumes(p)
	if err != nil {
		return nil, err
	}
	kept := list[:0]
	filters := filtersOf(p.structs("Filter"), "Value", true)
	for _, v := range list {
		ok, err := passAll(filters, volumeFields(v), v.Tags)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, v)
		}
	}
	kept, token, err := paged(p, "VolumeId", "volumesSet", kept)
	if err != nil {
		return nil, err
	}
	out := struct {
		Volumes   []xmlVolume `xml:"volumeSet>item"`
		NextToken string      `xml:"nextToken,omitempty"`
	}{NextToken: token}
	for _, v := range kept {
		out.Volumes = append(out.Volumes, volumeXML(v))
	}
	return out, nil
}

// volumeFields are what volumes can be filtered by (API reference, DescribeVolumes, Filter).
func volumeFields(v Volume) map[string][]string {
	fields := map[string][]string{
		"volume-id": {v.ID}, "status": {v.State}, "availability-zone": {v.Zone}, "create-time": {stamp(v.Created)}, "size": {strconv.Itoa(v.Size)},
		"volume-type": {v.Type}, "encrypted": {strconv.FormatBool(v.Key != "")}, "multi-attach-enabled": {"false"}, "snapshot-id": {},
		"attachment.instance-id": {}, "attachment.device": {}, "attachment.status": {}, "attachment.attach-time": {}, "attachment.delete-on-termination": {},
	}
	if at := v.Attachment; at.Instance != "" {
		fields["attachment.instance-id"], fields["attachment.device"] = []string{at.Instance}, []string{at.Device}
		fields["attachment.status"], fields["attachment.attach-time"] = []string{at.State}, []string{stamp(at.Since)}
		fields["attachment.delete-on-termination"] = []string{"false"}
	}
	return fields
}
