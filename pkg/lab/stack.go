package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

// launchTime bounds the time until a machine works: the longest heartbeat timeout of AutoScaling, since the duration
// of a boot depends on this computer. The console shows why a machine does not come up.
const launchTime = 2 * time.Hour

// publish registers an image without content in the account, which stands for the disk that the lab was started with,
// and points the cluster's channel at it.
func (r *region) publish(ctx context.Context) (id string, err error) {
	blocks := ebs.NewFromConfig(r.owner)
	snapshot, err := blocks.StartSnapshot(ctx, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	if err != nil {
		return "", fmt.Errorf("making the image's snapshot: %w", err)
	}
	if _, err := blocks.CompleteSnapshot(ctx, &ebs.CompleteSnapshotInput{SnapshotId: snapshot.SnapshotId, ChangedBlocksCount: aws.Int32(0)}); err != nil {
		return "", fmt.Errorf("making the image's snapshot: %w", err)
	}
	image, err := ec2.NewFromConfig(r.owner).RegisterImage(ctx, &ec2.RegisterImageInput{
		Name: aws.String("hardtack-lab"), Architecture: ec2types.ArchitectureValues(awsname.Architecture(r.plan.Cluster.Arch)), VirtualizationType: aws.String("hvm"),
		EnaSupport: aws.Bool(true), ImdsSupport: ec2types.ImdsSupportValuesV20, RootDeviceName: aws.String(ami.RootDevice),
		BlockDeviceMappings: []ec2types.BlockDeviceMapping{{DeviceName: aws.String(ami.RootDevice), Ebs: &ec2types.EbsBlockDevice{SnapshotId: snapshot.SnapshotId}}},
	})
	if err != nil {
		return "", fmt.Errorf("registering the image: %w", err)
	}
	_, err = ssm.NewFromConfig(r.owner).PutParameter(ctx, &ssm.PutParameterInput{
		Name: aws.String(template.ImageParameter(r.plan.Cluster.AWS.Channel)), Value: image.ImageId,
		Type: ssmtypes.ParameterTypeString, DataType: aws.String("aws:ec2:image"),
	})
	if err != nil {
		return "", fmt.Errorf("naming the image: %w", err)
	}
	return aws.ToString(image.ImageId), nil
}

// apply applies the cluster's stack twice, as a team on AWS does: without machines, until its zone is prepared, and then
// with them.
func (r *region) apply(ctx context.Context) error {
	deployment, err := r.stackInput()
	if err != nil {
		return err
	}
	stack := cluster.New(cluster.Config{Document: r.plan.Complete, AWS: r.owner, Poll: 50 * time.Millisecond, Log: r.log})
	made, err := stack.Apply(ctx, cluster.ApplyOptions{Deployment: deployment})
	if err != nil {
		return err
	}
	r.setZone(made.ZoneID)
	deployment.Parameters[template.ParameterMachines] = template.MachinesYes
	_, err = stack.Apply(ctx, cluster.ApplyOptions{Deployment: deployment})
	return err
}

// stackInput renders the cluster's template and puts it into S3, from where CloudFormation reads templates of any size.
func (r *region) stackInput() (cluster.Deployment, error) {
	out := cluster.Deployment{Parameters: map[string]string{}, AnyMachine: true}
	t, err := template.Render(r.plan.Complete, nil, template.LaunchTimeout(launchTime))
	if err != nil {
		return out, err
	}
	body, err := t.YAML()
	if err != nil {
		return out, err
	}
	out.TemplateURL = "https://lab.s3." + regionName + ".amazonaws.com/" + cluster.StackName(r.plan.Cluster.Name) + ".yaml"
	r.account.CloudFormation().AddObject(out.TemplateURL, string(body))
	members := max(1, len(r.plan.Groups[0].Members))
	for key, value := range map[string]string{
		template.ParameterVPC: vpcID, template.ParameterSubnets: subnetID, template.ParameterBalancer: subnetID,
		template.ParameterMembers:  subnetID + strings.Repeat(","+subnetID, members-1),
		template.ParameterMachines: template.MachinesNo,
	} {
		if _, ok := t.Parameters[key]; ok {
			out.Parameters[key] = value
		}
	}
	return out, nil
}
