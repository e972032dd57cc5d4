package bake

import (
	"fmt"
	"path"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// FromContainers is the component of the archives of Plan.Containers, of their files, and of containerd's databases.
const FromContainers = "containers"

// Container is a container image that a template adds for the nodes.
type Container struct {
	// Name is what pods name it by: "registry.example/shop/web:1.2".
	Name string `json:"name"`
	// Digest is "sha256:hex" of its manifest, or of an index.
	Digest string `json:"digest"`
	// Path is the directory of its files, or its archive's, which may have other images too.
	Path string `json:"path"`
	// Origin is "registry", or "file" for an archive of the template's.
	Origin string `json:"origin"`
	// Entry is the archive; zero if other entries have the image's files.
	Entry rootfs.Entry `json:"-"`
}

// ContainerEntries are the archives of container images, each once. Two of one path are an error: the image would have one of them, and list both.
func ContainerEntries(list []Container) (entries []rootfs.Entry, err error) {
	first := map[string]Container{}
	for _, c := range list {
		other, there := first[c.Entry.Path]
		switch {
		case c.Entry.Path == "":
		case !there:
			first[c.Entry.Path] = c
			entries = append(entries, c.Entry)
		case other.Entry.Digest != c.Entry.Digest:
			return nil, fmt.Errorf("the container images %s and %s have different archives for one path, %s: leave one out", other.Name, c.Name, c.Entry.Path)
		}
	}
	return entries, nil
}

func containerSBOM(c Container) cdx.Component {
	repository, tag := c.Name, ""
	if at := strings.LastIndex(c.Name, ":"); at > strings.LastIndex(c.Name, "/") {
		repository, tag = c.Name[:at], c.Name[at+1:]
	}
	qualifiers := packageurl.QualifiersFromMap(map[string]string{"repository_url": repository, "tag": tag})
	purl := packageurl.NewPackageURL("oci", "", path.Base(repository), c.Digest, qualifiers, "")
	return cdx.Component{BOMRef: "container/" + c.Name, Type: cdx.ComponentTypeContainer, Name: c.Name, Version: c.Digest, PackageURL: purl.ToString(),
		Hashes: sha256Hash(strings.TrimPrefix(c.Digest, "sha256:"))}
}
