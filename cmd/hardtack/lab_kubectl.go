//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// kubectlPath is the path of kubectl in the image.
const kubectlPath = "/usr/bin/kubectl"

func labKubectlCommand() *cli.Command {
	return &cli.Command{
		Name:  "kubectl",
		Usage: "run kubectl as the lab's administrator; only a leading --name is not passed to kubectl",
		// The flags after --name are kubectl's.
		SkipFlagParsing: true,
		ArgsUsage:       "[--name NAME] [KUBECTL ARGUMENTS]",
		Action:          labKubectl,
	}
}

func labKubectl(c *cli.Context) error {
	name, args := leadingName(c.Args().Slice(), os.Getenv("HARDTACK_LAB"))
	h, err := labNamed(name)
	if err != nil && wantsHelp(args) { // in a lab it is kubectl's
		return cli.ShowSubcommandHelp(c)
	}
	if err != nil {
		return err
	}
	if err := lab.NewClient(h).WriteKubeconfig(c.Context); err != nil {
		return err
	}
	program, err := kubectlProgram(c.Context, h)
	if err != nil {
		return err
	}
	env := append(os.Environ(), "KUBECONFIG="+h.Kubeconfig())
	// Replace this process, so that kubectl has the terminal, gets the signals and sets the exit code.
	return fmt.Errorf("running %s: %w", program, unix.Exec(program, append([]string{"kubectl"}, args...), env))
}

// leadingName separates a leading --name from another program's arguments.
func leadingName(args []string, name string) (string, []string) {
	switch {
	case len(args) > 1 && args[0] == "--name":
		return args[1], args[2:]
	case len(args) > 0 && strings.HasPrefix(args[0], "--name="):
		return strings.TrimPrefix(args[0], "--name="), args[1:]
	}
	return name, args
}

// kubectlProgram returns the path of kubectl: of the image's version if this computer's cache has it, else of PATH.
func kubectlProgram(ctx context.Context, h lab.Home) (string, error) {
	if program := os.Getenv("HARDTACK_KUBECTL"); program != "" {
		return program, nil
	}
	program, err := builtKubectl(ctx, h)
	if err == nil {
		return program, nil
	}
	onPath, missing := exec.LookPath("kubectl")
	if missing != nil {
		return "", errors.Join(err, fmt.Errorf("looking for kubectl: %w (install one, or name one with HARDTACK_KUBECTL)", missing))
	}
	return onPath, nil
}

// errNotBuilt means that the cache has no kubectl.
var errNotBuilt = errors.New("kubectl of the image's version is not in the cache (hardtack lock verify --source modules compiles it)")

// builtKubectl copies kubectl from the cache of components into the lab's directory, where it can be executed.
func builtKubectl(ctx context.Context, h lab.Home) (string, error) {
	target := filepath.Join(h.Dir, "kubectl")
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	lock, err := readLock(bake.DefaultLock)
	if err != nil {
		return "", err
	}
	fetcher, err := fetch.New(fetch.Options{Assets: images.FS, Source: fetch.Modules})
	if err != nil {
		return "", err
	}
	for _, component := range lock.Components {
		if built, err := fetcher.Built(ctx, component); err != nil || !built {
			continue
		}
		got, err := fetcher.Get(ctx, component)
		if err != nil {
			return "", err
		}
		for _, e := range got.Entries {
			if e.Path == kubectlPath && e.Open != nil {
				return target, copyProgram(target, e.Open)
			}
			if e.Path == kubectlPath && e.Link != "" {
				return takeLinked(target, e.Link, got)
			}
		}
	}
	return "", errNotBuilt
}

// takeLinked copies the program to which kubectl is a link: Kubernetes' programs are one binary, which acts by its
// name.
func takeLinked(target, link string, got fetch.Result) (string, error) {
	if !filepath.IsAbs(link) {
		link = filepath.Join(filepath.Dir(kubectlPath), link)
	}
	for _, e := range got.Entries {
		if e.Path == link && e.Open != nil {
			return target, copyProgram(target, e.Open)
		}
	}
	return "", errNotBuilt
}

// copyProgram writes a program, atomically.
func copyProgram(target string, open func() (io.ReadCloser, error)) error {
	in, err := open()
	if err != nil {
		return fmt.Errorf("reading kubectl: %w", err)
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading kubectl: %w", err)
	}
	if _, err := file.Replace(target, data, 0o700); err != nil {
		return fmt.Errorf("writing kubectl: %w", err)
	}
	return nil
}
