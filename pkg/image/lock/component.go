// Package lock reads and writes lock files: every pinned binary of the image, its sources, and its digests and
// signatures.
//
// Its rule: a lock says everything that decides a byte of the image's binaries, so that the same lock results in the
// same files. This package opens no connection and starts no process.
package lock

// Lock is one lock file.
type Lock struct {
	// Schema is the version of this format: 1.
	Schema int `yaml:"schema" json:"schema"`
	// Name is the name of images made from the lock: "kubernetes-1.36".
	Name string `yaml:"name" json:"name"`
	// Over are the locks that this one lies over, the lowest first: names of Hardtack's locks, or files, relative to this
	// one. Its components are added to theirs, and take the place of those of the same name. A complete lock has none.
	Over       []string    `yaml:"over,omitempty" json:"over,omitempty"`
	Components []Component `yaml:"components" json:"components"`
	// Pins are digests of files that are made while baking. They change no byte of an image, so that Fingerprint leaves them
	// out.
	Pins []Pin `yaml:"pins,omitempty" json:"pins,omitempty"`
}

// Component is one upstream project at one version.
type Component struct {
	Name string `yaml:"name" json:"name"`
	// Version as upstream tags it: "v1.36.3".
	Version string `yaml:"version" json:"version"`
	// Licence is an SPDX expression.
	Licence  string `yaml:"licence" json:"licence"`
	Homepage string `yaml:"homepage" json:"homepage"`
	// Files are the component's files in the image.
	Files []File `yaml:"files" json:"files"`
	// Release holds upstream's own files per architecture (GOARCH); an architecture that is not here
	// can only come from Modules.
	Release map[string][]Download `yaml:"release,omitempty" json:"release,omitempty"`
	// Modules says how to compile it; nil if it can only come from Release.
	Modules *Modules `yaml:"modules,omitempty" json:"modules,omitempty"`
	// Pins are the lock's pins of this component; Parse sets them.
	Pins []Pin `yaml:"-" json:"-"`
}

// File is one file that a component puts into the image.
type File struct {
	// Name is how Download.Members and Program.Names refer to it.
	Name string `yaml:"name" json:"name"`
	// Path is absolute, in the image.
	Path string `yaml:"path" json:"path"`
	// Mode is the permission bits, written in octal: "0755".
	Mode Mode `yaml:"mode" json:"mode"`
	// Within is the path of a program of another component that serves the file too, or empty. Where the programs that all
	// files of a component name are compiled, the files are links to those, and its own programs are not made: a machine
	// reads nearly all of a program that it starts, and two programs have much code in common.
	Within string `yaml:"within,omitempty" json:"within,omitempty"`
}

// Download is one file that upstream publishes.
type Download struct {
	// URL is https://…, or oci://registry/repository:tag for an image that is saved as an OCI archive.
	URL string `yaml:"url" json:"url"`
	// Digest is "sha256:hex" or "sha512:hex" of the file at URL (of the image's manifest for oci://).
	Digest string `yaml:"digest" json:"digest"`
	// Size in bytes; 0 if upstream does not publish it.
	Size int64 `yaml:"size,omitempty" json:"size,omitempty"`
	// Published is the page that the digest was taken from.
	Published string `yaml:"published" json:"published"`
	// Members maps a File.Name to the path inside the archive; empty where the download is the file of
	// the single name that As gives.
	Members map[string]string `yaml:"members,omitempty" json:"members,omitempty"`
	// As is the File.Name of a download that is a single file.
	As string `yaml:"as,omitempty" json:"as,omitempty"`
	// Signature is upstream's signature of the file at URL; nil if upstream does not sign.
	Signature *Signature `yaml:"signature,omitempty" json:"signature,omitempty"`
}

// Signature is a cosign signature by a certificate that Fulcio issued to an identity.
type Signature struct {
	URL         string `yaml:"url" json:"url"`
	Certificate string `yaml:"certificate" json:"certificate"`
	Identity    string `yaml:"identity" json:"identity"`
	Issuer      string `yaml:"issuer" json:"issuer"`
}

// Modules says how a component is compiled from Go modules.
type Modules struct {
	// Source is the txtar archive beside the lock, or in the assets (go.mod, go.sum, and main.go files of ours where
	// needed) that is the main module of the build: "modules/kubernetes-1.36.txtar".
	Source string `yaml:"source" json:"source"`
	// Shared are further archives, whose Go packages the main module has too: all of their files but go.mod and go.sum.
	Shared []string `yaml:"shared,omitempty" json:"shared,omitempty"`
	// Archives is the content of those archives that are files beside the lock, by their names, and ArchiveDigests their
	// sha256 in hex; the others are assets. Whoever reads the lock's file sets them.
	Archives       map[string][]byte `yaml:"-" json:"-"`
	ArchiveDigests map[string]string `yaml:"-" json:"archives,omitempty"`
	// Module is the module path whose version in that go.mod must be the component's.
	Module   string    `yaml:"module" json:"module"`
	Programs []Program `yaml:"programs" json:"programs"`
}

// Sources are the names of all archives, Source first.
func (m *Modules) Sources() []string { return append([]string{m.Source}, m.Shared...) }

// Program is one `go build` (or, for Kind "pause", one C program made into an OCI archive).
type Program struct {
	// Kind is "" for a Go program and "pause" for the pause image.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty"`
	// Package is the Go package to build: relative to the archive ("./kubernetes") or an import path.
	Package string `yaml:"package" json:"package"`
	// Names are the File.Names that the program serves. With more than one, or with other components' files
	// within it, the program is installed once at Path, and each name is a link to it: it looks at the name
	// that it is called by.
	Names []string `yaml:"names" json:"names"`
	// Path is where a program of several names is installed; empty with one name and nothing within it.
	Path string   `yaml:"path,omitempty" json:"path,omitempty"`
	CGO  bool     `yaml:"cgo,omitempty" json:"cgo,omitempty"`
	Tags []string `yaml:"tags,omitempty" json:"tags,omitempty"`
	// Mains are upstream's own packages main that the program has as packages of the main module: what is
	// "example.com/tool/cmd/one-tool" is imported as "MODULE/mains/one-tool", is named onetool, and its main is Main.
	Mains []string `yaml:"mains,omitempty" json:"mains,omitempty"`
	// LDFlags are added to -s -w -buildid=; "{{.Version}}" is the component's version.
	LDFlags []string `yaml:"ldflags,omitempty" json:"ldflags,omitempty"`
	// GCFlags are the compiler's, each for a pattern of packages as `go build -gcflags` takes it ("all=-l"). Of those that
	// match a package the last counts.
	GCFlags []string `yaml:"gcflags,omitempty" json:"gcflags,omitempty"`
}
