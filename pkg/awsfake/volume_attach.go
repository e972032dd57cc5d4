package awsfake

import (
	"regexp"
	"strings"
	"time"
)

// maxVolumes is how many volumes a machine can have beside its root: 28 attachments of Nitro instances, less the root
// and one network interface (User Guide, "Amazon EBS volume limits"). Newer types count volumes apart and take more.
const maxVolumes = 26

// volumeDevice matches the names that a volume can be attached under (User Guide, "Device names for volumes"), and
// rootDevice those that root volumes have.
var (
	volumeDevice = regexp.MustCompile(`^(/dev/)?(sd[a-z]|xvd[a-d][a-z]|xvd[a-z]|sda1)$`)
	rootDevice   = regexp.MustCompile(`^(/dev/)?(sda1?|xvda)$`)
)

// AttachVolume attaches a volume to a machine of the same zone.
func (e *EC2) AttachVolume(id, instance, device string) (v Volume, err error) {
	e.account.locked(func() { v, err = e.attachVolume(id, instance, device) })
	return v, err
}

// attachVolume holds AttachVolume to its rules: the volume is available, in the zone of the machine, which is running or
// stopped (API reference, AttachVolume; "Error codes for the Amazon EC2 API"). A volume that this machine has already is
// refused like any other: VolumeInUse.
func (e *EC2) attachVolume(id, instance, device string) (Volume, error) {
	v, ok := e.volume(id)
	if !ok {
		return v, noVolume(id)
	}
	m, ok := e.machine(instance)
	switch {
	case !ok:
		return v, noInstance(instance)
	case v.Attachment.Instance != "":
		return v, refuse("VolumeInUse", "%s is already attached to an instance", id)
	case v.State != VolumeAvailable:
		return v, notAvailable(id)
	case v.Zone != m.Zone:
		return v, refuse("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", id, instance)
	case m.State != MachineRunning && m.State != MachineStopped:
		return v, refuse("IncorrectState", "Instance '%s' is not 'running'.", instance)
	case !volumeDevice.MatchString(device):
		return v, invalidValue(device, "device", device+" is not a valid EBS device name.")
	}
	if err := e.checkSlot(instance, device); err != nil {
		return v, err
	}
	e.changeVolume(id, func(v *Volume) {
		v.State, v.Attachment = VolumeInUse, Attachment{Instance: instance, Device: device, State: Attaching, Since: e.now()}
	})
	v, _ = e.volume(id)
	if e.options.Hypervisor == nil {
		e.afterwards(e.options.Volumes.Attach, func() { e.attached(id, v.Attachment.Since) })
	}
	return v, nil
}

// checkSlot refuses a device name that is taken, and a volume too many. sdf and xvdf are one name: on Xen they are.
func (e *EC2) checkSlot(instance, device string) error {
	plain := func(name string) string {
		return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "/dev/"), "xv"), "s")
	}
	taken := rootDevice.MatchString(device)
	n := 0
	for _, id := range e.volumes.shelf.order {
		if v, ok := e.volume(id); ok && v.Attachment.Instance == instance {
			n++
			taken = taken || plain(v.Attachment.Device) == plain(device)
		}
	}
	switch {
	case taken:
		return refuse("InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", device, device)
	case n >= maxVolumes:
		return refuse("AttachmentLimitExceeded", "Instance '%s' has %d volumes, which is its limit.", instance, n)
	}
	return nil
}

// attached ends the attachment that began at a time; false if it is not attaching any more.
func (e *EC2) attached(id string, since time.Time) bool {
	v, ok := e.volume(id)
	if !ok || v.Attachment.State != Attaching || !v.Attachment.Since.Equal(since) {
		return false
	}
	e.changeVolume(id, func(v *Volume) { v.Attachment.State = Attached })
	return true
}

// detachment is a request to detach a volume; Instance and Device may be empty.
type detachment struct {
	volume, instance, device string
	force                    bool
}

// DetachVolume asks a machine to give a volume back. Where the machine runs, the volume becomes busy until
// EC2.Detached.
func (e *EC2) DetachVolume(id string) (v Volume, err error) {
	e.account.locked(func() { v, err = e.detachVolume(detachment{volume: id}) })
	return v, err
}

func (e *EC2) detachVolume(d detachment) (Volume, error) {
	v, ok := e.volume(d.volume)
	at := v.Attachment
	switch {
	case !ok:
		return v, noVolume(d.volume)
	case at.Instance == "":
		return v, refuse("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	case d.instance != "" && d.instance != at.Instance || d.device != "" && d.device != at.Device:
		return v, refuse("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s' as device '%s'.", v.ID, d.instance, d.device)
	case d.force && !e.options.Volumes.Force && e.alive(at.Instance):
		return v, refuse("UnsupportedOperation", "awsfake refuses to take %s by force from %s, which has not ended (VolumeOptions.Force).", v.ID, at.Instance)
	case !d.force && (at.State == Detaching || at.State == AttachmentBusy):
		return v, refuse("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, at.State)
	}
	e.changeVolume(v.ID, func(v *Volume) { v.Attachment.State = Detaching })
	asked, _ := e.volume(v.ID)
	e.afterwards(e.options.Volumes.Detach, func() {
		now, _ := e.volume(v.ID)
		switch {
		case now.Attachment.Instance != at.Instance || !now.Attachment.Since.Equal(at.Since): // free meanwhile, or with a machine again
		case d.force || !e.alive(at.Instance):
			e.free(v.ID)
		default:
			// "Failure to do so can result in the volume becoming stuck in the busy state while detaching" (API reference,
			// DetachVolume): only the machine knows whether the file system is unmounted.
			e.changeVolume(v.ID, func(v *Volume) { v.Attachment.State = AttachmentBusy })
		}
	})
	return asked, nil
}

// alive reports whether a machine may be using its volumes.
func (e *EC2) alive(instance string) bool {
	m, ok := e.machine(instance)
	return ok && m.State != MachineTerminated && m.State != MachineStopped
}

// free ends a volume's attachment.
func (e *EC2) free(id string) {
	e.changeVolume(id, func(v *Volume) { v.State, v.Attachment = VolumeAvailable, Attachment{} })
}

// releaseVolumes frees the volumes of a machine that has ended: EC2 detaches them by itself, after a while.
func (e *EC2) releaseVolumes(instance string) {
	for _, id := range e.volumes.shelf.order {
		v, ok := e.volume(id)
		if !ok || v.Attachment.Instance != instance {
			continue
		}
		if e.options.Volumes.Release > 0 {
			e.changeVolume(id, func(v *Volume) { v.Attachment.State = Detaching })
		}
		e.afterwards(e.options.Volumes.Release, func() {
			if now, _ := e.volume(id); now.Attachment.Instance == instance {
				e.free(id)
			}
		})
	}
}
