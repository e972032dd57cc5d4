//go:generate go tool packer-sdc mapstructure-to-hcl2 -type Config
//go:generate go tool packer-sdc struct-markdown

package builder

import (
	"github.com/hashicorp/packer-plugin-sdk/common"
	"github.com/hashicorp/packer-plugin-sdk/template/interpolate"
)

// Config is the configuration of `source "hardtack-disk" "name" {}`. Nothing is required.
type Config struct {
	common.PackerConfig `mapstructure:",squash"`
	Base                `mapstructure:",squash"`
	Image               `mapstructure:",squash"`
	Root                `mapstructure:",squash"`

	ctx interpolate.Context
}

// Base selects the Debian packages of the disk.
type Base struct {
	// The suite of the archive. The default is `trixie`.
	Suite string `mapstructure:"suite"`
	// The archive: a URL, or a line of a sources.list. The default is mmdebstrap's default mirror, with the suite's
	// updates and security fixes.
	Mirror string `mapstructure:"mirror"`
	// The components of the archive. The default is `["main"]`.
	Components []string `mapstructure:"components"`
	// A file or directory of the keys that may sign the archive. The default is the keys of this machine's apt.
	Keyring string `mapstructure:"keyring"`
	// Packages to install besides a kernel, systemd, and those that every image needs (`images/packages`).
	Packages []string `mapstructure:"packages"`
	// Debian's name of the architecture: `amd64` or `arm64`. The default is this machine's.
	Arch string `mapstructure:"arch"`
	// Keep manuals, locales and the hardware database, about 40 MB compressed. Otherwise they are never unpacked.
	Documentation bool `mapstructure:"documentation"`
	// The directory that caches base systems, so that a second build with the same packages of the same state of the
	// archive takes seconds; `off` disables it. The default is `hardtack/base` in the user's cache directory.
	BaseCache string `mapstructure:"base_cache"`
	// Use the newest cached base system without checking that it is still current.
	Offline bool `mapstructure:"offline"`
}

// Image describes the disk image.
type Image struct {
	// The directory of the disk image. The default is `output-` and the name of the build.
	OutputDirectory string `mapstructure:"output_directory"`
	// The name of the image file, without `.raw` or `.qcow2`. The default is `hardtack`.
	ImageName string `mapstructure:"image_name"`
	// The formats to write: `raw`, `qcow2` or both. The default is `["qcow2"]`.
	Formats []string `mapstructure:"formats"`
	// Leave the qcow2 file uncompressed; the default is zstd.
	SkipCompression bool `mapstructure:"skip_compression"`
	// The size of the disk, such as `8G` or `10240M` (powers of 1024). Empty blocks take no space in the files. The
	// default is `8G`. On a larger disk the root file system grows at first boot.
	DiskSize string `mapstructure:"disk_size"`
	// Arguments to add to the kernel's command line, after those of provisioners in `/etc/kernel/cmdline`.
	KernelArguments []string `mapstructure:"kernel_arguments"`
	// Give the disk an initial RAM disk (17 MB). Without it the disk boots faster, but only as NVMe, which EC2 Nitro
	// and `qemu -device nvme` have; with it the disk also boots as virtio-blk, virtio-scsi, SATA and Xen.
	Initrd bool `mapstructure:"initrd"`
	// The modification time of files in the image, in seconds since 1970. The default is the date of the archive's
	// newest release file, so that two builds from the same state of the archive agree.
	SourceDateEpoch int64 `mapstructure:"source_date_epoch"`
}

// Root says whether machines can change their root file system.
type Root struct {
	// `writable` or `sealed`. The default is `writable`: one ext4 file system, that boots by UEFI and by BIOS. A `sealed` root is
	// read-only and compressed (erofs), and every block of it is compared with a hash (dm-verity) whose root is on the kernel's
	// command line: a changed bit ends in a panic. `/etc` is written to in memory and new at each boot; `/var` is a partition that
	// the first boot makes. It boots by UEFI only.
	Root string `mapstructure:"root"`
	// The PEM file of the key that signs a sealed disk's kernel image for Secure Boot, with its certificate in
	// `secure_boot_certificate`. By default the kernel image is not signed.
	SecureBootKey string `mapstructure:"secure_boot_key"`
	// The PEM file of the certificate of `secure_boot_key`. Firmware boots the disk if it has this certificate, or the one that
	// issued it, in its `db`. An AMI of the disk brings it along, with a TPM 2.0.
	SecureBootCertificate string `mapstructure:"secure_boot_certificate"`
}
