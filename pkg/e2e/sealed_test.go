package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/uefivars"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/uefivars/uefivarstest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/gpt"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
)

// sealedVariable has the path of a disk with a sealed root.
const sealedVariable = "HARDTACK_SEALED_IMAGE"

func sealedImage(t *testing.T) string {
	t.Helper()
	needMachines(t, 4*time.Minute)
	return namedDisk(t, sealedVariable, "with a sealed root", "sealed")
}

// namedDisk is the path in a variable. A test skips where it is not set, since the disk is not the default.
func namedDisk(t *testing.T, variable, what, target string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("boots a disk %s, which is not the default: bake one (make %s), and set %s to it", what, target, variable)
	}
	return path
}

// TestSealed boots a sealed disk by UEFI, twice with what the first boot has left.
func TestSealed(t *testing.T) {
	image := sealedImage(t)
	ctx, cancel := context.WithTimeout(interrupted, 2*bound)
	defer cancel()
	verified := verifySealed(ctx, t, image)
	manifest := filepath.Join(filepath.Dir(image), "image.json")
	if baked, err := bake.ReadManifest(manifest); err != nil || baked.RootHash != verified.RootHash || baked.EFIPartition != verified.EFIPartition {
		t.Errorf("%s has root hash %s and EFI partition %s, and the disk %s and %s; %v", manifest, baked.RootHash, baked.EFIPartition, verified.RootHash, verified.EFIPartition, err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.qcow2")
	first := sealedMachine(ctx, t, image, overlay)
	first.run(ctx, t, "grep -q 'roothash="+verified.RootHash+" ' /proc/cmdline")
	first.run(ctx, t, rootfs.AgentPath+` timeline --json | grep -q '"root_hash": "`+verified.RootHash+`"'`)
	first.run(ctx, t, `[ "$(findmnt -no FSTYPE /)" = erofs ] && [ "$(findmnt -no FSTYPE /etc)" = overlay ] && [ "$(findmnt -no FSTYPE /var)" = ext4 ]`)
	for _, name := range []string{"/usr/bin/changed", "/root/changed", "/changed"} {
		if got := first.run(ctx, t, "! touch "+name); !strings.Contains(got, "Read-only file system") {
			t.Errorf("touch %s: %s", name, got)
		}
	}
	// Nor does /etc, of which the upper side is written to, let anybody in but root.
	first.run(ctx, t, `[ -z "$(find / /etc /var -xdev -type d -perm -0002 ! -perm -1000 -print)" ] && setpriv --reuid=65534 --clear-groups true && ! setpriv --reuid=65534 --clear-groups touch /etc/systemd/system/mine.service`)
	if got := first.run(ctx, t, "! mount -o remount,rw /"); !strings.Contains(got, "write-protected") && !strings.Contains(got, "read-only") {
		t.Errorf("the root becomes writable: %s", got)
	}
	first.run(ctx, t, `[ "$(cat /sys/dev/block/$(findmnt -rno MAJ:MIN /)/queue/read_ahead_kb)" = 4 ]`)
	// The hashes are computed with the processor's own instructions, from the first block on.
	first.run(ctx, t, `h=$(dmesg | grep 'verity: sha256 using') && ! echo "$h" | grep generic`)
	// The state partition takes what the disk has.
	first.run(ctx, t, `[ $(( $(lsblk -bno SIZE "$(findmnt -no SOURCE /var)") * 2 )) -gt $(lsblk -bdno SIZE "/dev/$(lsblk -no PKNAME "$(findmnt -no SOURCE /var)")") ]`)
	// Its journal has 64 MB and its file of orphans 128 KiB, whatever the disk has: a first boot writes the one, each mount reads the other.
	first.run(ctx, t, `d=$(findmnt -no SOURCE /var) && dumpe2fs -h $d 2>&1 | grep -q 'journal size: *64M'`)
	first.run(ctx, t, `d=$(findmnt -no SOURCE /var) && i=$(dumpe2fs -h $d 2>&1 | sed -n 's/^Orphan file inode: *//p') && debugfs -R "stat <$i>" $d 2>&1 | grep -q 'Size: 131072$'`)
	// Nothing has written zeros to the rest of the partition, and systemd has no disk to make ready.
	first.run(ctx, t, `[ "$(awk '{print $7}' /sys/block/nvme0n1/stat)" -lt $((1 << 20)) ]`)
	first.run(ctx, t, `[ "$(systemctl is-enabled systemd-repart systemd-remount-fs | sort -u)" = masked ]`)
	// What the image has in /var is there.
	first.run(ctx, t, "dpkg-query -W systemd && test -d /var/lib/dpkg/info && test -w /var/log")
	// Nothing is installed there, and what Debian's packages were is listed still.
	first.run(ctx, t, "! command -v perl apt-get debconf mkfs.erofs && dpkg-query -W perl-base apt")
	// No unit wanted what is not there: but for the reader, which has no user data, none has failed.
	first.run(ctx, t, `timeout 300 sh -c 'until systemctl is-active -q basic.target; do sleep 1; done' && ! systemctl list-units --failed --plain --no-legend | grep -v '^hardtack-userdata'`)
	first.run(ctx, t, "echo gone >/etc/gone && echo kept >/var/kept && cp /etc/machine-id /var/was && sync")
	if err := first.Stop(); err != nil {
		t.Log(err) // it was powered off like a machine that fails
	}
	const made = "new=true"
	if !first.Console().Contains(made) {
		t.Error("the first boot does not say that it has made the state partition")
	}
	second := sealedMachine(ctx, t, image, overlay)
	second.run(ctx, t, "! test -e /etc/gone && grep -q kept /var/kept && grep -q . /etc/machine-id && cmp /etc/machine-id /var/was")
	if second.Console().Contains(made) {
		t.Error("the second boot has made another state partition")
	}
}

// TestSealedChanged changes a disk. No machine goes on with it, and hardtack image verify finds each change.
func TestSealedChanged(t *testing.T) {
	image := sealedImage(t)
	for name, c := range map[string]struct {
		change       func(t *testing.T, disk *os.File)
		says, verify string
	}{
		// Bytes that nothing else would ever look at: erofs has its superblock behind the first 1024.
		"a bit of the root": {func(t *testing.T, disk *os.File) { t.Helper(); flip(t, disk, partition(t, disk, 2).Start+100) },
			"dm-verity device corrupted", "the hash tree on the disk is another"},
		"the root hash":        {changeHash, "this machine does not boot", "the kernel image opens another root"},
		"the number of blocks": {changeBlocks, "its superblock was changed", "the partitions are named"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(interrupted, bound)
			defer cancel()
			raw := rawDisk(ctx, t, image)
			f, err := os.OpenFile(raw, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			c.change(t, f)
			if _, err := disk.VerifySealed(ctx, f, nil); err == nil || !strings.Contains(err.Error(), c.verify) {
				t.Errorf("verify says %v, want %q", err, c.verify)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			m, err := qemu.Start(ctx, qemu.Config{Name: "hardtack-e2e-changed", Firmware: qemu.UEFI, Disks: []qemu.Disk{{Path: raw}}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = m.Stop() }() // it has panicked
			refuses(ctx, t, m, c.says)
		})
	}
}

// TestSealedTwice starts a machine with its disk and a copy of it. It cannot know which is its own, and the copy could bring a /var
// with what it likes: it starts with neither.
func TestSealedTwice(t *testing.T) {
	image := sealedImage(t)
	ctx, cancel := context.WithTimeout(interrupted, bound)
	defer cancel()
	m, err := qemu.Start(ctx, qemu.Config{Name: "hardtack-e2e-twice", Firmware: qemu.UEFI, Disks: []qemu.Disk{{Path: image, Format: "qcow2"}, {Path: image, Format: "qcow2"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Stop() }() // it has panicked
	refuses(ctx, t, m, "the disks nvme0n1, nvme1n1 have it")
}

// refuses waits for a machine's panic and for its reason, and fails as soon as systemd runs all the same.
func refuses(ctx context.Context, t *testing.T, m *qemu.Machine, says string) {
	t.Helper()
	const started = "systemd[1]"
	err := m.Await(ctx, quiet, func() bool {
		return m.Console().Contains(started) || m.Console().Contains("Kernel panic") && m.Console().Contains(says)
	})
	if err != nil {
		t.Fatalf("waiting for a panic and %q: %v\n%s", says, err, m.Console().Tail(consoleTail))
	}
	if m.Console().Contains(started) {
		t.Errorf("systemd was started, and not refused for %q:\n%s", says, m.Console().Tail(consoleTail))
	}
}

// TestSealedByBIOS starts a sealed disk with the firmware that cannot: the console says so.
func TestSealedByBIOS(t *testing.T) {
	image := sealedImage(t)
	ctx, cancel := context.WithTimeout(interrupted, bound)
	defer cancel()
	m, err := qemu.Start(ctx, qemu.Config{Name: "hardtack-e2e-bios", Firmware: qemu.BIOS, Disks: []qemu.Disk{{Path: image, Format: "qcow2"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Stop() }() // it stands still
	const says = "UEFI alone starts a disk with a sealed root"
	if err := m.Await(ctx, quiet, func() bool { return m.Console().Contains(says) }); err != nil {
		t.Fatalf("waiting for %q: %v\n%s", says, err, m.Console().Tail(consoleTail))
	}
}

// TestSecureBoot starts a sealed disk with firmware that has Secure Boot on: signed with the firmware's key it boots, and neither
// unsigned nor with another root hash since. The firmware decides alike by the variables that an AMI of the disk brings along.
func TestSecureBoot(t *testing.T) {
	image := sealedImage(t)
	for tool, of := range map[string]string{"sbsign": "sbsigntool", "mcopy": "mtools", "openssl": "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v: install Debian's package %s", err, of)
		}
	}
	ctx, cancel := context.WithTimeout(interrupted, 3*bound)
	defer cancel()
	raw := rawDisk(ctx, t, image)
	debians := qemu.Config{Name: "hardtack-e2e-secure", Firmware: qemu.SecureBoot, Disks: []qemu.Disk{{Path: raw}}}
	refused := func(t *testing.T, config qemu.Config) {
		t.Helper()
		ctx, cancel := context.WithTimeout(interrupted, bound)
		defer cancel()
		m, err := qemu.Start(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Stop() }() // it stands still
		if err := m.Await(ctx, quiet, func() bool { return m.Console().Contains("Access Denied") || m.Console().Contains("Linux version") }); err != nil {
			t.Fatalf("waiting for the firmware's refusal: %v\n%s", err, m.Console().Tail(consoleTail))
		}
		if m.Console().Contains("Linux version") {
			t.Errorf("the kernel was started:\n%s", m.Console().Tail(consoleTail))
		}
	}
	starts := func(t *testing.T, config qemu.Config) {
		t.Helper()
		ctx, cancel := context.WithTimeout(interrupted, bound)
		defer cancel()
		m := shellMachine(ctx, t, config)
		// Four bytes of attributes, and the value.
		m.run(ctx, t, `[ "$(od -An -tu1 -j4 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c | tr -d ' ')" = 1 ]`)
		m.run(ctx, t, `[ "$(findmnt -no FSTYPE /)" = erofs ]`)
	}
	amis := func(t *testing.T) qemu.Config {
		t.Helper()
		text, err := os.ReadFile(qemu.TestCertificate)
		if err != nil {
			t.Fatal(err)
		}
		certificate, _ := pem.Decode(text)
		config := debians
		config.Variables = filepath.Join(t.TempDir(), "variables.fd")
		if err := os.WriteFile(config.Variables, uefivarstest.Convert(t, uefivars.SecureBoot(certificate.Bytes), "edk2"), 0o600); err != nil {
			t.Fatal(err)
		}
		return config
	}
	t.Run("unsigned", func(t *testing.T) { refused(t, debians) })
	t.Run("unsigned, by an AMI's variables", func(t *testing.T) { refused(t, amis(t)) })
	signKernel(ctx, t, raw)
	t.Run("signed", func(t *testing.T) { starts(t, debians) })
	t.Run("signed, by an AMI's variables", func(t *testing.T) { starts(t, amis(t)) })
	f, err := os.OpenFile(raw, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	changeHash(t, f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("another root hash", func(t *testing.T) { refused(t, debians) })
}

// rawDisk is a copy of a disk, as bytes.
func rawDisk(ctx context.Context, t *testing.T, image string) string {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "disk.raw")
	if err := run.Run(ctx, run.Command{Name: "qemu-img", Args: []string{"convert", "-O", "raw", image, raw}}); err != nil {
		t.Fatal(err)
	}
	return raw
}

// signKernel signs the kernel image of a disk in its place, as a bake with secure_boot_key does before it writes the disk.
func signKernel(ctx context.Context, t *testing.T, raw string) {
	t.Helper()
	f, err := os.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%s@@%d", raw, partition(t, f, 1).Start)
	_ = f.Close() // only read
	dir := t.TempDir()
	kernel, key := filepath.Join(dir, "kernel.efi"), filepath.Join(dir, "db.key")
	const place = "::/EFI/BOOT/BOOTX64.EFI"
	for _, c := range []run.Command{
		{Name: "mcopy", Args: []string{"-i", at, place, kernel}},
		{Name: "openssl", Args: []string{"pkey", "-in", qemu.TestKey, "-passin", "pass:" + qemu.TestKeyPassword, "-out", key}},
		{Name: "sbsign", Args: []string{"--key", key, "--cert", qemu.TestCertificate, "--output", kernel, kernel}},
		{Name: "mcopy", Args: []string{"-o", "-i", at, kernel, place}},
	} {
		if err := run.Run(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
}

func verifySealed(ctx context.Context, t *testing.T, image string) disk.Verified {
	t.Helper()
	f, err := qcow2.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	v, err := disk.VerifySealed(ctx, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sealedMachine powers a machine on that keeps its disk in an overlay.
func sealedMachine(ctx context.Context, t *testing.T, image, overlay string) *typist {
	t.Helper()
	return shellMachine(ctx, t, qemu.Config{Name: "hardtack-e2e-sealed", Firmware: qemu.UEFI, Disks: []qemu.Disk{{Path: image, Format: "qcow2", Overlay: overlay}}})
}

func partition(t *testing.T, disk io.ReaderAt, number int) gpt.Partition {
	t.Helper()
	table, err := gpt.Read(disk)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		if p.Number == number {
			return p
		}
	}
	t.Fatalf("no partition %d in %+v", number, table)
	return gpt.Partition{}
}

func flip(t *testing.T, disk *os.File, at int64) {
	t.Helper()
	b := make([]byte, 1)
	_, err := disk.ReadAt(b, at)
	if err == nil {
		b[0] ^= 1
		_, err = disk.WriteAt(b, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// changeHash changes a digit of the root hash on the kernel image's command line.
func changeHash(t *testing.T, disk *os.File) {
	t.Helper()
	p := partition(t, disk, 1)
	esp := make([]byte, p.Size)
	if _, err := disk.ReadAt(esp, p.Start); err != nil {
		t.Fatal(err)
	}
	// A kernel image that was replaced by a signed one may still be in free clusters: then there are several.
	places := regexp.MustCompile("roothash=").FindAllIndex(esp, -1)
	if len(places) == 0 {
		t.Fatal("the EFI partition has no root hash")
	}
	digit := []byte{'0'}
	if esp[places[0][1]] == '0' {
		digit[0] = '1'
	}
	for _, place := range places {
		if _, err := disk.WriteAt(digit, p.Start+int64(place[1])); err != nil {
			t.Fatal(err)
		}
	}
}

// changeBlocks says in the hash tree's superblock that the tree is of one block less than the file system has. What a sealed root's
// partition has more, up to a whole MiB, nobody reads: a tree without that opens a whole root.
func changeBlocks(t *testing.T, disk *os.File) {
	t.Helper()
	erofs, tree := make([]byte, 4), partition(t, disk, 3).Start
	_, err := disk.ReadAt(erofs, partition(t, disk, 2).Start+1024+36) // struct erofs_super_block: blocks
	blocks := uint64(binary.LittleEndian.Uint32(erofs))
	s, errTree := verity.ReadSuperblock(io.NewSectionReader(disk, tree, verity.BlockSize))
	if err := errors.Join(err, errTree); err != nil {
		t.Fatal(err)
	}
	// As many digests as a block of the tree has stand for perBlock of its blocks.
	const perBlock = verity.BlockSize / sha256.Size
	if lower := func(n uint64) uint64 { return (n + perBlock*perBlock - 1) / (perBlock * perBlock) }; lower(blocks-1) != lower(s.Blocks) {
		t.Skipf("with %d blocks of %d the tree's lowest level begins elsewhere, and the root hash is another one", blocks-1, s.Blocks)
	}
	s.Blocks = blocks - 1
	encoded, err := s.Encode()
	if err == nil {
		_, err = disk.WriteAt(encoded, tree)
	}
	if err != nil {
		t.Fatal(err)
	}
}
