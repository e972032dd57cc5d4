package awsfake

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	imagePattern = regexp.MustCompile(`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`)
	// imageName is "3-128 alphanumeric characters, parentheses, square brackets, spaces, periods, slashes, dashes,
	// single quotes, at-signs, or underscores" (API reference, RegisterImage, Name).
	imageName  = regexp.MustCompile(`^[a-zA-Z0-9()\[\] ./'@_-]{3,128}$`)
	deviceName = regexp.MustCompile(`^(/dev/)?(sd[a-z][0-9]{0,2}|xvd[a-z]{1,2}|nvme[0-9]+n[0-9]+)$`)
)

func invalidValue(value, name, why string) error {
	return refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. %s", value, name, why)
}

func invalidCombination(format string, args ...any) error {
	return refuse("InvalidParameterCombination", format, args...)
}

func (m *Images) register(c *call) (any, error) {
	p := params(c.Form)
	i := Image{Name: p.get("Name"), Description: p.get("Description"), Root: p.get("RootDeviceName")}
	if err := m.checkName(i.Name); err != nil {
		return nil, err
	}
	var err error
	if i.Firmware, err = firmwareOf(p); err != nil {
		return nil, err
	}
	tags, err := tagsOf(p, "image")
	if err != nil {
		return nil, err
	}
	i.Tags = tags["image"]
	if i.Disks, err = m.disksOf(p); err != nil {
		return nil, err
	}
	if i.Root == "" {
		i.Root = "/dev/sda1"
	}
	root := slices.IndexFunc(i.Disks, func(d Disk) bool { return d.Device == i.Root })
	if root < 0 || i.Disks[root].Snapshot == "" {
		return nil, refuse("InvalidBlockDeviceMapping", "The root device %s is not mapped to a snapshot.", i.Root)
	}
	i = m.addImage(i)
	m.ready(i.ID, m.options.Register, "")
	return struct {
		ID string `xml:"imageId"`
	}{i.ID}, nil
}

// checkName holds the name of a new image to its rules.
func (m *Images) checkName(name string) error {
	switch other, taken := m.named(name); {
	case name == "":
		return refuse("MissingParameter", "The request must contain the parameter name")
	case !imageName.MatchString(name):
		return refuse("InvalidAMIName.Malformed", "AMI names must be between 3 and 128 characters long, and may contain letters, numbers, and only the following characters: ( ) [ ] space . / - ' @ _")
	case taken:
		return refuse("InvalidAMIName.Duplicate", "AMI name %s is already in use by AMI %s", name, other.ID)
	}
	return nil
}

// firmwareOf reads what an image says of its machines. Only hvm is modelled; the API's default is paravirtual.
func firmwareOf(p params) (f Firmware, err error) {
	f = Firmware{
		Architecture: p.get("Architecture"), BootMode: p.get("BootMode"), IMDS: p.get("ImdsSupport"), TPM: p.get("TpmSupport"), SRIOV: p.get("SriovNetSupport"),
	}
	if f.ENA, err = p.flag("EnaSupport", false); err != nil {
		return f, err
	}
	if f.Architecture == "" {
		f.Architecture = "i386"
	}
	uefi := f.BootMode == "uefi" || f.BootMode == "uefi-preferred"
	switch {
	case !slices.Contains([]string{"i386", "x86_64", "arm64"}, f.Architecture):
		return f, invalidValue(f.Architecture, "architecture", "")
	case p.get("VirtualizationType") != "hvm" && (f.ENA || f.SRIOV != "" || uefi):
		return f, invalidCombination("enaSupport, sriovNetSupport and uefi take the virtualization type hvm, not %q (the default is paravirtual).", p.get("VirtualizationType"))
	case p.get("VirtualizationType") != "hvm":
		return f, invalidValue(p.get("VirtualizationType"), "virtualizationType", "awsfake only models hvm; the default is paravirtual.")
	case f.BootMode != "" && f.BootMode != "legacy-bios" && !uefi:
		return f, invalidValue(f.BootMode, "bootMode", "Valid values: legacy-bios, uefi, uefi-preferred.")
	case uefi && f.Architecture == "i386", f.BootMode == "uefi-preferred" && f.Architecture == "arm64", f.BootMode == "legacy-bios" && f.Architecture == "arm64":
		return f, invalidCombination("The boot mode %s is not supported for the architecture %s.", f.BootMode, f.Architecture)
	case f.IMDS != "" && f.IMDS != "v2.0":
		return f, invalidValue(f.IMDS, "imdsSupport", "Valid values: v2.0.")
	case f.TPM != "" && f.TPM != "v2.0":
		return f, invalidValue(f.TPM, "tpmSupport", "Valid values: v2.0.")
	case f.TPM != "" && f.BootMode != "uefi":
		return f, invalidCombination("tpmSupport takes the boot mode uefi.")
	case f.SRIOV != "" && f.SRIOV != "simple":
		return f, invalidValue(f.SRIOV, "sriovNetSupport", "Valid values: simple.")
	}
	return f, nil
}

