package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/gpt"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
)

// Verified is what a disk with a sealed root says of itself, and what was computed from its bytes.
type Verified struct {
	// RootHash is computed from the root partition, in hexadecimal digits.
	RootHash string `json:"root_hash"`
	// Arch is amd64 or arm64, by the type of the root partition.
	Arch string `json:"arch"`
	// RootSize is that of the root partition in bytes.
	RootSize int64 `json:"root_size"`
	// CommandLine is that of the kernel image in the EFI partition.
	CommandLine string `json:"command_line"`
	// EFIPartition is the sha256 of that partition, in hexadecimal digits. The root hash stands for nothing in it: not for the
	// kernel, nor for the program that opens the root.
	EFIPartition string `json:"efi_partition_sha256"`
}

// ErrNotSealed means that the root of a disk is written to, and so has no root hash.
var ErrNotSealed = errors.New("the disk has no sealed root: no partition of its table is a hash tree (bake it with root = \"sealed\")")

// Progress receives how far the reading of a root is. Its methods must be safe for concurrent use.
type Progress interface {
	// Begin starts an operation on total bytes, Add reports that n more of them are done.
	Begin(what string, total int64)
	Add(n int64)
}

// metered reports what is read.
type metered struct {
	io.ReaderAt
	progress Progress
}

func (m metered) ReadAt(p []byte, at int64) (int, error) {
	n, err := m.ReaderAt.ReadAt(p, at)
	m.progress.Add(int64(n))
	return n, err
}

// VerifySealed computes the root hash of a disk from the bytes of its root partition, and compares it with the disk's hash
// tree, with the identifiers of the two partitions, and with the command line of the kernel image. Every difference is told.
// The file system of the EFI partition is read by mtools. The progress may be nil.
func VerifySealed(ctx context.Context, disk io.ReaderAt, progress Progress) (Verified, error) {
	table, err := gpt.Read(disk)
	if err != nil {
		return Verified{}, err
	}
	v, root, tree, m, err := sealedPartitions(table)
	if err != nil {
		return v, err
	}
	super, err := verity.ReadSuperblock(io.NewSectionReader(disk, tree.Start, tree.Size))
	if err != nil {
		return v, fmt.Errorf("partition %d: %w", tree.Number, err)
	}
	if int64(super.Blocks)*verity.BlockSize > root.Size || int64(verity.TreeBlocks(super.Blocks))*verity.BlockSize > tree.Size {
		return v, fmt.Errorf("the hash tree is for %d blocks of data, and the partitions %d and %d have %d and %d bytes", super.Blocks, root.Number, tree.Number, root.Size, tree.Size)
	}
	var data io.ReaderAt = io.NewSectionReader(disk, root.Start, root.Size)
	if progress != nil {
		progress.Begin("hashing the root", int64(super.Blocks)*verity.BlockSize)
		data = metered{data, progress}
	}
	hash, computed, err := verity.Build(ctx, super, data)
	if err != nil {
		return v, err
	}
	v.RootHash = hash.String()
	var wrong []error
	if at, err := difference(io.NewSectionReader(disk, tree.Start, tree.Size), computed); err != nil {
		return v, fmt.Errorf("reading the hash tree: %w", err)
	} else if at >= 0 {
		wrong = append(wrong, fmt.Errorf("the hash tree on the disk is another than that of the root: they differ in block %d of the tree, so the root or the tree was changed", at/verity.BlockSize))
	}
	if root.ID != hash.Data() || tree.ID != hash.Tree() {
		wrong = append(wrong, fmt.Errorf("the partitions are named %s and %s, and root hash %s names them %s and %s", root.ID, tree.ID, hash, hash.Data(), hash.Tree()))
	}
	if v.CommandLine, v.EFIPartition, err = efiPartition(ctx, disk, table, m); err != nil {
		wrong = append(wrong, err)
	} else if argument := sealed.Argument + "=" + v.RootHash; !slices.Contains(strings.Fields(v.CommandLine), argument) {
		wrong = append(wrong, fmt.Errorf("the kernel image opens another root: its command line has no %s: %s", argument, v.CommandLine))
	}
	return v, errors.Join(wrong...)
}

