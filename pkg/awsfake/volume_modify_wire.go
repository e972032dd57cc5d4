package awsfake

import "strconv"

type xmlModification struct {
	VolumeID   string `xml:"volumeId"`
	State      string `xml:"modificationState"`
	Progress   int    `xml:"progress"`
	Started    string `xml:"startTime"`
	Ended      string `xml:"endTime,omitempty"`
	TargetSize int    `xml:"targetSize"`
	TargetIOPS int    `xml:"targetIops,omitempty"`
	TargetType string `xml:"targetVolumeType"`
	TargetMBs  int    `xml:"targetThroughput,omitempty"`
	xmlModificationOriginal
}

type xmlModificationOriginal struct {
	Size int    `xml:"originalSize"`
	IOPS int    `xml:"originalIops,omitempty"`
	Type string `xml:"originalVolumeType"`
	MBs  int    `xml:"originalThroughput,omitempty"`
}

func modificationXML(id string, c VolumeChange) xmlModification {
	x := xmlModification{
		VolumeID: id, State: c.State, Started: stamp(c.Started),
		TargetSize: c.Target.Size, TargetIOPS: c.Target.IOPS, TargetType: c.Target.Type, TargetMBs: c.Target.Throughput,
		xmlModificationOriginal: xmlModificationOriginal{c.Original.Size, c.Original.IOPS, c.Original.Type, c.Original.Throughput},
	}
	if c.State == modified {
		x.Progress, x.Ended = 100, stamp(c.Ended)
	}
	return x
}

func (e *EC2) modifyVolumeCall(p params) (any, error) {
	values, err := p.needed("VolumeId")
	if err != nil {
		return nil, err
	}
	target, err := p.settings()
	if err != nil {
		return nil, err
	}
	change, err := e.modifyVolume(values[0], target)
	if err != nil {
		return nil, err
	}
	return struct {
		Change xmlModification `xml:"volumeModification"`
	}{modificationXML(values[0], change)}, nil
}

// describeModifications lists the last modification of each volume. A volume that is named and was never modified is
// refused, as AWS's own tools know it (InvalidVolumeModification.NotFound).
func (e *EC2) describeModifications(p params) (any, error) {
	list, err := e.selectVolumes(p)
	if err != nil {
		return nil, err
	}
	filters := filtersOf(p.structs("Filter"), "Value", true)
	var kept []xmlModification
	for _, v := range list {
		c := v.Change
		if c.State == "" {
			if p.has("VolumeId.1") {
				return nil, refuse("InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.", v.ID)
			}
			continue
		}
		ok, err := passAll(filters, map[string][]string{
			"volume-id": {v.ID}, "modification-state": {c.State}, "start-time": {stamp(c.Started)},
			"original-size": {strconv.Itoa(c.Original.Size)}, "original-iops": {strconv.Itoa(c.Original.IOPS)}, "original-volume-type": {c.Original.Type},
			"target-size": {strconv.Itoa(c.Target.Size)}, "target-iops": {strconv.Itoa(c.Target.IOPS)}, "target-volume-type": {c.Target.Type},
		}, nil)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, modificationXML(v.ID, c))
		}
	}
	kept, token, err := paged(p, "VolumeId", "volumesSet", kept)
	if err != nil {
		return nil, err
	}
	return struct {
		Changes   []xmlModification `xml:"volumeModificationSet>item"`
		NextToken string            `xml:"nextToken,omitempty"`
	}{kept, token}, nil
}
