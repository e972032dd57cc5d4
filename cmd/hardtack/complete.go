package main

import (
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func completeCommand() *cli.Command {
	return &cli.Command{
		Name:  "complete",
		Usage: "print a cluster's complete configuration: every flag and field of every component, and the origin of each value",
		Flags: []cli.Flag{clusterFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			complete, err := readCluster(c)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c.App.Writer, complete)
			}
			text, err := complete.YAML()
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write(text)
			return err
		},
	}
}

// minimalCluster is the default name of a cluster.
const minimalCluster = "demo"

func clusterFlag() cli.Flag {
	return &cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "the cluster document, a `FILE`, or - for standard input (default: a minimal cluster named demo)"}
}

// readCluster reads and completes the document of --file.
func readCluster(c *cli.Context) (*spec.Complete, error) {
	name, data, err := clusterText(c.String("file"))
	if err != nil {
		return nil, err
	}
	return completeText(c, name, data)
}

// completeText completes a document and prints warnings to stderr; name is used in messages only.
func completeText(c *cli.Context, name string, data []byte) (*spec.Complete, error) {
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		return nil, err
	}
	complete, warnings, err := spec.Load(image, name, data)
	for _, w := range warnings {
		fmt.Fprintln(c.App.ErrWriter, w)
	}
	return complete, err
}

func clusterText(file string) (name string, data []byte, err error) {
	switch file {
	case "":
		return "the default cluster", spec.Minimal(minimalCluster), nil
	case "-":
		data, err = io.ReadAll(io.LimitReader(os.Stdin, spec.MaxInput+1))
		name = "standard input"
	default:
		data, err = os.ReadFile(file)
		name = file
	}
	if err != nil {
		return "", nil, usagef("reading the cluster: %w", err)
	}
	return name, data, nil
}
