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
	"github.com/hardtack/packer-plugin-hardtack/pkg/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// kubectlPath is where kubectl is in the image.
const kubectlPath = "/usr/bin/kubectl"

func labKubectlCommand() *cli.Command {
	return &cli.Command{
		Name:  "kubectl",
		Usage: "run kubectl as the lab's administrator; what comes after --name, if that is given first, is kubectl's",
		// kubectl's own flags are not ours to judge.
		SkipFlagParsing: true,
		ArgsUsage:       "[--name NAME] KUBECTL'S ARGUMENTS",
		Action:          labKubectl,
	}
}

func labKubectl(c *cli.Context) error {
	name, args := kubectlArgs(c.Args().Slice(), os.Getenv("HARDTACK_LAB"))
	h, err := labNamed(name)
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
	// It takes our place, so that its terminal, signals and exit code are its own.
	return fmt.Errorf("running %s: %w", program, unix.Exec(program, append([]string{"kubectl"}, args...), env))
}

// kubectlArgs takes our flag from before kubectl's arguments.
func kubectlArgs(args []string, name string) (string, []string) {
	switch {
	case len(args) > 1 && args[0] == "--name":
		return args[1], args[2:]
	case len(args) > 0 && strings.HasPrefix(args[0], "--name="):
		return strings.TrimPrefix(args[0], "--name="), args[1:]
	}
	return name, args
}

// kubectlProgram is the image's own version where it has been built on this computer, else PATH's.
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

// errNotBuilt is when the cache has no kubectl.
var errNotBuilt = errors.New("kubectl of the image's version is not in the cache (hardtack lock verify --source modules compiles it)")

// builtKubectl takes kubectl from the cache of components into the lab's directory, where it may be executed.
func builtKubectl(ctx context.Context, h lab.Home) (string, error) {
	target := filepath.Join(h.Dir, "kubectl")
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	lock, err := readLock(defaultLock)
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

// takeLinked takes the program that kubectl is a link to: Kubernetes' programs are one, which looks at its name.
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

// copyProgram puts a program in place, at once or not at all.
func copyProgram(target string, open func() (io.ReadCloser, error)) (err error) {
	in, err := open()
	if err != nil {
		return fmt.Errorf("reading kubectl: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(filepath.Dir(target), ".kubectl-*")
	if err != nil {
		return fmt.Errorf("writing kubectl: %w", err)
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o700), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), target)
	}
	if err != nil {
		return fmt.Errorf("writing kubectl: %w", errors.Join(err, os.Remove(out.Name())))
	}
	return nil
}
