package awsfake

import (
	"regexp"
	"slices"
)

// maxShared is how many modifications one call about a snapshot makes (API reference, ModifySnapshotAttribute).
const maxShared = 500

// The forms of what an image can be shared with.
var (
	organisationARN = regexp.MustCompile(`^arn:aws[a-z-]*:organizations::[0-9]{12}:organization/o-[a-z0-9]{10,32}$`)
	unitARN         = regexp.MustCompile(`^arn:aws[a-z-]*:organizations::[0-9]{12}:ou/o-[a-z0-9]{10,32}/ou-[a-z0-9]{4,32}-[a-z0-9]{8,32}$`)
)

// modifyImage changes one attribute of an image: its description, that IMDSv2 is required (which cannot be undone),
// or who may launch it.
func (m *Images) modifyImage(c *call) (any, error) {
	p := params(c.Form)
	i, err := m.own(p.get("ImageId"))
	if err != nil {
		return nil, err
	}
	changes, err := changesOf(p)
	switch {
	case err != nil:
		return nil, err
	case i.State != ImageAvailable:
		return nil, refuse("IncorrectState", "The image %s is %s.", i.ID, i.State)
	case changes.attribute == "imdsSupport" && changes.value != "v2.0":
		return nil, invalidValue(changes.value, "imdsSupport", "It can be set to v2.0, and not be undone.")
	case changes.attribute == "launchPermission" && len(changes.add) > 0:
		if err := m.shareable(i, changes.add); err != nil {
			return nil, err
		}
	}
	m.changeImage(i.ID, func(i *Image) {
		switch changes.attribute {
		case "description":
			i.Description = changes.value
		case "imdsSupport":
			i.Firmware.IMDS = changes.value
		default:
			for _, p := range changes.add {
				if !slices.Contains(i.Shared, p) {
					i.Shared = append(i.Shared, p)
				}
			}
			i.Shared = slices.DeleteFunc(i.Shared, func(p Permission) bool { return slices.Contains(changes.remove, p) })
		}
	})
	return xmlReturn{true}, nil
}

// shareable refuses to share an image whose disks nobody else could read: "Snapshots encrypted with your default
// KMS key cannot be shared".
func (m *Images) shareable(i Image, with []Permission) error {
	for _, d := range i.Disks {
		if s, ok := m.snapshot(d.Snapshot); ok && s.Key == m.defaultKey() {
			return refuse("InvalidParameter", "Snapshot %s of image %s is encrypted with the account's default key for EBS and can't be shared with %d others.", s.ID, i.ID, len(with))
		}
	}
	return nil
}

// imageChanges is what a call of ModifyImageAttribute says.
type imageChanges struct {
	attribute, value string
	add, remove      []Permission
}

// changesOf reads the two forms of ModifyImageAttribute: one parameter for an attribute, or Attribute with a value
// or an operation. Only one attribute can be changed at a time.
func changesOf(p params) (ch imageChanges, err error) {
	var named []string
	for attribute, value := range map[string]string{"description": "Description.Value", "imdsSupport": "ImdsSupport.Value"} {
		if p.has(value) {
			named, ch.value = append(named, attribute), p.get(value)
		}
	}
	add, err := permissionsOf(p.structs("LaunchPermission.Add"))
	if err != nil {
		return ch, err
	}
	remove, err := permissionsOf(p.structs("LaunchPermission.Remove"))
	if err != nil {
		return ch, err
	}
	if ch.add, ch.remove = add, remove; len(add)+len(remove) > 0 {
		named = append(named, "launchPermission")
	}
	if attribute := p.get("Attribute"); attribute != "" {
		if len(named) > 0 {
			return ch, invalidCombination("The parameter attribute can't be used with the parameter %s.", named[0])
		}
		named = []string{attribute}
		if ch, err = byAttribute(p); err != nil {
			return ch, err
		}
	}
	if len(named) != 1 {
		return ch, invalidCombination("Exactly one attribute must be modified, there are %d.", len(named))
	}
	ch.attribute = named[0]
	if !slices.Contains([]string{"description", "imdsSupport", "launchPermission"}, ch.attribute) {
		return ch, invalidValue(ch.attribute, "attribute", "Valid values: description, imdsSupport, launchPermission.")
	}
	return ch, nil
}

