package awsfake

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// The states of an image.
const (
	ImagePending      = "pending"
	ImageAvailable    = "available"
	ImageFailed       = "failed"
	ImageDisabled     = "disabled"
	imageDeregistered = "deregistered"
)

// Image is an AMI.
type Image struct {
	ID, Name, Description, State string
	// Reason is why the image has failed; empty otherwise.
	Reason  string
	Created time.Time
	Tags    map[string]string
	// Disks are its block devices, Root the name of the one that it boots from.
	Disks    []Disk
	Root     string
	Firmware Firmware
	// Shared are the launch permissions beside the owner's; Source is the image it was copied from.
	Shared []Permission
	Source Origin
}

// Firmware is the hardware that an image is made for.
type Firmware struct {
	// Architecture is x86_64 or arm64, BootMode uefi, legacy-bios or uefi-preferred, or empty: the instance type's.
	Architecture, BootMode string
	// IMDS is v2.0 or empty.
	IMDS string
	ENA  bool
	// TPM is v2.0 or empty, Variables the store of UEFI variables that a machine's firmware begins with, as EC2 takes it.
	TPM, Variables string
}

// Disk is a block device of an image.
type Disk struct {
	// Device is its name in the mapping, such as /dev/xvda.
	Device, Snapshot, Type string
	// Size is in GiB.
	Size int
	// Keep means that the volume is not deleted with its machine; Encrypted, that its snapshot is encrypted.
	Keep, Encrypted bool
}

// Permission allows an account (by its number), or an organisation or organisational unit (by its ARN), to launch an
// image.
type Permission struct{ Account, Organisation, Unit string }

// Origin is the image that a copy was made from; zero for an image that is no copy.
type Origin struct{ ID, Region string }

// Image returns an image's current state, whatever the lag. False means that it does not exist or was deregistered.
func (m *Images) Image(id string) (i Image, ok bool) {
	m.account.locked(func() { i, ok = m.image(id) })
	return i, ok
}

// List lists the account's own images, in the order in which they were registered.
func (m *Images) List() (list []Image) {
	m.account.locked(func() {
		for _, id := range m.images.order {
			if i, ok := m.image(id); ok {
				list = append(list, i)
			}
		}
	})
	return list
}

// image is one that can be used or described.
func (m *Images) image(id string) (Image, bool) {
	i, ok := m.images.get(id)
	return i, ok && i.State != imageDeregistered
}

// launchable returns an image that machines can be launched from now, or EC2's refusal.
func (m *Images) launchable(id string) (Image, error) {
	i, ok := m.images.get(id)
	switch {
	case !imagePattern.MatchString(id):
		return i, refuse("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", id)
	case !ok:
		return i, noImage(id)
	case i.State != ImageAvailable:
		return i, imageUnavailable(id)
	}
	return i, nil
}

func noImage(ids ...string) error {
	if len(ids) == 1 {
		return refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", ids[0])
	}
	return refuse("InvalidAMIID.NotFound", "The image ids '[%s]' do not exist", strings.Join(ids, ", "))
}

func imageUnavailable(id string) error {
	return refuse("InvalidAMIID.Unavailable", "The image ID '%s' is no longer available", id)
}

// Add makes an available image with the id that it has, without a disk of its own: what machines start from in a test that makes no image.
func (m *Images) Add(i Image) {
	m.account.locked(func() {
		i.State, i.Created = ImageAvailable, m.now()
		m.images.put(i.ID, m.now(), 0, i)
	})
}

func (m *Images) addImage(i Image) Image {
	i.ID, i.State, i.Created = "ami-"+hexID("image "+m.region, len(m.images.order), 17), ImagePending, m.now()
	m.images.put(i.ID, m.now(), m.lag, i)
	return i
}

// changeImage makes another version of an image.
func (m *Images) changeImage(id string, f func(*Image)) {
	i, ok := m.images.get(id)
	if !ok {
		return
	}
	i.Tags, i.Shared = maps.Clone(i.Tags), slices.Clone(i.Shared)
	f(&i)
	m.images.put(id, m.now(), m.lag, i)
}

// ready ends an image's registration or copy after d; with a reason it has failed.
func (m *Images) ready(id string, d time.Duration, reason string) {
	end := func() {
		m.changeImage(id, func(i *Image) {
			if i.State != ImagePending {
				return
			}
			if i.State = ImageAvailable; reason != "" {
				i.State, i.Reason = ImageFailed, reason
			}
		})
	}
	if d == 0 {
		end()
		return
	}
	m.after(d, end)
}

// users are the images that use a snapshot.
func (m *Images) users(snapshot string) (ids []string) {
	for _, id := range m.images.order {
		if i, ok := m.image(id); ok && slices.ContainsFunc(i.Disks, func(d Disk) bool { return d.Snapshot == snapshot }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// named is the account's image of a name.
func (m *Images) named(name string) (Image, bool) {
	for _, id := range m.images.order {
		if i, ok := m.image(id); ok && i.Name == name {
			return i, true
		}
	}
	return Image{}, false
}

// own is an image of the account's that a call may change.
func (m *Images) own(id string) (Image, error) {
	i, ok := m.images.get(id)
	switch {
	case !imagePattern.MatchString(id):
		return i, refuse("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", id)
	case !ok:
		return i, noImage(id)
	case i.State == imageDeregistered:
		return i, imageUnavailable(id)
	}
	return i, nil
}

// deregister takes an image away. Its snapshots stay.
func (m *Images) deregister(c *call) (any, error) {
	i, err := m.own(params(c.Form).get("ImageId"))
	if err != nil {
		return nil, err
	}
	m.changeImage(i.ID, func(i *Image) { i.State = imageDeregistered })
	return xmlReturn{true}, nil
}

// disableImage takes an image and its launch permissions out of use. It keeps its name, and its snapshots stay in use ("Disable an Amazon
// EC2 AMI", EC2 User Guide).
func (m *Images) disableImage(c *call) (any, error) { return m.turn(c, ImageAvailable, ImageDisabled) }

// enableImage makes a disabled image available again; its launch permissions do not come back.
func (m *Images) enableImage(c *call) (any, error) { return m.turn(c, ImageDisabled, ImageAvailable) }

func (m *Images) turn(c *call, from, to string) (any, error) {
	i, err := m.own(params(c.Form).get("ImageId"))
	if err != nil {
		return nil, err
	}
	if i.State != from {
		return nil, refuse("IncorrectState", "The image %s is %s.", i.ID, i.State)
	}
	m.changeImage(i.ID, func(i *Image) { i.State, i.Shared = to, nil })
	return xmlReturn{true}, nil
}
