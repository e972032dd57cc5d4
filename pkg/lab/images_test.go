package lab

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
)

// The types of partitions of the Discoverable Partitions Specification: the root of x86-64, and its hash tree.
const (
	rootType = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"
	treeType = "2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5"
	// And the root of AArch64.
	armRootType = "B921B045-1DF0-41C3-AF44-4C6F280D3FAE"
)

func TestBoot(t *testing.T) {
	t.Parallel()
	sfdisk, err := exec.LookPath("/usr/sbin/sfdisk")
	if err != nil {
		t.Skipf("%v: install what scripts/setup lists", err)
	}
	for name, c := range map[string]struct {
		partitions []string
		named      qemu.Firmware
		want       qemu.Firmware
		arch       string
	}{
		"a writable root":            {[]string{rootType}, "", qemu.BIOS, ""},
		"a sealed root":              {[]string{rootType, treeType}, "", qemu.UEFI, ""},
		"a hash tree without a root": {[]string{treeType}, "", qemu.BIOS, ""},
		"no table":                   {nil, "", qemu.BIOS, ""},
		"what the image says":        {[]string{rootType}, qemu.UEFI, qemu.UEFI, ""},
		"arm64":                      {[]string{armRootType}, "", qemu.UEFI, qemu.ARM64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "disk")
			if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			if len(c.partitions) > 0 {
				table := "label: gpt\n"
				for _, p := range c.partitions {
					table += "size=1MiB, type=" + p + "\n"
				}
				write := exec.CommandContext(t.Context(), sfdisk, "--quiet", path)
				write.Stdin = strings.NewReader(table)
				if out, err := write.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			want := Boot{Path: path, Firmware: c.want, Arch: cmp.Or(c.arch, qemu.AMD64)}
			if got, err := (Boot{Path: path, Firmware: c.named}).Complete(); err != nil || got != want {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
		})
	}
	if _, err := (Boot{Path: filepath.Join(t.TempDir(), "none")}).Complete(); err == nil {
		t.Error("a disk that is not there has a firmware")
	}
}
