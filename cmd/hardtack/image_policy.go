package main

import (
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

func imagePolicyCommand() *cli.Command {
	return &cli.Command{
		Name:  "policy",
		Usage: "print the IAM policy that the image commands and the post-processor need for one line of images",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Value: "hardtack", Usage: "the line of images, as publish's --name"},
			&cli.StringFlag{Name: "partition", Value: "aws", Usage: "aws, aws-cn or aws-us-gov"},
			&cli.StringSliceFlag{Name: "key", Usage: "the ARN of a KMS `KEY` that images are encrypted with, once for each region"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			policy, err := ami.Policy(c.String("partition"), c.String("name"), c.StringSlice("key"))
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write(policy)
			return err
		},
	}
}
