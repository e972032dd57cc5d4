package builder

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hashicorp/packer-plugin-sdk/multistep"
	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/debian"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
)

// job is what one step leaves to the next; each field says which step sets it.
type job struct {
	config *Config
	ui     packersdk.Ui
	assets fs.FS

	work    string         // stepWork: the directory of everything that is not finished
	options debian.Options // stepBase
	base    debian.Result  // stepBase
	root    *chroot.Root   // stepBase
	disk    disk.Result    // stepCompose
	images  []string       // stepCompose: finished images in work; stepPublish: in the output directory
	beside  []string       // stepPublish: what describes the images, in the output directory
}

// halt tells the user what went wrong, once, and stops the build.
func (j *job) halt(ctx context.Context, state multistep.StateBag, err error) multistep.StepAction {
	if ctx.Err() != nil {
		// Whatever broke, it broke because the build was cancelled; the runner says so.
		return multistep.ActionHalt
	}
	state.Put("error", err)
	j.ui.Error(err.Error())
	return multistep.ActionHalt
}

// say is for packages that report progress a line at a time.
func (j *job) say(line string) { j.ui.Say(line) }

// artifact describes the finished images.
func (j *job) artifact(state multistep.StateBag) *Artifact {
	generated, _ := state.Get("generated_data").(map[string]any)
	return &Artifact{
		files: slices.Concat(j.images, j.beside),
		state: map[string]any{
			"generated_data": generated,
			"root_digest":    fmt.Sprintf("sha256:%x", j.disk.Digest),
			"kernel_command": j.disk.CommandLine,
		},
	}
}
