package baketest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
)

// Host is where the releases of [SmallRelease] come from: the first part of each path in its mirror.
const Host = "releases.test"

// Program is the file that stands in for a component's program: a script that prints both names.
func Program(component, name string) []byte {
	return fmt.Appendf(nil, "#!/bin/sh\necho %s of %s\n", name, component)
}

// SmallRelease is a lock with the components and paths of a full one, and a mirror that has a few bytes
// for each: everything of a build but the weight. Both are files of this machine, gone with the test.
func SmallRelease(t *testing.T, full *lock.Lock) (file, mirror string) {
	t.Helper()
	mirror = t.TempDir()
	small := *full
	small.Components = nil
	for _, c := range full.Components {
		var downloads []lock.Download
		files := slices.Clone(c.Files)
		for i, f := range files {
			files[i].Within = ""
			content := Program(c.Name, f.Name)
			if filepath.Ext(f.Name) == ".tar" {
				content = container(t, c, content)
			}
			sum := sha256.Sum256(content)
			path := c.Name + "/" + f.Name
			write(t, filepath.Join(mirror, Host, path), content)
			downloads = append(downloads, lock.Download{URL: "https://" + Host + "/" + path, As: f.Name, Size: int64(len(content)),
				Digest: "sha256:" + hex.EncodeToString(sum[:]), Published: "https://" + Host + "/"})
		}
		c.Files, c.Modules = files, nil
		c.Release = map[string][]lock.Download{"amd64": downloads, "arm64": downloads}
		small.Components = append(small.Components, c)
	}
	data, err := yaml.Marshal(small)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(mirror, "small.lock.yaml")
	write(t, file, data)
	return file, mirror
}

// container is the archive of a container image with the program.
func container(t *testing.T, c lock.Component, program []byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	p := oci.Program{Name: c.Name, Content: program, Image: Host + "/" + c.Name, Tag: c.Version, User: oci.NobodyUser, Arch: "amd64"}
	if err := oci.WriteProgram(&archive, p); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
