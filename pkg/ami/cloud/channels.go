package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

var _ ami.Channels = (*Client)(nil)

// imageType has Parameter Store check that a value is an image which the account may use, and is what lets a launch
// template say resolve:ssm: instead of an image.
const imageType = "aws:ec2:image"

// History lists the versions of a channel.
func (c *Client) History(ctx context.Context, channel string) ([]ami.Version, error) {
	var history []ami.Version
	pages := ssm.NewGetParameterHistoryPaginator(c.params, &ssm.GetParameterHistoryInput{Name: aws.String(ami.Parameter(channel)), MaxResults: aws.Int32(50)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		var missing *types.ParameterNotFound
		if errors.As(err, &missing) {
			return nil, nil
		}
		if err != nil {
			return nil, explain("reading channel "+channel, err)
		}
		for _, p := range out.Parameters {
			history = append(history, ami.Version{
				Number: p.Version, Image: strings.TrimSpace(aws.ToString(p.Value)), Since: aws.ToTime(p.LastModifiedDate), By: aws.ToString(p.LastModifiedUser),
			})
		}
	}
	slices.SortFunc(history, func(a, b ami.Version) int { return int(a.Number - b.Number) })
	return history, nil
}

// Set points a channel at an image. Parameter Store validates the image after it has answered and only then creates the
// version, or does not; so Set reads the value back.
func (c *Client) Set(ctx context.Context, channel, image string) (ami.Version, error) {
	name := ami.Parameter(channel)
	_, err := c.params.PutParameter(ctx, &ssm.PutParameterInput{
		Name: &name, Value: &image, Type: types.ParameterTypeString, DataType: aws.String(imageType), Overwrite: aws.Bool(true),
	})
	if err != nil {
		return ami.Version{}, explain("setting channel "+channel, err)
	}
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = c.options.Poll, 5*c.options.Poll
	v, err := backoff.Retry(ctx, func() (ami.Version, error) {
		out, err := c.params.GetParameter(ctx, &ssm.GetParameterInput{Name: &name})
		var missing *types.ParameterNotFound
		switch {
		case errors.As(err, &missing):
			return ami.Version{}, errNotReady
		case err != nil:
			return ami.Version{}, backoff.Permanent(err)
		case aws.ToString(out.Parameter.Value) != image:
			return ami.Version{}, errNotReady
		}
		p := out.Parameter
		return ami.Version{Number: p.Version, Image: image, Since: aws.ToTime(p.LastModifiedDate)}, nil
	}, backoff.WithBackOff(pace), backoff.WithMaxTries(uint(c.options.Attempts)))
	if errors.Is(err, errNotReady) && ctx.Err() == nil {
		return v, fmt.Errorf("setting channel %s: Parameter Store has taken %s and not made it the value of %s (may the account use the image?)", channel, image, name)
	}
	if err != nil {
		return v, explain("setting channel "+channel, err)
	}
	return v, nil
}

// AllChannels reads every channel of the account: what its parameters say, and said. They are found by their names, since a person or
// Terraform may have made one as plain text, without the data type of images; launch templates and stacks resolve it all the same.
func (c *Client) AllChannels(ctx context.Context) (map[string][]ami.Version, error) {
	all := map[string][]ami.Version{}
	pages := ssm.NewDescribeParametersPaginator(c.params, &ssm.DescribeParametersInput{
		ParameterFilters: []types.ParameterStringFilter{
			{Key: aws.String("Name"), Option: aws.String("BeginsWith"), Values: []string{ami.ChannelPrefix}}, // not Contains: "/x/hardtack/" is another's
			{Key: aws.String("Type"), Values: []string{string(types.ParameterTypeString)}},
		}, MaxResults: aws.Int32(50),
	})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explain("looking for channels", err)
		}
		for _, p := range out.Parameters {
			channel, ok := ami.ChannelOf(aws.ToString(p.Name))
			if !ok {
				continue
			}
			if all[channel], err = c.History(ctx, channel); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// resolving begins what a launch template says instead of an image; awsParameters begins the names of AWS's own parameters.
const resolving, awsParameters = "resolve:ssm:", "/aws/service/"

// resolve is the image that a launch template means: an image, or resolve:ssm: and a parameter, perhaps with a
// version or a label. Empty: the parameter is not there, or is AWS's own, which names no image of the account.
func (c *Client) resolve(ctx context.Context, image string) (string, error) {
	parameter, ok := strings.CutPrefix(image, resolving)
	if !ok {
		return image, nil
	}
	if strings.HasPrefix(parameter, awsParameters) {
		return "", nil
	}
	out, err := c.params.GetParameter(ctx, &ssm.GetParameterInput{Name: &parameter})
	var missing *types.ParameterNotFound
	var without *types.ParameterVersionNotFound
	switch {
	case errors.As(err, &missing), errors.As(err, &without):
		return "", nil
	case err != nil:
		return "", explain("reading what "+image+" is", err)
	}
	return aws.ToString(out.Parameter.Value), nil
}
