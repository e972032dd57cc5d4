//go:build linux

package disk

import (
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
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Where the host keeps the boot code of BIOS machines; Debian's syslinux-common has it.
const gptBootCode = "/usr/lib/SYSLINUX/gptmbr.bin"

// bootCodeSize is how much of the first sector belongs to boot code, in bytes.
const bootCodeSize = 440

// Tools maps each program or file of the host that making a disk of the architecture needs to its Debian package.
func Tools(arch string) map[string]string {
	tools := hostTools()
	if m, err := machineOf(arch); err == nil && m.bios {
		tools["syslinux"], tools[gptBootCode] = "syslinux", "syslinux-common"
	}
	return tools
}

func hostTools() map[string]string {
	return map[string]string{
		"sfdisk": "fdisk", "mkfs.vfat": "dosfstools", "mmd": "mtools", "mcopy": "mtools", "qemu-img": "qemu-utils",
	}
}

// esp is the EFI system partition to be. The same file system boots BIOS machines through syslinux.
type esp struct {
	root, file string
	machine    machine
	epoch      int64
	volume     uint32
	arguments  string
}

// make writes the partition's file system, and takes the kernel out of the root directory: it is kept once.
func (e esp) make(ctx context.Context) error {
	staging, err := os.MkdirTemp(filepath.Dir(e.file), "esp-")
	if err != nil {
		return fmt.Errorf("staging the EFI partition: %w", err)
	}
	defer os.RemoveAll(staging)
	if err := e.stage(staging); err != nil {
		return fmt.Errorf("staging the EFI partition: %w", err)
	}
	return e.fill(ctx, staging)
}

// fill makes the partition's file system of the staged files.
func (e esp) fill(ctx context.Context, staging string) error {
	if err := clampTimes(ctx, staging, e.epoch); err != nil {
		return err
	}
	if err := sparse(e.file, espSize); err != nil {
		return err
	}
	for _, args := range e.commands(staging) {
		command := run.Command{Name: args[0], Args: args[1:], Env: e.env()}
		if err := run.Run(ctx, command); err != nil {
			return fmt.Errorf("making the EFI partition: %w", err)
		}
	}
	return nil
}

func (e esp) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(e.epoch, 10),
		"MTOOLS_SKIP_CHECK=1", // mtools otherwise refuses a size that no floppy ever had
	}
}

// commands fill the partition. Programs do it and not go-diskfs (read at v1.9.3): a reproducible FAT32 of that has the volume id 0
// and not ours, which tells disks apart, and syslinux needs mtools anyway to install itself. One sector a cluster: with more, 64 MiB would
// have too few for FAT32.
func (e esp) commands(staging string) [][]string {
	commands := [][]string{
		{"mkfs.vfat", "--invariant", "-F", "32", "-s", "1", "-S", strconv.Itoa(sector), "-n", "ESP", "-i", fmt.Sprintf("%08x", e.volume), e.file},
		{"mmd", "-i", e.file, "::/EFI", "::/EFI/BOOT", "::/loader", "::/loader/entries"},
	}
	for _, name := range e.names() {
		if from := filepath.Join(staging, filepath.FromSlash(name)); exists(from) {
			commands = append(commands, []string{"mcopy", "-m", "-i", e.file, from, "::/" + name})
		}
	}
	if e.machine.bios {
		commands = append(commands, []string{"syslinux", "--install", e.file})
	}
	return commands
}

// names are the files of the partition, in the order in which they are written.
func (e esp) names() []string {
	return []string{
		"EFI/BOOT/" + e.machine.removed, "loader/loader.conf", "loader/entries/hardtack.conf",
		"syslinux.cfg", "vmlinuz", "initrd",
	}
}

// stage lays the files out in a directory.
func (e esp) stage(staging string) error {
	for _, dir := range []string{"EFI/BOOT", "loader/entries"} {
		if err := os.MkdirAll(filepath.Join(staging, dir), 0o755); err != nil {
			return err
		}
	}
	initrd, err := e.moveKernel(staging)
	if err != nil {
		return err
	}
	loader, err := file.ReadWithin(e.root, e.machine.loader)
	if err != nil {
		return fmt.Errorf("boot loader (Debian package systemd-boot-efi): %w", err)
	}
	files := map[string]string{
		"EFI/BOOT/" + e.machine.removed: string(loader),
		"loader/loader.conf":            "timeout 0\neditor no\ndefault hardtack.conf\n",
		"loader/entries/hardtack.conf":  e.entry(initrd),
	}
	if e.machine.bios {
		files["syslinux.cfg"] = e.syslinux(initrd)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(staging, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moveKernel moves the kernel and, where there is one, the initrd. They are copied and not renamed: a rename on the host
// would follow a link of the root.
func (e esp) moveKernel(staging string) (initrd bool, err error) {
	root, err := os.OpenRoot(e.root)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	release, err := kernelRelease(root)
	if err != nil {
		return false, err
	}
	if err := e.move(root, "boot/vmlinuz-"+release, filepath.Join(staging, "vmlinuz")); err != nil {
		return false, err
	}
	err = e.move(root, "boot/initrd.img-"+release, filepath.Join(staging, "initrd"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// kernelRelease is the version of the one kernel in /boot.
func kernelRelease(root *os.Root) (string, error) {
	kernels, err := fs.Glob(root.FS(), "boot/vmlinuz-*")
	if err != nil {
		return "", err
	}
	if len(kernels) != 1 {
		return "", fmt.Errorf("/boot holds %d kernels %v: exactly one is needed", len(kernels), names(kernels))
	}
	return strings.TrimPrefix(path.Base(kernels[0]), "vmlinuz-"), nil
}

// move moves a file of the root to the host's path target.
func (e esp) move(root *os.Root, name, target string) error {
	from, err := file.OpenWithin(e.root, name)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copying %s: %w", name, err)
	}
	// The time is that of the kernel's package, also in the EFI partition.
	return errors.Join(os.Chtimes(target, info.ModTime(), info.ModTime()), root.Remove(name))
}

func names(paths []string) []string {
	short := make([]string, len(paths))
	for n, path := range paths {
		short[n] = filepath.Base(path)
	}
	return short
}

// entry is a boot loader specification type 1 entry.
func (e esp) entry(initrd bool) string {
	text := "title Hardtack\nversion " + time.Unix(e.epoch, 0).UTC().Format("2006-01-02") + "\nlinux /vmlinuz\n"
	if initrd {
		text += "initrd /initrd\n"
	}
	return text + "options " + e.arguments + "\n"
}

func (e esp) syslinux(initrd bool) string {
	text := "SERIAL 0 115200\nDEFAULT hardtack\nPROMPT 0\nLABEL hardtack\n  LINUX /vmlinuz\n"
	if initrd {
		text += "  INITRD /initrd\n"
	}
	return text + "  APPEND " + e.arguments + "\n"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
