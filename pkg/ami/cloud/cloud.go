package cloud

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsuser"
)

// Cloud reaches the regions of one account.
type Cloud struct {
	// Home is the region where images are published.
	Home    string
	conf    aws.Config
	options Options
}

var _ ami.Regions = (*Cloud)(nil)

// Open finds credentials and the region as every SDK does: environment, files, single sign-on, the instance's
// profile. region and more override it.
func Open(ctx context.Context, region string, o Options, more ...func(*config.LoadOptions) error) (*Cloud, error) {
	conf, err := awsuser.Load(ctx, region, more...)
	if err != nil {
		return nil, err
	}
	return &Cloud{Home: conf.Region, conf: conf, options: o}, nil
}

// Client calls AWS in one region.
func (c *Cloud) Client(region string) *Client {
	conf := c.conf.Copy()
	conf.Region = region
	return New(conf, c.options)
}

// Region implements ami.Regions.
func (c *Cloud) Region(name string) (ami.Region, error) { return c.Client(name), nil }

// Channels implements ami.Regions.
func (c *Cloud) Channels(region string) (ami.Channels, error) { return c.Client(region), nil }

// State returns the directory for the journals of unfinished publications to the account and its home region, below
// $XDG_STATE_HOME/hardtack/publish, with ~/.local/state as the default of $XDG_STATE_HOME. It asks AWS whose account it is: the
// snapshots of one account are not in another.
func (c *Cloud) State(ctx context.Context) (string, error) {
	account, err := c.Client(c.Home).account(ctx)
	if err != nil {
		return "", err
	}
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding a directory for unfinished publications: %w (name one: --state, or state_directory in a template)", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "hardtack", "publish", account, c.Home), nil
}
