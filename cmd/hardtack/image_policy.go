package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
)

func imagePolicyCommand() *cli.Command {
	return &cli.Command{
		Name:  "policy",
		Usage: "print the IAM policy that the image commands and the post-processor need for one image family",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Value: "hardtack", Usage: "the image family, `NAME`, as given to publish"},
			&cli.StringFlag{Name: "partition", Value: "aws", Usage: "aws, aws-cn or aws-us-gov"},
			&cli.StringSliceFlag{Name: "channel", Usage: "a `CHANNEL` that may be pointed at an image; may be repeated (default: none)"},
			&cli.BoolFlag{Name: "share", Usage: "also allow sharing the images with other accounts (publish --share)"},
			&cli.BoolFlag{Name: "parents", Usage: "also allow building on older snapshots, so that only changed blocks are sent; only for an account that has nothing but images"},
			&cli.BoolFlag{Name: "copies", Usage: "also allow copying the images to other regions (publish --copy); only for an account that has nothing but images"},
			&cli.StringSliceFlag{Name: "key", Usage: "the ARN of a KMS `KEY` that encrypts images; may be repeated, one for each region"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if p := c.String("partition"); !awsname.IsPartition(p) {
				return usagef("--partition %s: it is none of AWS, as aws, aws-cn and aws-us-gov", p)
			}
			r := cloud.PolicyRequest{
				Partition: c.String("partition"), Image: c.String("name"), Keys: c.StringSlice("key"),
				Channels: c.StringSlice("channel"), Share: c.Bool("share"), Parents: c.Bool("parents"), Copies: c.Bool("copies"),
			}
			policy, err := cloud.Policy(r)
			if err != nil {
				return usagef("%w", err)
			}
			for _, note := range r.Notes() {
				fmt.Fprintln(c.App.ErrWriter, "note: "+note)
			}
			return printDocument(c, policy)
		},
	}
}
