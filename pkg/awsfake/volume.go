package awsfake

import (
	"cmp"
	"maps"
	"time"
)

// The states of a volume (API reference, Volume, "status").
const (
	VolumeCreating  = "creating"
	VolumeAvailable = "available"
	VolumeInUse     = "in-use"
	VolumeDeleting  = "deleting"
	// VolumeDeleted is the last state that a hypervisor is told; describe calls do not show it.
	VolumeDeleted = "deleted"
)

// The states of an attachment (API reference, VolumeAttachment, "status").
const (
	Attaching      = "attaching"
	Attached       = "attached"
	Detaching      = "detaching"
	AttachmentBusy = "busy"
)

// Volume is an EBS volume. It has no content here: a hypervisor may keep one.
type Volume struct {
	ID, Zone, State string
	VolumeSettings
	// Key is the ARN of the KMS key that encrypts it; empty means that it is not encrypted.
	Key     string
	Created time.Time
	Tags    map[string]string
	// Attachment is zero while no machine has the volume.
	Attachment Attachment
	// Change is the last ModifyVolume; zero if there was none.
	Change VolumeChange
}

// VolumeSettings are what ModifyVolume can change. Size is in GiB, Throughput in MiB/s.
type VolumeSettings struct {
	Type                   string
	Size, IOPS, Throughput int
}

// Attachment is a volume at a machine. It is never deleted with the machine: the attribute is false for volumes that
// are attached after the launch (User Guide, "Preserve data when an instance is terminated").
type Attachment struct {
	Instance, Device, State string
	Since                   time.Time
}

// VolumeOptions set how long volumes take, which AWS does not document. With the zero value everything happens at once.
type VolumeOptions struct {
	// Create is the time until a new volume is available, Delete the time until a deleted one is gone.
	Create, Delete time.Duration
	// Attach is the time from AttachVolume to an attached volume. With a hypervisor it is until EC2.Attached instead.
	Attach time.Duration
	// Detach is the time from DetachVolume to a free volume, or to a busy one where the machine runs.
	Detach time.Duration
	// Release is the time from the end of a machine until its volumes are free.
	Release time.Duration
	// Modify is how long a volume is modifying, and then optimizing.
	Modify time.Duration
	// Force lets DetachVolume take a volume by force from a machine that has not ended. AWS does, and the machine's file
	// system may be lost; no program of ours should ask for it, so that here it is refused.
	Force bool
}

// volumes are the account's volumes, with those that were made with a client token.
type volumes struct {
	shelf  shelf[Volume]
	tokens map[string]tokened
}

func newVolumes() volumes {
	return volumes{shelf: newShelf[Volume](), tokens: map[string]tokened{}}
}

// CreateVolume makes an unencrypted gp3 volume of size GiB in any zone.
func (e *EC2) CreateVolume(zone string, size int, tags map[string]string) (v Volume) {
	e.account.locked(func() {
		v = e.createVolume(Volume{Zone: zone, VolumeSettings: VolumeSettings{Type: "gp3", Size: size, IOPS: 3000, Throughput: 125}, Tags: tags})
	})
	return v
}

func (e *EC2) createVolume(v Volume) Volume {
	v.ID, v.State, v.Created, v.Tags = "vol-"+hexID("volume", len(e.volumes.shelf.order), 17), VolumeCreating, e.now(), maps.Clone(v.Tags)
	e.putVolume(v)
	e.afterwards(e.options.Volumes.Create, func() {
		e.changeVolume(v.ID, func(v *Volume) { v.State = VolumeAvailable })
	})
	return v
}

// afterwards calls f after d, at once if that is zero.
func (e *EC2) afterwards(d time.Duration, f func()) {
	if d == 0 {
		f()
		return
	}
	e.account.regional.agenda.after(d, f)
}

// Volume returns a volume's current state, whatever the lag. False means that it does not exist or was deleted.
func (e *EC2) Volume(id string) (v Volume, ok bool) {
	e.account.locked(func() { v, ok = e.volume(id) })
	return v, ok
}

// Volumes returns all volumes, in the order in which they were made.
func (e *EC2) Volumes() (list []Volume) {
	e.account.locked(func() {
		for _, id := range e.volumes.shelf.order {
			if v, ok := e.volume(id); ok {
				list = append(list, v)
			}
		}
	})
	return list
}

func (e *EC2) volume(id string) (Volume, bool) {
	v, ok := e.volumes.shelf.get(id)
	return v, ok && v.State != VolumeDeleted
}

func (e *EC2) putVolume(v Volume) {
	e.volumes.shelf.put(v.ID, e.now(), e.options.Lag, v)
	e.notifyVolume(v)
}

// changeVolume makes another version of a volume that exists.
func (e *EC2) changeVolume(id string, f func(*Volume)) {
	v, ok := e.volume(id)
	if !ok {
		return
	}
	v.Tags = maps.Clone(v.Tags)
	f(&v)
	e.putVolume(v)
}

