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

// Artifact is the finished disk image, one file for each format, and what describes it.
type Artifact struct {
	files []string
	state map[string]any
}

// BuilderId returns BuilderID.
func (a *Artifact) BuilderId() string { return BuilderID }

// Files returns the image files, then image.json, the SBOM and the role table where there are any.
func (a *Artifact) Files() []string { return a.files }

// Id returns the digest of the image's root directory: builds of the same content have the same.
func (a *Artifact) Id() string {
	id, _ := a.state["root_digest"].(string)
	return id
}

// String tells the user what was made.
func (a *Artifact) String() string { return "Disk image: " + strings.Join(a.files, ", ") }

// State returns generated_data, root_digest (of the root directory, without times) or kernel_command.
func (a *Artifact) State(name string) any { return a.state[name] }

// Destroy removes the files.
func (a *Artifact) Destroy() error { return remove(a.files) }

// occupied says what a file takes, in words.
func occupied(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d MB, of which %d MB take space", info.Size()/1e6, taken(info)/1e6)
}

// taken is the space that a file takes on its disk, in bytes: holes take none.
func taken(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * 512 // st_blocks counts in 512 bytes everywhere on Linux
	}
	return info.Size()
}
