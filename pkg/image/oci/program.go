package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// Program is a container image with one static program.
type Program struct {
	// Name is the name of the program in the image's root directory.
	Name    string
	Content []byte
	// Image and Tag are the image's name for pods: "registry.k8s.io/pause" and "3.10.1".
	Image, Tag string
	// User is the user and group that it runs as: "65535:65535".
	User string
	// Arch is a GOARCH.
	Arch string
}

// WriteProgram writes the image as an OCI archive. All timestamps are zero: the same program gives the same bytes.
func WriteProgram(w io.Writer, p Program) error {
	img, err := p.build()
	if err != nil {
		return fmt.Errorf("making the image %s: %w", p.Image, err)
	}
	return Write(w, img, p.Image+":"+p.Tag, p.Tag)
}

func (p Program) build() (v1.Image, error) {
	var files bytes.Buffer
	t := tar.NewWriter(&files)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: p.Name, Size: int64(len(p.Content)), Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
	if err := t.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := t.Write(p.Content); err != nil {
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.Arch, v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{User: p.User, Entrypoint: []string{"/" + p.Name}, WorkingDir: "/", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	return mutate.ConfigFile(img, config)
}

// The image of cmd/hardtack-hello: its name for pods, and the path of its archive on a machine. The name is in no
// public registry, so that the image cannot be replaced by one from there.
const (
	HelloImage = "hardtack.local/hello"
	HelloTag   = "1"
	HelloPath  = Dir + "/hello.tar"
	// HelloProgram is the program's path in the image.
	HelloProgram = "/hello"
)

// NobodyUser runs programs without any rights: an unused id, as in upstream's pause image.
const NobodyUser = "65535:65535"

// Hello returns the entry of the hello image's archive.
func Hello(program []byte, arch string) (rootfs.Entry, error) {
	var archive bytes.Buffer
	err := WriteProgram(&archive, Program{Name: path.Base(HelloProgram), Content: program, Image: HelloImage, Tag: HelloTag, User: NobodyUser, Arch: arch})
	return rootfs.Bytes(rootfs.FromAgent, HelloPath, 0o644, archive.Bytes()), err
}
