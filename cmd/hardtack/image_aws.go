package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

// regionFlag says where an image command works.
func regionFlag() cli.Flag {
	return &cli.StringFlag{Name: "region", Usage: "the `REGION`; left out, the one of the environment or the profile"}
}

// regionsFlag is for commands that work in several.
func regionsFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "region", Usage: "a `REGION`, once for each; left out, the one of the environment or the profile"}
}

// cloud reaches the regions of an account.
type cloud struct {
	conf    aws.Config
	options ami.Options
}

var _ publish.Regions = cloud{}

// openCloud reads the configuration; region overrides its own where it is not empty.
func openCloud(ctx context.Context, region string, o ami.Options) (cloud, error) {
	var more []func(*config.LoadOptions) error
	if region != "" {
		more = append(more, config.WithRegion(region))
	}
	conf, err := awsConfig(ctx, more...)
	return cloud{conf, o}, err
}

func (c cloud) client(region string) *ami.Client {
	conf := c.conf.Copy()
	conf.Region = region
	return ami.New(conf, c.options)
}

// Region implements publish.Regions.
func (c cloud) Region(name string) (publish.Region, error) { return c.client(name), nil }

// Channels implements publish.Regions.
func (c cloud) Channels(region string) (publish.Channels, error) { return c.client(region), nil }

// everyRegion are the clients that --region names.
func everyRegion(c *cli.Context) (cloud, []*ami.Client, error) {
	names := c.StringSlice("region")
	first := ""
	if len(names) > 0 {
		first = names[0]
	}
	cl, err := openCloud(c.Context, first, ami.Options{})
	if err != nil {
		return cl, nil, err
	}
	if len(names) == 0 {
		names = []string{cl.conf.Region}
	}
	var clients []*ami.Client
	for _, name := range names {
		clients = append(clients, cl.client(name))
	}
	return cl, clients, nil
}

// stateDirectory is where unfinished publications are written down, by region.
func stateDirectory(region string) (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding a directory for journals: %w (name one with --state)", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "hardtack", "publish", region), nil
}

// pairs reads KEY=VALUE flags.
func pairs(flag string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usagef("--%s %q: KEY=VALUE is expected", flag, text)
		}
		out[key] = value
	}
	return out, nil
}
