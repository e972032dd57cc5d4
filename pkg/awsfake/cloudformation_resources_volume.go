package awsfake

import "maps"

// volumeShape are the properties of AWS::EC2::Volume that are modelled. The type's schema has no createOnlyProperties:
// no change of a property replaces a volume.
type volumeShape struct {
	Zone       string      `cfn:"AvailabilityZone,required"`
	Size       int         `cfn:"Size,required"`
	Type       string      `cfn:"VolumeType"`
	IOPS       int         `cfn:"Iops"`
	Throughput int         `cfn:"Throughput"`
	Encrypted  bool        `cfn:"Encrypted"`
	Key        string      `cfn:"KmsKeyId"`
	Tags       []LaunchTag `cfn:"Tags"`
}

func (w *volumeShape) settings() VolumeSettings {
	return VolumeSettings{Type: w.Type, Size: w.Size, IOPS: w.IOPS, Throughput: w.Throughput}
}

func volumeKinds() map[string]resourceKind {
	return map[string]resourceKind{
		kindVolume: kind[volumeShape]{attributes: []string{"VolumeId"}, make: (*provision).makeVolume, change: (*provision).changeVolume, drop: (*provision).dropVolume},
	}
}

// volumeTags are a volume's tags: the stack's and its own. CloudFormation's are not among them (cloudFormationSystemTags
// is false in the schema).
func (p *provision) volumeTags(own []LaunchTag) map[string]string {
	tags := maps.Clone(p.stack.tags)
	if tags == nil {
		tags = map[string]string{}
	}
	for _, tag := range own {
		tags[tag.Key] = tag.Value
	}
	return tags
}

func (p *provision) makeVolume(want *volumeShape) error {
	e := p.cf.account.regional.ec2
	v := Volume{Zone: want.Zone, VolumeSettings: want.settings(), Tags: p.volumeTags(want.Tags)}
	if err := checkTags(v.Tags); err != nil {
		return err
	}
	var ok bool
	switch v.Key, ok = p.cf.account.Images().keyOf(want.Encrypted, want.Key); {
	case want.Key != "" && !want.Encrypted:
		return refuse("InvalidParameterDependency", "The parameter [KmsKeyId] requires the parameter Encrypted to be set.")
	case !ok:
		return refuse("InvalidKmsKey.InvalidState", "The KMS key %s does not exist, or EC2 may not use it.", want.Key)
	}
	if err := v.check(); err != nil {
		return err
	}
	v = e.createVolume(v)
	p.setID(v.ID, "VolumeId", v.ID)
	return nil
}

// changeVolume updates a volume in place. Its page and its schema call changes of the zone, the encryption and the key
// updates without interruption, and earlier pages "not supported"; EC2 has no call for them. They fail here.
func (p *provision) changeVolume(want, was *volumeShape) error {
	e := p.cf.account.regional.ec2
	v, ok := e.volume(p.physical)
	switch {
	case !ok:
		return noVolume(p.physical)
	case want.Zone != was.Zone:
		return malformed("Update of AWS::EC2::Volume is not supported for the property AvailabilityZone")
	case want.Encrypted != was.Encrypted || want.Key != was.Key:
		return malformed("Update of AWS::EC2::Volume is not supported for the properties Encrypted and KmsKeyId")
	}
	target := want.settings()
	if target.Size < v.Size && p.goesBack() {
		target.Size = v.Size // "does not attempt to modify an Amazon EBS volume to a smaller size on rollback"
	}
	if want.settings() != was.settings() && target.over(v.VolumeSettings) != v.VolumeSettings {
		if _, err := e.modifyVolume(p.physical, target); err != nil {
			return err
		}
	}
	e.changeVolume(p.physical, func(v *Volume) { v.Tags = p.volumeTags(want.Tags) })
	return nil
}

// goesBack reports whether an update is part of a rollback.
func (p *provision) goesBack() bool { return p.stack.status == stateUpdateRollback+begun }

// dropVolume deletes a volume, after a snapshot of it where its DeletionPolicy is Snapshot ("all tags on the volume are
// included in the snapshot").
func (p *provision) dropVolume(*volumeShape) (bool, error) {
	e := p.cf.account.regional.ec2
	v, ok := e.volume(p.physical)
	if err := e.deleteVolume(p.physical); err != nil {
		return true, err
	}
	if images := p.cf.account.Images(); ok && p.deletion == takeSnapshot {
		s := images.add(Snapshot{Volume: v.ID, Size: v.Size, Key: v.Key, Tags: maps.Clone(v.Tags)}, nil)
		images.finish(s.ID, SnapshotCompleted)
	}
	return true, nil
}
