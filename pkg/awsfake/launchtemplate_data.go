package awsfake

import (
	"encoding/base64"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// maxUserData is how many bytes user data may have before it is encoded (User Guide, "User data").
const maxUserData = 16 << 10

// LaunchData is what a version of a launch template says of its machines. Only what is listed is modelled: another
// field of the API or of CloudFormation is refused.
type LaunchData struct {
	Image    string         `cfn:"ImageId" xml:"imageId,omitempty"`
	Type     string         `cfn:"InstanceType" xml:"instanceType,omitempty"`
	Key      string         `cfn:"KeyName" xml:"keyName,omitempty"`
	UserData string         `cfn:"UserData" xml:"userData,omitempty"` // in base64
	Profile  *LaunchProfile `cfn:"IamInstanceProfile" xml:"iamInstanceProfile"`
	// Metadata are the options of the metadata service.
	Metadata       *MetadataOptions  `cfn:"MetadataOptions" xml:"metadataOptions"`
	Disks          []LaunchDisk      `cfn:"BlockDeviceMappings" query:"BlockDeviceMapping" xml:"blockDeviceMappingSet>item"`
	SecurityGroups []string          `cfn:"SecurityGroupIds" query:"SecurityGroupId" xml:"securityGroupIdSet>item"`
	Interfaces     []LaunchInterface `cfn:"NetworkInterfaces" query:"NetworkInterface" xml:"networkInterfaceSet>item"`
	Tags           []LaunchTags      `cfn:"TagSpecifications" query:"TagSpecification" xml:"tagSpecificationSet>item"`
	LaunchSettings
}

// LaunchSettings are the fields that change nothing here but what describe calls answer.
type LaunchSettings struct {
	Optimized  *bool          `cfn:"EbsOptimized" xml:"ebsOptimized"`
	Shutdown   string         `cfn:"InstanceInitiatedShutdownBehavior" xml:"instanceInitiatedShutdownBehavior,omitempty"`
	Protected  *bool          `cfn:"DisableApiTermination" xml:"disableApiTermination"`
	Monitoring *Monitoring    `cfn:"Monitoring" xml:"monitoring"`
	Credit     *LaunchCredit  `cfn:"CreditSpecification" xml:"creditSpecification"`
	Names      *LaunchNames   `cfn:"PrivateDnsNameOptions" xml:"privateDnsNameOptions"`
	Placement  *LaunchTenancy `cfn:"Placement" xml:"placement"`
}

// LaunchProfile names an instance profile, one way or the other.
type LaunchProfile struct {
	ARN  string `cfn:"Arn" xml:"arn,omitempty"`
	Name string `cfn:"Name" xml:"name,omitempty"`
}

// MetadataOptions are those of a machine's metadata service. What is empty is EC2's default.
type MetadataOptions struct {
	Tokens   string `cfn:"HttpTokens" xml:"httpTokens,omitempty"`                 // "required" is IMDSv2 alone, "optional" both
	HopLimit *int   `cfn:"HttpPutResponseHopLimit" xml:"httpPutResponseHopLimit"` // 1 to 64
	Endpoint string `cfn:"HttpEndpoint" xml:"httpEndpoint,omitempty"`
	IPv6     string `cfn:"HttpProtocolIpv6" xml:"httpProtocolIpv6,omitempty"`
	Tags     string `cfn:"InstanceMetadataTags" xml:"instanceMetadataTags,omitempty"`
}

// LaunchDisk is one block device mapping.
type LaunchDisk struct {
	Device   string        `cfn:"DeviceName" xml:"deviceName,omitempty"`
	Virtual  string        `cfn:"VirtualName" xml:"virtualName,omitempty"`
	NoDevice string        `cfn:"NoDevice" xml:"noDevice,omitempty"`
	EBS      *LaunchVolume `cfn:"Ebs" xml:"ebs"`
}

// LaunchVolume is the volume of a mapping; Size is in GiB.
type LaunchVolume struct {
	Delete     *bool  `cfn:"DeleteOnTermination" xml:"deleteOnTermination"`
	Encrypted  *bool  `cfn:"Encrypted" xml:"encrypted"`
	Key        string `cfn:"KmsKeyId" xml:"kmsKeyId,omitempty"`
	Snapshot   string `cfn:"SnapshotId" xml:"snapshotId,omitempty"`
	Type       string `cfn:"VolumeType" xml:"volumeType,omitempty"`
	Size       *int   `cfn:"VolumeSize" xml:"volumeSize"`
	IOPS       *int   `cfn:"Iops" xml:"iops"`
	Throughput *int   `cfn:"Throughput" xml:"throughput"` // MiB/s
}

// LaunchInterface is one network interface.
type LaunchInterface struct {
	Index  *int     `cfn:"DeviceIndex" xml:"deviceIndex"`
	Subnet string   `cfn:"SubnetId" xml:"subnetId,omitempty"`
	Public *bool    `cfn:"AssociatePublicIpAddress" xml:"associatePublicIpAddress"`
	Delete *bool    `cfn:"DeleteOnTermination" xml:"deleteOnTermination"`
	IPv6   *int     `cfn:"Ipv6AddressCount" xml:"ipv6AddressCount"`
	Text   string   `cfn:"Description" xml:"description,omitempty"`
	Groups []string `cfn:"Groups" query:"SecurityGroupId" xml:"groupSet>groupId"`
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

// Monitoring says whether a machine's metrics come every minute.
type Monitoring struct {
	Enabled *bool `cfn:"Enabled" xml:"enabled"`
}

// LaunchCredit is how burstable machines pay for bursts.
type LaunchCredit struct {
	CPU string `cfn:"CpuCredits" xml:"cpuCredits"`
}

// LaunchNames are the options of a machine's own DNS name.
type LaunchNames struct {
	Type string `cfn:"HostnameType" xml:"hostnameType,omitempty"`
	A    *bool  `cfn:"EnableResourceNameDnsARecord" xml:"enableResourceNameDnsARecord"`
	AAAA *bool  `cfn:"EnableResourceNameDnsAAAARecord" xml:"enableResourceNameDnsAAAARecord"`
}

// LaunchTenancy is the part of a placement that is modelled.
type LaunchTenancy struct {
	Zone    string `cfn:"AvailabilityZone" xml:"availabilityZone,omitempty"`
	Tenancy string `cfn:"Tenancy" xml:"tenancy,omitempty"`
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

// check refuses what EC2 refuses when a version is made. That the image, the groups and the profile exist is only
// seen when a machine is launched.
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
	case len(d.SecurityGroups) > 0 && len(d.Interfaces) > 0:
		return refuse("InvalidParameterCombination", "Network interfaces and an instance-level security groups may not be specified on the same request")
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

func (m *MetadataOptions) check() error {
	if m == nil {
		return nil
	}
	for _, f := range []struct{ name, value, one, other string }{
		{"HttpTokens", m.Tokens, "optional", "required"}, {"HttpEndpoint", m.Endpoint, "enabled", "disabled"},
		{"HttpProtocolIpv6", m.IPv6, "enabled", "disabled"}, {"InstanceMetadataTags", m.Tags, "enabled", "disabled"},
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

// The upper bounds of gp3 (User Guide, "General Purpose SSD volumes").
const (
	gp3MaxIOPS       = 80_000
	gp3MaxThroughput = 2_000
)

func (d LaunchDisk) check() error {
	v := d.EBS
	switch {
	case d.Device == "":
		return refuse("MissingParameter", "The request must contain the parameter deviceName")
	case v == nil:
		return nil
	case v.Key != "" && (v.Encrypted == nil || !*v.Encrypted):
		return refuse("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	case v.Type != "" && !slices.Contains([]string{"standard", "io1", "io2", "gp2", "gp3", "sc1", "st1"}, v.Type):
		return invalidLaunchValue("VolumeType", v.Type, "Valid values are: standard, io1, io2, gp2, gp3, sc1, st1.")
	case v.Throughput != nil && v.Type != "gp3":
		return refuse("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", v.Type)
	case v.Throughput != nil && (*v.Throughput < 125 || *v.Throughput > gp3MaxThroughput):
		return refuse("InvalidParameterValue", "Throughput of %d MiB/s is not between 125 and %d.", *v.Throughput, gp3MaxThroughput)
	case v.IOPS != nil && v.Type == "gp3" && (*v.IOPS < 3000 || *v.IOPS > gp3MaxIOPS):
		return refuse("InvalidParameterValue", "Volume iops of %d is not between 3000 and %d.", *v.IOPS, gp3MaxIOPS)
	case v.Size != nil && *v.Size < 1:
		return refuse("InvalidParameterValue", "Volume of %dGiB is too small; minimum is 1GiB.", *v.Size)
	}
	return nil
}

// over is d with what it does not say taken from source.
func (d LaunchData) over(source LaunchData) LaunchData {
	to := reflect.ValueOf(&d).Elem()
	from := reflect.ValueOf(source)
	for _, f := range reflect.VisibleFields(to.Type()) {
		if !f.Anonymous && to.FieldByIndex(f.Index).IsZero() {
			to.FieldByIndex(f.Index).Set(from.FieldByIndex(f.Index))
		}
	}
	return d
}

// groups are the security groups of the first interface, or of the machine.
func (d LaunchData) groups() []string {
	if len(d.Interfaces) > 0 {
		return d.Interfaces[0].Groups
	}
	return d.SecurityGroups
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

// rawUserData is what a machine's metadata service answers.
func (d LaunchData) rawUserData() string {
	raw, err := base64.StdEncoding.DecodeString(d.UserData)
	if err != nil {
		return "" // check has refused it
	}
	return string(raw)
}
