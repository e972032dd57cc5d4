package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// staleExit is check's exit code where the image is not what this program would bake; 1 is an error, 2 a wrong call.
const staleExit = 3

func imageCommand() *cli.Command {
	return &cli.Command{
		Name:  "image",
		Usage: "look at a baked image, and keep machine images made of it on AWS",
		Subcommands: []*cli.Command{imagePublishCommand(), imageListCommand(), imagePromoteCommand(), imageRollbackCommand(), imageGCCommand(), imagePolicyCommand(), {
			Name:      "check",
			Usage:     fmt.Sprintf("compare what an image was baked from with what this program would bake; exit with %d where they differ", staleExit),
			ArgsUsage: "IMAGE.JSON",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "agent", Usage: "the hardtack-agent `PROGRAM` that a bake would take; empty is not compared"},
				&cli.StringFlag{Name: "hello", Usage: "the hardtack-hello `PROGRAM` beside it; empty is not compared"},
				jsonFlag(),
			},
			Action: imageCheck,
		}},
	}
}

// freshness is what `hardtack image check --json` prints.
type freshness struct {
	Fresh bool `json:"fresh"`
	// Changed says what is not as it was: "lock, units, files or packages", "agent", "hello".
	Changed []string `json:"changed"`
}

func imageCheck(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("one image.json is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	baked, err := bake.ReadManifest(c.Args().First())
	if err != nil {
		return usagef("%w", err)
	}
	f := freshness{Changed: []string{}}
	for _, compare := range []func(*cli.Context, bake.Manifest) (string, error){inputsOf, agentOf, helloOf} {
		changed, err := compare(c, baked)
		if err != nil {
			return err
		}
		if changed != "" {
			f.Changed = append(f.Changed, changed)
		}
	}
	f.Fresh = len(f.Changed) == 0
	if c.Bool("json") {
		err = printJSON(c.App.Writer, f)
	} else if f.Fresh {
		_, err = fmt.Fprintln(c.App.Writer, "the image is what would be baked now")
	}
	if err == nil && !f.Fresh {
		return cli.Exit("the image is stale: "+strings.Join(f.Changed, ", ")+" have changed since it was baked", staleExit)
	}
	return err
}

// inputsOf compares what stands for lock, units, plain files and packages together.
func inputsOf(_ *cli.Context, baked bake.Manifest) (string, error) {
	lock, err := bake.LoadLock(images.FS, baked.Lock.Name)
	if err != nil {
		return "", err
	}
	packages, err := bake.Packages(images.FS)
	if err != nil {
		return "", err
	}
	plain, err := fs.Sub(images.FS, "rootfs")
	if err != nil {
		return "", err
	}
	now, err := bake.Fingerprint(lock.Fingerprint(), packages, units.FS, plain)
	if err != nil {
		return "", err
	}
	if now != baked.Lock.Image {
		return "lock, units, files or packages", nil
	}
	return "", nil
}

func agentOf(c *cli.Context, baked bake.Manifest) (string, error) {
	if !c.IsSet("agent") {
		return "", nil
	}
	e, err := rootfs.Local(rootfs.FromAgent, rootfs.AgentPath, 0o755, c.String("agent"))
	if err != nil {
		return "", usagef("--agent: %w", err)
	}
	return differs(baked, e, "agent"), nil
}

func helloOf(c *cli.Context, baked bake.Manifest) (string, error) {
	if !c.IsSet("hello") {
		return "", nil
	}
	program, err := os.ReadFile(c.String("hello"))
	if err != nil {
		return "", usagef("--hello: %w", err)
	}
	e, err := fetch.Hello(program, baked.Architecture)
	if err != nil {
		return "", err
	}
	return differs(baked, e, "hello"), nil
}

// differs names an entry that is not in the image as it would be now.
func differs(baked bake.Manifest, e rootfs.Entry, name string) string {
	for _, f := range baked.Tree.Files {
		if f.Path == e.Path && f.Digest == e.Digest {
			return ""
		}
	}
	return name
}
