//go:build linux

package builder

import (
	"context"
	"errors"
	"io/fs"

	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/packer-plugin-sdk/multistep"
	"github.com/hashicorp/packer-plugin-sdk/multistep/commonsteps"
	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"
)

// BuilderID identifies this builder's artifacts to post-processors.
const BuilderID = "hardtack.disk"

// Builder makes disks. Use New.
type Builder struct {
	config  Config
	assets  fs.FS
	program Program
}

// Program reads one of our own programs for an architecture, as hardtack-init for amd64. Its error says what is missing.
type Program func(name, arch string) ([]byte, error)

// New returns a builder. assets has the list of packages that every image needs.
func New(assets fs.FS, program Program) *Builder { return &Builder{assets: assets, program: program} }

// ConfigSpec returns the HCL2 specification of Config.
func (b *Builder) ConfigSpec() hcldec.ObjectSpec { return b.config.FlatMapstructure().HCL2Spec() }

// Names of the generated data that provisioners and post-processors can use as build.NAME.
const (
	dataOutput = "OutputDirectory" // the directory of the image
	dataEpoch  = "SourceDateEpoch" // the time of files in the image, in seconds since 1970
)

// Prepare reads the configuration and returns the names of the generated data.
func (b *Builder) Prepare(raws ...any) ([]string, []string, error) {
	if err := b.config.prepare(raws); err != nil {
		return nil, nil, err
	}
	return []string{dataOutput, dataEpoch}, nil, nil
}

// Run builds one image.
func (b *Builder) Run(ctx context.Context, ui packersdk.Ui, hook packersdk.Hook) (packersdk.Artifact, error) {
	j := &job{config: &b.config, ui: ui, assets: b.assets, program: b.program}
	state := new(multistep.BasicStateBag)
	state.Put("ui", ui)
	state.Put("hook", hook)
	state.Put("debug", b.config.PackerDebug)
	steps := []multistep.Step{
		&stepPreflight{j},
		&stepWork{job: j},
		&stepBase{j},
		&StepProvision{job: j},
		&stepCompose{j},
		&stepPublish{j},
	}
	commonsteps.NewRunner(steps, b.config.PackerConfig, ui).Run(ctx, state)
	if err, failed := state.GetOk("error"); failed {
		return nil, err.(error)
	}
	if _, cancelled := state.GetOk(multistep.StateCancelled); cancelled || ctx.Err() != nil {
		return nil, errors.New("the build was cancelled")
	}
	if _, halted := state.GetOk(multistep.StateHalted); halted {
		return nil, errors.New("the build was halted")
	}
	return j.artifact(state), nil
}
