package provisioner

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/hashicorp/packer-plugin-sdk/template/config"
	"github.com/hashicorp/packer-plugin-sdk/template/interpolate"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
)

// defaultOutput is the default of Config.Output, except under the builder diskBuilder, which has no default.
const (
	defaultOutput = "build"
	diskBuilder   = "hardtack-disk"
)

// Provisioner bakes Hardtack into a machine.
type Provisioner struct {
	config Config
	assets fs.FS // images
	units  fs.FS
}

// New returns a provisioner for the plugin's assets and units.
func New(assets, units fs.FS) *Provisioner { return &Provisioner{assets: assets, units: units} }

var _ packer.Provisioner = (*Provisioner)(nil)

// ConfigSpec returns the HCL2 specification of Config.
func (p *Provisioner) ConfigSpec() hcldec.ObjectSpec { return p.config.FlatMapstructure().HCL2Spec() }

// Prepare decodes the template's values and reports all errors in them. Packer calls it for `packer validate`, when
// some values are not known yet, and again before Provision.
func (p *Provisioner) Prepare(raws ...any) error {
	p.config = Config{}
	err := config.Decode(&p.config, &config.DecodeOpts{
		PluginType: "hardtack", Interpolate: true, InterpolateContext: &p.config.ctx,
		// The files' text may have templates of its own.
		InterpolateFilter: &interpolate.RenderFilter{Exclude: []string{"file"}},
	}, raws...)
	if err != nil {
		return err
	}
	p.config.Lock = cmp.Or(p.config.Lock, bake.DefaultLock)
	if p.config.PackerBuilderType != diskBuilder {
		p.config.Output = cmp.Or(p.config.Output, defaultOutput)
	}
	return p.check()
}

// Provision bakes, and copies the results to the machine that runs Packer.
func (p *Provisioner) Provision(ctx context.Context, ui packer.Ui, comm packer.Communicator, _ map[string]any) error {
	t := &target{comm: comm}
	arch, err := bake.Architecture(ctx, t)
	if err != nil {
		return err
	}
	if err := t.become(ctx); err != nil {
		return err
	}
	if err := bake.Probe(ctx, t); err != nil { // before minutes of fetching and compiling
		return err
	}
	// Packer shows a plugin's stderr if logging is enabled.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	job, err := p.plan(ctx, ui, log, arch)
	if err != nil {
		return err
	}
	job.Progress, job.Log = &steps{ui: ui}, log
	result, err := bake.Run(ctx, t, job)
	if err != nil {
		return err
	}
	return p.bringBack(ui, result)
}

// plan fetches the components and composes the tree.
func (p *Provisioner) plan(ctx context.Context, ui packer.Ui, log *slog.Logger, arch string) (bake.Job, error) {
	lock, err := bake.LoadLock(p.assets, p.config.Lock)
	if err != nil {
		return bake.Job{}, err
	}
	extra, err := p.extra(arch)
	if err != nil {
		return bake.Job{}, err
	}
	layers, err := p.layers()
	if err != nil {
		return bake.Job{}, err
	}
	source, err := fetch.ParseSource(p.config.Source)
	if err != nil {
		return bake.Job{}, err
	}
	ui.Say(fmt.Sprintf("hardtack: bringing the components of %s for %s", lock.Name, arch))
	return image.Plan{
		Plan: bake.Plan{Assets: p.assets, Units: p.units, Layers: layers, Lock: lock, Architecture: arch, Extra: extra,
			KernelArguments: p.config.KernelArguments, Sysctls: p.config.Sysctls, Packages: p.config.Packages},
		Fetch:           fetch.Options{Cache: p.config.CacheDir, Mirror: p.config.Mirror, Source: source, RequirePins: p.config.RequirePins, Progress: progress{ui: ui}, Log: log},
		ContainerImages: p.config.ContainerImages, ContainerArchives: p.config.ContainerArchives,
		OnFallback: func(r fetch.Result) {
			ui.Say(fmt.Sprintf("hardtack: %s %s comes from %s: %s", r.Component, r.Version, r.Source, r.Fallback))
		},
		OnArchive: func(archive, why string) {
			ui.Say(fmt.Sprintf("hardtack: warning: %s is not unpacked, and each minion imports it at its boot: %s", archive, why))
		},
	}.Compose(ctx)
}

// bringBack reports the bake's result, and writes manifest, SBOM and role table beside the artifact. Their digests
// have been verified on the target.
func (p *Provisioner) bringBack(ui packer.Ui, result bake.Result) error {
	for _, w := range result.Warnings {
		ui.Say("hardtack: warning: " + w)
	}
	if err := p.describe(result); err != nil {
		return err
	}
	w := result.Written
	ui.Say(fmt.Sprintf("hardtack: baked tree %.12s: %d paths written (%.1f MB), %d removed",
		result.Manifest.Tree.Digest, w.Paths, float64(w.Bytes)/1e6, w.Removed))
	return nil
}

// describe writes the image's description, unless the builder does so itself.
func (p *Provisioner) describe(result bake.Result) error {
	if p.config.Output == "" {
		return nil
	}
	if err := os.MkdirAll(p.config.Output, 0o755); err != nil {
		return fmt.Errorf("making the output directory: %w", err)
	}
	for from, content := range map[string][]byte{bake.ManifestPath: result.ManifestJSON, bake.SBOMPath: result.SBOM, bake.RolesPath: result.Roles} {
		if _, err := file.Replace(filepath.Join(p.config.Output, filepath.Base(from)), content, 0o644); err != nil {
			return fmt.Errorf("bringing back %s: %w", from, err)
		}
	}
	return nil
}
