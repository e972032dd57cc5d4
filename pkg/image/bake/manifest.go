package bake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

// The paths of the image's description, in the image.
const (
	ManifestPath = rootfs.Home + "/image.json"
	SBOMPath     = rootfs.Home + "/sbom.cdx.json"
	RolesPath    = rootfs.Home + "/roles.txt"
	SumsPath     = rootfs.Home + "/SHA256SUMS"
)

// Descriptions are the files that are also stored beside an image: the same bytes that are in it, but for the root hash of a
// sealed one.
func Descriptions() []string { return []string{ManifestPath, SBOMPath, RolesPath} }

// ManifestSchema is the version of the manifest's format.
const ManifestSchema = 1

// Image describes the sources of a tree.
type Image struct {
	Lock *lock.Lock
	// Fingerprint is what Fingerprint returned.
	Fingerprint string
	// Sources says for each component where it came from.
	Sources []Source
	// Units are the file names of the units, Roles is the table of `hardtack roles`.
	Units []string
	Roles unit.Table
	// KernelArguments that the template added.
	KernelArguments []string
	// Containers that the template added.
	Containers []Container
}

// Source says where one component came from.
type Source struct {
	Component string `json:"-"`
	// Kind is "release" or "modules", Origin the first upstream file or the module.
	Kind   string `json:"kind"`
	Origin string `json:"origin"`
	// Materials are what its files were taken from or compiled from, and what compiled them.
	Materials []Material `json:"materials,omitempty"`
}

// Material is something that a component was made of.
type Material struct {
	// URI is the address of a release's file, or a package URL; of an archive of modules it is the path below images.
	URI string `json:"uri"`
	// Digest maps in-toto's names of algorithms to digests in hex: sha256, sha512, or dirHash, which is Go's of a module. A
	// compiler has none: it is known by its version.
	Digest map[string]string `json:"digest,omitempty"`
}

// Manifest is image.json: the content of an image and its sources. The same lock, packages and options result in the
// same bytes.
type Manifest struct {
	Schema          int                 `json:"schema"`
	Name            string              `json:"name"`
	Hardtack        string              `json:"hardtack"`
	Lock            LockName            `json:"lock"`
	Kubernetes      string              `json:"kubernetes"`
	Architecture    string              `json:"architecture"`
	Tree            TreeSummary         `json:"tree"`
	Components      []ManifestComponent `json:"components"`
	Roles           unit.Table          `json:"roles"`
	KernelArguments []string            `json:"kernelArguments,omitempty"`
	// ContainerImages are those that a template added for the nodes, beside the image's own.
	ContainerImages []Container `json:"containerImages,omitempty"`
	System          System      `json:"system"`
	Packages        []Package   `json:"packages"`
	// RootHash is that of a sealed root, in hexadecimal digits. Only the copy beside the disk has it: the one in the image is
	// among what the hash stands for.
	RootHash string `json:"rootHash,omitempty"`
	// EFIPartition is the sha256 of a sealed disk's EFI partition, for which the root hash does not stand, in hexadecimal digits.
	EFIPartition string `json:"efiPartitionSha256,omitempty"`
	// SecureBoot is the certificate of the key that has signed a sealed disk's kernel image, in DER; empty is none. It too is in the
	// copy beside the disk alone.
	SecureBoot []byte `json:"secureBootCertificate,omitempty"`
}

// WithSeal returns a manifest's text with a root hash, the digest of the EFI partition, and the certificate of what signed the
// kernel image, if anything did.
func WithSeal(text []byte, hash, efiPartition string, certificate []byte) ([]byte, error) {
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("reading the image's description: %w", err)
	}
	m.RootHash, m.EFIPartition, m.SecureBoot = hash, efiPartition, certificate
	return encode(m)
}

// System is the distribution of the target, as its os-release says: "debian", "13".
type System struct {
	ID      string `json:"id"`
	Version string `json:"version"`
}

// File is one path that the bake wrote. Mode is octal; directories are not listed.
type File struct {
	Path string `json:"path"`
	Mode string `json:"mode,omitempty"`
	Link string `json:"link,omitempty"`
	// Size is in bytes, Digest the sha256 in hex.
	Size   int64  `json:"size,omitempty"`
	Digest string `json:"sha256,omitempty"`
	// From is "units", "rootfs", "agent", "containers" or "extra"; empty for a component's files.
	From string `json:"from,omitempty"`
}

func newFile(e rootfs.Entry) File {
	f := File{Path: e.Path, Link: e.Link, Size: e.Size, Digest: e.Digest}
	if e.Mode.IsRegular() {
		f.Mode = fmt.Sprintf("%04o", e.UnixMode())
	}
	return f
}

// LockName names a lock and its fingerprints.
type LockName struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	// Image is the Fingerprint of the lock, the units, the plain files and the package list.
	Image string `json:"image"`
}

// TreeSummary summarizes the tree. Size is in bytes.
type TreeSummary struct {
	Digest string   `json:"digest"`
	Size   int64    `json:"size"`
	Units  []string `json:"units"`
	// Files are the files that do not belong to a component of the lock.
	Files []File `json:"files"`
}