// byAttribute reads the form of the call with Attribute.
func byAttribute(p params) (ch imageChanges, err error) {
	ch.value = p.get("Value")
	if p.get("Attribute") != "launchPermission" {
		return ch, nil
	}
	var list []Permission
	for _, field := range []struct{ list, name string }{
		{"UserId", "UserId"}, {"UserGroup", "Group"}, {"OrganizationArn", "OrganizationArn"}, {"OrganizationalUnitArn", "OrganizationalUnitArn"},
	} {
		for _, value := range p.list(field.list) {
			more, err := permissionsOf([]params{{field.name: {value}}})
			if err != nil {
				return ch, err
			}
			list = append(list, more...)
		}
	}
	switch p.get("OperationType") {
	case "add":
		ch.add = list
	case "remove":
		ch.remove = list
	default:
		return ch, invalidValue(p.get("OperationType"), "operationType", "Valid values: add, remove.")
	}
	if len(list) == 0 {
		return ch, refuse("MissingParameter", "The request must contain who is given or loses the launch permission")
	}
	return ch, nil
}

// permissionsOf reads who may launch an image. Groups are refused: the only one is everybody, which "block public
// access for AMIs" forbids, as it does by default.
func permissionsOf(list []params) ([]Permission, error) {
	var permissions []Permission
	for _, p := range list {
		one := Permission{p.get("UserId"), p.get("OrganizationArn"), p.get("OrganizationalUnitArn")}
		group := p.get("Group")
		switch {
		case group == "all":
			return nil, refuse("OperationNotPermitted", "You can't publicly share this image because block public access for AMIs is enabled.")
		case group != "":
			return nil, badItem(group, "UserGroup")
		case one.Account != "" && !accountID.MatchString(one.Account):
			return nil, badItem(one.Account, "userId")
		case one.Organisation != "" && !organisationARN.MatchString(one.Organisation):
			return nil, badItem(one.Organisation, "organizationArn")
		case one.Unit != "" && !unitARN.MatchString(one.Unit):
			return nil, badItem(one.Unit, "organizationalUnitArn")
		case one == Permission{}:
			return nil, refuse("MissingParameter", "A launch permission names nobody.")
		}
		permissions = append(permissions, one)
	}
	return permissions, nil
}

func badItem(value, kind string) error {
	return refuse("InvalidAMIAttributeItemValue", "Invalid attribute item value \"%s\" for %s item type.", value, kind)
}

type xmlValue struct {
	Value string `xml:"value"`
}

type xmlLaunchPermission struct {
	Account      string `xml:"userId,omitempty"`
	Organisation string `xml:"organizationArn,omitempty"`
	Unit         string `xml:"organizationalUnitArn,omitempty"`
}

// describeImage answers one attribute of an image.
func (m *Images) describeImage(c *call) (any, error) {
	p := params(c.Form)
	i, err := m.own(p.get("ImageId"))
	if err != nil {
		return nil, err
	}
	out := struct {
		ID          string                `xml:"imageId"`
		Permissions []xmlLaunchPermission `xml:"launchPermission>item"`
		Description *xmlValue             `xml:"description"`
		BootMode    *xmlValue             `xml:"bootMode"`
		IMDS        *xmlValue             `xml:"imdsSupport"`
		TPM         *xmlValue             `xml:"tpmSupport"`
		SRIOV       *xmlValue             `xml:"sriovNetSupport"`
	}{ID: i.ID}
	switch attribute := p.get("Attribute"); attribute {
	case "launchPermission":
		for _, p := range i.Shared {
			out.Permissions = append(out.Permissions, xmlLaunchPermission(p))
		}
	case "description":
		out.Description = &xmlValue{i.Description}
	case "bootMode":
		out.BootMode = &xmlValue{i.Firmware.BootMode}
	case "imdsSupport":
		out.IMDS = &xmlValue{i.Firmware.IMDS}
	case "tpmSupport":
		out.TPM = &xmlValue{i.Firmware.TPM}
	case "sriovNetSupport":
		out.SRIOV = &xmlValue{i.Firmware.SRIOV}
	case "blockDeviceMapping":
		return nil, authFailure()
	default:
		return nil, invalidValue(attribute, "attribute", "(or awsfake does not model it)")
	}
	return out, nil
}

// resetImage takes all launch permissions away.
func (m *Images) resetImage(c *call) (any, error) {
	p := params(c.Form)
	i, err := m.own(p.get("ImageId"))
	if err != nil {
		return nil, err
	}
	if p.get("Attribute") != "launchPermission" {
		return nil, invalidValue(p.get("Attribute"), "attribute", "Valid values: launchPermission.")
	}
	m.changeImage(i.ID, func(i *Image) { i.Shared = nil })
	return xmlReturn{true}, nil
}
