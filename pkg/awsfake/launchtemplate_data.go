package awsfake

import (
	"encoding/base64"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// maxUserData is how many bytes user data may have before it is encoded (User Guide, "User data").
const maxUserData = 16 << 10

// LaunchData is the data of a launch template version. Other fields of the API or of CloudFormation are refused.
type LaunchData struct {
	Image    string         `cfn:"ImageId" xml:"imageId,omitempty"`
	Type     string         `cfn:"InstanceType" xml:"instanceType,omitempty"`
	Key      string         `cfn:"KeyName" xml:"keyName,omitempty"`
	UserData string         `cfn:"UserData" xml:"userData,omitempty"` // in base64
	Profile  *LaunchProfile `cfn:"IamInstanceProfile" xml:"iamInstanceProfile"`
	// Metadata are the options of the metadata service.
	Metadata       *MetadataOptions `cfn:"MetadataOptions" xml:"metadataOptions"`
	Disks          []LaunchDisk     `cfn:"BlockDeviceMappings" query:"BlockDeviceMapping" xml:"blockDeviceMappingSet>item"`
	SecurityGroups []string         `cfn:"SecurityGroupIds" query:"SecurityGroupId" xml:"securityGroupIdSet>item"`
	Tags           []LaunchTags     `cfn:"TagSpecifications" query:"TagSpecification" xml:"tagSpecificationSet>item"`
}

// LaunchProfile names an instance profile, one way or the other.
type LaunchProfile struct {
	ARN  string `cfn:"Arn" xml:"arn,omitempty"`
	Name string `cfn:"Name" xml:"name,omitempty"`
}

// MetadataOptions are those of a machine's metadata service; empty fields are EC2's defaults.
type MetadataOptions struct {
	Tokens   string `cfn:"HttpTokens" xml:"httpTokens,omitempty"`                 // "required" is IMDSv2 alone, "optional" both
	HopLimit *int   `cfn:"HttpPutResponseHopLimit" xml:"httpPutResponseHopLimit"` // 1 to 64
	Endpoint string `cfn:"HttpEndpoint" xml:"httpEndpoint,omitempty"`
	Tags     string `cfn:"InstanceMetadataTags" xml:"instanceMetadataTags,omitempty"`
}

// LaunchDisk is one block device mapping.
type LaunchDisk struct {
	Device string        `cfn:"DeviceName" xml:"deviceName,omitempty"`
	EBS    *LaunchVolume `cfn:"Ebs" xml:"ebs"`
}

// LaunchVolume is the volume of a mapping; Size is in GiB.
type LaunchVolume struct {
	Delete    *bool  `cfn:"DeleteOnTermination" xml:"deleteOnTermination"`
	Encrypted *bool  `cfn:"Encrypted" xml:"encrypted"`
	Key       string `cfn:"KmsKeyId" xml:"kmsKeyId,omitempty"`
	Snapshot  string `cfn:"SnapshotId" xml:"snapshotId,omitempty"`
	Type      string `cfn:"VolumeType" xml:"volumeType,omitempty"`
	Size      *int   `cfn:"VolumeSize" xml:"volumeSize"`
	// IOPS and Throughput, in MiB a second, are a gp3 volume's.
	IOPS       *int `cfn:"Iops" xml:"iops"`
	Throughput *int `cfn:"Throughput" xml:"throughput"`
}

// LaunchTags are the tags of one kind of resource that a machine comes with.
type LaunchTags struct {
	Resource string      `cfn:"ResourceType" xml:"resourceType"`
	Tags     []LaunchTag `cfn:"Tags" query:"Tag" xml:"tagSet>item"`
}

// LaunchTag is one tag.
type LaunchTag struct {
	Key   string `cfn:"Key,required" query:"Key" xml:"key"`
	Value string `cfn:"Value,required" query:"Value" xml:"value"`
}

// launchTypes are the kinds of resources that a launch template may tag (API reference,
// LaunchTemplateTagSpecificationRequest).
var launchTypes = []string{"instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu"}

var (
	imageID      = regexp.MustCompile(`^(ami-([0-9a-f]{8}|[0-9a-f]{17})|resolve:ssm:[A-Za-z0-9_./-]+(:[A-Za-z0-9_.-]+)?)$`)
	instanceType = regexp.MustCompile(`^[a-z0-9-]+\.[a-z0-9-]+$`)
)

func invalidLaunchValue(name, value, rest string) error {
	return refuse("InvalidParameterValue", "Invalid value '%s' for %s. %s", value, name, rest)
}

// check returns EC2's refusal of a new version. The image, the groups and the profile are checked only when a machine
// is launched.
func (d LaunchData) check() error {
	if reflect.DeepEqual(d, LaunchData{}) {
		return refuse("MissingParameter", "The request must contain the parameter LaunchTemplateData")
	}
	raw, err := base64.StdEncoding.DecodeString(d.UserData)
	switch {
	case err != nil:
		return refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	case len(raw) > maxUserData:
		return refuse("InvalidUserData.Malformed", "User data is limited to %d bytes", maxUserData)
	case d.Image != "" && !imageID.MatchString(d.Image):
		return refuse("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", d.Image)
	case d.Type != "" && !instanceType.MatchString(d.Type):
		return refuse("InvalidParameterValue", "Invalid value '%s' for InstanceType.", d.Type)
	case d.Profile != nil && (d.Profile.ARN == "") == (d.Profile.Name == ""):
		return refuse("InvalidParameterCombination", "The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'")
	}
	for _, spec := range d.Tags {
		if !slices.Contains(launchTypes, spec.Resource) {
			return refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", spec.Resource)
		}
		for _, tag := range spec.Tags {
			if strings.HasPrefix(strings.ToLower(tag.Key), "aws:") {
				return refuse("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
			}
		}
	}
	for _, disk := range d.Disks {
		if err := disk.check(); err != nil {
			return err
		}
	}
	return d.Metadata.check()
}

// shown matches the keys of tags that a machine's metadata can show, and reserved are those that match and cannot be
// ("View tags for your EC2 instances using instance metadata").
var (
	shown    = regexp.MustCompile(`^[0-9a-zA-Z\-_+=,.@:]{1,255}$`)
	reserved = []string{".", "..", "_index"}
)

// checkShownTags refuses tags that the machine's metadata are to show and cannot. The text of the launch's error is the one
// that EC2 is reported to give.
func (d *LaunchData) checkShownTags(tags map[string]string) error {
	if d == nil || d.Metadata == nil || d.Metadata.Tags != "enabled" {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if !shown.MatchString(key) || slices.Contains(reserved, key) {
			return refuse("InvalidParameterValue", `'%s' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index')`, key)
		}
	}
	return nil
}

func (m *MetadataOptions) check() error {
	if m == nil {
		return nil
	}
	for _, f := range []struct{ name, value, one, other string }{
		{"HttpTokens", m.Tokens, "optional", "required"}, {"HttpEndpoint", m.Endpoint, "enabled", "disabled"},
		{"InstanceMetadataTags", m.Tags, "enabled", "disabled"},
	} {
		if f.value != "" && f.value != f.one && f.value != f.other {
			return invalidLaunchValue(f.name, f.value, "Valid values are: "+f.one+", "+f.other+".")
		}
	}
	if m.HopLimit != nil && (*m.HopLimit < 1 || *m.HopLimit > 64) {
		return refuse("InvalidParameterValue", "Value '%d' for HttpPutResponseHopLimit is not valid. Specify a value from 1 to 64.", *m.HopLimit)
	}
	return nil
}

func (d LaunchDisk) check() error {
	v := d.EBS
	switch {
	case d.Device == "":
		return refuse("MissingParameter", "The request must contain the parameter deviceName")
	case v == nil:
		return nil
	case v.Key != "" && (v.Encrypted == nil || !*v.Encrypted):
		return refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	case v.Type != "" && v.Type != "gp3":
		return invalidLaunchValue("VolumeType", v.Type, "awsfake only models gp3.")
	case v.Size != nil && *v.Size < 1:
		return refuse("InvalidParameterValue", "Volume of %dGiB is too small; minimum is 1GiB.", *v.Size)
	}
	return nil
}

// tags are those of one kind of resource.
func (d LaunchData) tags(resource string) map[string]string {
	tags := map[string]string{}
	for _, spec := range d.Tags {
		for _, tag := range spec.Tags {
			if spec.Resource == resource {
				tags[tag.Key] = tag.Value
			}
		}
	}
	return tags
}

// rawUserData returns the decoded user data.
func (d LaunchData) rawUserData() string {
	raw, err := base64.StdEncoding.DecodeString(d.UserData)
	if err != nil {
		return "" // check has refused it
	}
	return string(raw)
}
