//go:build linux

package disk

import (
	"crypto/sha256"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

func TestPlanFollowsFromContent(t *testing.T) {
	one, err := Plan(8<<30, sha256.Sum256([]byte("one")))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Plan(8<<30+12345, sha256.Sum256([]byte("one")))
	other, _ := Plan(8<<30, sha256.Sum256([]byte("other")))
	if one != again {
		t.Errorf("same content, same whole MiB: %+v and %+v", one, again)
	}
	if one.Root == other.Root || one.Disk == other.Disk || one.Volume == other.Volume {
		t.Errorf("different content shares identifiers: %+v and %+v", one, other)
	}
	if one.Root == one.ESP || one.Root == one.FileSystem || one.Disk == one.Root {
		t.Errorf("identifiers of one disk coincide: %+v", one)
	}
	if one.RootStart%mib != 0 || one.RootStart+one.RootSize+tail != one.Size {
		t.Errorf("root partition %d+%d does not fill a disk of %d", one.RootStart, one.RootSize, one.Size)
	}
	if _, err := Plan(100*mib, sha256.Sum256(nil)); err == nil {
		t.Error("a disk of 100 MiB has no room for a root file system and was planned")
	}
}

// TestTexts holds what is written for the disk of a given content and size.
func TestTexts(t *testing.T) {
	l, err := Plan(2<<30, sha256.Sum256([]byte("content")))
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		m, err := machineOf(arch)
		if err != nil {
			t.Fatal(err)
		}
		e := esp{machine: m, epoch: 1_800_000_000, arguments: l.kernelArguments(m, "  quiet\n loglevel=3 ")}
		got := strings.Join([]string{
			"--- sfdisk", l.table(m), "--- entry", e.entry(false),
			"--- entry with initrd", e.entry(true), "--- syslinux", e.syslinux(true),
		}, "\n")
		golden.Assert(t, got, arch+".golden")
	}
	if _, err := machineOf("riscv64"); err == nil {
		t.Error("riscv64 was taken")
	}
}
