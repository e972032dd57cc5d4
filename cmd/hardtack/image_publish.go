package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/diskfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

func imagePublishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "make a machine image (AMI) of a disk image, or find the one that was made of the same",
		ArgsUsage: "DISK.QCOW2",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Value: "hardtack", Usage: "the line of images; the image is called `NAME`-<digest>"},
			&cli.StringFlag{Name: "arch", Usage: "amd64 or arm64; left out, what the image.json beside the disk says"},
			&cli.StringFlag{Name: "key", Usage: "encrypt with a KMS `KEY`, by its ARN, or with the account's own: default"},
			&cli.Int64Flag{Name: "volume", Usage: "the root volume's size in `GIB`; at least the disk and the manifest behind it"},
			&cli.StringFlag{Name: "parent", Usage: "the `IMAGE` to take from what has not changed, or none; left out, the newest of the line"},
			&cli.StringFlag{Name: "description", Usage: "the image's description"},
			&cli.StringSliceFlag{Name: "tag", Usage: "a tag, `KEY=VALUE`"},
			&cli.StringSliceFlag{Name: "copy", Usage: "copy to a `REGION[=KEY]`, encrypted with a key of that region"},
			&cli.StringSliceFlag{Name: "share", Usage: "let an `ACCOUNT`, or an organisation or unit by its ARN, launch the image"},
			&cli.StringFlag{Name: "channel", Usage: "have a `CHANNEL` name the image in the end, in every region"},
			regionFlag(),
			&cli.StringFlag{Name: "state", Usage: "the `DIRECTORY` for what is under way, which a later try goes on from"},
			&cli.BoolFlag{Name: "keep", Usage: "when it fails or is interrupted, keep the unfinished snapshot for the next try"},
			&cli.IntFlag{Name: "parallel", Value: publish.DefaultWorkers, Usage: "how many blocks of 512 KiB are sent at once"},
			jsonFlag(),
		},
		Action: imagePublish,
	}
}

func imagePublish(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("one disk image is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	if n := c.Int("parallel"); n < 1 || n > 1000 {
		return usagef("--parallel %d: 1 to 1000", n)
	}
	cl, err := ami.Open(c.Context, c.String("region"), ami.Options{Connections: c.Int("parallel")})
	if err != nil {
		return err
	}
	disk, err := diskfile.Open(c.Args().First())
	if err != nil {
		return usagef("%w", err)
	}
	defer disk.Close() //nolint:errcheck // it was only read
	job, err := publishJob(c, disk)
	if err != nil {
		return err
	}
	job.Home = cl.Home
	if err := job.Check(); err != nil {
		return usagef("%w", err)
	}
	shipped, err := ship(c, cl, job)
	if err != nil {
		return err
	}
	return printShipped(c, job, shipped)
}

// publishJob reads the flags.
func publishJob(c *cli.Context, disk *diskfile.File) (publish.Job, error) {
	job := publish.Job{Request: publish.Request{
		Disk: disk, Image: c.String("name"), Architecture: c.String("arch"), Key: c.String("key"), Volume: c.Int64("volume"),
		Parent: c.String("parent"), Description: c.String("description"), Keep: c.Bool("keep"),
	}, Channel: c.String("channel")}
	var err error
	if job.Tags, err = pairs("tag", c.StringSlice("tag")); err != nil {
		return job, err
	}
	for _, text := range c.StringSlice("copy") {
		region, key, _ := strings.Cut(text, "=")
		job.Copies = append(job.Copies, publish.Target{Region: region, Key: key})
	}
	for _, who := range c.StringSlice("share") {
		if strings.HasPrefix(who, "arn:") {
			job.With.Organisations = append(job.With.Organisations, who)
		} else {
			job.With.Accounts = append(job.With.Accounts, who)
		}
	}
	beside := filepath.Join(filepath.Dir(c.Args().First()), "image.json")
	baked, err := bake.ReadManifest(beside)
	switch {
	case err == nil:
		job.Facts = baked.Facts()
		if job.Architecture == "" {
			job.Architecture = baked.Architecture
		}
	case job.Architecture == "" && errors.Is(err, fs.ErrNotExist):
		return job, usagef("--arch is needed: there is no image.json beside %s", c.Args().First())
	case !errors.Is(err, fs.ErrNotExist):
		return job, err
	}
	return job, nil
}

func ship(c *cli.Context, cl *ami.Cloud, job publish.Job) (publish.Shipped, error) {
	state := c.String("state")
	if state == "" {
		var err error
		if state, err = ami.State(job.Home); err != nil {
			return publish.Shipped{}, err
		}
	}
	client, bar := cl.Client(job.Home), newProgress(c.App.ErrWriter)
	defer bar.finish()
	p, err := publish.New(publish.Config{
		Snapshots: client, Keeper: client, Images: client, State: state, Workers: c.Int("parallel"),
		Progress: phases{bar}, Log: logger(c),
	})
	if err != nil {
		return publish.Shipped{}, err
	}
	return publish.Ship(c.Context, p, cl, job, logger(c))
}

// phases shows one phase after another on the bar.
type phases struct{ *progress }

// Begin implements publish.Progress.
func (p phases) Begin(what string, total int64) { p.Start(what, total) }

func printShipped(c *cli.Context, job publish.Job, s publish.Shipped) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, s)
	}
	verb := "published"
	if s.Found {
		verb = "was there"
	}
	fmt.Fprintf(c.App.Writer, "%s %s: %s (%s)\n", s.Image, verb, s.Name, job.Home)
	if !s.Found {
		fmt.Fprintf(c.App.Writer, "%d blocks (%d MB) sent, %d of the disk's %d taken from %s\n",
			s.SentBlocks, s.SentBytes/1e6, s.KeptBlocks, s.DiskBlocks, orNothing(s.Parent))
	}
	for _, region := range slices.Sorted(maps.Keys(s.Images)) {
		if region != job.Home {
			fmt.Fprintf(c.App.Writer, "%s in %s\n", s.Images[region], region)
		}
	}
	return printPromotions(c, s.Promotions)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
