package awsfake

import (
	"regexp"
	"slices"
)

// The ARNs that an image can be shared with.
var (
	organisationARN = regexp.MustCompile(`^arn:aws[a-z-]*:organizations::[0-9]{12}:organization/o-[a-z0-9]{10,32}$`)
	unitARN         = regexp.MustCompile(`^arn:aws[a-z-]*:organizations::[0-9]{12}:ou/o-[a-z0-9]{10,32}/ou-[a-z0-9]{4,32}-[a-z0-9]{8,32}$`)
)

// modifyImage gives others the permission to launch an image.
func (m *Images) modifyImage(c *call) (any, error) {
	p := params(c.Form)
	i, err := m.own(p.get("ImageId"))
	if err != nil {
		return nil, err
	}
	add, err := permissionsOf(p.structs("LaunchPermission.Add"))
	if err != nil {
		return nil, err
	}
	switch {
	case len(add) == 0:
		return nil, refuse("MissingParameter", "awsfake only models launchPermission.add")
	case i.State != ImageAvailable:
		return nil, refuse("IncorrectState", "The image %s is %s.", i.ID, i.State)
	}
	if err := m.shareable(i, add); err != nil {
		return nil, err
	}
	m.changeImage(i.ID, func(i *Image) {
		for _, p := range add {
			if !slices.Contains(i.Shared, p) {
				i.Shared = append(i.Shared, p)
			}
		}
	})
	return xmlReturn{true}, nil
}

// shareable refuses to share an image whose disks others could not read: "Snapshots encrypted with your default KMS
// key cannot be shared".
func (m *Images) shareable(i Image, with []Permission) error {
	for _, d := range i.Disks {
		if s, ok := m.snapshot(d.Snapshot); ok && s.Key == m.defaultKey() {
			return refuse("InvalidParameter", "Snapshot %s of image %s is encrypted with the account's default key for EBS and can't be shared with %d others.", s.ID, i.ID, len(with))
		}
	}
	return nil
}

// permissionsOf reads launch permissions. Groups are refused: the only group is all accounts, which "block public
// access for AMIs" forbids by default.
func permissionsOf(list []params) ([]Permission, error) {
	var permissions []Permission
	for _, p := range list {
		permission := Permission{p.get("UserId"), p.get("OrganizationArn"), p.get("OrganizationalUnitArn")}
		group := p.get("Group")
		switch {
		case group == "all":
			return nil, refuse("OperationNotPermitted", "You can't publicly share this image because block public access for AMIs is enabled.")
		case group != "":
			return nil, badItem(group, "UserGroup")
		case permission.Account != "" && !accountID.MatchString(permission.Account):
			return nil, badItem(permission.Account, "userId")
		case permission.Organisation != "" && !organisationARN.MatchString(permission.Organisation):
			return nil, badItem(permission.Organisation, "organizationArn")
		case permission.Unit != "" && !unitARN.MatchString(permission.Unit):
			return nil, badItem(permission.Unit, "organizationalUnitArn")
		case permission == Permission{}:
			return nil, refuse("MissingParameter", "A launch permission needs UserId, OrganizationArn or OrganizationalUnitArn.")
		}
		permissions = append(permissions, permission)
	}
	return permissions, nil
}

func badItem(value, kind string) error {
	return refuse("InvalidAMIAttributeItemValue", "Invalid attribute item value \"%s\" for %s item type.", value, kind)
}

type xmlLaunchPermission struct {
	Account      string `xml:"userId,omitempty"`
	Organisation string `xml:"organizationArn,omitempty"`
	Unit         string `xml:"organizationalUnitArn,omitempty"`
}

// describeImage answers who may launch an image.
func (m *Images) describeImage(c *call) (any, error) {
	p := params(c.Form)
	i, err := m.own(p.get("ImageId"))
	if err != nil {
		return nil, err
	}
	if attribute := p.get("Attribute"); attribute != "launchPermission" {
		return nil, invalidValue(attribute, "attribute", "awsfake only models launchPermission.")
	}
	out := struct {
		ID          string                `xml:"imageId"`
		Permissions []xmlLaunchPermission `xml:"launchPermission>item"`
	}{ID: i.ID}
	for _, p := range i.Shared {
		out.Permissions = append(out.Permissions, xmlLaunchPermission(p))
	}
	return out, nil
}
