package main

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

func stackCommand() *cli.Command {
	return &cli.Command{
		Name:        "stack",
		Usage:       "create, change, roll and delete a cluster on AWS; render its template, and estimate its cost",
		Subcommands: []*cli.Command{stackRenderCommand(), stackTerraformCommand(), stackCostCommand(), stackDoctorCommand(), stackDiffCommand(), stackApplyCommand(), stackRefreshCommand(), stackRollbackCommand(), stackStatusCommand(), stackDeleteCommand()},
	}
}

// printWritten prints the files that a command has written into a directory.
func printWritten(c *cli.Context, dir string, names []string) error {
	if structured(c) {
		return printResult(c, struct {
			Directory string   `json:"directory"`
			Files     []string `json:"files"`
		}{dir, names})
	}
	for _, name := range names {
		if _, err := fmt.Fprintln(c.App.Writer, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// writeWhole writes a file atomically.
func writeWhole(name string, data []byte) error {
	if _, err := file.Replace(name, data, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
