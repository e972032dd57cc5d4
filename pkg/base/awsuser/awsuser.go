// Package awsuser finds the region and the credentials of a person, or of a program that a person starts, as every SDK
// does: environment, files, profiles, single sign-on, the instance's profile.
//
// Its rule: machines use pkg/base/awsconfig; what finds a person's configuration is a large part of the SDK.
package awsuser

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// ErrNoRegion says that no region is set anywhere.
var ErrNoRegion = errors.New("no region is set (export AWS_REGION)")

// Load finds the configuration. A region that is not empty is taken instead of what is set.
func Load(ctx context.Context, region string, more ...func(*config.LoadOptions) error) (aws.Config, error) {
	conf, err := config.LoadDefaultConfig(ctx, append(more, config.WithRegion(region))...)
	// With config.WithEC2IMDSRegion the instance's metadata are asked last.
	metadata := new(smithy.OperationError)
	switch {
	case err == nil && conf.Region == "":
		err = ErrNoRegion
	case errors.As(err, &metadata) && metadata.Operation() == "GetRegion":
		err = fmt.Errorf("%w, and no instance's metadata have one: %w", ErrNoRegion, err)
	}
	if err != nil {
		return aws.Config{}, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	conf.HTTPClient = awshttp.Client(conf.HTTPClient)
	return conf, nil
}