// disksOf reads the block device mappings of a new image.
func (m *Images) disksOf(p params) ([]Disk, error) {
	var disks []Disk
	for _, mapping := range p.structs("BlockDeviceMapping") {
		d := Disk{Device: mapping.get("DeviceName")}
		switch {
		case mapping.has("NoDevice") || mapping.has("VirtualName"):
			return nil, refuse("InvalidBlockDeviceMapping", "awsfake does not model NoDevice and VirtualName.")
		case !deviceName.MatchString(d.Device):
			return nil, invalidValue(d.Device, "deviceName", "It is not a device name.")
		case slices.ContainsFunc(disks, func(o Disk) bool { return o.Device == d.Device }):
			return nil, refuse("InvalidBlockDeviceMapping", "The device %s is mapped twice.", d.Device)
		}
		if err := m.disk(&d, mapping); err != nil {
			return nil, err
		}
		disks = append(disks, d)
	}
	return disks, nil
}

// disk reads one mapping.
func (m *Images) disk(d *Disk, p params) error {
	known := []string{"DeviceName", "Ebs.SnapshotId", "Ebs.VolumeSize", "Ebs.VolumeType", "Ebs.Iops", "Ebs.Throughput", "Ebs.DeleteOnTermination", "Ebs.Encrypted"}
	for name := range p {
		if !slices.Contains(known, name) {
			return refuse("InvalidParameter", "The parameter %s is not supported in a block device mapping of an image.", name)
		}
	}
	d.Snapshot, d.Type = p.get("Ebs.SnapshotId"), p.get("Ebs.VolumeType")
	var err error
	for name, field := range map[string]*int{"Ebs.VolumeSize": &d.Size, "Ebs.Iops": &d.IOPS, "Ebs.Throughput": &d.Throughput} {
		if *field, err = p.integer(name, 0); err != nil {
			return err
		}
	}
	if d.Encrypted, err = p.flag("Ebs.Encrypted", false); err != nil {
		return err
	}
	end, err := p.flag("Ebs.DeleteOnTermination", true)
	if err != nil {
		return err
	}
	if d.Keep = !end; d.Snapshot != "" {
		if p.has("Ebs.Encrypted") {
			return invalidCombination("The parameter encrypted can't be used with a snapshot.")
		}
		if err := m.restored(d); err != nil {
			return err
		}
	}
	if d.Size == 0 {
		return refuse("InvalidBlockDeviceMapping", "The device %s has neither a snapshot nor a size.", d.Device)
	}
	return checkVolume(d)
}

// restored fills in what a disk has of its snapshot.
func (m *Images) restored(d *Disk) error {
	if !snapshotPattern.MatchString(d.Snapshot) {
		return invalidValue(d.Snapshot, "snapshotId", "Expected: 'snap-...'.")
	}
	s, ok := m.snapshot(d.Snapshot)
	switch {
	case !ok:
		return noSnapshot(d.Snapshot)
	case s.State != SnapshotCompleted:
		return refuse("IncorrectState", "Snapshot is in invalid state - %s", s.State)
	case d.Size != 0 && d.Size < s.Size:
		return refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot '%s', expect size >= %dGB", d.Size, s.ID, s.Size)
	case d.Size == 0:
		d.Size = s.Size
	}
	d.Encrypted = s.Key != ""
	return nil
}

