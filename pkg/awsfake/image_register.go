package awsfake

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
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

// firmwareOf reads the hardware that an image is made for. Only hvm is modelled; the API's default is paravirtual.
func firmwareOf(p params) (f Firmware, err error) {
	f = Firmware{Architecture: p.get("Architecture"), BootMode: p.get("BootMode"), IMDS: p.get("ImdsSupport"), TPM: p.get("TpmSupport"), Variables: p.get("UefiData")}
	if f.ENA, err = p.flag("EnaSupport", false); err != nil {
		return f, err
	}
	switch {
	case f.Architecture != "x86_64" && f.Architecture != "arm64":
		return f, invalidValue(f.Architecture, "architecture", "")
	case p.get("VirtualizationType") != "hvm":
		return f, invalidCombination("enaSupport and uefi take the virtualization type hvm, not %q (the default is paravirtual).", p.get("VirtualizationType"))
	case f.BootMode != "" && f.BootMode != "uefi" && f.BootMode != "uefi-preferred":
		return f, invalidValue(f.BootMode, "bootMode", "awsfake only models uefi and uefi-preferred.")
	case f.BootMode == "uefi-preferred" && f.Architecture == "arm64":
		// "Graviton instance types: UEFI" (EC2 User Guide, default boot modes): there is no other to fall back to.
		return f, invalidCombination("The boot mode uefi-preferred is not supported with the architecture arm64.")
	case f.IMDS != "" && f.IMDS != "v2.0":
		return f, invalidValue(f.IMDS, "imdsSupport", "Valid values: v2.0.")
	case f.TPM != "" && f.TPM != "v2.0":
		return f, invalidValue(f.TPM, "tpmSupport", "Valid values: v2.0.")
	case f.BootMode != "uefi" && (f.TPM != "" || f.Variables != ""):
		// A TPM takes UEFI ("NitroTPM for Amazon EC2 instances", prerequisites of an AMI); the variables of UEFI are taken as strictly.
		return f, invalidCombination("tpmSupport and uefiData take the boot mode uefi.")
	case f.Variables != "" && !isVariableStore(f.Variables):
		return f, invalidValue(f.Variables[:min(len(f.Variables), 16)], "uefiData", "It is no store of UEFI variables.")
	}
	return f, nil
}

// isVariableStore reports whether a text is what EC2 takes as UEFI variables: at most 64,000 characters (API model, UefiData) of base64,
// with the beginning and the checksum that its own tool (python-uefivars) looks for.
func isVariableStore(text string) bool {
	store, err := base64.StdEncoding.DecodeString(text)
	const head = len("AMZNUEFI") + 4
	return err == nil && len(text) <= 64000 && len(store) > head && string(store[:head-4]) == "AMZNUEFI" &&
		binary.LittleEndian.Uint32(store[head-4:]) == crc32.Checksum(store[head:], crc32.MakeTable(crc32.Castagnoli))
}

// disksOf reads the block device mappings of a new image.
func (m *Images) disksOf(p params) ([]Disk, error) {
	var disks []Disk
	for _, mapping := range p.structs("BlockDeviceMapping") {
		d := Disk{Device: mapping.get("DeviceName")}
		switch {
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

// disk reads one mapping: a volume that is restored from a snapshot.
func (m *Images) disk(d *Disk, p params) error {
	known := []string{"DeviceName", "Ebs.SnapshotId", "Ebs.VolumeSize", "Ebs.VolumeType", "Ebs.DeleteOnTermination"}
	for name := range p {
		if !slices.Contains(known, name) {
			return refuse("InvalidParameter", "The parameter %s is not supported in a block device mapping of an image.", name)
		}
	}
	d.Snapshot, d.Type = p.get("Ebs.SnapshotId"), p.get("Ebs.VolumeType")
	end, err := p.flag("Ebs.DeleteOnTermination", true)
	if err != nil {
		return err
	}
	d.Keep = !end
	if d.Size, err = p.integer("Ebs.VolumeSize", 0); err != nil {
		return err
	}
	s, ok := m.snapshot(d.Snapshot)
	switch {
	case d.Snapshot == "":
		return refuse("InvalidBlockDeviceMapping", "awsfake only models devices with a snapshot: %s has none.", d.Device)
	case !snapshotPattern.MatchString(d.Snapshot):
		return invalidValue(d.Snapshot, "snapshotId", "Expected: 'snap-...'.")
	case !ok:
		return noSnapshot(d.Snapshot)
	case s.State != SnapshotCompleted:
		return refuse("IncorrectState", "Snapshot is in invalid state - %s", s.State)
	case d.Size != 0 && d.Size < s.Size:
		return refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot '%s', expect size >= %dGB", d.Size, s.ID, s.Size)
	case d.Type != "" && d.Type != "gp3":
		return invalidValue(d.Type, "volumeType", "awsfake only models gp3.")
	case d.Size > maxVolumeGiB:
		return invalidValue(strconv.Itoa(d.Size), "volumeSize", "A volume of type gp3 has 1 to "+strconv.Itoa(maxVolumeGiB)+" GiB.")
	}
	d.Size, d.Encrypted = cmp.Or(d.Size, s.Size), s.Key != ""
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
