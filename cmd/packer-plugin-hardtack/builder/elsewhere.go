//go:build !linux

package builder

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/hashicorp/hcl/v2/hcldec"
	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"
)

// Builder refuses its work.
type Builder struct{}

// Program reads one of our own programs for an architecture.
type Program func(name, arch string) ([]byte, error)

// New returns the builder; it reads no assets and no program.
func New(fs.FS, Program) *Builder { return &Builder{} }

// ConfigSpec is that of Linux, so that a template is read to the end.
func (b *Builder) ConfigSpec() hcldec.ObjectSpec { return (&Config{}).FlatMapstructure().HCL2Spec() }

// Prepare says what to use instead.
func (b *Builder) Prepare(...any) ([]string, []string, error) {
	return nil, nil, fmt.Errorf("hardtack-disk makes its disk with mounts and namespaces of Linux, and this is %s: run Packer on Linux"+
		" (a virtual machine or another computer), or use a builder of a machine, such as amazon-ebs, with the provisioner hardtack", runtime.GOOS)
}

// Run is never reached.
func (b *Builder) Run(context.Context, packersdk.Ui, packersdk.Hook) (packersdk.Artifact, error) {
	_, _, err := b.Prepare()
	return nil, err
}
