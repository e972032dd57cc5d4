package cluster_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	ebstypes "github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// register makes an image with a disk of so many GiB, and points the channel at it.
func register(t *testing.T, account *awsfake.Account, conf aws.Config, size int64, change func(*ec2.RegisterImageInput)) string {
	t.Helper()
	api, block := ebs.NewFromConfig(conf), make([]byte, 512<<10)
	started, err := api.StartSnapshot(t.Context(), &ebs.StartSnapshotInput{VolumeSize: &size})
	assert.NilError(t, err)
	sum := sha256.Sum256(block)
	_, err = api.PutSnapshotBlock(t.Context(), &ebs.PutSnapshotBlockInput{
		SnapshotId: started.SnapshotId, BlockIndex: aws.Int32(0), BlockData: bytes.NewReader(block), DataLength: aws.Int32(int32(len(block))),
		Checksum: aws.String(base64.StdEncoding.EncodeToString(sum[:])), ChecksumAlgorithm: ebstypes.ChecksumAlgorithmChecksumAlgorithmSha256,
	})
	assert.NilError(t, err)
	_, err = api.CompleteSnapshot(t.Context(), &ebs.CompleteSnapshotInput{SnapshotId: started.SnapshotId, ChangedBlocksCount: aws.Int32(1)})
	assert.NilError(t, err)
	in := &ec2.RegisterImageInput{
		Name: aws.String("hardtack-" + *started.SnapshotId), Architecture: ec2types.ArchitectureValuesX8664, RootDeviceName: aws.String("/dev/xvda"),
		VirtualizationType: aws.String("hvm"), EnaSupport: aws.Bool(true), BootMode: ec2types.BootModeValuesUefiPreferred,
		BlockDeviceMappings: []ec2types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &ec2types.EbsBlockDevice{SnapshotId: started.SnapshotId}}},
	}
	change(in)
	made, err := ec2.NewFromConfig(conf).RegisterImage(t.Context(), in)
	assert.NilError(t, err)
	_, err = account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: *made.ImageId}, true)
	assert.NilError(t, err)
	return *made.ImageId
}

