//go:build linux

package builder

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/docker/go-units"
	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/hashicorp/packer-plugin-sdk/template/config"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/debian"
)

// The kinds of root.
const (
	writable = "writable"
	isSealed = "sealed"
)

const (
	// unknown is Packer's placeholder for a value that is not known while a template is validated.
	unknown = "<unknown>"
	// off disables the base cache.
	off = "off"
	// smallest is the smallest accepted disk, in bytes.
	smallest = 512 << 20
)

// packageName follows Debian policy 5.6.1, and accepts a version or a suite as apt does.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?([=/][A-Za-z0-9.+~:-]+)?$`)

// suiteName also rejects names that would be taken for options.
var suiteName = regexp.MustCompile(`^[a-z0-9][a-z0-9./-]*$`)

func (c *Config) prepare(raws []any) error {
	err := config.Decode(c, &config.DecodeOpts{
		PluginType: "hardtack-disk", Interpolate: true, InterpolateContext: &c.ctx,
	}, raws...)
	if err != nil {
		return err
	}
	if err := c.complete(); err != nil {
		return err
	}
	return c.validate()
}

// complete sets the defaults.
func (c *Config) complete() error {
	c.Suite = cmp.Or(c.Suite, "trixie")
	c.Arch = cmp.Or(c.Arch, runtime.GOARCH)
	c.OutputDirectory = cmp.Or(c.OutputDirectory, "output-"+c.PackerBuildName)
	c.ImageName = cmp.Or(c.ImageName, "hardtack")
	c.DiskSize = cmp.Or(c.DiskSize, "8G")
	c.Root.Root = cmp.Or(c.Root.Root, writable)
	if len(c.Formats) == 0 {
		c.Formats = []string{string(disk.QCOW2)}
	}
	if c.BaseCache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("base_cache: %w (set base_cache to a directory, or to %q)", err, off)
		}
		c.BaseCache = filepath.Join(cache, "hardtack", "base")
	}
	return nil
}

// validate reports all errors at once.
func (c *Config) validate() error {
	var errs *packersdk.MultiError
	wrong := func(format string, args ...any) {
		errs = packersdk.MultiErrorAppend(errs, fmt.Errorf(format, args...))
	}
	if !suiteName.MatchString(c.Suite) && c.Suite != unknown {
		wrong("suite %q: is not the name of a suite", c.Suite)
	}
	if _, err := debian.Base(c.Arch); err != nil && c.Arch != unknown {
		wrong("arch: %w", err)
	}
	for _, name := range c.Packages {
		if !packageName.MatchString(name) && name != unknown {
			wrong("packages: %q is not the name of a package", name)
		}
	}
	for _, format := range c.Formats {
		if !slices.Contains([]string{string(disk.Raw), string(disk.QCOW2), unknown}, format) {
			wrong("formats: %q is neither raw nor qcow2", format)
		}
	}
	if strings.ContainsRune(c.ImageName, '/') {
		wrong("image_name %q: is a path; the directory is output_directory", c.ImageName)
	}
	for _, argument := range c.KernelArguments {
		if strings.ContainsAny(argument, "\n\r") {
			wrong("kernel_arguments: %q holds a line break", argument)
		}
	}
	if size, err := c.size(); c.DiskSize != unknown && (err != nil || size < smallest) {
		wrong("disk_size %q: is not a size of at least 512M, as 8G", c.DiskSize)
	}
	if c.SourceDateEpoch < 0 {
		wrong("source_date_epoch %d: is negative", c.SourceDateEpoch)
	}
	if c.Offline && c.BaseCache == off {
		wrong("offline: needs a base_cache")
	}
	for _, err := range c.check() {
		errs = packersdk.MultiErrorAppend(errs, err)
	}
	if c.sealed() && c.Initrd {
		wrong("initrd: a sealed root has an initial RAM disk of its own, which also finds virtio, SATA and Xen disks; leave it out")
	}
	if errs == nil {
		return nil
	}
	return errs
}

// sealed reports whether the root is.
func (c *Config) sealed() bool { return c.Root.Root == isSealed }

// check finds what is wrong before anything is fetched.
func (r Root) check() (errs []error) {
	if !slices.Contains([]string{writable, isSealed, unknown}, r.Root) {
		errs = append(errs, fmt.Errorf("root %q: is neither %s nor %s", r.Root, writable, isSealed))
	}
	if (r.SecureBootKey == "") != (r.SecureBootCertificate == "") {
		errs = append(errs, errors.New("secure_boot_key and secure_boot_certificate: only one of them is set, and a signature needs both"))
	}
	if r.SecureBootKey != "" && r.Root == writable {
		errs = append(errs, errors.New("secure_boot_key: only the kernel image of a sealed root is signed (root = \"sealed\")"))
	}
	if slices.Contains([]string{"", unknown}, r.SecureBootKey) || slices.Contains([]string{"", unknown}, r.SecureBootCertificate) {
		return errs
	}
	// Also says whether the key is the certificate's.
	if _, err := tls.LoadX509KeyPair(r.SecureBootCertificate, r.SecureBootKey); err != nil {
		errs = append(errs, fmt.Errorf("secure_boot_key %s and secure_boot_certificate %s: %w", r.SecureBootKey, r.SecureBootCertificate, err))
	}
	return errs
}

// size returns the disk's size in bytes.
func (c *Config) size() (int64, error) { return units.RAMInBytes(c.DiskSize) }

// options returns the options of the base system; listed are the packages that every image gets.
func (c *Config) options(listed []string) debian.Options {
	return debian.Options{
		Suite: c.Suite, Mirror: c.Mirror, Components: c.Components, Arch: c.Arch, Keyring: c.Keyring,
		Packages: slices.Concat(listed, c.Packages), Documentation: c.Documentation, Initrd: c.Initrd, Sealed: c.sealed(),
	}
}

// parameters are the options that decide a byte of the disk, by their names in the template. Paths of this machine are not among
// them: what a keyring or a key is shows in what they signed, and the certificate is named by its digest.
func (c *Config) parameters() (map[string]any, error) {
	p := map[string]any{
		"suite": c.Suite, "arch": c.Arch, "formats": list(c.Formats), "image_name": c.ImageName, "disk_size": c.DiskSize, "root": c.Root.Root,
		"initrd": c.Initrd, "documentation": c.Documentation, "skip_compression": c.SkipCompression,
		"components": list(c.Components), "packages": list(c.Packages), "kernel_arguments": list(c.KernelArguments),
	}
	if c.Mirror != "" {
		p["mirror"] = c.Mirror
	}
	if c.SourceDateEpoch != 0 {
		p["source_date_epoch"] = c.SourceDateEpoch
	}
	if c.SecureBootCertificate != "" {
		sum, err := file.SHA256(c.SecureBootCertificate)
		if err != nil {
			return nil, fmt.Errorf("secure_boot_certificate: %w", err)
		}
		p["secure_boot_certificate"] = "sha256:" + sum
	}
	return p, nil
}

// list is a list as a parameter; none is an empty one.
func list(values []string) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

// image returns the path of the finished image in a format.
func (c *Config) image(format disk.Format) string {
	return filepath.Join(c.OutputDirectory, c.ImageName+"."+string(format))
}
