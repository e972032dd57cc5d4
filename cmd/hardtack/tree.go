package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func treeCommand() *cli.Command {
	return &cli.Command{
		Name:  "tree",
		Usage: "list what a bake would write: every path with its mode, size and source, and the digest of the tree",
		Flags: []cli.Flag{
			lockFlag(), mirrorFlag(),
			&cli.StringFlag{Name: "source", Value: string(fetch.Auto), Usage: "fetch from `SOURCE`: release, modules (compiles; may take long) or auto"},
			&cli.StringFlag{Name: "arch", Value: runtime.GOARCH, Usage: "the `ARCHITECTURE`: amd64 or arm64"},
			&cli.StringFlag{Name: "cache", Usage: "the cache `DIRECTORY` (default: hardtack in the user's cache directory)"},
			&cli.StringFlag{Name: "agent", Required: true, Usage: "the hardtack-agent `PROGRAM` for that architecture, as built by make agent"},
			&cli.StringFlag{Name: "reader", Required: true, Usage: "the hardtack-userdata `PROGRAM` for that architecture, as built by make agent"},
			&cli.StringFlag{Name: "hello", Usage: "the hardtack-hello `PROGRAM` for that architecture (default: left out)"},
			&cli.StringSliceFlag{Name: "units-dir", Usage: "a `DIRECTORY` of units that lie over the image's own, as the provisioner's option units_dir; may be repeated"},
		},
		Action: tree,
	}
}

// treeOutput is the output of `hardtack tree --json`: fields may be added, but not changed. Size is in bytes.
type treeOutput struct {
	Digest string      `json:"digest"`
	Size   int64       `json:"size"`
	Files  []bake.File `json:"files"`
}

func tree(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	composed, err := composeTree(c)
	if err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, treeOutput{Digest: composed.Digest(), Size: composed.Size(), Files: bake.Files(composed)})
	}
	_, err = fmt.Fprintf(c.App.Writer, "%sdigest %s\n%.1f MB\n", composed.Listing(), composed.Digest(), float64(composed.Size())/1e6)
	return err
}

// composeTree fetches the components and composes the tree that the provisioner would write.
func composeTree(c *cli.Context) (*rootfs.Tree, error) {
	lock, err := readLock(c.String("lock"))
	if err != nil {
		return nil, err
	}
	ours, err := readPrograms(c, c.String("arch"))
	if err != nil {
		return nil, err
	}
	layers, err := unitLayers(c.StringSlice("units-dir"))
	if err != nil {
		return nil, err
	}
	bar := newProgress(c.App.ErrWriter)
	defer bar.finish()
	plan := image.Plan{
		Plan:  bake.Plan{Assets: images.FS, Units: units.FS, Layers: layers, Lock: lock, Architecture: c.String("arch")},
		Fetch: fetch.Options{Cache: c.String("cache"), Mirror: c.String("mirror"), Source: fetch.Source(c.String("source")), Progress: bar, Log: logger(c)},
		OnFallback: func(r fetch.Result) {
			bar.finish() // all transfers are over by now
			fmt.Fprintf(c.App.ErrWriter, "%s %s comes from %s: %s\n", r.Component, r.Version, r.Source, r.Fallback)
		},
		OnArchive: func(archive, why string) {
			bar.finish()
			fmt.Fprintf(c.App.ErrWriter, "%s is not unpacked, and each minion imports it at its boot: %s\n", archive, why)
		},
	}
	for _, program := range []*rootfs.Entry{ours.agent, ours.reader, ours.archive} {
		if program != nil {
			plan.Extra = append(plan.Extra, *program)
		}
	}
	job, err := plan.Compose(c.Context)
	if errors.As(err, new(*image.OptionsError)) {
		return nil, usagef("%w", err)
	}
	return job.Tree, err
}

// programs are the entries of --agent, --reader and --hello, and of the container image with the last; nil if the flag is not set.
type programs struct{ agent, reader, hello, archive *rootfs.Entry }

func readPrograms(c *cli.Context, arch string) (p programs, err error) {
	for _, of := range []struct {
		flag, component, path string
		entry                 **rootfs.Entry
	}{{"agent", rootfs.FromAgent, rootfs.AgentPath, &p.agent}, {"reader", rootfs.FromReader, rootfs.ReaderPath, &p.reader}} {
		if !c.IsSet(of.flag) {
			continue
		}
		e, err := rootfs.Local(of.component, of.path, 0o755, c.String(of.flag))
		if err != nil {
			return programs{}, usagef("--%s: %w", of.flag, err)
		}
		*of.entry = &e
	}
	if c.IsSet("hello") {
		program, err := os.ReadFile(c.String("hello"))
		if err != nil {
			return programs{}, usagef("--hello: %w", err)
		}
		e, err := oci.Hello(program, arch)
		if err != nil {
			return programs{}, err
		}
		named := rootfs.Bytes(rootfs.FromAgent, oci.HelloProgram, 0o755, program)
		p.hello, p.archive = &named, &e
	}
	return p, nil
}
