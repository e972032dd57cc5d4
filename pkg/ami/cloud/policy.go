package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// PolicyRequest says what a policy is to allow.
type PolicyRequest struct {
	// Partition is "aws" except in China and the US government's regions.
	Partition string
	// Image is the image family.
	Image string
	// Keys are the ARNs of the keys that encrypt its images.
	Keys []string
	// Channels may be pointed at an image; all channels may be read, since gc keeps what any of them names.
	Channels []string
	// Share allows giving others the permission to launch the family's images.
	Share bool
	// Parents allows making a snapshot on an older one, so that only changed blocks are sent. No key of AWS tells whose the
	// older one is: with it, the disk of any snapshot of the account can be read.
	Parents bool
	// Copies allows copying images to other regions. CopyImage has no key of AWS that tells whose the source is (it is handed ec2:ImageID
	// and ec2:Owner, and no tags): with it, any image that the account can copy becomes one of the family, and its disk can be read.
	Copies bool
}

// statement is one of an IAM policy.
type statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  []string
	Condition conditions `json:",omitempty"`
}

// conditions are values by operator and key.
type conditions map[string]map[string][]string

// Policy returns the IAM policy document that allows publishing, copying, promoting, listing and removing images of one
// family, and nothing else. Existing resources can only be read, changed or removed if they have the family's tag, and
// nothing that exists can be given it.
//
// The latter is a Deny by name: EC2 asks for the permission to tag what does not exist yet with a resource "snapshot/*",
// and what exists has an id. ec2:CreateAction would not do, since AWS does not document which one StartSnapshot has.
func Policy(r PolicyRequest) ([]byte, error) {
	var errs []error
	for _, channel := range r.Channels {
		errs = append(errs, ami.CheckChannel(channel))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", r.statements()}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the policy: %w", err)
	}
	return append(data, '\n'), nil
}

func (r PolicyRequest) statements() []statement {
	ec2 := "arn:" + r.Partition + ":ec2:*::"
	anySnapshot, anyImage := []string{ec2 + "snapshot/*"}, []string{ec2 + "image/*"}
	made, source := "aws:RequestTag/"+ami.TagImage, "aws:ResourceTag/"+ami.TagImage
	family := []string{r.Image}
	of := conditions{"StringEquals": {source: family}}
	tagged := conditions{"StringEquals": {made: family}}
	making := []string{"RegisterImage"}
	if r.Copies {
		making = append(making, "CopyImage")
	}
	statements := []statement{
		{"Begin", "Allow", []string{"ebs:StartSnapshot", "ec2:CreateTags"}, anySnapshot, tagged},
		{"Write", "Allow", []string{"ebs:PutSnapshotBlock", "ebs:CompleteSnapshot", "ebs:ListSnapshotBlocks", "ebs:GetSnapshotBlock", "ec2:DeleteSnapshot"}, anySnapshot, of},
		// A new resource does not exist yet, and so has no tag; the resource it is made of does.
		{"Image", "Allow", []string{"ec2:RegisterImage"}, anyImage, nil},
		{"ImageOf", "Allow", []string{"ec2:RegisterImage"}, anySnapshot, of},
		{"Tag", "Allow", []string{"ec2:CreateTags"}, anyImage, conditions{"StringEquals": {made: family, "ec2:CreateAction": making}}},
		{"TagOnlyWhatIsNew", "Deny", []string{"ec2:CreateTags", "ec2:DeleteTags"}, []string{ec2 + "snapshot/snap-*", ec2 + "image/ami-*"}, nil},
		{"Remove", "Allow", []string{"ec2:DeregisterImage", "ec2:DescribeImageAttribute"}, anyImage, of},
		{"NothingPublic", "Deny", []string{"ec2:ModifySnapshotAttribute", "ec2:DisableImageBlockPublicAccess", "ec2:DisableSnapshotBlockPublicAccess"}, []string{"*"}, nil},
		{"Look", "Allow", []string{
			"ec2:DescribeImages", "ec2:DescribeSnapshots", "ec2:DescribeLaunchTemplates", "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeInstances",
			"autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeLaunchConfigurations", "ssm:DescribeParameters",
		}, []string{"*"}, nil},
		{"ReadChannels", "Allow", []string{"ssm:GetParameter", "ssm:GetParameterHistory"}, []string{r.channel("*")}, nil},
	}
	if !r.Parents {
		statements = append(statements, statement{"NoParent", "Deny", []string{"ebs:StartSnapshot"}, anySnapshot, conditions{"Null": {"ebs:ParentSnapshot": {"false"}}}})
	}
	if r.Copies {
		statements = append(statements, statement{"Copy", "Allow", []string{"ec2:CopyImage"}, append(slices.Clone(anyImage), anySnapshot...), nil})
	}
	if r.Share {
		statements = append(statements,
			statement{"Share", "Allow", []string{"ec2:ModifyImageAttribute"}, anyImage, of},
			statement{"NotWithAll", "Deny", []string{"ec2:ModifyImageAttribute"}, anyImage, conditions{"StringEquals": {"ec2:Add/group": {"all"}}}})
	}
	if len(r.Channels) > 0 {
		set := statement{Sid: "SetChannels", Effect: "Allow", Action: []string{"ssm:PutParameter"}}
		for _, channel := range r.Channels {
			set.Resource = append(set.Resource, r.channel(channel))
		}
		statements = append(statements, set)
	}
	if len(r.Keys) > 0 {
		// All that AWS lists for the EBS direct APIs ("Permissions to use KMS keys", Amazon EBS User Guide); which call needs which it does not say.
		statements = append(statements,
			statement{"Keys", "Allow", []string{"kms:DescribeKey", "kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncrypt*"}, r.Keys, nil},
			statement{"Grants", "Allow", []string{"kms:CreateGrant"}, r.Keys, conditions{"Bool": {"kms:GrantIsForAWSResource": {"true"}}}})
	}
	return statements
}

func (r PolicyRequest) channel(name string) string {
	return "arn:" + r.Partition + ":ssm:*:*:parameter" + ami.Parameter(name)
}

// Notes says what the policy cannot express, and what to do about it.
func (r PolicyRequest) Notes() []string {
	var notes []string
	if r.Parents {
		notes = append(notes, "AWS has no condition on whose snapshot a new one is made on: with --parents these credentials can read the disk of every snapshot in the account. Use it in an account that has only images.")
	}
	if r.Copies {
		notes = append(notes, "AWS hands CopyImage no tags of its source: with --copies these credentials can copy every image of the account, and read the copy's disk. Use it in an account that has only images.")
	}
	if r.Share {
		notes = append(notes, "AWS documents ec2:Add/group for snapshots and not for images: what keeps the images from being public is that the account blocks it, which these credentials cannot change. Check it in each region: aws ec2 get-image-block-public-access-state must say block-new-sharing.")
	}
	return append(notes,
		"A Deny by id keeps these credentials from tagging what is there as theirs. Check it with them and a snapshot that is not the family's: aws ec2 create-tags --dry-run --resources SNAPSHOT --tags Key="+ami.TagImage+",Value="+r.Image+" must say UnauthorizedOperation.",
		"gc keeps every image while anything in the account names a parameter that is no channel (resolve:ssm:) and may not be read. It says which: allow ssm:GetParameter on that one too, if it has no secret.",
		"gc reads launch templates, user data included: keep secrets out of user data.")
}
