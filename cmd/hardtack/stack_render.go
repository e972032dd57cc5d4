package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/stack"
)

func stackRenderCommand() *cli.Command {
	return &cli.Command{
		Name:  "render",
		Usage: "print the cluster's CloudFormation template; the same cluster gives the same bytes",
		Flags: []cli.Flag{
			clusterFlag(),
			stackCAFlag(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` instead, whole or not at all"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON instead of YAML"},
		},
		Action: stackRender,
	}
}

func stackRender(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	complete, ca, err := readTrusted(c)
	if err != nil {
		return err
	}
	template, err := stack.Render(complete, ca)
	if err != nil {
		return fmt.Errorf("making the template of %s: %w", complete.Cluster.Name, err)
	}
	render := template.YAML
	if c.Bool("json") {
		render = template.JSON
	}
	data, err := render()
	if err != nil {
		return err
	}
	if len(data) > stack.MaxInline {
		logger(c).Warn("the template is too large for a request: deploy it from S3 (aws cloudformation deploy --s3-bucket BUCKET)", "bytes", len(data), "most", stack.MaxInline)
	}
	if name := c.String("output"); name != "" {
		return writeWhole(name, data)
	}
	_, err = c.App.Writer.Write(data)
	return err
}
