package main

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsuser"
)

// The flags that mean the same in every command.

// timeoutFlag limits the run time of a command.
func timeoutFlag(value time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: value, Usage: "give up after this `DURATION`"}
}

// timeoutContext returns a context that ends with the program or after --timeout.
func timeoutContext(c *cli.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context, c.Duration("timeout"))
}

// dryRunFlag is for commands that can report their actions in advance.
func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "print what would be done, and change nothing"}
}

// awsFlags say where AWS is, as the aws command's flags of the same names do; what is not given comes from the environment
// and the profile.
func awsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "region", Usage: "the AWS `REGION` (default: AWS_REGION, or that of the AWS configuration)"},
		endpointFlag(),
	}
}

func endpointFlag() cli.Flag {
	return &cli.StringFlag{Name: "endpoint-url", Usage: "call this `URL` instead of AWS (default: AWS_ENDPOINT_URL)"}
}

// loadAWS is the configuration of awsFlags.
func loadAWS(ctx context.Context, c *cli.Context, more ...func(*config.LoadOptions) error) (aws.Config, error) {
	region, _ := c.Value("region").(string) // other commands have several
	return awsuser.Load(ctx, region, append(more, atEndpoint(c)...)...)
}

func atEndpoint(c *cli.Context) []func(*config.LoadOptions) error {
	if url := c.String("endpoint-url"); url != "" {
		return []func(*config.LoadOptions) error{config.WithBaseEndpoint(url)}
	}
	return nil
}
