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
	imageDeregistered = "deregistered"
)

// Image is an AMI: what a machine is made from.
type Image struct {
	ID, Name, Description, State string
	// Reason says why an image has failed.
	Reason string
	// Owner is the account that registered it; empty is this one.
	Owner   string
	Created time.Time
	Tags    map[string]string
	// Disks are its block devices, Root the name of the one that it boots from.
	Disks    []Disk
	Root     string
	Firmware Firmware
	// Shared is who may launch it beside its owner; Source what it was copied from.
	Shared []Permission
	Source Origin
}

// Firmware is what an image says of the machines that it fits.
type Firmware struct {
	// Architecture is x86_64 or arm64, BootMode uefi, legacy-bios or uefi-preferred, or empty: the instance type's.
	Architecture, BootMode string
	// IMDS and TPM are v2.0 or empty.
	IMDS, TPM string
	ENA       bool
	SRIOV     string
}

// Disk is a block device of an image.
type Disk struct {
	// Device is the name that the mapping gives it: /dev/xvda.
	Device, Snapshot, Type string
	// Size is in GiB, Throughput in MiB/s.
	Size, IOPS, Throughput int
	// Keep has the volume outlive the machine; Encrypted is that of the snapshot, or of an empty disk.
	Keep, Encrypted bool
}

// Permission is one who may launch an image: an account, an organisation or a unit of one, by its ARN.
type Permission struct{ Account, Organisation, Unit string }

// Origin is the image that a copy was made from.
type Origin struct{ ID, Region string }

// Image returns an image as it is, whatever the lag.
func (m *Images) Image(id string) (i Image, ok bool) {
	m.account.locked(func() { i, ok = m.image(id) })
	return i, ok
}

// List lists the account's own images, in the order in which they were registered.
func (m *Images) List() (list []Image) {
	m.account.locked(func() {
		for _, id := range m.images.order {
			if i, ok := m.image(id); ok && i.Owner == owner {
				list = append(list, i)
			}
		}
	})
	return list
}

// AddForeign adds a public image of another account, as anyone may register one under any name.
func (m *Images) AddForeign(account, name string) (i Image) {
	m.account.locked(func() {
		i = m.addImage(Image{Owner: account, Name: name, Root: "/dev/xvda", Firmware: Firmware{Architecture: "x86_64"}})
		m.changeImage(i.ID, func(i *Image) { i.State = ImageAvailable })
	})
	return i
}

// image is one that can be used or described.
func (m *Images) image(id string) (Image, bool) {
	i, ok := m.images.get(id)
	return i, ok && i.State != imageDeregistered
}

// launchable is the image that a machine can be made from now.
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

func (m *Images) addImage(i Image) Image {
	i.ID, i.State, i.Created = "ami-"+hexID("image "+m.region, len(m.images.order), 17), ImagePending, m.now()
	if i.Owner == "" {
		i.Owner = owner
	}
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
		if i, ok := m.image(id); ok && i.Owner == owner && i.Name == name {
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
	case i.Owner != owner:
		return i, &Error{Status: 403, Code: "AuthFailure", Message: "Not authorized for image:" + id}
	}
	return i, nil
}

type xmlDeleted struct {
	SnapshotID string `xml:"snapshotId"`
	Code       string `xml:"returnCode"`
}

// deregister takes an image away. Its snapshots stay, unless they are to go and no other image uses them.
func (m *Images) deregister(c *call) (any, error) {
	p := params(c.Form)
	i, err := m.own(p.get("ImageId"))
	if err != nil {
		return nil, err
	}
	remove, err := p.flag("DeleteAssociatedSnapshots", false)
	if err != nil {
		return nil, err
	}
	m.changeImage(i.ID, func(i *Image) { i.State = imageDeregistered })
	out := struct {
		Return  bool         `xml:"return"`
		Deleted []xmlDeleted `xml:"deleteSnapshotResultSet>item"`
	}{Return: true}
	if !remove {
		return out, nil
	}
	for _, d := range i.Disks {
		if d.Snapshot == "" {
			continue
		}
		code := "success"
		switch err := m.deleteSnapshot(d.Snapshot); {
		case len(m.users(d.Snapshot)) > 0:
			code = "skipped"
		case err != nil:
			code = "client-error"
		}
		out.Deleted = append(out.Deleted, xmlDeleted{d.Snapshot, code})
	}
	return out, nil
}
