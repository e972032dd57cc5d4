//go:build linux

package builder

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"
)

var _ packersdk.Artifact = (*Artifact)(nil)

// Artifact is the finished disk image, one file for each format, with its description.
type Artifact struct {
	files []string
	state map[string]any
}

// BuilderId returns BuilderID.
func (a *Artifact) BuilderId() string { return BuilderID }

// Files returns the image files, and then image.json, the SBOM, the role table and the provenance if they exist.
func (a *Artifact) Files() []string { return a.files }

// Id returns the digest of the image's root directory. Builds of the same content have the same digest.
func (a *Artifact) Id() string {
	id, _ := a.state["root_digest"].(string)
	return id
}

// String lists the image files for the user.
func (a *Artifact) String() string { return "Disk image: " + strings.Join(a.files, ", ") }

// State returns generated_data, root_digest (of the root directory, without times), kernel_command or root_hash
// (empty unless the root is sealed); nil for other names.
func (a *Artifact) State(name string) any { return a.state[name] }

// Destroy removes the files.
func (a *Artifact) Destroy() error { return remove(a.files) }

// describeSize describes the size and the disk space of a file.
func describeSize(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d MB, of which %d MB take space", info.Size()/1e6, allocated(info)/1e6)
}

// allocated returns the disk space of a file in bytes, without holes.
func allocated(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512 // st_blocks counts in 512 bytes everywhere on Linux
	}
	return info.Size()
}
