package awsfake

import (
	"cmp"
	"time"
)

// The states of a volume's modification (API reference, VolumeModification).
const (
	modifying  = "modifying"
	optimizing = "optimizing"
	modified   = "completed"
)

// modificationPause is how long a volume cannot be modified again. The API reference (ModifyVolume) allows four
// modifications in 24 hours, one after another; earlier pages, and CloudFormation's of AWS::EC2::Volume, speak of a
// pause, which was of six hours. The pause is harder.
const modificationPause = 6 * time.Hour

// VolumeChange is a modification of a volume.
type VolumeChange struct {
	State            string
	Original, Target VolumeSettings
	Started, Ended   time.Time
}

// over returns settings with those of was in the place of the zero ones. Another type has its own IOPS and throughput.
func (s VolumeSettings) over(was VolumeSettings) VolumeSettings {
	s.Type, s.Size = cmp.Or(s.Type, was.Type), cmp.Or(s.Size, was.Size)
	if s.Type == was.Type {
		s.IOPS, s.Throughput = cmp.Or(s.IOPS, was.IOPS), cmp.Or(s.Throughput, was.Throughput)
	}
	return s
}

// modifyVolume changes a volume's settings; zero fields of target are as before. The new size is there once the volume
// is optimizing, and a file system on it has to be extended.
func (e *EC2) modifyVolume(id string, target VolumeSettings) (VolumeChange, error) {
	v, ok := e.volume(id)
	if !ok {
		return VolumeChange{}, noVolume(id)
	}
	if target == (VolumeSettings{}) {
		return VolumeChange{}, refuse("InvalidParameterValue", "Invalid input: Must specify at least one of size, type, iops, throughput")
	}
	target = target.over(v.VolumeSettings)
	now := e.now()
	switch {
	case v.State != VolumeAvailable && v.State != VolumeInUse:
		return VolumeChange{}, notAvailable(id)
	case v.Type == "standard":
		return VolumeChange{}, refuse("UnsupportedOperation", "The volume %s of type standard cannot be modified.", id)
	case target.Size < v.Size:
		return VolumeChange{}, refuse("InvalidParameterValue", "New size cannot be smaller than existing size")
	case v.Change.State == modifying || v.Change.State == optimizing:
		return VolumeChange{}, refuse("IncorrectModificationState", "Volume %s cannot be modified in modification state %s", id, v.Change.State)
	case !v.Change.Started.IsZero() && now.Sub(v.Change.Started) < modificationPause:
		return VolumeChange{}, refuse("VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit. Wait at least 6 hours between modifications per EBS volume.")
	}
	if err := target.check(); err != nil {
		return VolumeChange{}, err
	}
	change := VolumeChange{State: modifying, Original: v.VolumeSettings, Target: target, Started: now}
	e.changeVolume(id, func(v *Volume) { v.Change = change })
	e.afterwards(e.options.Volumes.Modify, func() {
		e.changeVolume(id, func(v *Volume) { v.VolumeSettings, v.Change.State = target, optimizing })
		e.afterwards(e.options.Volumes.Modify, func() {
			e.changeVolume(id, func(v *Volume) { v.Change.State, v.Change.Ended = modified, e.now() })
		})
	})
	return change, nil
}
