package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// regionFlag says where an image command works.
func regionFlag() cli.Flag {
	return &cli.StringFlag{Name: "region", Usage: "the `REGION`; left out, the one of the environment or the profile"}
}

// regionsFlag is for commands that work in several.
func regionsFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "region", Usage: "a `REGION`, once for each; left out, the one of the environment or the profile"}
}

// everyRegion are the clients that --region names.
func everyRegion(c *cli.Context) (*ami.Cloud, []*ami.Client, error) {
	names := c.StringSlice("region")
	first := ""
	if len(names) > 0 {
		first = names[0]
	}
	cloud, err := ami.Open(c.Context, first, ami.Options{})
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		names = []string{cloud.Home}
	}
	var clients []*ami.Client
	for _, name := range names {
		clients = append(clients, cloud.Client(name))
	}
	return cloud, clients, nil
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
