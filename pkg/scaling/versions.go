package scaling

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

	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
)

// versions are all of one launch template, by number.
type versions struct {
	template string
	all      []rollout.Version
	standard int // the default one
}

// versions reads every version: CloudFormation makes one with each change, and EC2 keeps them.
func (c *Cluster) versions(ctx context.Context, template string) (versions, error) {
	out := versions{template: template}
	pages := ec2.NewDescribeLaunchTemplateVersionsPaginator(c.Machines, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: &template, MaxResults: aws.Int32(200)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return out, fmt.Errorf("reading the versions of launch template %s: %w", template, explain(err, "ec2:DescribeLaunchTemplateVersions"))
		}
		for _, v := range page.LaunchTemplateVersions {
			one, err := version(v)
			if err != nil {
				return out, fmt.Errorf("reading version %d of launch template %s: %w", one.Number, template, err)
			}
			out.all = append(out.all, one)
			if aws.ToBool(v.DefaultVersion) {
				out.standard = one.Number
			}
		}
	}
	if len(out.all) == 0 {
		return out, fmt.Errorf("reading the versions of launch template %s: there are none", template)
	}
	slices.SortFunc(out.all, func(a, b rollout.Version) int { return a.Number - b.Number })
	return out, nil
}

// Versions are all versions of the launch template of a group, by number.
func (c *Cluster) Versions(ctx context.Context, group string) ([]rollout.Version, error) {
	g, err := c.one(ctx, group)
	if err != nil {
		return nil, err
	}
	v, err := c.versions(ctx, aws.ToString(g.LaunchTemplate.LaunchTemplateId))
	return v.all, err
}

func (v versions) latest() rollout.Version { return v.all[len(v.all)-1] }

// find is the version of a number, $Latest or $Default.
func (v versions) find(text string) (rollout.Version, error) {
	number := v.standard
	switch text {
	case "$Latest":
		return v.latest(), nil
	case "$Default", "":
	default:
		var err error
		if number, err = strconv.Atoi(text); err != nil {
			return rollout.Version{}, fmt.Errorf("version %q of launch template %s: not a number", text, v.template)
		}
	}
	for _, one := range v.all {
		if one.Number == number {
			return one, nil
		}
	}
	return rollout.Version{Number: number}, fmt.Errorf("version %d of launch template %s is gone", number, v.template)
}

// version reads one. The stack writes the configuration's hash into its description; without it the user data's own
// digest tells two apart.
func version(v types.LaunchTemplateVersion) (rollout.Version, error) {
	out := rollout.Version{Number: int(aws.ToInt64(v.VersionNumber)), Config: aws.ToString(v.VersionDescription)}
	if v.LaunchTemplateData == nil {
		return out, nil
	}
	data := *v.LaunchTemplateData
	out.Image, out.Type = aws.ToString(data.ImageId), string(data.InstanceType)
	if !strings.HasPrefix(out.Config, "sha256:") {
		out.Config = "user data " + digest([]byte(aws.ToString(data.UserData)))
	}
	data.ImageId, data.InstanceType, data.UserData = nil, "", nil
	data.TagSpecifications = nil // tags of a machine can be changed while it runs
	rest, err := json.Marshal(data)
	out.Rest = digest(rest)
	return out, err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
