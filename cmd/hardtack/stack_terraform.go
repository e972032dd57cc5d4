package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

func stackTerraformCommand() *cli.Command {
	return &cli.Command{
		Name:  "terraform",
		Usage: "write a Terraform module that creates the same resources as the template",
		Flags: append([]cli.Flag{
			clusterFlag(),
			stackCAFlag(),
			&cli.StringFlag{Name: "out", Usage: "the module's `DIRECTORY`, created if it does not exist"},
		}, checkFlags()...),
		Action: stackTerraform,
	}
}

// stackCAFlag is the public CA for commands that write user data into files.
func stackCAFlag() cli.Flag {
	return &cli.StringFlag{Name: "ca", Usage: "the `FILE` of the cluster's public CA in PEM (hardtack pki ca prints it)"}
}

func stackTerraform(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	dir := c.String("out")
	if dir == "" {
		return usagef("--out: name the directory of the module")
	}
	complete, ca, err := readTrusted(c)
	if err != nil {
		return err
	}
	openings, err := checkDocument(c, complete)
	if err != nil {
		return err
	}
	files, err := template.Module(complete, ca, template.Openings(openings))
	if err != nil {
		return fmt.Errorf("making the module of %s: %w", complete.Cluster.Name, err)
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			return fmt.Errorf("making the module's directory: %w", err)
		}
		if err := writeWhole(filepath.Join(dir, name), files[name]); err != nil {
			return err
		}
	}
	return printWritten(c, dir, names)
}
