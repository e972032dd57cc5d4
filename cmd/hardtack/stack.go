package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

func stackCommand() *cli.Command {
	return &cli.Command{
		Name:        "stack",
		Usage:       "create, change, roll and delete a cluster on AWS; render its template, and estimate its cost",
		Subcommands: []*cli.Command{stackRenderCommand(), stackTerraformCommand(), stackCostCommand(), stackDiffCommand(), stackApplyCommand(), stackRefreshCommand(), stackRollbackCommand(), stackStatusCommand(), stackDeleteCommand()},
	}
}

// writeWhole writes a file atomically.
func writeWhole(name string, data []byte) error {
	if _, err := file.Replace(name, data, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
