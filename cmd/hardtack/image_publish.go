package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
)

func imagePublishCommand() *cli.Command {
	return &cli.Command{
		Name:      "publish",
		Usage:     "make a machine image (AMI) from a disk image, or find the one already made from it",
		ArgsUsage: "DISK.QCOW2",
		Flags: append(awsFlags(),
			&cli.StringFlag{Name: "name", Value: "hardtack", Usage: "the image family; the image is called `NAME`-<digest>"},
			&cli.StringFlag{Name: "arch", Usage: "amd64 or arm64 (default: as in the image.json beside the disk)"},
			&cli.StringFlag{Name: "key", Usage: "encrypt with a KMS `KEY`, given by its ARN; default is the account's own key"},
			&cli.Int64Flag{Name: "volume", Usage: "the root volume's size in `GIB` (default: what the disk and its manifest need)"},
			&cli.StringFlag{Name: "parent", Usage: "the `IMAGE` whose unchanged blocks are reused, or none (default: the newest of the family)"},
			&cli.StringFlag{Name: "description", Usage: "the image's description"},
			&cli.StringSliceFlag{Name: "tag", Usage: "a tag, `KEY=VALUE`"},
			&cli.StringSliceFlag{Name: "copy", Usage: "copy to a `REGION[=KEY]`, encrypted with a key of that region; may be repeated"},
			&cli.StringSliceFlag{Name: "share", Usage: "allow an `ACCOUNT`, or the organisation or unit with this ARN, to launch the image; may be repeated"},
			&cli.StringFlag{Name: "channel", Usage: "afterwards point this `CHANNEL` at the image, in every region"},
			&cli.StringFlag{Name: "state", Usage: "the `DIRECTORY` that keeps the state of unfinished uploads to one account and region, so that they can be resumed"},
			&cli.BoolFlag{Name: "keep", Usage: "if publishing fails or is interrupted, keep the unfinished snapshot, so that it can be resumed"},
			&cli.IntFlag{Name: "parallel", Value: ami.DefaultWorkers, Usage: "upload `N` blocks of 512 KiB at once"},
		),
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
	cl, err := cloud.Open(c.Context, c.String("region"), cloud.Options{Connections: c.Int("parallel")}, atEndpoint(c)...)
	if err != nil {
		return err
	}
	disk, err := qcow2.Open(c.Args().First())
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
	shipped, err := publishImage(c, cl, job)
	if err != nil {
		return err
	}
	return printShipped(c, job, shipped)
}

// publishJob makes the pipeline of the flags.
func publishJob(c *cli.Context, disk *qcow2.File) (ami.Pipeline, error) {
	job := ami.Pipeline{Request: ami.Request{
		Disk: disk, Image: c.String("name"), Architecture: c.String("arch"), Key: c.String("key"), Volume: c.Int64("volume"),
		Parent: c.String("parent"), Description: c.String("description"), Keep: c.Bool("keep"),
	}, Channel: c.String("channel")}
	var err error
	if job.Tags, err = pairs("tag", c.StringSlice("tag")); err != nil {
		return job, err
	}
	for _, text := range c.StringSlice("copy") {
		region, key, _ := strings.Cut(text, "=")
		job.Copies = append(job.Copies, ami.Target{Region: region, Key: key})
	}
	for _, who := range c.StringSlice("share") {
		if strings.HasPrefix(who, "arn:") {
			job.Permissions.Organisations = append(job.Permissions.Organisations, who)
		} else {
			job.Permissions.Accounts = append(job.Permissions.Accounts, who)
		}
	}
	beside := filepath.Join(filepath.Dir(c.Args().First()), "image.json")
	if err := image.Describe(&job.Request, beside); errors.Is(err, image.ErrNoArchitecture) {
		return job, usagef("--arch is needed: there is no image.json beside %s", c.Args().First())
	} else if err != nil {
		return job, err
	}
	return job, nil
}

func publishImage(c *cli.Context, cl *cloud.Cloud, job ami.Pipeline) (ami.PipelineResult, error) {
	state := c.String("state")
	if state == "" {
		var err error
		if state, err = cl.State(c.Context); err != nil {
			return ami.PipelineResult{}, err
		}
	}
	client, bar := cl.Client(job.Home), newProgress(c.App.ErrWriter)
	defer bar.finish()
	p, err := ami.New(ami.Config{
		Blocks: client, Snapshots: client, Images: client, State: state, Workers: c.Int("parallel"),
		Progress: phases{bar}, Log: logger(c),
	})
	if err != nil {
		return ami.PipelineResult{}, err
	}
	return ami.RunPipeline(c.Context, p, cl, job, logger(c))
}

// phases shows the phases of publishing one after another on the bar.
type phases struct{ *progress }

// Begin implements ami.Progress.
func (p phases) Begin(what string, total int64) { p.Start(what, total) }

func printShipped(c *cli.Context, job ami.Pipeline, s ami.PipelineResult) error {
	if structured(c) {
		return printResult(c, s)
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
	_, err := io.WriteString(c.App.Writer, promotionsText(promotions{done: s.Promotions}))
	return err
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
