package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	ebstypes "github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// TestEmptyRegion makes a cluster in an empty region as a user does on AWS: an image by the EBS direct APIs, a
// channel, authorities, and the stack that pkg/cluster/template renders. Its groups launch machines from the stack's
// launch templates with the stack's roles, the machines complete their hooks, and the function finds the stack's zone.
func TestEmptyRegion(t *testing.T) {
	plan, err := planOf(DefaultCluster)
	if err != nil {
		t.Fatal(err)
	}
	plan.Empty = true
	home, c := up(t, plan)
	at, err := c.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conf := ownerOf(at)
	secrets := store.NewSSM(plan.Store, func(context.Context) (aws.Config, error) { return conf, nil })
	if _, err := authority.Create(t.Context(), secrets, plan.Info(), time.Now()); err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat([]byte("baked"), 512<<10/5+1)[:512<<10]
	image := publishImage(t, conf, block)
	s := until(t, c, "the lab answers", func(Status) bool { return true })
	if s.Ready || len(s.Machines) != 0 || len(s.Records) != 0 {
		t.Errorf("an empty region has %+v", s)
	}
	deploy(t, conf, at, plan.Complete)
	s = until(t, c, "the stack's groups serve", func(s Status) bool { return inService("minions", 2)(s) && inService("masters", 1)(s) })
	for _, m := range s.Machines {
		if m.Image != image || m.End != "" {
			t.Errorf("machine %+v, want it to run from %s", m, image)
		}
	}
	disk, err := os.ReadFile(home.path(imagesDir, image+".raw"))
	if err != nil || len(disk) != 1<<30 || !bytes.Equal(disk[:len(block)], block) || len(bytes.Trim(disk[len(block):], "\x00")) > 0 {
		t.Errorf("the machines' disk of %d bytes is not what was published: %v", len(disk), err)
	}
	victim := s.Machines[slices.IndexFunc(s.Machines, func(m MachineStatus) bool { return m.Group == "minions" })]
	if err := c.Kill(t.Context(), victim.ID); err != nil {
		t.Fatal(err)
	}
	until(t, c, "the stack's group has replaced a machine", func(s Status) bool {
		return inService("minions", 2)(s) && !slices.Contains(values(s, "minions.demo.k8s."), victim.Address.String())
	})
}

// ownerOf is the SDK's configuration of the region's owner.
func ownerOf(at AWS) aws.Config {
	return aws.Config{Region: at.Region, BaseEndpoint: &at.Endpoint, HTTPClient: http.DefaultClient, Credentials: aws.CredentialsProviderFunc(
		func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: at.AccessKey, SecretAccessKey: at.Secret}, nil
		})}
}

// publishImage makes an image of one block, which the channel names.
func publishImage(t *testing.T, conf aws.Config, block []byte) string {
	t.Helper()
	api := ebs.NewFromConfig(conf)
	started, err := api.StartSnapshot(t.Context(), &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(block)
	_, err = api.PutSnapshotBlock(t.Context(), &ebs.PutSnapshotBlockInput{
		SnapshotId: started.SnapshotId, BlockIndex: aws.Int32(0), BlockData: bytes.NewReader(block), DataLength: aws.Int32(int32(len(block))),
		Checksum: aws.String(base64.StdEncoding.EncodeToString(sum[:])), ChecksumAlgorithm: ebstypes.ChecksumAlgorithmChecksumAlgorithmSha256,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.CompleteSnapshot(t.Context(), &ebs.CompleteSnapshotInput{SnapshotId: started.SnapshotId, ChangedBlocksCount: aws.Int32(1)}); err != nil {
		t.Fatal(err)
	}
	made, err := ec2.NewFromConfig(conf).RegisterImage(t.Context(), &ec2.RegisterImageInput{
		Name: aws.String("hardtack-test"), Architecture: ec2types.ArchitectureValuesX8664, RootDeviceName: aws.String("/dev/xvda"),
		VirtualizationType: aws.String("hvm"), EnaSupport: aws.Bool(true), BootMode: ec2types.BootModeValuesUefi, ImdsSupport: ec2types.ImdsSupportValuesV20,
		BlockDeviceMappings: []ec2types.BlockDeviceMapping{{DeviceName: aws.String("/dev/xvda"), Ebs: &ec2types.EbsBlockDevice{SnapshotId: started.SnapshotId}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ssm.NewFromConfig(conf).PutParameter(t.Context(), &ssm.PutParameterInput{
		Name: aws.String(template.ImageParameter("stable")), Value: made.ImageId, Type: ssmtypes.ParameterTypeString, DataType: aws.String("aws:ec2:image"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return *made.ImageId
}

// deploy makes the stack with its machines, and waits until CloudFormation is done.
func deploy(t *testing.T, conf aws.Config, at AWS, complete *spec.Complete) {
	t.Helper()
	tmpl, err := template.Render(complete, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := tmpl.YAML()
	if err != nil {
		t.Fatal(err)
	}
	parameter := func(name, value string) cfn.Parameter {
		return cfn.Parameter{ParameterKey: &name, ParameterValue: &value}
	}
	api, name := cloudformation.NewFromConfig(conf), aws.String("hardtack-demo")
	_, err = api.CreateChangeSet(t.Context(), &cloudformation.CreateChangeSetInput{
		StackName: name, ChangeSetName: name, ChangeSetType: cfn.ChangeSetTypeCreate, TemplateBody: aws.String(string(body)),
		Capabilities: []cfn.Capability{cfn.CapabilityCapabilityIam},
		Parameters: []cfn.Parameter{
			parameter(template.ParameterVPC, at.VPC), parameter(template.ParameterSubnets, strings.Join(at.Subnets, ",")),
			parameter(template.ParameterMembers, at.Subnets[0]), parameter(template.ParameterZones, at.Zones[0]),
			parameter(template.ParameterMachines, template.MachinesYes),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = cloudformation.NewChangeSetCreateCompleteWaiter(api, func(o *cloudformation.ChangeSetCreateCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
	}).Wait(t.Context(), &cloudformation.DescribeChangeSetInput{StackName: name, ChangeSetName: name}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.ExecuteChangeSet(t.Context(), &cloudformation.ExecuteChangeSetInput{StackName: name, ChangeSetName: name}); err != nil {
		t.Fatal(err)
	}
	err = cloudformation.NewStackCreateCompleteWaiter(api, func(o *cloudformation.StackCreateCompleteWaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second
	}).Wait(t.Context(), &cloudformation.DescribeStacksInput{StackName: name}, time.Minute)
	if err != nil {
		events, _ := api.DescribeStackEvents(t.Context(), &cloudformation.DescribeStackEventsInput{StackName: name})
		for _, e := range events.StackEvents {
			t.Log(aws.ToString(e.LogicalResourceId), e.ResourceStatus, aws.ToString(e.ResourceStatusReason))
		}
		t.Fatal(err)
	}
}
