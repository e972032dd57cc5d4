// Package ami is the Packer post-processor "hardtack-ami": a disk image becomes a machine image on AWS.
//
// Its rule: it translates; what is done is pkg/publish's, and is the same as by `hardtack image publish`.
package ami

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hcldec"
	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/diskfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

var _ packersdk.PostProcessor = (*PostProcessor)(nil)

// PostProcessor publishes disks. Use New.
type PostProcessor struct{ config Config }

// New returns one without a configuration.
func New() *PostProcessor { return &PostProcessor{} }

// ConfigSpec returns the HCL2 specification of Config.
func (p *PostProcessor) ConfigSpec() hcldec.ObjectSpec { return p.config.FlatMapstructure().HCL2Spec() }

// Configure reads the configuration and reports everything that is wrong with it.
func (p *PostProcessor) Configure(raws ...any) error {
	p.config = Config{}
	if err := p.config.prepare(raws); err != nil {
		return err
	}
	return p.config.check()
}

// check is publish's own, of what is known so far.
func (c *Config) check() error {
	j := c.job()
	for _, text := range append(append([]string{j.Image, j.Architecture, j.Key, j.Home, j.Channel, j.Parent}, j.With.Accounts...), j.With.Organisations...) {
		if text == unknown {
			return nil // all of it is checked again when it is known
		}
	}
	if j.Architecture == "" {
		j.Architecture = "amd64" // the artifact says
	}
	if j.Home == "" {
		j.Home = "the environment's region"
	}
	j.Disk = unread{}
	return j.Check()
}

// unread stands for the disk before there is one.
type unread struct{ publish.Disk }

func (unread) Size() int64 { return 1 }

// PostProcess publishes the artifact's disk. The disk is kept, unless the template says otherwise.
func (p *PostProcessor) PostProcess(ctx context.Context, ui packersdk.Ui, source packersdk.Artifact) (packersdk.Artifact, bool, bool, error) {
	a, err := p.process(ctx, ui, source)
	if err != nil {
		return nil, true, false, err
	}
	return a, true, false, nil
}

func (p *PostProcessor) process(ctx context.Context, ui packersdk.Ui, source packersdk.Artifact) (*Artifact, error) {
	file, err := p.config.disk(source.Files())
	if err != nil {
		return nil, err
	}
	job, err := p.config.about(file, source.Files())
	if err != nil {
		return nil, err
	}
	disk, err := diskfile.Open(file)
	if err != nil {
		return nil, err
	}
	defer disk.Close() //nolint:errcheck // it was only read
	cloud, err := ami.Open(ctx, p.config.Region, ami.Options{Connections: p.config.Parallel})
	if err != nil {
		return nil, err
	}
	job.Disk, job.Home = disk, cloud.Home
	publisher, err := p.publisher(cloud, ui)
	if err != nil {
		return nil, err
	}
	ui.Say(fmt.Sprintf("Publishing %s to %s...", file, cloud.Home))
	shipped, err := publish.Ship(ctx, publisher, cloud, job, logTo(ui))
	if err != nil {
		return nil, err
	}
	return artifact(cloud, shipped, source), nil
}

func (p *PostProcessor) publisher(cloud *ami.Cloud, ui packersdk.Ui) (*publish.Publisher, error) {
	state := p.config.StateDirectory
	if state == "" {
		var err error
		if state, err = ami.State(cloud.Home); err != nil {
			return nil, fmt.Errorf("%w (set state_directory)", err)
		}
	}
	c := cloud.Client(cloud.Home)
	return publish.New(publish.Config{
		Snapshots: c, Keeper: c, Images: c, State: state, Workers: p.config.Parallel, Progress: &progress{ui: ui}, Log: logTo(ui),
	})
}

// disk is the disk image: the one that was named, or the artifact's.
func (c *Config) disk(files []string) (string, error) {
	if c.Disk != "" {
		return c.Disk, nil
	}
	for _, suffix := range []string{".qcow2", ".raw"} {
		for _, f := range files {
			if strings.HasSuffix(f, suffix) {
				return f, nil
			}
		}
	}
	return "", fmt.Errorf("the artifact has no file that ends with .qcow2 or .raw, but %q: name one with disk", files)
}

// about completes the job with what the bake says of the disk.
func (c *Config) about(disk string, files []string) (publish.Job, error) {
	j := c.job()
	described := filepath.Join(filepath.Dir(disk), "image.json")
	if i := slices.IndexFunc(files, func(f string) bool { return filepath.Base(f) == "image.json" }); i >= 0 {
		described = files[i]
	}
	baked, err := bake.ReadManifest(described)
	switch {
	case err == nil:
		j.Facts = baked.Facts()
		if j.Architecture == "" {
			j.Architecture = baked.Architecture
		}
	case !errors.Is(err, fs.ErrNotExist):
		return j, err
	case j.Architecture == "":
		return j, fmt.Errorf("architecture is needed: there is no image.json with %s", disk)
	}
	return j, nil
}

// artifact is what Packer hears of it.
func artifact(cloud *ami.Cloud, s publish.Shipped, source packersdk.Artifact) *Artifact {
	return &Artifact{
		shipped: s, source: source.Id(),
		state: map[string]any{
			"generated_data": source.State("generated_data"), "image_name": s.Name, "snapshot_id": s.Snapshot, "found": s.Found, "sent_bytes": s.SentBytes,
		},
		remove: func(ctx context.Context) error {
			var errs []error
			for region, image := range s.Images {
				errs = append(errs, cloud.Client(region).Discard(ctx, image, map[string]string{publish.TagDigest: s.Digest.String()}))
			}
			return errors.Join(errs...)
		},
	}
}
