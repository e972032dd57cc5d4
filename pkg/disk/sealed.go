//go:build linux

package disk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
)

// Sealed says how a root file system is made that cannot change: an erofs partition, its dm-verity tree in another, and the
// root hash of both on the command line of a unified kernel image, which is the EFI partition's one file. What a machine
// writes is in memory (/etc) and in a state partition (/var), which is not on the disk image: the first boot makes it.
type Sealed struct {
	// Init is the program hardtack-init for the disk's architecture.
	Init []byte
	// Baked is the path, in the root, of a list of what was put there besides Debian, a path a line: those files come last on
	// the disk. It may be missing, and empty is none.
	Baked string
	// Packages are those that the template names: they are on the disk, whatever they are for.
	Packages []string
	// Key and Certificate are PEM files with which the kernel image is signed for Secure Boot; empty is no signature.
	Key, Certificate string
}

const (
	// stateLeast is the least size of the state partition, in bytes. A machine with etcd or pods needs far more; with less
	// none starts at all.
	stateLeast = 512 * mib
	// rootCluster is the unit of compression of the root in bytes, and what is read of a cold disk where a program touches
	// one byte. Smaller ones save no byte, since programs touch nearly all of theirs (scripts/README.md, "Cold bytes").
	rootCluster = 65536
	// rootLevel is zstd's: level 9 takes twice the processor time of level 5 for a fortieth less, in each machine's boot. Level 15
	// had taken more than six minutes of a processor for the lock's programs when it was given up.
	rootLevel = 9
)

// SealedTools maps each program of the host that making a sealed disk needs to its Debian package, as Tools does.
func SealedTools(signed bool) map[string]string {
	tools := hostTools()
	if signed {
		tools["sbsign"] = "sbsigntool"
	}
	return tools
}

// seal is a sealed root to be: the files of the work directory, and their place on the disk.
type seal struct {
	Layout
	tree, treeSize int64
	hash           verity.Hash
	rootFile       string
	treeFile       string
}

// composeSealed writes the disk with a sealed root.
func (c Composer) composeSealed(ctx context.Context, m machine, r Result) (Result, error) {
	if err := c.describeSealed(r.Layout); err != nil {
		return r, err
	}
	extra, err := c.extraArguments()
	if err != nil {
		return r, err
	}
	if err := c.movePackageDatabase(); err != nil {
		return r, err
	}
	kernel, err := c.takeKernel(m)
	if err != nil {
		return r, err
	}
	s, err := c.seal(ctx, r)
	if err != nil {
		return r, err
	}
	r.Layout, r.RootHash = s.Layout, s.hash.String()
	r.CommandLine = commandLine(sealed.Argument+"="+r.RootHash, m, extra)
	c.sayf("Root hash %s", r.RootHash)
	esp := esp{file: filepath.Join(c.Work, "esp.img"), machine: m, epoch: c.Epoch, volume: r.Volume}
	if err := c.makeSealedESP(ctx, esp, kernel, r.CommandLine); err != nil {
		return r, err
	}
	r.EFIPartition, err = s.assemble(ctx, m, r.File, esp.file)
	return r, err
}

// describeSealed tells the root about its disk. There is nothing about the root itself: it is there before systemd is. Nor has
// systemd anything to grow or mount again: an empty file masks a unit.
func (c Composer) describeSealed(l Layout) error {
	return c.place([]textFile{
		{"etc/fstab", fmt.Sprintf("PARTUUID=%s /var ext4 defaults,x-systemd.growfs 0 0\n", l.State)},
		{strings.TrimPrefix(sealed.Repart, "/") + "/50-state.conf", l.repartState()},
		{"etc/systemd/system/systemd-repart.service", ""},
		{"etc/systemd/system/systemd-remount-fs.service", ""},
	})
}

// repartState defines the state partition. It takes what the disk has, and begins with what the image has in /var.
func (l Layout) repartState() string {
	return fmt.Sprintf("[Partition]\nType=var\nUUID=%s\nLabel=state\nFormat=ext4\nSizeMinBytes=%d\nCopyFiles=/var:/\n", l.State, stateLeast)
}

// The list of packages is the image's and not the machine's: it stays in the root, and /var, which the first boot copies
// file by file, has a link to it.
const (
	packageDatabase   = "var/lib/dpkg"
	sealedPackageBase = "usr/lib/sysimage/dpkg"
)

