package awsfake

import (
	"regexp"
	"slices"
)

type xmlImage struct {
	ID          string         `xml:"imageId"`
	Location    string         `xml:"imageLocation"`
	State       string         `xml:"imageState"`
	Owner       string         `xml:"imageOwnerId"`
	Created     string         `xml:"creationDate"`
	Name        string         `xml:"name"`
	Description string         `xml:"description,omitempty"`
	Reason      *xmlReason     `xml:"stateReason"`
	Disks       []xmlImageDisk `xml:"blockDeviceMapping>item"`
	Tags        []xmlTag       `xml:"tagSet>item"`
	xmlImageKinds
}

// xmlImageKinds are the fields of xmlImage that say what kind of machine it makes.
type xmlImageKinds struct {
	Architecture   string `xml:"architecture"`
	Type           string `xml:"imageType"`
	RootType       string `xml:"rootDeviceType"`
	RootName       string `xml:"rootDeviceName"`
	Virtualization string `xml:"virtualizationType"`
	Hypervisor     string `xml:"hypervisor"`
	BootMode       string `xml:"bootMode,omitempty"`
	xmlImageSupport
}

type xmlImageSupport struct {
	IMDS         string `xml:"imdsSupport,omitempty"`
	TPM          string `xml:"tpmSupport,omitempty"`
	ENA          bool   `xml:"enaSupport"`
	Platform     string `xml:"platformDetails"`
	Usage        string `xml:"usageOperation"`
	SourceID     string `xml:"sourceImageId,omitempty"`
	SourceRegion string `xml:"sourceImageRegion,omitempty"`
}

type xmlReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type xmlImageDisk struct {
	Device string `xml:"deviceName"`
	Ebs    struct {
		Snapshot            string `xml:"snapshotId,omitempty"`
		Size                int    `xml:"volumeSize"`
		Type                string `xml:"volumeType"`
		DeleteOnTermination bool   `xml:"deleteOnTermination"`
		Encrypted           bool   `xml:"encrypted"`
	} `xml:"ebs"`
}

func imageXML(i Image) xmlImage {
	x := xmlImage{
		ID: i.ID, Location: owner + "/" + i.Name, State: i.State, Owner: owner, Created: stamp(i.Created),
		Name: i.Name, Description: i.Description, Tags: tagsXML(i.Tags),
		xmlImageKinds: xmlImageKinds{
			Architecture: i.Firmware.Architecture, Type: "machine", RootType: "ebs", RootName: i.Root, Virtualization: "hvm", Hypervisor: "xen", BootMode: i.Firmware.BootMode,
			xmlImageSupport: xmlImageSupport{
				IMDS: i.Firmware.IMDS, TPM: i.Firmware.TPM, ENA: i.Firmware.ENA,
				Platform: "Linux/UNIX", Usage: "RunInstances", SourceID: i.Source.ID, SourceRegion: i.Source.Region,
			},
		},
	}
	if i.Reason != "" {
		x.Reason = &xmlReason{"Client.InternalError", i.Reason}
	}
	for _, d := range i.Disks {
		w := xmlImageDisk{Device: d.Device}
		w.Ebs.Snapshot, w.Ebs.Size, w.Ebs.Type = d.Snapshot, d.Size, d.Type
		w.Ebs.DeleteOnTermination, w.Ebs.Encrypted = !d.Keep, d.Encrypted
		x.Disks = append(x.Disks, w)
	}
	return x
}

// visibleImages lists the images that a describe call sees now.
func (m *Images) visibleImages() []Image {
	return slices.DeleteFunc(m.images.at(m.now().Add(-m.lag)), func(i Image) bool { return i.State == imageDeregistered })
}

func (m *Images) describeImages(c *call) (any, error) {
	p := params(c.Form)
	ids := p.list("ImageId")
	list := m.visibleImages()
	if err := m.checkIDs(ids, list); err != nil {
		return nil, err
	}
	disabled, err := p.flag("IncludeDisabled", false)
	if err != nil {
		return nil, err
	}
	filters := filtersOf(p.structs("Filter"), "Value", true)
	owners := p.list("Owner")
	kept := []Image{}
	for _, i := range list {
		ok, err := passAll(filters, map[string][]string{"image-id": {i.ID}}, i.Tags)
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, i.ID)) && ownedBy(owners) && (disabled || i.State != ImageDisabled) {
			kept = append(kept, i)
		}
	}
	kept, token, err := paged(p, "ImageId", "imagesSet", kept)
	if err != nil {
		return nil, err
	}
	out := struct {
		Images []xmlImage `xml:"imagesSet>item"`
		Next   string     `xml:"nextToken,omitempty"`
	}{Next: token}
	for _, i := range kept {
		out.Images = append(out.Images, imageXML(i))
	}
	return out, nil
}

// checkIDs refuses malformed and unknown image IDs. A deregistered image is omitted from the answer while machines of
// it run, and unknown afterwards.
func (m *Images) checkIDs(ids []string, visible []Image) error {
	var missing []string
	for _, id := range ids {
		if !imagePattern.MatchString(id) {
			return refuse("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", id)
		}
		if !slices.ContainsFunc(visible, func(i Image) bool { return i.ID == id }) && !m.account.regional.ec2.runs(id) {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return noImage(missing...)
	}
	return nil
}

// runs reports whether a machine of this image has not ended.
func (e *EC2) runs(image string) bool {
	for _, id := range e.order {
		if m := e.machines[id].last(); m.Image == image && m.State != MachineTerminated {
			return true
		}
	}
	return false
}

// ownedBy reports whether one of the owners of a describe call is the account; none named is everyone.
func ownedBy(owners []string) bool {
	return len(owners) == 0 || slices.Contains(owners, owner) || slices.Contains(owners, "self")
}

// paged cuts the page that a describe call asks for; identifiers and MaxResults exclude each other.
func paged[T any](p params, ids, set string, list []T) ([]T, string, error) {
	if p.has("MaxResults") && p.has(ids+".1") {
		return nil, "", invalidCombination("The parameter %s cannot be used with the parameter maxResults", set)
	}
	size, err := p.integer("MaxResults", 1000)
	if err != nil {
		return nil, "", err
	}
	if size < 5 || size > 1000 {
		return nil, "", refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between 5 and 1000.", size)
	}
	if !p.has("MaxResults") && !p.has("NextToken") {
		size = max(len(list), 1)
	}
	return page(list, size, p.get("NextToken"))
}

var accountID = regexp.MustCompile(`^[0-9]{12}$`)
