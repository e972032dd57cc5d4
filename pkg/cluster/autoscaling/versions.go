package autoscaling

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
)

// versions are all versions of a launch template, in ascending order.
type versions struct {
	template      string
	all           []rollout.Version
	defaultNumber int // the number of the default version
}

// versions reads all versions of a template: CloudFormation adds one with each change, and EC2 keeps them.
func (c *Cluster) versions(ctx context.Context, template string) (versions, error) {
	out := versions{template: template}
	pages := ec2.NewDescribeLaunchTemplateVersionsPaginator(c.Machines, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: &template, MaxResults: aws.Int32(200)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return out, fmt.Errorf("reading the versions of launch template %s: %w", template, awserr.Explain(err, "ec2:DescribeLaunchTemplateVersions"))
		}
		for _, v := range page.LaunchTemplateVersions {
			parsed := version(v)
			out.all = append(out.all, parsed)
			if aws.ToBool(v.DefaultVersion) {
				out.defaultNumber = parsed.Number
			}
		}
	}
	if len(out.all) == 0 {
		return out, fmt.Errorf("reading the versions of launch template %s: there are none", template)
	}
	slices.SortFunc(out.all, func(a, b rollout.Version) int { return a.Number - b.Number })
	return out, nil
}

// Versions returns all versions of the group's launch template, in ascending order.
func (c *Cluster) Versions(ctx context.Context, group string) ([]rollout.Version, error) {
	g, err := c.describeGroup(ctx, group)
	if err != nil {
		return nil, err
	}
	v, err := c.versions(ctx, aws.ToString(launchTemplate(g).LaunchTemplateId))
	return v.all, err
}

func (v versions) latest() rollout.Version { return v.all[len(v.all)-1] }

// find returns the version that text names: a number, $Latest or $Default.
func (v versions) find(text string) (rollout.Version, error) {
	switch text {
	case "$Latest":
		return v.latest(), nil
	case "$Default", "":
		text = strconv.Itoa(v.defaultNumber)
	}
	for _, candidate := range v.all {
		if strconv.Itoa(candidate.Number) == text {
			return candidate, nil
		}
	}
	number, _ := strconv.Atoi(text)
	return rollout.Version{Number: number}, fmt.Errorf("version %s of launch template %s is gone", text, v.template)
}

// version converts a version. The stack writes the hash of the configuration into the version's description. In other
// templates a digest of the user data takes its place.
func version(v types.LaunchTemplateVersion) rollout.Version {
	out := rollout.Version{Number: int(aws.ToInt64(v.VersionNumber)), Config: aws.ToString(v.VersionDescription)}
	if v.LaunchTemplateData == nil {
		return out
	}
	data := *v.LaunchTemplateData
	out.Image, out.Type = aws.ToString(data.ImageId), string(data.InstanceType)
	if !strings.HasPrefix(out.Config, "sha256:") {
		out.Config = "user data " + digest([]byte(aws.ToString(data.UserData)))
	}
	data.ImageId, data.InstanceType, data.UserData = nil, "", nil
	data.TagSpecifications = nil  // the tags of a machine can be changed while it runs
	rest, _ := json.Marshal(data) // texts and numbers, which always encode
	out.Rest = digest(rest)
	return out
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
