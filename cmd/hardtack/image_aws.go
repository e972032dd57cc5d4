package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
)

// regionsFlags are awsFlags of a command that works in several regions.
func regionsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "region", Usage: "an AWS `REGION`; may be repeated (default: AWS_REGION, or that of the AWS configuration)"},
		endpointFlag(),
	}
}

// everyRegion returns a client for each --region.
func everyRegion(c *cli.Context) (*cloud.Cloud, []*cloud.Client, error) {
	names := c.StringSlice("region")
	first := ""
	if len(names) > 0 {
		first = names[0]
	}
	account, err := cloud.Open(c.Context, first, cloud.Options{}, atEndpoint(c)...)
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		names = []string{account.Home}
	}
	var clients []*cloud.Client
	for _, name := range names {
		clients = append(clients, account.Client(name))
	}
	return account, clients, nil
}

// pairs parses KEY=VALUE flags.
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
