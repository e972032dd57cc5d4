//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config,File
//go:generate go tool packer-sdc struct-markdown

package provisioner

import (
	"github.com/hashicorp/packer-plugin-sdk/common"
	"github.com/hashicorp/packer-plugin-sdk/template/interpolate"
)

// Config is what a template can say in `provisioner "hardtack" {}`. Nothing is required.
type Config struct {
	common.PackerConfig `mapstructure:",squash"`
	Components          `mapstructure:",squash"`
	Additions           `mapstructure:",squash"`

	// The directory on the machine that runs Packer for what the bake brings back: `image.json` (the
	// manifest), `sbom.cdx.json` (CycloneDX) and `roles.txt` (which units each role starts). It is made
	// when it is not there. The default is `build`; under the builder `hardtack-disk`, which puts them
	// beside the finished disk itself, nothing is brought back unless this is set.
	Output string `mapstructure:"output"`

	ctx interpolate.Context
}

// Components says which binaries and units the image gets, and where they come from.
type Components struct {
	// The lock file: a path, or the name of one that the plugin carries. The default is
	// `kubernetes-1.36`.
	Lock string `mapstructure:"lock"`
	// Where the components come from: `release` (the files that upstream publishes, by digest),
	// `modules` (compiled here from Go modules) or `auto` (`release`, and where that cannot be had,
	// `modules`). The default is `auto`.
	Source string `mapstructure:"source"`
	// A mirror of the release files, as a http(s) address or a directory: what is at
	// `https://host/path` is asked for as `<mirror>/host/path`. The default is to ask upstream.
	Mirror string `mapstructure:"mirror"`
	// The directory that keeps downloads and compiled components, by digest. The default is `hardtack`
	// in the user's cache directory.
	CacheDir string `mapstructure:"cache_dir"`
	// The `hardtack-agent` program for the target's architecture. The default is the one that the plugin
	// carries; a plugin that was built without `make` carries none.
	AgentPath string `mapstructure:"agent_path"`
	// A directory of systemd units to use instead of the ones that the plugin carries.
	UnitsDir string `mapstructure:"units_dir"`
}

// Additions says what the image gets beside the components.
type Additions struct {
	// Files to add, a block each.
	Files []File `mapstructure:"file"`
	// Paths of systemd units to add. They are enabled as their `[Install]` section says.
	Units []string `mapstructure:"units"`
	// Arguments to add to the kernel's command line. They are written to `/etc/kernel/cmdline` and, for
	// systems that boot by GRUB, to `/etc/default/grub.d/90-hardtack.cfg`.
	KernelArguments []string `mapstructure:"kernel_arguments"`
	// Kernel parameters by name, written to `/etc/sysctl.d/90-hardtack.conf`.
	Sysctls map[string]string `mapstructure:"sysctls"`
	// Debian packages to install in addition to those that every image needs.
	Packages []string `mapstructure:"packages"`
}

// File is one file to add.
type File struct {
	// The file on the machine that runs Packer. Either this or `content` is needed.
	Source string `mapstructure:"source"`
	// The text of the file. Either this or `source` is needed.
	Content string `mapstructure:"content"`
	// The absolute path in the image.
	Destination string `mapstructure:"destination" required:"true"`
	// The permission bits in octal. The default is `0644`.
	Mode string `mapstructure:"mode"`
}
