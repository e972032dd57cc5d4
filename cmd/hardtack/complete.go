package main

import (
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func completeCommand() *cli.Command {
	return &cli.Command{
		Name:  "complete",
		Usage: "print a cluster's complete configuration: every flag and field of every component, and where it comes from",
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

// minimalCluster is the document that commands are about where none is named.
const minimalCluster = "apiVersion: " + spec.APIVersion + "\nkind: " + spec.Kind + "\nname: demo\n"

func clusterFlag() cli.Flag {
	return &cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "the cluster's `FILE`, - for standard input (default: the least that a cluster is, named demo)"}
}

// readCluster reads and completes the document that --file names. Warnings go to stderr.
func readCluster(c *cli.Context) (*spec.Complete, error) {
	name, data, err := clusterText(c.String("file"))
	if err != nil {
		return nil, err
	}
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		return nil, err
	}
	cluster, problems := spec.Parse(name, data)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("reading the cluster:\n%w", err)
	}
	complete, problems := cluster.Complete(image)
	for _, p := range problems {
		if p.Severity == problem.Warning {
			fmt.Fprintln(c.App.ErrWriter, p)
		}
	}
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("completing the cluster:\n%w", err)
	}
	return complete, nil
}

func clusterText(file string) (name string, data []byte, err error) {
	switch file {
	case "":
		return "the least cluster", []byte(minimalCluster), nil
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
