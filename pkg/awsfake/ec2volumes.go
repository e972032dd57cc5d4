package awsfake

import (
	"maps"
	"slices"
)

// CreateVolume makes a volume of size GiB in a zone.
func (e *EC2) CreateVolume(zone string, size int, tags map[string]string) (v Volume) {
	e.account.locked(func() { v = e.createVolume(zone, size, tags) })
	return v
}

func (e *EC2) createVolume(zone string, size int, tags map[string]string) Volume {
	now := e.now()
	v := Volume{ID: "vol-" + hexID("volume", len(e.disks), 17), Zone: zone, Size: size, Created: now, Tags: maps.Clone(tags)}
	e.disks = append(e.disks, v.ID)
	e.volumes[v.ID] = &past[Volume]{}
	e.volumes[v.ID].put(now, e.options.Lag, v)
	return v
}

// AttachVolume attaches a volume to a machine of the same zone. It fails if another machine has the volume, or the
// machine is neither running nor stopped.
func (e *EC2) AttachVolume(id, instance, device string) (v Volume, err error) {
	e.account.locked(func() { v, err = e.attachVolume(id, instance, device) })
	return v, err
}

func (e *EC2) attachVolume(id, instance, device string) (Volume, error) {
	history, ok := e.volumes[id]
	if !ok {
		return Volume{}, noVolume(id)
	}
	machine, ok := e.machines[instance]
	if !ok {
		return Volume{}, noInstance(instance)
	}
	v, m := history.last(), machine.last()
	switch {
	case v.Instance != "":
		return Volume{}, refuse("VolumeInUse", "%s is already attached to an instance", id)
	case v.Zone != m.Zone:
		return Volume{}, refuse("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", id, instance)
	case m.State != MachineRunning && m.State != MachineStopped:
		return Volume{}, refuse("IncorrectState", "Instance '%s' is not 'running'.", instance)
	}
	v.Instance, v.Device, v.Attached = instance, device, e.now()
	history.put(v.Attached, e.options.Lag, v)
	e.notifyVolume(v)
	return v, nil
}

func noVolume(id string) error {
	return refuse("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
}

// visibleVolumes lists the volumes that a describe call sees now.
func (e *EC2) visibleVolumes() []Volume {
	var list []Volume
	for _, id := range e.disks {
		if v, ok := e.volumes[id].at(e.now().Add(-e.options.Lag)); ok {
			list = append(list, v)
		}
	}
	return list
}

type xmlAttachment struct {
	VolumeID   string `xml:"volumeId"`
	InstanceID string `xml:"instanceId"`
	Device     string `xml:"device"`
	Status     string `xml:"status"`
	AttachTime string `xml:"attachTime"`
}

type xmlVolume struct {
	VolumeID    string          `xml:"volumeId"`
	Size        int             `xml:"size"`
	Zone        string          `xml:"availabilityZone"`
	Status      string          `xml:"status"`
	CreateTime  string          `xml:"createTime"`
	Attachments []xmlAttachment `xml:"attachmentSet>item"`
	Tags        []xmlTag        `xml:"tagSet>item"`
	VolumeType  string          `xml:"volumeType"`
}

func volumeXML(v Volume) xmlVolume {
	x := xmlVolume{VolumeID: v.ID, Size: v.Size, Zone: v.Zone, Status: "available", CreateTime: stamp(v.Created), Tags: tagsXML(v.Tags), VolumeType: "gp3"}
	if v.Instance != "" {
		x.Status = "in-use"
		x.Attachments = []xmlAttachment{{VolumeID: v.ID, InstanceID: v.Instance, Device: v.Device, Status: "attached", AttachTime: stamp(v.Attached)}}
	}
	return x
}

func (e *EC2) describeVolumes(p params) (any, error) {
	list := e.visibleVolumes()
	if ids := p.list("VolumeId"); len(ids) > 0 {
		for _, id := range ids {
			if !slices.ContainsFunc(list, func(v Volume) bool { return v.ID == id }) {
				return nil, noVolume(id)
			}
		}
		list = slices.DeleteFunc(list, func(v Volume) bool { return !slices.Contains(ids, v.ID) })
	}
	kept := list[:0]
	filters := filtersOf(p.structs("Filter"), "Value", true)
	for _, v := range list {
		ok, err := volumePasses(v, filters)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, v)
		}
	}
	size, err := p.integer("MaxResults", 1000)
	if err != nil {
		return nil, err
	}
	kept, token, err := page(kept, size, p.get("NextToken"))
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

func volumePasses(v Volume, filters []filter) (bool, error) {
	for _, f := range filters {
		status := "available"
		if v.Instance != "" {
			status = "in-use"
		}
		fields := map[string][]string{
			"volume-id": {v.ID}, "status": {status}, "availability-zone": {v.Zone},
			"attachment.instance-id": {v.Instance}, "attachment.device": {v.Device},
		}
		ok, err := passes(f, fields, v.Tags)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}
