//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config,File
//go:generate go tool packer-sdc struct-markdown

package provisioner

import (
	"github.com/hashicorp/packer-plugin-sdk/common"
	"github.com/hashicorp/packer-plugin-sdk/template/interpolate"
)

// Config is the configuration of `provisioner "hardtack" {}`. Nothing is required.
type Config struct {
	common.PackerConfig `mapstructure:",squash"`
	Components          `mapstructure:",squash"`
	Additions           `mapstructure:",squash"`

	// The directory for the results of the bake, on the machine that runs Packer: `image.json` (the manifest),
	// `sbom.cdx.json` (CycloneDX) and `roles.txt` (which units each role starts). It is created if it does not exist.
	// The default is `build`; under the builder `hardtack-disk`, which writes them beside the finished disk itself,
	// nothing is written unless this is set.
	Output string `mapstructure:"output"`

	ctx interpolate.Context
}

// Components selects the image's binaries and units, and their sources.
type Components struct {
	// The lock file: a path, or the name of a lock of the plugin. The default is `kubernetes-1.36`. A lock of one's own lies
	// over others with its field `over`: its components are added to theirs, or take the place of those of the same name.
	// `hardtack lock export` writes the plugin's.
	Lock string `mapstructure:"lock"`
	// The source of the components: `release` (the files that upstream publishes, by digest), `modules` (compiled here
	// from Go modules) or `auto` (`release`, or `modules` if that is unavailable). The default is `auto`.
	Source string `mapstructure:"source"`
	// A mirror of the release files, an http(s) address or a directory: `https://host/path` is fetched from
	// `<mirror>/host/path`. The default is to fetch from upstream.
	Mirror string `mapstructure:"mirror"`
	// Whether compiled components must have a digest in the lock. They are then compiled with the Go version of the lock's
	// pins, which Go fetches if it is not installed, and what is not pinned fails the build. By default the installed Go
	// compiles, and only what the lock pins for it is compared.
	RequirePins bool `mapstructure:"require_pins"`
	// The directory that caches downloads and compiled components, by digest. The default is `hardtack` in the user's
	// cache directory.
	CacheDir string `mapstructure:"cache_dir"`
	// The `hardtack-agent` program for the target's architecture. The default is the plugin's own; a plugin built
	// without `make` has none.
	AgentPath string `mapstructure:"agent_path"`
	// The `hardtack-userdata` program for the target's architecture, which reads the user data. The default is the plugin's
	// own; a plugin built without `make` has none.
	ReaderPath string `mapstructure:"reader_path"`
	// Directories of systemd units that lie over the plugin's, the first lowest. A unit, or a drop-in as
	// `kubelet.service.d/10-own.conf`, is added, or takes the place of the one of the same name; an empty file takes it
	// away. `hardtack units export` writes the plugin's units.
	UnitsDir []string `mapstructure:"units_dir"`
}

// Additions are the image's content besides the components.
type Additions struct {
	// Files to add, one block each.
	Files []File `mapstructure:"file"`
	// Paths of systemd units to add, none of which may replace another. Like all units they are checked, are in the role
	// table, and are enabled according to their `[Install]` section.
	Units []string `mapstructure:"units"`
	// Arguments to add to the kernel's command line. They are written to `/etc/kernel/cmdline` and, for systems that
	// boot with GRUB, to `/etc/default/grub.d/90-hardtack.cfg`.
	KernelArguments []string `mapstructure:"kernel_arguments"`
	// Kernel parameters by name, written to `/etc/sysctl.d/90-hardtack.conf`.
	Sysctls map[string]string `mapstructure:"sysctls"`
	// Debian packages to install in addition to those that every image needs. Whether they have the programs and files that
	// units name is verified on the target.
	Packages []string `mapstructure:"packages"`
	// Container images for the nodes, which pods then use without a registry: `registry/repository:tag@sha256:…`. They are fetched
	// while baking, by the digest, and pods name them by the tag. A reference without a digest is refused.
	ContainerImages []string `mapstructure:"container_images"`
	// Local files with such images: OCI archives, in which each image has its name with the registry.
	ContainerArchives []string `mapstructure:"container_archives"`
}

// File is one file to add.
type File struct {
	// The file on the machine that runs Packer. Either this or `content` is needed.
	Source string `mapstructure:"source"`
	// The text of the file, which is taken as it is: `{{ }}` in it means nothing to Packer. Either this or `source` is
	// needed.
	Content string `mapstructure:"content"`
	// The absolute path in the image.
	Destination string `mapstructure:"destination" required:"true"`
	// The permission bits in octal. The default is `0644`.
	Mode string `mapstructure:"mode"`
}