// visibleVolumes lists the volumes that a describe call sees now.
func (e *EC2) visibleVolumes() (list []Volume) {
	for _, v := range e.volumes.shelf.at(e.now().Add(-e.options.Lag)) {
		if v.State != VolumeDeleted {
			list = append(list, v)
		}
	}
	return list
}

// DeleteVolume deletes a volume that no machine has.
func (e *EC2) DeleteVolume(id string) (err error) {
	e.account.locked(func() { err = e.deleteVolume(id) })
	return err
}

// deleteVolume: "The volume must be in the available state" (API reference, DeleteVolume).
func (e *EC2) deleteVolume(id string) error {
	v, ok := e.volume(id)
	switch {
	case !ok:
		return noVolume(id)
	case v.Attachment.Instance != "":
		return refuse("VolumeInUse", "Volume %s is currently attached to %s", id, v.Attachment.Instance)
	case v.State != VolumeAvailable:
		return notAvailable(id)
	}
	e.changeVolume(id, func(v *Volume) { v.State = VolumeDeleting })
	e.afterwards(e.options.Volumes.Delete, func() {
		e.changeVolume(id, func(v *Volume) { v.State = VolumeDeleted })
	})
	return nil
}

// LoseVolume loses a volume, whoever has it, as a failure of its storage would. It returns false if there is none.
func (e *EC2) LoseVolume(id string) (ok bool) {
	e.account.locked(func() {
		if _, ok = e.volume(id); ok {
			e.changeVolume(id, func(v *Volume) { v.State, v.Attachment = VolumeDeleted, Attachment{} })
		}
	})
	return ok
}

func noVolume(id string) error {
	return refuse("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
}

func notAvailable(id string) error {
	return refuse("IncorrectState", "%s is not 'available'.", id)
}

// volumeLimits are the bounds of a volume type: sizes in GiB, IOPS, and IOPS for each GiB (API reference, CreateVolume;
// EBS User Guide, "Amazon EBS volume types"). Types without IOPS take none.
type volumeLimits struct{ minSize, maxSize, minIOPS, maxIOPS, perGiB int }

var volumeTypes = map[string]volumeLimits{
	"gp2": {minSize: 1, maxSize: 16_384}, "gp3": {1, 65_536, 3000, 80_000, 500},
	"io1": {4, 16_384, 100, 64_000, 50}, "io2": {4, 65_536, 100, 256_000, 1000},
	"st1": {minSize: 125, maxSize: 16_384}, "sc1": {minSize: 125, maxSize: 16_384}, "standard": {minSize: 1, maxSize: 1024},
}

// check holds settings to the rules of their type, and sets the defaults that AWS gives: type gp2, and for gp3 3,000
// IOPS with 125 MiB/s.
func (s *VolumeSettings) check() error {
	s.Type = cmp.Or(s.Type, "gp2")
	l, ok := volumeTypes[s.Type]
	switch {
	case !ok:
		return invalidValue(s.Type, "volumeType", "It is no type of volume.")
	case s.Size < l.minSize:
		return refuse("InvalidParameterValue", "Volume of %dGiB is too small; minimum is %dGiB.", s.Size, l.minSize)
	case s.Size > l.maxSize:
		return refuse("InvalidParameterValue", "Volume of %dGiB is too large; maximum is %dGiB.", s.Size, l.maxSize)
	case l.maxIOPS == 0 && s.IOPS != 0:
		return invalidCombination("The parameter iops is not supported for %s volumes.", s.Type)
	case s.Type != "gp3" && s.Throughput != 0:
		return invalidCombination("The parameter throughput is not supported for %s volumes.", s.Type)
	case l.maxIOPS == 0:
		return nil
	case s.Type == "gp3":
		s.IOPS, s.Throughput = cmp.Or(s.IOPS, l.minIOPS), cmp.Or(s.Throughput, 125)
	case s.IOPS == 0:
		return refuse("MissingParameter", "The parameter iops must be specified for %s volumes.", s.Type)
	}
	switch {
	case s.IOPS < l.minIOPS:
		return refuse("InvalidParameterValue", "Volume iops of %d is too low; minimum is %d.", s.IOPS, l.minIOPS)
	case s.IOPS > l.maxIOPS:
		return refuse("InvalidParameterValue", "Volume iops of %d is too high; maximum is %d.", s.IOPS, l.maxIOPS)
	// The baseline of a small gp3 volume is above the ratio.
	case s.IOPS > s.Size*l.perGiB && s.IOPS > l.minIOPS:
		return refuse("InvalidParameterValue", "Iops to volume size ratio of %f is too high; maximum is %d.", float64(s.IOPS)/float64(s.Size), l.perGiB)
	case s.Type == "gp3" && (s.Throughput < 125 || s.Throughput > 2000 || s.Throughput*4 > s.IOPS):
		return refuse("InvalidParameterValue", "Throughput of %d MiB/s is not between 125 and 2000, or more than a quarter of the %d IOPS.", s.Throughput, s.IOPS)
	}
	return nil
}