// volumeTypes are the sizes in GiB and the IOPS that each type of volume takes (API reference, EbsBlockDevice).
var volumeTypes = map[string]struct{ least, most, leastIOPS, mostIOPS int }{
	"standard": {1, 1024, 0, 0}, "gp2": {1, 16_384, 0, 0}, "gp3": {1, 65_536, 3000, 80_000},
	"io1": {4, 16_384, 100, 64_000}, "io2": {4, 65_536, 100, 256_000}, "st1": {125, 16_384, 0, 0}, "sc1": {125, 16_384, 0, 0},
}

// checkVolume holds a disk to what its type of volume takes.
func checkVolume(d *Disk) error {
	if d.Type == "" {
		d.Type = "standard"
	}
	t, ok := volumeTypes[d.Type]
	provisioned := d.Type == "io1" || d.Type == "io2"
	switch {
	case !ok:
		return invalidValue(d.Type, "volumeType", "")
	case d.Size < t.least || d.Size > t.most:
		return invalidValue(strconv.Itoa(d.Size), "volumeSize", "A volume of type "+d.Type+" has "+strconv.Itoa(t.least)+" to "+strconv.Itoa(t.most)+" GiB.")
	case d.IOPS == 0 && provisioned:
		return refuse("MissingParameter", "The request must contain the parameter iops for a volume of type %s", d.Type)
	case d.IOPS != 0 && t.mostIOPS == 0:
		return invalidCombination("The parameter iops is not supported for %s volumes.", d.Type)
	case d.IOPS != 0 && (d.IOPS < t.leastIOPS || d.IOPS > t.mostIOPS):
		return invalidValue(strconv.Itoa(d.IOPS), "iops", "A volume of type "+d.Type+" has "+strconv.Itoa(t.leastIOPS)+" to "+strconv.Itoa(t.mostIOPS)+".")
	case d.Throughput != 0 && d.Type != "gp3":
		return invalidCombination("The parameter throughput is not supported for %s volumes.", d.Type)
	case d.Throughput != 0 && (d.Throughput < 125 || d.Throughput > 2000):
		return invalidValue(strconv.Itoa(d.Throughput), "throughput", "It is 125 to 2000 MiB/s.")
	}
	return nil
}

// tagsOf reads the tag specifications of a call, which may be for these kinds of resources only.
func tagsOf(p params, kinds ...string) (map[string]map[string]string, error) {
	tags := map[string]map[string]string{}
	for _, spec := range p.structs("TagSpecification") {
		kind := spec.get("ResourceType")
		if !slices.Contains(kinds, kind) || tags[kind] != nil {
			return nil, refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation, or is there twice.", kind)
		}
		tags[kind] = map[string]string{}
		for _, tag := range spec.structs("Tag") {
			key := tag.get("Key")
			if _, twice := tags[kind][key]; twice {
				return nil, refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", key)
			}
			tags[kind][key] = tag.get("Value")
		}
		if err := checkTags(tags[kind]); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// checkTags holds all of a resource's tags to the rules of CreateTags.
func checkTags(tags map[string]string) error {
	if len(tags) > snapshotTags {
		return refuse("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
	}
	for _, key := range sortedKeys(tags) {
		switch {
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return refuse("InvalidParameterValue", "Value ( %s ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use", key)
		case key == "" || len([]rune(key)) > 127:
			return refuse("InvalidParameterValue", "Value ( %s ) for parameter key is invalid. Tag keys have 1 to 127 characters.", key)
		case len([]rune(tags[key])) > 256:
			return refuse("InvalidParameterValue", "Value ( %s ) for parameter value is invalid. Tag values have at most 256 characters.", tags[key])
		}
	}
	return nil
}
