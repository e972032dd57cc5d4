package main

import (
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
)

func imagePolicyCommand() *cli.Command {
	return &cli.Command{
		Name:  "policy",
		Usage: "print the IAM policy that the image commands and the post-processor need for one image family",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Value: "hardtack", Usage: "the image family, `NAME`, as given to publish"},
			&cli.StringFlag{Name: "partition", Value: "aws", Usage: "aws, aws-cn or aws-us-gov"},
			&cli.StringSliceFlag{Name: "key", Usage: "the ARN of a KMS `KEY` that encrypts images; may be repeated, one for each region"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			policy, err := cloud.Policy(c.String("partition"), c.String("name"), c.StringSlice("key"))
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write(policy)
			return err
		},
	}
}
