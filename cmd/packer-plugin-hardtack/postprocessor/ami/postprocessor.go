// Package ami is the Packer post-processor "hardtack-ami": it makes a machine image on AWS from a disk image.
//
// It only translates: pkg/ami does the work, the same as in `hardtack image publish`.
package ami

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hcldec"
	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
)

var _ packersdk.PostProcessor = (*PostProcessor)(nil)

// PostProcessor publishes disks. Use New.
type PostProcessor struct{ config Config }

// New returns a post-processor; Configure must be called next.
func New() *PostProcessor { return &PostProcessor{} }

// ConfigSpec returns the HCL2 specification of Config.
func (p *PostProcessor) ConfigSpec() hcldec.ObjectSpec { return p.config.FlatMapstructure().HCL2Spec() }

// Configure decodes the configuration and reports all errors in it.
func (p *PostProcessor) Configure(raws ...any) error {
	p.config = Config{}
	if err := p.config.prepare(raws); err != nil {
		return err
	}
	return p.config.check()
}

// check runs pkg/ami's checks on the values that are known.
func (c *Config) check() error {
	j := c.job()
	for _, text := range append(append([]string{j.Image, j.Architecture, j.Key, j.Home, j.Channel, j.Parent}, j.Permissions.Accounts...), j.Permissions.Organisations...) {
		if text == unknown {
			return nil // Packer calls again when all values are known
		}
	}
	if j.Architecture == "" {
		j.Architecture = "amd64" // a valid placeholder: the artifact has the real one
	}
	if j.Home == "" {
		j.Home = "the environment's region"
	}
	j.Disk = unread{}
	return j.Check()
}

// unread is a placeholder for a disk that does not exist yet.
type unread struct{ ami.Disk }

func (unread) Size() int64 { return 1 }

// PostProcess publishes the artifact's disk. It keeps the disk, unless the template sets keep_input_artifact to false.
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
	job, err := p.config.jobFor(file, source.Files())
	if err != nil {
		return nil, err
	}
	disk, err := qcow2.Open(file)
	if err != nil {
		return nil, err
	}
	defer disk.Close() //nolint:errcheck // it was only read
	account, err := cloud.Open(ctx, p.config.Region, cloud.Options{Connections: p.config.Parallel})
	if err != nil {
		return nil, err
	}
	job.Disk, job.Home = disk, account.Home
	publisher, err := p.publisher(ctx, account, ui)
	if err != nil {
		return nil, err
	}
	ui.Say(fmt.Sprintf("Publishing %s to %s...", file, account.Home))
	published, err := ami.RunPipeline(ctx, publisher, account, job, logTo(ui))
	if err != nil {
		return nil, err
	}
	return artifact(account, published, source), nil
}

func (p *PostProcessor) publisher(ctx context.Context, account *cloud.Cloud, ui packersdk.Ui) (*ami.Publisher, error) {
	state := p.config.StateDirectory
	if state == "" {
		var err error
		if state, err = account.State(ctx); err != nil {
			return nil, err
		}
	}
	c := account.Client(account.Home)
	return ami.New(ami.Config{
		Blocks: c, Snapshots: c, Images: c, State: state, Workers: p.config.Parallel, Progress: &progress{ui: ui}, Log: logTo(ui),
	})
}

// disk returns the path of the disk image: that of the option disk, else the artifact's.
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

// jobFor returns the job with the facts in the disk's image.json.
func (c *Config) jobFor(disk string, files []string) (ami.Pipeline, error) {
	j := c.job()
	described := filepath.Join(filepath.Dir(disk), "image.json")
	if i := slices.IndexFunc(files, func(f string) bool { return filepath.Base(f) == "image.json" }); i >= 0 {
		described = files[i]
	}
	if err := image.Describe(&j.Request, described); errors.Is(err, image.ErrNoArchitecture) {
		return j, fmt.Errorf("architecture is needed: there is no image.json with %s", disk)
	} else if err != nil {
		return j, err
	}
	return j, nil
}

// artifact makes the artifact of a published image.
func artifact(account *cloud.Cloud, s ami.PipelineResult, source packersdk.Artifact) *Artifact {
	return &Artifact{
		published: s, source: source.Id(),
		state: map[string]any{
			"generated_data": source.State("generated_data"), "image_name": s.Name, "snapshot_id": s.Snapshot, "found": s.Found, "sent_bytes": s.SentBytes,
		},
		remove: func(ctx context.Context) error {
			var errs []error
			for region, image := range s.Images {
				errs = append(errs, account.Client(region).Discard(ctx, image, map[string]string{ami.TagDigest: s.Digest.String()}))
			}
			return errors.Join(errs...)
		},
	}
}