func (c Composer) movePackageDatabase() error {
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return fmt.Errorf("moving the list of packages: %w", err)
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	if info, err := root.Lstat(packageDatabase); err != nil || !info.IsDir() {
		return nil // none, or moved already
	}
	err = errors.Join(root.MkdirAll(filepath.Dir(sealedPackageBase), 0o755), root.Rename(packageDatabase, sealedPackageBase),
		root.Symlink("../../"+sealedPackageBase, packageDatabase))
	if err != nil {
		return fmt.Errorf("moving the list of packages: %w", err)
	}
	return nil
}

// kernelParts are what a unified kernel image is made of besides the command line.
type kernelParts struct {
	stub     []byte
	sections []uki.Section
}

// takeKernel reads what the kernel image is made of, and takes what no machine reads any more out of the root.
func (c Composer) takeKernel(m machine) (kernelParts, error) {
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return kernelParts{}, fmt.Errorf("making the kernel image: %w", err)
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	parts, err := c.readKernel(root, m)
	if err != nil {
		return kernelParts{}, fmt.Errorf("making the kernel image: %w", err)
	}
	for _, dir := range []string{"boot", filepath.Dir(m.stub)} {
		entries, err := fs.ReadDir(root.FS(), dir)
		for _, e := range entries {
			err = errors.Join(err, root.RemoveAll(filepath.Join(dir, e.Name())))
		}
		if err != nil {
			return kernelParts{}, fmt.Errorf("taking the kernel out of the root: %w", err)
		}
	}
	return parts, nil
}

func (c Composer) readKernel(root *os.Root, m machine) (kernelParts, error) {
	release, err := kernelRelease(root)
	if err != nil {
		return kernelParts{}, err
	}
	modules, err := moduleFiles(c.Root, release)
	if err != nil {
		return kernelParts{}, err
	}
	files := append([]uki.File{{Path: "init", Mode: 0o755, Content: c.Sealed.Init}}, modules...)
	initrd, err := uki.Archive(files, "dev", "proc", "run", "sys", strings.TrimPrefix(sealed.SystemRoot, "/"))
	if err != nil {
		return kernelParts{}, err
	}
	read := func(name string) []byte {
		content, problem := file.ReadWithin(c.Root, name)
		err = errors.Join(err, problem)
		return content
	}
	parts := kernelParts{stub: read(m.stub), sections: []uki.Section{
		{Name: uki.OSRelease, Content: read("usr/lib/os-release")}, {Name: uki.Release, Content: []byte(release)},
		{Name: uki.Linux, Content: read("boot/vmlinuz-" + release)}, {Name: uki.Initrd, Content: initrd},
	}}
	return parts, err
}

// seal makes the root file system and its tree.
func (c Composer) seal(ctx context.Context, r Result) (seal, error) {
	if err := clampTimes(ctx, c.Root, c.Epoch); err != nil {
		return seal{}, err
	}
	s := seal{Layout: r.Layout, rootFile: filepath.Join(c.Work, "root.erofs"), treeFile: filepath.Join(c.Work, "root.verity")}
	without, err := c.unneeded()
	if err != nil {
		return s, fmt.Errorf("finding what a sealed root does without: %w", err)
	}
	want, err := readAll(ctx, c.Root) // before a tool runs inside, for which the root gets a resolver's file
	if err != nil {
		return s, fmt.Errorf("sealing the root: %w", err)
	}
	want = slices.DeleteFunc(want, func(it item) bool { return without[it.path] })
	if err := c.erofs(ctx, s, without); err != nil {
		return s, err
	}
	if err := c.checkErofs(ctx, s, want); err != nil {
		return s, err
	}
	return c.hash(ctx, r, s)
}

