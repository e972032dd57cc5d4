package ami

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

// Cloud reaches the regions of one account.
type Cloud struct {
	// Home is the region where images are published.
	Home    string
	conf    aws.Config
	options Options
}

var _ publish.Regions = (*Cloud)(nil)

// Open finds credentials and the region as every SDK does: environment, files, single sign-on, the instance's
// profile. region overrides where it is not empty.
func Open(ctx context.Context, region string, o Options) (*Cloud, error) {
	var more []func(*config.LoadOptions) error
	if region != "" {
		more = append(more, config.WithRegion(region))
	}
	conf, err := config.LoadDefaultConfig(ctx, more...)
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	if conf.Region == "" {
		return nil, errors.New("reading the AWS configuration: no region is set (export AWS_REGION, or name one)")
	}
	return &Cloud{Home: conf.Region, conf: conf, options: o}, nil
}

// Client calls AWS in one region.
func (c *Cloud) Client(region string) *Client {
	conf := c.conf.Copy()
	conf.Region = region
	return New(conf, c.options)
}

// Region implements publish.Regions.
func (c *Cloud) Region(name string) (publish.Region, error) { return c.Client(name), nil }

// Channels implements publish.Regions.
func (c *Cloud) Channels(region string) (publish.Channels, error) { return c.Client(region), nil }

// State is the directory where unfinished publications to a region are written down:
// $XDG_STATE_HOME/hardtack/publish, below ~/.local/state where it is not set.
func State(region string) (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding a directory for unfinished publications: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "hardtack", "publish", region), nil
}
