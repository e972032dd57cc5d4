package cloud

import (
	"encoding/json"
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// statement is one of an IAM policy.
type statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  []string
	Condition map[string]map[string]string `json:",omitempty"`
}

// Policy returns the IAM policy document that allows publishing, copying, sharing, promoting, listing and removing
// images of one family, encrypted with the keys (ARNs) if there are any, and nothing else. Existing resources can only
// be changed or removed if they have the family's tag, and only resources that are created in this way get the tag. The
// partition is "aws" except in China and the US government's regions.
func Policy(partition, image string, keys []string) ([]byte, error) {
	anySnapshot, anyImage := "arn:"+partition+":ec2:*::snapshot/*", "arn:"+partition+":ec2:*::image/*"
	of := map[string]map[string]string{"StringEquals": {"aws:ResourceTag/" + ami.TagImage: image}}
	made := map[string]map[string]string{"StringEquals": {"aws:RequestTag/" + ami.TagImage: image}}
	statements := []statement{
		{"Begin", "Allow", []string{"ebs:StartSnapshot", "ec2:CreateTags"}, []string{anySnapshot}, made},
		{"Write", "Allow", []string{"ebs:PutSnapshotBlock", "ebs:CompleteSnapshot", "ebs:ListSnapshotBlocks", "ebs:GetSnapshotBlock", "ec2:DeleteSnapshot"}, []string{anySnapshot}, of},
		// A new resource does not exist yet, and so has no tag; the resource it is made of does.
		{"Image", "Allow", []string{"ec2:RegisterImage", "ec2:CopyImage"}, []string{anyImage}, nil},
		{"ImageOf", "Allow", []string{"ec2:RegisterImage"}, []string{anySnapshot}, of},
		{"CopyTo", "Allow", []string{"ec2:CopyImage"}, []string{anySnapshot}, nil},
		{"Tag", "Allow", []string{"ec2:CreateTags"}, []string{anyImage}, made},
		{"Change", "Allow", []string{"ec2:DeregisterImage", "ec2:ModifyImageAttribute", "ec2:DescribeImageAttribute"}, []string{anyImage}, of},
		{"Look", "Allow", []string{
			"ec2:DescribeImages", "ec2:DescribeSnapshots", "ec2:DescribeLaunchTemplates", "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeInstances",
			"autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeLaunchConfigurations", "ssm:DescribeParameters",
		}, []string{"*"}, nil},
		{"Channels", "Allow", []string{"ssm:GetParameter", "ssm:GetParameterHistory", "ssm:PutParameter"},
			[]string{"arn:" + partition + ":ssm:*:*:parameter" + ami.Parameter("*")}, nil},
	}
	if len(keys) > 0 {
		statements = append(statements,
			statement{"Keys", "Allow", []string{"kms:DescribeKey", "kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncrypt*"}, keys, nil},
			statement{"Grants", "Allow", []string{"kms:CreateGrant"}, keys, map[string]map[string]string{"Bool": {"kms:GrantIsForAWSResource": "true"}}},
		)
	}
	data, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", statements}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the policy: %w", err)
	}
	return append(data, '\n'), nil
}
