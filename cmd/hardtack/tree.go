package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func treeCommand() *cli.Command {
	return &cli.Command{
		Name:  "tree",
		Usage: "what a bake would write: every path with its mode, size and source, and the digest of it all",
		Flags: []cli.Flag{
			lockFlag(), mirrorFlag(),
			&cli.StringFlag{Name: "source", Value: string(fetch.Auto), Usage: "release, modules (compile; may take long) or auto"},
			&cli.StringFlag{Name: "arch", Value: runtime.GOARCH, Usage: "`ARCHITECTURE`"},
			&cli.StringFlag{Name: "cache", Usage: "cache `DIRECTORY` (default: hardtack in the user's cache directory)"},
			&cli.StringFlag{Name: "agent", Required: true, Usage: "the hardtack-agent `PROGRAM` of that architecture, which `make agent` builds"},
			&cli.StringFlag{Name: "hello", Usage: "the hardtack-hello `PROGRAM` beside it; empty leaves its image out"},
			jsonFlag(),
		},
		Action: tree,
	}
}

// treeOutput is what `hardtack tree --json` prints: fields are added, never changed. Size is in bytes.
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
	if c.Bool("json") {
		return printJSON(c.App.Writer, treeOutput{Digest: composed.Digest(), Size: composed.Size(), Files: bake.Files(composed)})
	}
	_, err = fmt.Fprintf(c.App.Writer, "%sdigest %s\n%.1f MB\n", composed.Listing(), composed.Digest(), float64(composed.Size())/1e6)
	return err
}

// composeTree brings the components and composes what the provisioner would write.
func composeTree(c *cli.Context) (*rootfs.Tree, error) {
	lock, err := readLock(c.String("lock"))
	if err != nil {
		return nil, err
	}
	agent, err := rootfs.Local(rootfs.FromAgent, rootfs.AgentPath, 0o755, c.String("agent"))
	if err != nil {
		return nil, usagef("--agent: %w", err)
	}
	extra := []rootfs.Entry{agent}
	if c.IsSet("hello") {
		program, err := os.ReadFile(c.String("hello"))
		if err != nil {
			return nil, usagef("--hello: %w", err)
		}
		hello, err := fetch.Hello(program, c.String("arch"))
		if err != nil {
			return nil, err
		}
		extra = append(extra, hello)
	}
	progress := newProgress(c.App.ErrWriter)
	fetcher, err := fetch.New(fetch.Options{
		Assets: images.FS, Cache: c.String("cache"), Mirror: c.String("mirror"), Source: fetch.Source(c.String("source")),
		Arch: c.String("arch"), Progress: progress, Log: logger(c),
	})
	if err != nil {
		return nil, usagef("%w", err)
	}
	results, err := fetcher.All(c.Context, lock)
	progress.finish()
	if err != nil {
		return nil, err
	}
	brought := make([]bake.Brought, 0, len(results))
	for _, r := range results {
		if r.Fallback != "" {
			fmt.Fprintf(c.App.ErrWriter, "%s %s comes from %s: %s\n", r.Component, r.Version, r.Source, r.Fallback)
		}
		brought = append(brought, bake.Brought{Entries: r.Entries})
	}
	job, err := bake.Plan{Assets: images.FS, Units: units.FS, Lock: lock, Architecture: c.String("arch"),
		Extra: extra}.Job(brought)
	return job.Tree, err
}
