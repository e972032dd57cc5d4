package provisioner

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"

	"github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit/layer"
)

// agents holds hardtack-agent-linux-<arch>, hardtack-userdata-linux-<arch>, hardtack-hello-linux-<arch> and hardtack-init-linux-<arch> for
// each architecture for which the Makefile has built them.
//
//go:embed all:agent
var agents embed.FS

// unknown is Packer's placeholder for a value that is not known while a template is validated.
const unknown = "<unknown>"

// packageName follows Debian policy 5.6.7, and accepts an architecture as apt does.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?$`)

// check reports all errors of the values that are known.
func (p *Provisioner) check() error {
	c := &p.config
	var problems *packer.MultiError
	report := func(err error) {
		if err != nil {
			problems = packer.MultiErrorAppend(problems, err)
		}
	}
	if c.Lock != unknown {
		_, err := bake.LoadLock(p.assets, c.Lock)
		report(err)
	}
	if c.Source != unknown {
		_, err := fetch.ParseSource(c.Source)
		report(err)
	}
	report(exists("agent_path", c.AgentPath, false))
	report(exists("reader_path", c.ReaderPath, false))
	for _, dir := range c.UnitsDir {
		report(exists("units_dir", dir, true))
	}
	for _, file := range c.Units {
		report(exists("units", file, false))
	}
	for i, f := range c.Files {
		report(prefix(fmt.Sprintf("file %d", i+1), f.check()))
	}
	for _, name := range c.Packages {
		if name != unknown && !packageName.MatchString(name) {
			report(fmt.Errorf("packages: %q is not the name of a Debian package", name))
		}
	}
	for _, text := range c.ContainerImages {
		if text != unknown {
			_, err := fetch.ParseContainer(text)
			report(prefix("container_images", err))
		}
	}
	for _, name := range c.ContainerArchives {
		if name != unknown {
			_, err := image.Archive(name)
			report(prefix("container_archives", err))
		}
	}
	if !slices.Contains(c.KernelArguments, unknown) {
		_, err := rootfs.Compose(rootfs.Inputs{KernelArguments: c.KernelArguments, Sysctls: c.Sysctls})
		report(err)
	}
	if problems != nil {
		return problems
	}
	return p.lint()
}

// lint checks the units as the bake will, before anything is fetched, unless a value that it needs is not known yet.
func (p *Provisioner) lint() error {
	c := &p.config
	known := c.Lock != unknown && !slices.Contains(c.UnitsDir, unknown) && !slices.Contains(c.Units, unknown)
	plan := bake.Plan{Assets: p.assets, Units: p.units, Packages: c.Packages}
	var files []string
	for _, f := range c.Files {
		known = known && f.Destination != unknown
		files = append(files, f.Destination)
	}
	if !known {
		return nil
	}
	var err error
	if plan.Lock, err = bake.LoadLock(p.assets, c.Lock); err != nil {
		return err
	}
	if plan.Layers, err = p.layers(); err != nil {
		return err
	}
	found, err := image.Lint(plan, files)
	if err != nil {
		return err
	}
	return prefix("the units do not fit the image", found.Err())
}

// exists reports a path that is set and does not exist, or is of the wrong kind.
func exists(option, name string, dir bool) error {
	if name == "" || name == unknown {
		return nil
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", option, err)
	case info.IsDir() && !dir:
		return fmt.Errorf("%s: %s is a directory", option, name)
	case !info.IsDir() && dir:
		return fmt.Errorf("%s: %s is not a directory", option, name)
	}
	return nil
}

func prefix(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (f File) check() error {
	var problems []error
	if (f.Source == "") == (f.Content == "") {
		problems = append(problems, errors.New("either source or content is needed, and not both"))
	}
	problems = append(problems, exists("source", f.Source, false))
	if f.Destination != unknown && (!path.IsAbs(f.Destination) || path.Clean(f.Destination) != f.Destination) {
		problems = append(problems, fmt.Errorf("destination: %q is not an absolute path, or has . or .. in it", f.Destination))
	}
	if _, err := f.mode(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (f File) mode() (fs.FileMode, error) {
	if f.Mode == "" || f.Mode == unknown {
		return 0o644, nil
	}
	bits, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil || bits > 0o777 {
		return 0, fmt.Errorf("mode: %q is not octal permission bits such as 0644", f.Mode)
	}
	return fs.FileMode(bits), nil
}

// layers returns what lies over the plugin's units: the directories, and the single units, which replace nothing.
func (p *Provisioner) layers() ([]layer.Layer, error) {
	var layers []layer.Layer
	for _, dir := range p.config.UnitsDir {
		layers = append(layers, layer.Directory(dir))
	}
	for _, file := range p.config.Units {
		one, err := layer.Single(file)
		if err != nil {
			return nil, prefix("units", err)
		}
		layers = append(layers, one)
	}
	return layers, nil
}

// extra returns the entries besides the lock and the plugin's assets: our own programs, the hello image, and the template's
// additions.
func (p *Provisioner) extra(arch string) ([]rootfs.Entry, error) {
	entries, err := p.programs(arch)
	if err != nil {
		return nil, err
	}
	hello, err := p.hello(arch)
	if err != nil {
		return nil, err
	}
	entries = append(entries, hello...)
	for _, f := range p.config.Files {
		mode, err := f.mode()
		if err != nil {
			return nil, err
		}
		if f.Source == "" {
			entries = append(entries, rootfs.Bytes(rootfs.FromExtra, f.Destination, mode, []byte(f.Content)))
			continue
		}
		entry, err := rootfs.Local(rootfs.FromExtra, f.Destination, mode, f.Source)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// programs returns the agent and the reader of user data for the target's architecture, or what could not be found of both.
func (p *Provisioner) programs(arch string) (entries []rootfs.Entry, err error) {
	for _, program := range []struct{ name, component, path, option, file string }{
		{"hardtack-agent", rootfs.FromAgent, rootfs.AgentPath, "agent_path", p.config.AgentPath},
		{"hardtack-userdata", rootfs.FromReader, rootfs.ReaderPath, "reader_path", p.config.ReaderPath},
	} {
		open := func() (io.ReadCloser, error) { return agents.Open("agent/" + program.name + "-linux-" + arch) }
		if program.file != "" {
			open = func() (io.ReadCloser, error) { return os.Open(program.file) }
		}
		entry, problem := rootfs.Opened(program.component, program.path, 0o755, open)
		if errors.Is(problem, fs.ErrNotExist) && program.file == "" {
			problem = fmt.Errorf("this plugin was built without %s for %s (build it by `make plugin`, or set %s)", program.name, arch, program.option)
		}
		entries, err = append(entries, entry), errors.Join(err, problem)
	}
	return entries, err
}

// Program reads one of our own programs for an architecture, as hardtack-init for amd64.
func Program(name, arch string) ([]byte, error) {
	program, err := agents.ReadFile("agent/" + name + "-linux-" + arch)
	if err != nil {
		return nil, fmt.Errorf("this plugin was built without %s for %s (build it by `make plugin`)", name, arch)
	}
	return program, nil
}

// hello returns the archive of the hello image. A plugin built without it leaves it out if agent_path is set: no unit
// needs it.
func (p *Provisioner) hello(arch string) ([]rootfs.Entry, error) {
	program, err := Program("hardtack-hello", arch)
	switch {
	case err != nil && p.config.AgentPath != "":
		return nil, nil
	case err != nil:
		return nil, err
	}
	entry, err := oci.Hello(program, arch)
	return []rootfs.Entry{entry}, err
}
