package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
)

func stackCommand() *cli.Command {
	return &cli.Command{
		Name:        "stack",
		Usage:       "a cluster on AWS: one CloudFormation template, or a Terraform module, and what it costs",
		Subcommands: []*cli.Command{stackRenderCommand(), stackTerraformCommand(), stackCostCommand(), stackDiffCommand(), stackApplyCommand(), stackRefreshCommand(), stackRollbackCommand(), stackStatusCommand(), stackDeleteCommand()},
	}
}

// writeWhole makes or replaces a file, whole or not at all.
func writeWhole(file string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".hardtack-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}
