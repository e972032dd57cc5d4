package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

func stackRenderCommand() *cli.Command {
	return &cli.Command{
		Name:  "render",
		Usage: "print the cluster's CloudFormation template; the same cluster gives the same bytes",
		Flags: []cli.Flag{
			clusterFlag(),
			stackCAFlag(),
			&cli.StringFlag{Name: "out", Usage: "write to `FILE` instead of stdout, atomically"},
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
	tmpl, err := template.Render(complete, ca)
	if err != nil {
		return fmt.Errorf("making the template of %s: %w", complete.Cluster.Name, err)
	}
	render := tmpl.YAML
	if formatOf(c) == asJSON {
		render = tmpl.JSON
	}
	data, err := render()
	if err != nil {
		return err
	}
	if len(data) > template.MaxInline {
		logger(c).Warn("the template is too large for a request: deploy it from S3 (aws cloudformation deploy --s3-bucket BUCKET)", "bytes", len(data), "most", template.MaxInline)
	}
	if name := c.String("out"); name != "" {
		return writeWhole(name, data)
	}
	_, err = c.App.Writer.Write(data)
	return err
}
