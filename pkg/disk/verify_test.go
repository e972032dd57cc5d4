//go:build linux

package disk

import (
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/gpt"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki/ukitest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
)

// sealedDisk makes a disk as a bake does, but for the file system in the root partition, which is bytes without a meaning, and for
// the programs in the kernel image. change changes the command line before it goes into the kernel image.
func sealedDisk(t *testing.T, change func(string) string) (Result, seal) {
	t.Helper()
	for _, tool := range []string{"sfdisk", "mkfs.vfat", "mcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v: install what scripts/setup lists", err)
		}
	}
	c := Composer{Work: t.TempDir(), Options: Options{Arch: "amd64", Size: 2 << 30, Epoch: 1_800_000_000, Sealed: &Sealed{}}}
	m, err := machineOf(c.Arch)
	if err != nil {
		t.Fatal(err)
	}
	r := Result{File: filepath.Join(c.Work, "disk.raw"), Content: Content{Digest: sha256.Sum256([]byte("content"))}}
	if r.Layout, err = Plan(c.Size, r.Digest); err != nil {
		t.Fatal(err)
	}
	s := seal{Layout: r.Layout, rootFile: filepath.Join(c.Work, "root.erofs"), treeFile: filepath.Join(c.Work, "root.verity")}
	data := make([]byte, 3*mib+5000)
	if _, err := rand.NewChaCha8([32]byte{}).Read(data); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.rootFile, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = c.hash(t.Context(), r, s); err != nil {
		t.Fatal(err)
	}
	line := change(commandLine("roothash="+s.hash.String(), m, ""))
	e := esp{file: filepath.Join(c.Work, "esp.img"), machine: m, epoch: c.Epoch, volume: s.Volume}
	kernel := kernelParts{stub: ukitest.Stub(t), sections: []uki.Section{{Name: uki.Linux, Content: []byte("kernel")}}}
	if err := c.makeSealedESP(t.Context(), e, kernel, line); err != nil {
		t.Fatal(err)
	}
	if r.EFIPartition, err = s.assemble(t.Context(), m, r.File, e.file); err != nil {
		t.Fatal(err)
	}
	return r, s
}

func same(line string) string { return line }

func TestVerifySealed(t *testing.T) {
	r, s := sealedDisk(t, same)
	f, err := os.OpenFile(r.File, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	v, err := VerifySealed(t.Context(), f, nil)
	if err != nil || v.RootHash != s.hash.String() || v.Arch != "amd64" || v.RootSize != 4*mib || !strings.Contains(v.CommandLine, "roothash="+v.RootHash) {
		t.Fatalf("%+v, %v", v, err)
	}
	if kind, err := Inspect(f); err != nil || kind != (Kind{"amd64", true}) {
		t.Errorf("a sealed disk is taken for a writable one: %v", err)
	}
	// One bit, in the data, in the last block of it, and in a leaf of the tree; and a salt.
	for at, want := range map[int64]string{
		s.RootStart + 5: "the hash tree on the disk is another", s.RootStart + s.RootSize - 1: "the hash tree on the disk is another",
		s.tree + 3*verity.BlockSize: "the hash tree on the disk is another", s.tree + 90: "the partitions are named",
		s.tree: "superblock", s.tree + 74: "the hash tree is for",
		s.tree + 79:     "it is for", // the highest byte of the number of blocks
		gpt.Sector + 60: "checksum",
	} {
		flipped(t, f, at, func() {
			if v, err := VerifySealed(t.Context(), f, nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("byte %d: %+v, %v, want an error with %q", at, v, err, want)
			}
		})
	}
	again, err := VerifySealed(t.Context(), f, nil)
	if err != nil || again != v {
		t.Errorf("all bits are as they were, and: %+v, %v", again, err)
	}
	// The root hash stands for no byte of the EFI partition. Its digest does, which the bake has seen before.
	if v.EFIPartition != r.EFIPartition {
		t.Errorf("the EFI partition is %s, and was %s", v.EFIPartition, r.EFIPartition)
	}
	table, err := gpt.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	esp := table[partitionOf(table, typeESP)]
	flipped(t, f, esp.Start+esp.Size-1, func() {
		if other, err := VerifySealed(t.Context(), f, nil); err != nil || other.RootHash != v.RootHash || other.EFIPartition == v.EFIPartition {
			t.Errorf("another EFI partition: %+v, %v", other, err)
		}
	})
}

// flipped runs f while a bit of the disk is another.
func flipped(t *testing.T, disk *os.File, at int64, f func()) {
	t.Helper()
	b := make([]byte, 1)
	turn := func() {
		t.Helper()
		_, err := disk.ReadAt(b, at)
		if err == nil {
			b[0] ^= 1
			_, err = disk.WriteAt(b, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	turn()
	f()
	turn()
}

// A kernel image that opens another root is found, and a disk that was never sealed is told from one that is broken.
func TestVerifyOther(t *testing.T) {
	r, _ := sealedDisk(t, func(line string) string { return strings.Replace(line, "roothash=", "roothash=0", 1) })
	verify := func(name string) error {
		t.Helper()
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		_, err = VerifySealed(t.Context(), f, nil)
		return err
	}
	if err := verify(r.File); err == nil || !strings.Contains(err.Error(), "the kernel image opens another root") {
		t.Errorf("another root hash: %v", err)
	}
	l, err := Plan(2<<30, [32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := machineOf("amd64")
	if err != nil {
		t.Fatal(err)
	}
	writable := filepath.Join(t.TempDir(), "writable")
	if err := partitioned(t.Context(), writable, l.Size, l.table(m)); err != nil {
		t.Fatal(err)
	}
	if err := verify(writable); !errors.Is(err, ErrNotSealed) {
		t.Errorf("a writable root: %v", err)
	}
	f, err := os.Open(writable)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if kind, err := Inspect(f); err != nil || kind.Sealed {
		t.Errorf("a writable disk is taken for a sealed one: %v", err)
	}
	if kind, err := Inspect(strings.NewReader(strings.Repeat("\x00", 1<<20))); err != nil || kind != (Kind{}) {
		t.Errorf("a disk without a table is taken for a sealed one: %v", err)
	}
	if err := os.Truncate(writable, 0); err != nil {
		t.Fatal(err)
	}
	if err := verify(writable); !errors.Is(err, gpt.ErrNone) {
		t.Errorf("an empty file: %v", err)
	}
}

// Too small a disk is refused with what it needs.
func TestSealedTooSmall(t *testing.T) {
	c := Composer{Work: t.TempDir(), Options: Options{Size: 512 * mib}}
	r := Result{}
	var err error
	if r.Layout, err = Plan(c.Size, r.Digest); err != nil {
		t.Fatal(err)
	}
	s := seal{Layout: r.Layout, rootFile: filepath.Join(c.Work, "root"), treeFile: filepath.Join(c.Work, "tree")}
	if err := os.WriteFile(s.rootFile, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.hash(t.Context(), r, s); err == nil || !strings.Contains(err.Error(), "make the disk at least 580 MiB") {
		t.Errorf("got %v", err)
	}
}