// hash pads the root file system, makes its tree, and gives both their places on the disk.
func (c Composer) hash(ctx context.Context, r Result, s seal) (seal, error) {
	f, err := os.OpenFile(s.rootFile, os.O_RDWR, 0)
	if err != nil {
		return s, fmt.Errorf("sealing the root: %w", err)
	}
	defer func() { _ = f.Close() }() // only read, but for the padding
	info, err := f.Stat()
	if err != nil {
		return s, fmt.Errorf("sealing the root: %w", err)
	}
	s.RootSize = (info.Size() + mib - 1) / mib * mib
	if err := f.Truncate(s.RootSize); err != nil {
		return s, fmt.Errorf("sealing the root: %w", err)
	}
	salt := sha256.Sum256(append([]byte("salt of "), r.Digest[:]...))
	super := verity.Superblock{ID: r.FileSystem, Blocks: uint64(s.RootSize / verity.BlockSize), Salt: salt[:]}
	var tree []byte
	if s.hash, tree, err = verity.Build(ctx, super, f); err != nil {
		return s, fmt.Errorf("sealing the root: %w", err)
	}
	if err := os.WriteFile(s.treeFile, tree, 0o644); err != nil {
		return s, fmt.Errorf("sealing the root: %w", err)
	}
	s.Root = s.hash.Data()
	s.tree, s.treeSize = s.RootStart+s.RootSize, (int64(len(tree))+mib-1)/mib*mib
	c.sayf("Root file system: erofs, %d MiB, and %d MiB of hashes", s.RootSize/mib, s.treeSize/mib)
	if need := s.tree + s.treeSize + stateLeast + tail; need > s.Size {
		return s, fmt.Errorf("disk of %d MiB: too small for the sealed root and a state partition of %d MiB; make the disk at least %d MiB",
			s.Size/mib, int64(stateLeast/mib), need/mib)
	}
	return s, nil
}

// makeSealedESP makes the EFI partition with the kernel image where firmware looks for a program on a disk that it does not
// know.
func (c Composer) makeSealedESP(ctx context.Context, e esp, kernel kernelParts, arguments string) error {
	image, err := uki.Make(kernel.stub, append(kernel.sections, uki.Section{Name: uki.CommandLine, Content: []byte(arguments)}))
	if err != nil {
		return err
	}
	c.sayf("EFI partition: a kernel image of %d MB, kernel arguments %s", len(image)/1e6, arguments)
	staging, err := os.MkdirTemp(c.Work, "esp-")
	if err != nil {
		return fmt.Errorf("staging the EFI partition: %w", err)
	}
	defer os.RemoveAll(staging)
	name := filepath.Join(staging, "EFI/BOOT", e.machine.removed)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, image, 0o644)); err != nil {
		return fmt.Errorf("staging the EFI partition: %w", err)
	}
	if err := c.Sealed.sign(ctx, name); err != nil {
		return err
	}
	e.machine.bios = false // there is no loader for it, and nothing that it would be told the root hash by
	return e.fill(ctx, staging)
}

// sign signs a kernel image in its place, where there is a key.
func (s Sealed) sign(ctx context.Context, name string) error {
	if s.Key == "" {
		return nil
	}
	sign := run.Command{Name: "sbsign", Args: []string{"--key", s.Key, "--cert", s.Certificate, "--output", name, name}}
	if err := run.Run(ctx, sign); err != nil {
		return fmt.Errorf("signing the kernel image: %w", err)
	}
	return nil
}

// assemble writes the partition table and the three partitions, and returns the sha256 of the EFI partition.
func (s seal) assemble(ctx context.Context, m machine, disk, esp string) (digest string, err error) {
	if err := partitioned(ctx, disk, s.Size, s.table(m)); err != nil {
		return "", err
	}
	if m.bios {
		if err := firstBytes(disk, biosNotice()); err != nil {
			return "", err
		}
	}
	if digest, err = file.SHA256(esp); err != nil {
		return "", fmt.Errorf("hashing the EFI partition: %w", err)
	}
	for _, part := range []struct {
		file  string
		start int64
	}{{esp, first}, {s.rootFile, s.RootStart}, {s.treeFile, s.tree}} {
		if err := copySparse(part.file, disk, part.start); err != nil {
			return "", err
		}
		if err := os.Remove(part.file); err != nil {
			return "", fmt.Errorf("removing a partition's copy: %w", err)
		}
	}
	return digest, nil
}

// table is the input of sfdisk.
func (s seal) table(m machine) string {
	m.bios = false
	return s.Layout.table(m) + fmt.Sprintf("start=%d, size=%d, type=%s, uuid=%s, name=\"root-verity\"\n",
		s.tree/sector, s.treeSize/sector, m.treeType, upper(s.hash.Tree()))
}
