// Package debian makes a root directory from a Debian archive with mmdebstrap, and cleans it up when it is complete.
//
// Its rule: the content of the directory only depends on Options and on the archive's release files, which are read
// before anything is unpacked; so a result can be cached for as long as both stay the same.
package debian

import (
	"cmp"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
)

// Options select the packages and the archive.
type Options struct {
	// Suite is a name that the archive knows: "trixie".
	Suite string
	// Mirror is a URL or a sources.list line; empty is mmdebstrap's own choice for the suite, which
	// includes the suite's updates and security fixes.
	Mirror string
	// Components of the archive; empty is "main".
	Components []string
	// Arch is Debian's name of the architecture; empty is the one of this program.
	Arch string
	// Packages to install besides the essential ones, apt and what Base lists.
	Packages []string
	// Keyring is a file or directory of keys that may have signed the archive; empty is the host's.
	Keyring string
	// Documentation keeps manuals, locales and the like, which otherwise are never unpacked.
	Documentation bool
	// Sealed adds what makes a sealed root: systemd's stub of a kernel image, and erofs-utils.
	Sealed bool
	// Tools makes no machine's root but one with the programs that make a disk of another architecture: that one's own would be
	// emulated. Packages, Sealed and Initrd are not looked at then.
	Tools bool
	// Initrd adds an initial RAM disk; without it the kernel mounts the root file system itself.
	Initrd bool
}

// excludedPaths are the paths that are never unpacked unless Options.Documentation is set. Copyright files
// stay: their licences oblige whoever distributes an image.
var excludedPaths = []string{
	"/usr/share/doc/*",
	"/usr/share/doc-base/*",
	"/usr/share/man/*",
	"/usr/share/info/*",
	"/usr/share/groff/*",
	"/usr/share/locale/*",
	"/usr/share/bash-completion/*",
	"/usr/share/zsh/*",
	"/usr/share/fish/*",
	"/usr/share/lintian/*",
	"/usr/share/bug/*",
	"/usr/share/gcc/*",
	"/usr/share/gdb/*",
	"/usr/lib/udev/hwdb.d/*",
	// Character sets other than UTF-8.
	"/usr/lib/*/gconv/*",
	// Drivers of laboratory hardware, replicated disks, modems, USB input devices and storage targets; file systems and
	// protocols that neither a node nor a volume of Kubernetes has. They are xz already, so that each
	// byte counts whole in the compressed image.
	"/usr/lib/modules/*/kernel/drivers/block/drbd/*",
	"/usr/lib/modules/*/kernel/drivers/comedi/*",
	"/usr/lib/modules/*/kernel/drivers/hid/*",
	"/usr/lib/modules/*/kernel/drivers/md/dm-vdo/*",
	"/usr/lib/modules/*/kernel/drivers/net/wwan/*",
	"/usr/lib/modules/*/kernel/drivers/nvme/target/*",
	"/usr/lib/modules/*/kernel/drivers/target/*",
	"/usr/lib/modules/*/kernel/fs/bcachefs/*",
	"/usr/lib/modules/*/kernel/fs/ntfs3/*",
	"/usr/lib/modules/*/kernel/fs/smb/server/*",
	"/usr/lib/modules/*/kernel/net/tipc/*",
	stubs,
}

// stubs are those of unified kernel images, which only a sealed root's disk is made with. Of the package the boot loader is
// used otherwise.
const stubs = "/usr/lib/systemd/boot/efi/*.stub"

// includedPaths are exceptions from excluded.
var includedPaths = []string{"/usr/share/doc/*/copyright"}

// Base lists the packages that every disk needs: a kernel, an init system, and the tools that make the
// file system and its boot entry, so that these come from the archive and not from the host.
func Base(arch string) ([]string, error) {
	kernel, ok := map[string]string{"amd64": "linux-image-cloud-amd64", "arm64": "linux-image-cloud-arm64"}[arch]
	if !ok {
		return nil, fmt.Errorf("architecture %q: only amd64 and arm64 have a cloud kernel", arch)
	}
	return []string{kernel, "systemd", "systemd-sysv", "udev", "systemd-boot-efi", "systemd-repart", "e2fsprogs"}, nil
}

// diskTools are the packages of a root of tools, besides the essential ones, which have tar and bash.
var diskTools = []string{"e2fsprogs", "erofs-utils"}

// ReadPackages reads a list of packages: one a line, "#" begins a comment.
func ReadPackages(assets fs.FS, name string) ([]string, error) {
	data, err := fs.ReadFile(assets, name)
	if err != nil {
		return nil, fmt.Errorf("list of packages: %w", err)
	}
	var packages []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		packages = append(packages, strings.Fields(line)...)
	}
	return packages, nil
}

// complete replaces zero values by their defaults, and sorts lists.
func (o Options) complete() (Options, error) {
	o.Arch = cmp.Or(o.Arch, runtime.GOARCH)
	if len(o.Components) == 0 {
		o.Components = []string{"main"}
	}
	if o.Tools {
		o.Packages, o.Sealed, o.Initrd = diskTools, false, false
		return o, nil
	}
	base, err := Base(o.Arch)
	if err != nil {
		return o, err
	}
	if o.Sealed {
		base = append(base, "erofs-utils")
	}
	o.Packages = slices.Concat(base, o.Packages)
	slices.Sort(o.Packages)
	o.Packages = slices.Compact(o.Packages)
	return o, nil
}

// source is the part of mmdebstrap's command line that says which archive.
func (o Options) source() []string {
	args := []string{"--mode=root", "--architectures=" + o.Arch, "--components=" + strings.Join(o.Components, ",")}
	if o.Keyring != "" {
		args = append(args, "--keyring="+o.Keyring)
	}
	return args
}

// positional is the end of mmdebstrap's command line.
func (o Options) positional(target string) []string {
	args := []string{o.Suite, target}
	if o.Mirror != "" {
		args = append(args, o.Mirror)
	}
	return args
}

// Command is mmdebstrap's command line that makes the directory target.
func (o Options) command(target string) []string {
	variant := "apt"
	if o.Tools {
		variant = "essential"
	}
	args := append([]string{"mmdebstrap", "--variant=" + variant, "--format=directory"}, o.source()...)
	args = append(args, "--include="+strings.Join(o.Packages, ","))
	if !o.Documentation {
		for _, path := range excludedPaths {
			if o.Sealed && path == stubs {
				continue
			}
			args = append(args, "--dpkgopt=path-exclude="+path)
		}
		for _, path := range includedPaths {
			args = append(args, "--dpkgopt=path-include="+path)
		}
	}
	return append(args, o.positional(target)...)
}
