//go:build linux

package builder

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hashicorp/packer-plugin-sdk/multistep"
	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/debian"
)

// job is the state that steps pass on; each field names the step that sets it.
type job struct {
	config  *Config
	ui      packersdk.Ui
	assets  fs.FS
	program Program

	work    string         // stepWork: the directory of unfinished work
	options debian.Options // stepBase
	base    debian.Result  // stepBase
	root    *chroot.Root   // stepBase
	tools   *chroot.Root   // stepBase: what has the tools that make the disk
	disk    disk.Result    // stepCompose
	images  []string       // stepCompose: finished images in work; stepPublish: in the output directory
	beside  []string       // stepPublish: the images' description, in the output directory
}

// halt reports an error to the user once, and stops the build.
func (j *job) halt(ctx context.Context, state multistep.StateBag, err error) multistep.StepAction {
	if ctx.Err() != nil {
		// The error is a consequence of the cancellation, which the runner reports.
		return multistep.ActionHalt
	}
	state.Put("error", err)
	j.ui.Error(err.Error())
	return multistep.ActionHalt
}

// say is for packages that report progress as lines.
func (j *job) say(line string) { j.ui.Say(line) }

// artifact returns the artifact of the finished images.
func (j *job) artifact(state multistep.StateBag) *Artifact {
	generated, _ := state.Get("generated_data").(map[string]any)
	return &Artifact{
		files: slices.Concat(j.images, j.beside),
		state: map[string]any{
			"generated_data": generated,
			"root_digest":    fmt.Sprintf("sha256:%x", j.disk.Digest),
			"kernel_command": j.disk.CommandLine,
			"root_hash":      j.disk.RootHash,
		},
	}
}
