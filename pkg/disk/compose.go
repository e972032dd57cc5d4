//go:build linux

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
)

// Chroot runs a script inside the root directory, with the host's directories bound where Bind said. exit is the
// script's exit status; err means that it could not be run.
type Chroot interface {
	Run(ctx context.Context, script string, stdin io.Reader, stdout, stderr io.Writer) (exit int, err error)
}

// Options of a disk.
type Options struct {
	// Arch is amd64 or arm64.
	Arch string
	// Size of the disk in bytes, rounded down to whole MiB.
	Size int64
	// KernelArguments are added to the kernel's command line, after those in the root's
	// /etc/kernel/cmdline.
	KernelArguments []string
	// Epoch is the time of everything on the disk, in seconds since 1970.
	Epoch int64
	// Sealed makes the root file system one that cannot change; nil is one that is written to.
	Sealed *Sealed
	// Progress receives lines of progress; may be nil.
	Progress func(string)
}

// Where the tools in the root see the root itself and the working directory.
const (
	// The paths of the root and of the working directory for tools that run in the root.
	AtRoot = "/mnt/root"
	AtWork = "/mnt/work"
)

// Composer makes a disk from a root directory, which it changes: the kernel moves to the EFI partition.
type Composer struct {
	// Root is the root directory, Work an empty directory for the disk and its parts.
	Root, Work string
	// Inside runs the tools that make file systems: in Root, or in another root of the same Debian where Root's would be emulated.
	// Root is bound at AtRoot, and Work at AtWork.
	Inside Chroot
	Options
}

// Result describes the disk.
type Result struct {
	// File is the raw disk.
	File string
	Layout
	Content
	// CommandLine is the kernel's.
	CommandLine string
	// RootHash is that of a sealed root, and EFIPartition the sha256 of the partition with its kernel image, in hexadecimal digits;
	// both are empty where the root is written to.
	RootHash, EFIPartition string
}

// Compose writes <Work>/disk.raw.
func (c Composer) Compose(ctx context.Context) (Result, error) {
	m, err := machineOf(c.Arch)
	if err != nil {
		return Result{}, err
	}
	r := Result{File: filepath.Join(c.Work, "disk.raw")}
	if r.Content, err = Measure(ctx, c.Root); err != nil {
		return r, err
	}
	if r.Layout, err = c.plan(r.Content); err != nil {
		return r, err
	}
	// The raw disk, and a second time for what it is converted to; compression only makes that less.
	if err := CheckSpace(c.Work, 2*r.Bytes+espSize); err != nil {
		return r, err
	}
	c.sayf("Root directory: %d files, %d MB, sha256:%x", r.Files, r.Bytes/1e6, r.Digest)
	if c.Sealed != nil {
		return c.composeSealed(ctx, m, r)
	}
	if err := c.describe(); err != nil {
		return r, err
	}
	extra, err := c.extraArguments()
	if err != nil {
		return r, err
	}
	r.CommandLine = r.kernelArguments(m, extra)
	esp := esp{root: c.Root, file: filepath.Join(c.Work, "esp.img"), machine: m, epoch: c.Epoch,
		volume: r.Volume, arguments: r.CommandLine}
	c.sayf("EFI partition: kernel arguments %s", r.CommandLine)
	if err := esp.make(ctx); err != nil {
		return r, err
	}
	return r, c.assemble(ctx, m, r, esp.file)
}

// describe tells the root file system about its disk.
func (c Composer) describe() error {
	return c.place([]textFile{
		{"etc/fstab", fstab},
		{"etc/repart.d/50-root.conf", repartRoot},
		{"etc/systemd/system/systemd-repart.service.d/10-hardtack.conf", repartOrder},
		{"etc/systemd/system/systemd-growfs-root.service.d/10-hardtack.conf", nodeWeight},
		{"etc/systemd/system/systemd-remount-fs.service", ""},
	})
}

type textFile struct{ name, text string }

