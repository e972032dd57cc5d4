// Package config reads what a machine has been told: its machine file and its role files.
//
// Its rule: it reads and never writes, and what is missing or wrong is an error with a reason.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Read reads what the machine is told about its cluster, below a root directory ("" is "/").
func Read(root string) (machine.Config, error) {
	file := filepath.Join("/", root, machine.Path)
	data, err := os.ReadFile(file)
	if err != nil {
		return machine.Config{}, reason.Errorf(reason.Config, "reading what this machine is told: %w", err)
	}
	c, problems := machine.Parse(file, data)
	if err := problems.Err(); err != nil {
		return machine.Config{}, reason.Errorf(reason.Config, "%s cannot be used:\n%w", file, err)
	}
	return c, nil
}

// Roles are the roles that the machine has files for, below a root directory.
func Roles(root string) (role.Set, error) {
	var have []role.Role
	for _, r := range role.All() {
		_, err := os.Lstat(filepath.Join("/", root, r.File()))
		switch {
		case err == nil:
			have = append(have, r)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("looking for role files: %w", err)
		}
	}
	return role.NewSet(have...), nil
}