// Kind is what starts a disk.
type Kind struct {
	// Arch is amd64 or arm64, by the type of the root partition; empty for a disk without one.
	Arch string
	// Sealed says that it has a sealed root, which UEFI alone starts.
	Sealed bool
}

// Inspect reads the kind of a disk from its partition table. One without a table has the zero Kind.
func Inspect(disk io.ReaderAt) (Kind, error) {
	table, err := gpt.Read(disk)
	if errors.Is(err, gpt.ErrNone) {
		return Kind{}, nil
	}
	if err != nil {
		return Kind{}, err
	}
	kind, _, err := kindOf(table)
	return kind, err
}

// kindOf finds the root partition by its type; without one all is zero.
func kindOf(table []gpt.Partition) (Kind, machine, error) {
	for _, arch := range architectures {
		m, err := machineOf(arch)
		if err != nil {
			return Kind{}, m, err
		}
		if partitionOf(table, m.rootType) >= 0 {
			return Kind{Arch: arch, Sealed: partitionOf(table, m.treeType) >= 0}, m, nil
		}
	}
	return Kind{}, machine{}, nil
}

// partitionOf is the place of a partition of a type in a table; -1 is none.
func partitionOf(table []gpt.Partition, kind string) int {
	return slices.IndexFunc(table, func(p gpt.Partition) bool { return strings.EqualFold(p.Type.String(), kind) })
}

// sealedPartitions finds the two partitions of a sealed root by their types.
func sealedPartitions(table []gpt.Partition) (v Verified, root, tree gpt.Partition, m machine, err error) {
	kind, m, err := kindOf(table)
	if err != nil {
		return v, root, tree, m, err
	}
	if !kind.Sealed {
		return v, root, tree, m, ErrNotSealed
	}
	root, tree = table[partitionOf(table, m.rootType)], table[partitionOf(table, m.treeType)]
	return Verified{Arch: kind.Arch, RootSize: root.Size}, root, tree, m, nil
}

// difference is the first byte at which a reader has other bytes than want; -1 is none.
func difference(r io.Reader, want []byte) (int, error) {
	have := make([]byte, len(want))
	if _, err := io.ReadFull(r, have); err != nil {
		return 0, err
	}
	for i := range want {
		if have[i] != want[i] {
			return i, nil
		}
	}
	return -1, nil
}

// efiPartition reads the command line of the kernel image in the EFI partition, and the digest of the whole partition.
func efiPartition(ctx context.Context, disk io.ReaderAt, table []gpt.Partition, m machine) (commandLine, digest string, err error) {
	at := partitionOf(table, typeESP)
	if at < 0 {
		return "", "", errors.New("the disk has no EFI partition")
	}
	dir, err := os.MkdirTemp("", "hardtack-verify-")
	if err != nil {
		return "", "", fmt.Errorf("reading the EFI partition: %w", err)
	}
	defer os.RemoveAll(dir)
	esp, image := filepath.Join(dir, "esp"), filepath.Join(dir, "image")
	err = writeTo(esp, io.NewSectionReader(disk, table[at].Start, table[at].Size))
	if err == nil {
		digest, err = file.SHA256(esp)
	}
	if err != nil {
		return "", "", fmt.Errorf("reading the EFI partition: %w", err)
	}
	read := run.Command{Name: "mcopy", Args: []string{"-i", esp, "::/EFI/BOOT/" + m.removed, image}, Env: append(os.Environ(), "MTOOLS_SKIP_CHECK=1")}
	if err := run.Run(ctx, read); err != nil {
		return "", digest, fmt.Errorf("reading the EFI partition (with Debian's package mtools): %w", err)
	}
	f, err := os.Open(image)
	if err != nil {
		return "", digest, fmt.Errorf("reading the kernel image: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	line, err := uki.Read(f, uki.CommandLine)
	return strings.TrimRight(string(line), "\x00\n"), digest, err
}

func writeTo(name string, r io.Reader) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
