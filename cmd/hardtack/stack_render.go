package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func stackRenderCommand() *cli.Command {
	return &cli.Command{
		Name:  "render",
		Usage: "print the cluster's CloudFormation template; the same cluster gives the same bytes",
		Flags: append([]cli.Flag{
			clusterFlag(),
			stackCAFlag(),
			&cli.StringFlag{Name: "out", Usage: "write to `FILE` instead of stdout, atomically"},
		}, checkFlags()...),
		Action: stackRender,
	}
}

// checkFlags are those of commands that write what a cluster is made from, for checkDocument.
func checkFlags() []cli.Flag {
	return append(awsFlags(), manifestFlag("with --check the tags of the channel's image, else none of an image's own"), &cli.BoolFlag{Name: "check", Usage: "before that, compare the groups with the channel's image and the region's instance types, as apply does; where they do not go together, write nothing"})
}

// checkDocument is --check: it compares a document with the channel's image and the region's instance types. It returns the ports that
// units of the image open, as --manifest says, or the image.
func checkDocument(c *cli.Context, complete *spec.Complete) ([]role.Opening, error) {
	openings, err := readOpenings(c)
	if err != nil {
		return nil, err
	}
	if !c.Bool("check") {
		for _, name := range []string{"region", "endpoint-url"} {
			if c.IsSet(name) {
				return nil, usagef("--%s: without --check, AWS is not asked", name)
			}
		}
		return openings, nil
	}
	conf, err := loadAWS(c.Context, c)
	if err != nil {
		return nil, err
	}
	k := cluster.New(cluster.Config{Document: complete, AWS: conf, Log: logger(c)})
	image, err := k.Check(c.Context)
	if err != nil {
		return nil, withStackHint(c, err)
	}
	if openings == nil {
		if openings, err = k.Openings(c.Context, image); err != nil {
			return nil, withStackHint(c, err)
		}
	}
	fmt.Fprintf(c.App.ErrWriter, "%s of channel %s in %s: every group's machines start from it\n", image, k.Channel(), k.Region())
	return openings, nil
}

func stackRender(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	complete, ca, err := readTrusted(c)
	if err != nil {
		return err
	}
	openings, err := checkDocument(c, complete)
	if err != nil {
		return err
	}
	tmpl, err := template.Render(complete, ca, template.Openings(openings))
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
