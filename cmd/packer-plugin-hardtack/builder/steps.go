//go:build linux

package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/packer-plugin-sdk/multistep"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/debian"
)

// atLeast is the space that a root directory and a small disk need, in bytes. The real size is checked again when the
// root directory is known.
const atLeast = 1 << 30

// stepPreflight finds in milliseconds errors that would otherwise appear minutes later.
type stepPreflight struct{ *job }

func (s *stepPreflight) Run(ctx context.Context, state multistep.StateBag) multistep.StepAction {
	err := errors.Join(checkRoot(), checkTools(s.config), s.checkProgram(), s.checkForeign(ctx), s.checkOutput())
	if err != nil {
		return s.halt(ctx, state, err)
	}
	return multistep.ActionContinue
}

func (s *stepPreflight) Cleanup(multistep.StateBag) {}

func checkRoot() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("this builder needs root, for namespaces and for the owners of files; it runs as user %d (use sudo -E packer build, or a container with CAP_SYS_ADMIN)", uid)
	}
	return nil
}

// checkTools reports all missing programs at once, with the packages to install.
func checkTools(c *Config) error {
	tools := debian.Tools()
	if c.sealed() {
		maps.Insert(tools, maps.All(disk.SealedTools(c.SecureBootKey != "")))
	} else {
		maps.Insert(tools, maps.All(disk.Tools(c.Arch)))
	}
	var missing, packages []string
	for _, tool := range slices.Sorted(maps.Keys(tools)) {
		var err error
		if filepath.IsAbs(tool) {
			_, err = os.Stat(tool)
		} else {
			_, err = exec.LookPath(tool)
		}
		if err != nil {
			missing = append(missing, tool)
			packages = append(packages, tools[tool])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(packages)
	return fmt.Errorf("not on this machine: %s (on Debian: apt-get install %s)",
		strings.Join(missing, ", "), strings.Join(slices.Compact(packages), " "))
}

// checkProgram looks for the program that a sealed disk boots with.
func (s *stepPreflight) checkProgram() error {
	if !s.config.sealed() {
		return nil
	}
	_, err := s.program("hardtack-init", s.config.Arch)
	return err
}

// checkForeign looks whether this machine runs programs of the disk's architecture, as the packages' own scripts have to.
func (s *stepPreflight) checkForeign(ctx context.Context) error {
	if s.config.Arch == runtime.GOARCH {
		return nil
	}
	content, err := s.program("hardtack-hello", s.config.Arch)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "hardtack-foreign-")
	if err != nil {
		return fmt.Errorf("trying a program of %s: %w", s.config.Arch, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // of one file
	name := filepath.Join(dir, "hello")
	if err := file.WriteProgram(name, bytes.NewReader(content)); err != nil {
		return fmt.Errorf("trying a program of %s: %w", s.config.Arch, err)
	}
	if err := run.Run(ctx, run.Command{Name: name, Args: []string{"help"}}); err != nil {
		return fmt.Errorf("this machine does not run programs of %s, with which a disk of it is made: %w (on Debian: apt-get install qemu-user-static binfmt-support; in a container /proc/sys/fs/binfmt_misc has to be mounted)",
			s.config.Arch, err)
	}
	return nil
}

// checkOutput refuses to replace an existing image without -force.
func (s *stepPreflight) checkOutput() error {
	if s.config.PackerForce {
		return nil
	}
	for _, format := range s.config.Formats {
		name := s.config.image(disk.Format(format))
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("image %s: is there already (packer build -force replaces it)", name)
		}
	}
	return nil
}

// stepWork makes the directory of unfinished work, and removes it at the end of the build in any case.
type stepWork struct {
	*job
	lock *os.File
}

func (s *stepWork) Run(ctx context.Context, state multistep.StateBag) multistep.StepAction {
	parent := filepath.Dir(filepath.Clean(s.config.OutputDirectory))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return s.halt(ctx, state, fmt.Errorf("parent of the output directory: %w", err))
	}
	if err := disk.CheckSpace(parent, atLeast); err != nil {
		return s.halt(ctx, state, err)
	}
	var swept []string
	var err error
	s.work, s.lock, swept, err = enter(parent)
	for _, dir := range swept {
		s.ui.Sayf("Removed %s, which a build that was killed had left", dir)
	}
	if err != nil {
		return s.halt(ctx, state, err)
	}
	return multistep.ActionContinue
}

func (s *stepWork) Cleanup(multistep.StateBag) {
	if s.work == "" {
		return
	}
	if err := os.RemoveAll(s.work); err != nil {
		s.ui.Errorf("removing the working directory: %v", err)
	}
	s.lock.Close()
}

// stepBase makes the root directory.
type stepBase struct{ *job }

func (s *stepBase) Run(ctx context.Context, state multistep.StateBag) multistep.StepAction {
	if err := s.make(ctx); err != nil {
		return s.halt(ctx, state, err)
	}
	return multistep.ActionContinue
}

func (s *stepBase) Cleanup(multistep.StateBag) {}

func (s *stepBase) make(ctx context.Context) error {
	listed, err := debian.ReadPackages(s.assets, "packages")
	if err != nil {
		return err
	}
	s.options = s.config.options(listed)
	s.ui.Sayf("Making a base system of Debian %s for %s...", s.config.Suite, s.config.Arch)
	m := debian.Maker{
		Cache: s.config.BaseCache, Offline: s.config.Offline, Work: s.work, Epoch: s.config.SourceDateEpoch, Progress: s.say,
	}
	if m.Cache == off {
		m.Cache = ""
	}
	dir := filepath.Join(s.work, "root")
	if s.base, err = m.Make(ctx, s.options, dir); err != nil {
		return err
	}
	if err := debian.Prepare(dir); err != nil {
		return err
	}
	if s.root, err = chroot.New(dir, s.base.Epoch); err != nil {
		return err
	}
	s.tools = s.root
	if s.config.Arch != runtime.GOARCH {
		return s.makeTools(ctx, m)
	}
	return nil
}

// makeTools makes a root of this machine's architecture, of the same archive: the disk's own tools would be emulated, and
// mkfs.erofs then takes longer than all else.
func (s *stepBase) makeTools(ctx context.Context, m debian.Maker) error {
	s.ui.Sayf("Making the tools of Debian %s for %s...", s.config.Suite, runtime.GOARCH)
	options := s.options
	options.Arch, options.Tools = runtime.GOARCH, true
	dir := filepath.Join(s.work, "tools")
	if _, err := m.Make(ctx, options, dir); err != nil {
		return err
	}
	var err error
	s.tools, err = chroot.New(dir, s.base.Epoch)
	return err
}