// place writes files into the root.
func (c Composer) place(files []textFile) error {
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return fmt.Errorf("describing the disk: %w", err)
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	for _, f := range files {
		if err := errors.Join(root.MkdirAll(path.Dir(f.name), 0o755), root.WriteFile(f.name, []byte(f.text), 0o644)); err != nil {
			return fmt.Errorf("describing the disk: %w", err)
		}
	}
	return nil
}

// assemble writes the partition table and both partitions.
func (c Composer) assemble(ctx context.Context, m machine, r Result, esp string) error {
	if err := partitioned(ctx, r.File, r.Size, r.table(m)); err != nil {
		return err
	}
	if m.bios {
		if err := bootCode(r.File); err != nil {
			return err
		}
	}
	if err := copySparse(esp, r.File, first); err != nil {
		return err
	}
	if err := os.Remove(esp); err != nil {
		return fmt.Errorf("removing the EFI partition's copy: %w", err)
	}
	if err := clampTimes(ctx, c.Root, c.Epoch); err != nil {
		return err
	}
	c.sayf("Root file system: ext4, %d MiB", r.RootSize/mib)
	return c.ext4(ctx, r)
}

// partitioned makes an empty disk with a partition table.
func partitioned(ctx context.Context, name string, size int64, table string) error {
	if err := sparse(name, size); err != nil {
		return err
	}
	write := run.Command{ // not go-diskfs: fdisk is in every Debian, and the table's text is tested as a value
		Name: "sfdisk", Args: []string{"--quiet", "--no-reread", "--no-tell-kernel", name},
		Stdin: strings.NewReader(table),
	}
	if err := run.Run(ctx, write); err != nil {
		return fmt.Errorf("writing partition table: %w", err)
	}
	return nil
}

// plan lays the disk out and checks that the content fits: ext4 needs inodes, a journal, and 1 % is reserved.
func (c Composer) plan(content Content) (Layout, error) {
	l, err := Plan(c.Size, content.Digest)
	if err != nil {
		return l, err
	}
	overhead := l.RootSize/20 + 64*mib
	if need := content.Bytes + overhead; need > l.RootSize {
		return l, fmt.Errorf("disk of %d MiB: the root directory needs %d MiB with the file system's own %d; make the disk at least %d MiB",
			c.Size/mib, need/mib, overhead/mib, (content.Bytes+content.Bytes/10+2*overhead+l.RootStart)/mib)
	}
	return l, nil
}

// extraArguments joins what the root asks for and what the options ask for.
func (c Composer) extraArguments() (string, error) {
	data, err := file.ReadWithin(c.Root, "etc/kernel/cmdline")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading kernel arguments: %w", err)
	}
	return string(data) + " " + strings.Join(c.KernelArguments, " "), nil
}

// ext4 makes the root file system in place. The tool is the image's own Debian's: a version that sorts what it
// reads and clamps every time (e2fsprogs 1.47.1 and later), whatever the host has. The disk is a new
// sparse file, so the inode tables are zero already and need no zeroing at first boot.
func (c Composer) ext4(ctx context.Context, r Result) error {
	return c.inside(ctx, "making root file system", "mke2fs", strings.Join([]string{
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(c.Epoch, 10),
		"E2FSPROGS_FAKE_TIME=" + strconv.FormatInt(c.Epoch, 10),
		"LC_ALL=C exec mke2fs -q -F -t ext4 -b", strconv.Itoa(block),
		"-m 1 -e remount-ro -L root -U", r.FileSystem.String(),
		fmt.Sprintf("-E hash_seed=%s,offset=%d,assume_storage_prezeroed=1,nodiscard,%s", r.FileSystem, r.RootStart, sealed.OrphanFile),
		"-d", AtRoot, AtWork + "/" + filepath.Base(r.File), strconv.FormatInt(r.RootSize/1024, 10) + "k",
	}, " "))
}

// inside runs a script that is one tool's.
func (c Composer) inside(ctx context.Context, what, tool, script string) error {
	var said bytes.Buffer
	exit, err := c.Inside.Run(ctx, script, nil, &said, &said)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if exit != 0 {
		return fmt.Errorf("%s: %s: exit status %d: %s", what, tool, exit, strings.TrimSpace(said.String()))
	}
	return nil
}

func (c Composer) sayf(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}