// What EC2 would refuse at each launch, or what no machine would start from, is refused before anything changes, with the document's value
// and the image's: the disk's size, the architecture, the boot mode, NVMe, ENA, the root device, and a type that is none. What fits passes.
func TestImageAndTypesFit(t *testing.T) {
	_, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	groups := func(minions string) string {
		return "groups:\n- {name: masters, roles: [masters, etcd]}\n- {name: minions, roles: [minions], aws: {" + minions + "}}\n"
	}
	// Check finds what apply does, and without the stack.
	apply := func(document string) error {
		deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}
		c := cluster.New(cluster.Config{Document: complete(t, document), AWS: conf, Poll: time.Millisecond})
		_, err := c.Apply(t.Context(), cluster.ApplyOptions{Deployment: deploy, DryRun: true})
		stacks := account.Calls()["cloudformation:DescribeStacks"]
		_, alone := cluster.New(cluster.Config{Document: complete(t, document), AWS: conf, Poll: time.Millisecond}).Check(t.Context())
		request := regexp.MustCompile(`RequestID: [^,]*`)
		assert.Equal(t, request.ReplaceAllString(fmt.Sprint(alone), ""), request.ReplaceAllString(fmt.Sprint(err), ""))
		assert.Equal(t, account.Calls()["cloudformation:DescribeStacks"], stacks)
		return err
	}
	arm := func(in *ec2.RegisterImageInput) {
		in.Architecture, in.BootMode = ec2types.ArchitectureValuesArm64, ec2types.BootModeValuesUefi
	}
	for name, tt := range map[string]struct {
		size    int64
		change  func(*ec2.RegisterImageInput)
		minions string
		want    []string
	}{
		"what fits":             {9, func(*ec2.RegisterImageInput) {}, "instanceType: m7i.large, volume: 9", nil},
		"BIOS where it must be": {9, func(*ec2.RegisterImageInput) {}, "instanceType: g4ad.xlarge", nil},
		"a disk that is too small": {9, func(*ec2.RegisterImageInput) {}, "volume: 8",
			[]string{"group minions: aws.volume: 8 GiB, and the image's disk has 9 GiB"}},
		"another architecture": {9, func(*ec2.RegisterImageInput) {}, "instanceType: m7g.large",
			[]string{"arch: arm64, and the image is x86_64"}},
		"an image of another architecture": {9, arm, "instanceType: m7i.large",
			[]string{"arch: amd64, and the image is arm64"}},
		"arm64": {9, arm, "instanceType: m7g.large", nil},
		"UEFI alone": {9, func(in *ec2.RegisterImageInput) { in.BootMode = ec2types.BootModeValuesUefi }, "instanceType: g4ad.xlarge",
			[]string{"group minions: aws.instanceType: g4ad.xlarge boots by legacy-bios, and the image by uefi"}},
		"no TPM": {9, func(in *ec2.RegisterImageInput) { arm(in); in.TpmSupport = ec2types.TpmSupportValuesV20 }, "instanceType: i4g.large", []string{
			"group minions: aws.instanceType: i4g.large has no TPM, and the image is registered with one (v2.0)"}},
		"no NVMe, and further types": {9, func(*ec2.RegisterImageInput) {}, "instanceType: t2.micro, types: [m7i.large, i3.large, m9x.large]", []string{
			"group minions: aws.instanceType: t2.micro has volumes that are no NVMe devices (EC2 says unsupported)",
			"group minions: aws.types: i3.large has volumes that are no NVMe devices (EC2 says supported)",
			"group minions: aws.types: m9x.large: EC2 has no such type in us-west-2"}},
		"no ENA": {9, func(in *ec2.RegisterImageInput) { in.EnaSupport = aws.Bool(false) }, "instanceType: m7i.large", []string{
			"group masters: aws.instanceType: m7i.large has a network interface of ENA, and the image is registered without it",
			"group minions: aws.instanceType: m7i.large has a network interface of ENA, and the image is registered without it"}},
		"a role that no unit of the image has": {9, func(in *ec2.RegisterImageInput) {
			in.TagSpecifications = []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeImage, Tags: []ec2types.Tag{
				{Key: aws.String("hardtack:roles"), Value: aws.String("masters+etcd+ingress")}}}}
		}, "instanceType: m7i.large", []string{"group minions: roles: no unit of the image is of the role minions; it has masters, etcd, ingress"}},
		"another root device": {9, func(in *ec2.RegisterImageInput) {
			in.RootDeviceName, in.BlockDeviceMappings[0].DeviceName = aws.String("/dev/sda1"), aws.String("/dev/sda1")
		}, "instanceType: m7i.large", []string{"the image starts from /dev/sda1, and launch templates set the size of /dev/xvda"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := register(t, account, conf, tt.size, tt.change)
			err := apply(groups(tt.minions))
			if tt.want == nil {
				assert.NilError(t, err)
				return
			}
			e := typed[*cluster.UnfitError](t, err)
			assert.Equal(t, len(e.Problems), len(tt.want), "%s", err)
			for i, want := range tt.want {
				assert.Assert(t, strings.HasPrefix(e.Problems[i], want), "%s\nwant %s", e.Problems[i], want)
			}
			assert.ErrorContains(t, err, "starting machines from image "+id+" of channel stable:")
			assert.Equal(t, account.Calls()["cloudformation:ExecuteChangeSet"], 0)
		})
	}
	// Another version of Kubernetes, by itself and with a disk that is too small: Check says both at once.
	old := func(in *ec2.RegisterImageInput) {
		in.TagSpecifications = []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeImage, Tags: []ec2types.Tag{{Key: aws.String(ami.TagKubernetes), Value: aws.String("v1.29.3")}}}}
	}
	id := register(t, account, conf, 9, old)
	version := &cluster.ImageVersionError{Channel: "stable", Image: id, Kubernetes: "v1.29.3", Document: complete(t).Cluster.Version}
	assert.DeepEqual(t, typed[*cluster.ImageVersionError](t, apply(groups("volume: 9"))), version)
	_, err := cluster.New(cluster.Config{Document: complete(t, groups("volume: 8")), AWS: conf}).Check(t.Context())
	assert.DeepEqual(t, typed[*cluster.ImageVersionError](t, err), version)
	assert.Equal(t, len(typed[*cluster.UnfitError](t, err).Problems), 1)
	list := cluster.New(cluster.Config{Document: complete(t, groups("volume: 8")), AWS: conf}).Doctor(t.Context(), cluster.Deployment{})
	assert.Equal(t, len(checksOf(list, "image", doctor.Error)), 2, "%+v", list)

	_, err = account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000f"}, true)
	assert.NilError(t, err)
	assert.DeepEqual(t, typed[*cluster.UnknownImageError](t, apply("")), &cluster.UnknownImageError{Channel: "stable", Image: "ami-0000000000000000f", Region: "us-west-2"})
	register(t, account, conf, 9, func(*ec2.RegisterImageInput) {})
	account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Action != "DescribeInstanceTypes" {
			return awsfake.Fault{}
		}
		return awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "UnauthorizedOperation", Message: "no"}}
	}))
	assert.ErrorContains(t, apply(""), "ec2:DescribeInstanceTypes")
}