// ManifestComponent is one component of the lock, as it is in the image. Size is in bytes and counts
// its regular files.
type ManifestComponent struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Licence string `json:"licence"`
	Source  Source `json:"source"`
	Size    int64  `json:"size"`
	Files   []File `json:"files"`
}

// newManifest describes the job and what the target has beside it.
func newManifest(job Job, system System, packages []Package) Manifest {
	image := job.Image
	m := Manifest{
		Schema: ManifestSchema, Name: image.Lock.Name, Hardtack: version.String(),
		Lock:       LockName{Name: image.Lock.Name, Fingerprint: image.Lock.Fingerprint(), Image: image.Fingerprint},
		Kubernetes: image.Lock.Kubernetes(), Architecture: job.Architecture,
		Tree:  TreeSummary{Digest: job.Tree.Digest(), Size: job.Tree.Size(), Units: image.Units},
		Roles: image.Roles, KernelArguments: image.KernelArguments, ContainerImages: image.Containers, System: system, Packages: packages,
	}
	byName := map[string]int{}
	for i, c := range image.Lock.Components {
		byName[c.Name] = i
		m.Components = append(m.Components, ManifestComponent{Name: c.Name, Version: c.Version, Licence: c.Licence, Source: image.source(c, job.Architecture)})
	}
	for e := range job.Tree.All() {
		// A container image may have thousands: ContainerImages has its digest.
		if e.Mode.IsDir() || e.Component == FromContainers {
			continue
		}
		file := newFile(e)
		if i, ok := byName[e.Component]; ok {
			m.Components[i].Files = append(m.Components[i].Files, file)
			m.Components[i].Size += e.Size
		} else {
			file.From = e.Component
			m.Tree.Files = append(m.Tree.Files, file)
		}
	}
	return m
}

// source says where a component came from. Of a release that is its upstream, also where a mirror gave
// it: the digest says that it is the same, and which mirror it was must not make another image.
func (i Image) source(c lock.Component, arch string) Source {
	for _, s := range i.Sources {
		if s.Component != c.Name {
			continue
		}
		if downloads := c.Release[arch]; s.Kind == lock.FromRelease && len(downloads) > 0 {
			s.Origin = downloads[0].URL
		}
		return s
	}
	return Source{}
}

// system reads the target's os-release.
func (b *baker) system(ctx context.Context) (System, error) {
	out, err := b.script(ctx, `. /etc/os-release && printf '%s\n%s\n' "$ID" "${VERSION_ID:-$VERSION_CODENAME}"`, nil)
	if err != nil {
		return System{}, fmt.Errorf("reading the target's os-release: %w", err)
	}
	id, rest, _ := strings.Cut(out, "\n")
	return System{ID: id, Version: strings.TrimSpace(rest)}, nil
}

// writeManifest writes manifest, SBOM and digests, as the tree was written, and last the journal
// without what is gone.
func (b *baker) writeManifest(ctx context.Context) error {
	packages, err := b.installed(ctx)
	if err != nil {
		return err
	}
	system, err := b.system(ctx)
	if err != nil {
		return err
	}
	b.result.Manifest = newManifest(b.job, system, packages)
	if b.result.ManifestJSON, err = encode(b.result.Manifest); err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	if b.result.SBOM, err = sbom(b.result.Manifest, b.job.Image.Lock); err != nil {
		return fmt.Errorf("encoding the SBOM: %w", err)
	}
	b.result.Roles = []byte(b.job.Image.Roles.Text())
	files := []rootfs.Entry{
		rootfs.Bytes(rootfs.FromExtra, ManifestPath, 0o644, b.result.ManifestJSON),
		rootfs.Bytes(rootfs.FromExtra, SBOMPath, 0o644, b.result.SBOM),
		rootfs.Bytes(rootfs.FromExtra, RolesPath, 0o644, b.result.Roles),
	}
	described, err := rootfs.Compose(rootfs.Inputs{Files: files})
	if err != nil {
		return err
	}
	files = append(files, rootfs.Bytes(rootfs.FromExtra, SumsPath, 0o644, []byte(b.job.Tree.Sums()+described.Sums())))
	if b.metadata, err = rootfs.Compose(rootfs.Inputs{Files: files}); err != nil {
		return err
	}
	found, err := b.observe(ctx, b.metadata)
	if err != nil {
		return err
	}
	if err := b.writeDiffering(ctx, b.metadata, found); err != nil {
		return err
	}
	was, err := b.readJournal(ctx)
	if err != nil {
		return err
	}
	return b.writeJournal(ctx, was, b.journal)
}

// encode is JSON for people: indented, and with < and & as they are.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return out.Bytes(), err
}

// Files lists the files and links of a tree with their sources.
func Files(tree *rootfs.Tree) []File {
	var files []File
	for e := range tree.All() {
		if e.Mode.IsDir() {
			continue
		}
		f := newFile(e)
		f.From = e.Component
		files = append(files, f)
	}
	return files
}
