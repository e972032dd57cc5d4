//go:build linux

package sealed

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
)

const hashText = "3fd9b02d7ac65c57042394d8246ef938ac8ef7013c83dfb084a0f26926949d06"

func TestRootHash(t *testing.T) {
	got, err := rootHash("ro roothash=" + hashText + " console=ttyS0\n")
	if err != nil || got.String() != hashText {
		t.Errorf("%s, %v", got, err)
	}
	for name, wrong := range map[string]string{
		"none": "ro quiet", "two": "roothash=" + hashText + " roothash=" + hashText, "short": "roothash=" + hashText[:62], "empty": "roothash=", "other": "usrhash=" + hashText,
	} {
		if got, err := rootHash(wrong); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// disks lays out a sysfs and a /dev with disks whose tables sfdisk has written.
func disks(t *testing.T, tables map[string]string) machine {
	t.Helper()
	program, err := exec.LookPath("sfdisk")
	if err != nil {
		t.Skipf("%v: install Debian's package fdisk", err)
	}
	sys, dev := t.TempDir(), t.TempDir()
	for disk, table := range tables {
		name := filepath.Join(dev, disk)
		if err := errors.Join(os.MkdirAll(filepath.Join(sys, "block", disk), 0o755), os.WriteFile(name, nil, 0o600), os.Truncate(name, 8<<20)); err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(strings.TrimSpace(table), "\n") {
			if line == "" {
				continue
			}
			dir := filepath.Join(sys, "block", disk, disk+"p"+string(rune('1'+n)))
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "partition"), []byte{byte('1' + n), '\n'}, 0o600),
				os.WriteFile(filepath.Join(dev, filepath.Base(dir)), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if table == "" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), program, "--quiet", name)
		cmd.Stdin = strings.NewReader("label: gpt\n" + table)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return machine{sys, dev}
}

// machine is where sysfs and the devices are.
type machine struct{ sys, dev string }

// The root is on the disk that has both of its partitions, whatever else is attached.
func TestPair(t *testing.T) {
	hash, err := verity.ParseHash(hashText)
	if err != nil {
		t.Fatal(err)
	}
	data := "size=1MiB, uuid=" + hash.Data().String() + "\n"
	tree := "size=1MiB, uuid=" + hash.Tree().String() + "\n"
	other := "size=1MiB, uuid=264AC39D-01C1-5A77-8C59-0CD8B12BD7F3\n"
	for name, c := range map[string]struct {
		tables     map[string]string
		data, tree string
		copies     string
	}{
		"one disk":        {map[string]string{"nvme0n1": other + data + tree}, "nvme0n1p2", "nvme0n1p3", "nvme0n1"},
		"half of another": {map[string]string{"nvme0n1": data, "nvme1n1": tree + data}, "nvme1n1p2", "nvme1n1p1", "nvme1n1"},
		"on two disks":    {map[string]string{"nvme0n1": data, "nvme1n1": tree}, "", "", ""},
		"another root":    {map[string]string{"nvme0n1": other, "nvme1n1": ""}, "", "", ""},
		"and a copy":      {map[string]string{"nvme1n1": tree + data, "nvme0n1": other + data + tree}, "nvme0n1p2", "nvme0n1p3", "nvme0n1 nvme1n1"},
	} {
		t.Run(name, func(t *testing.T) {
			tables, all := read(t, disks(t, c.tables))
			d, tr, ok := pair(all, hash)
			if d.name != c.data || tr.name != c.tree || ok != (c.data != "") || d.disk != tr.disk {
				t.Errorf("found %+v and %+v, %v, of %v", d, tr, ok, all)
			}
			if got := strings.Join(copies(tables, hash), " "); got != c.copies {
				t.Errorf("disks with both are %q, want %q", got, c.copies)
			}
		})
	}
}

// read reads the tables and the partitions of disks.
func read(t *testing.T, m machine) (map[string]map[string]string, []partition) {
	t.Helper()
	found, all, err := look(m.sys, m.dev)
	if err != nil {
		t.Fatal(err)
	}
	return found, all
}

// A controller counts until the kernel has shown a disk of it, by that disk's own name or as one way to it (nvme0c0n1).
func TestUnseen(t *testing.T) {
	sys := t.TempDir()
	for name, class := range map[string]string{"0000:00:03.0": "0x010802", "0000:00:04.0": "0x010802", "0000:00:05.0": "0x010802", "0000:00:06.0": "0x020000"} {
		dir := filepath.Join(sys, "bus/pci/devices", name)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "nvme/nvme0"), 0o755), os.WriteFile(filepath.Join(dir, "class"), []byte(class+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for at, disk := range []string{"0000:00:03.0/nvme/nvme0/nvme0n1", "0000:00:04.0/nvme/nvme0/nvme1c1n1"} {
		if got := unseen(sys); len(got) != 3-at {
			t.Errorf("%d disks are there, and %v wait for one", at, got)
		}
		if err := os.Mkdir(filepath.Join(sys, "bus/pci/devices", disk), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := unseen(sys); len(got) != 1 || got[0] != "0000:00:05.0" {
		t.Errorf("%v wait for a disk", got)
	}
}

// The size is mkfs.erofs's own.
func TestErofsSize(t *testing.T) {
	program, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		t.Skipf("%v: install Debian's package erofs-utils", err)
	}
	file, dir := filepath.Join(t.TempDir(), "root"), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "content"), make([]byte, 3<<20+5), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, file, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if size, err := erofsSize(f); err != nil || size != uint64(info.Size()) {
		t.Errorf("%d bytes of %d, %v", size, info.Size(), err)
	}
	for name, wrong := range map[string]string{"none": strings.Repeat("\x00", 2048), "cut short": "x"} {
		if size, err := erofsSize(strings.NewReader(wrong)); err == nil {
			t.Errorf("%s: %d bytes", name, size)
		}
	}
}

// The kernel names a partition in /sys a moment before its device can be opened: until then it is not there.
func TestPartitionWithoutDevice(t *testing.T) {
	hash, err := verity.ParseHash(hashText)
	if err != nil {
		t.Fatal(err)
	}
	m := disks(t, map[string]string{"nvme0n1": "size=1MiB, uuid=" + hash.Data().String() + "\nsize=1MiB, uuid=" + hash.Tree().String() + "\n"})
	late := filepath.Join(m.dev, "nvme0n1p2")
	if err := os.Remove(late); err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(late, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, all := read(t, m)
		if _, _, ok := pair(all, hash); ok != there {
			t.Errorf("with its device %v, the root is found: %v", there, ok)
		}
	}
}

func TestStateID(t *testing.T) {
	got, err := stateID("# disk\nPARTUUID=AB-C /data ext4\nPARTUUID=B460F1E0-45A4 /var ext4 defaults 0 0\n")
	if err != nil || got != "b460f1e0-45a4" {
		t.Errorf("%q, %v", got, err)
	}
	for _, wrong := range []string{"", "LABEL=state /var ext4\n", "PARTUUID=1 / ext4\n"} {
		if got, err := stateID(wrong); err == nil {
			t.Errorf("%q: %q", wrong, got)
		}
	}
}

// The buffer of an ioctl is as linux/dm-ioctl.h has it on a 64-bit machine.
func TestMapperMessage(t *testing.T) {
	target := mapperTarget{Length: 2048}
	copy(target.Type[:], "verity")
	b, err := mapperMessage("root", target, "1 a b")
	if err != nil {
		t.Fatal(err)
	}
	if binary.NativeEndian.Uint32(b[12:]) != uint32(len(b)) || binary.NativeEndian.Uint32(b[16:]) != 312 || binary.NativeEndian.Uint32(b[20:]) != 1 || binary.NativeEndian.Uint32(b[28:]) != 1 {
		t.Errorf("header % x", b[:48])
	}
	if string(b[48:53]) != "root\x00" || binary.NativeEndian.Uint64(b[320:]) != 2048 || string(b[336:343]) != "verity\x00" || string(b[352:358]) != "1 a b\x00" || len(b)%8 != 0 {
		t.Errorf("%d bytes % x", len(b), b[312:])
	}
	if b, err = mapperMessage("root", mapperTarget{}, ""); err != nil || len(b) != 312 || binary.NativeEndian.Uint32(b[20:]) != 0 {
		t.Errorf("without a table: %d bytes, %v", len(b), err)
	}
}

// What lasts is made once, and is the same at the next boot.
func TestBring(t *testing.T) {
	for _, k := range KeptFiles() {
		if k.Reason == "" || !strings.HasPrefix(k.Path, "/etc/") || !strings.HasPrefix(k.State, "/var/") {
			t.Errorf("%+v", k)
		}
	}
	k := KeptFiles()[0]
	dir := t.TempDir()
	k.State = filepath.Join(dir, "var", "machine-id")
	read := func(name string) string {
		t.Helper()
		k.Path = filepath.Join(dir, name)
		if err := k.bring(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(k.Path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first, second := read("one"), read("two")
	if len(first) != 33 || first != second {
		t.Errorf("%q, and then %q", first, second)
	}
	// A crash may leave an empty file, and who writes to the disk any other.
	for name, leave := range map[string]func() error{
		"empty":   func() error { return os.WriteFile(k.State, nil, 0o600) },
		"zeros":   func() error { return os.WriteFile(k.State, make([]byte, 33), 0o600) },
		"digit 0": func() error { return os.WriteFile(k.State, []byte(strings.Repeat("0", 32)+"\n"), 0o600) },
		"a pipe":  func() error { return unix.Mkfifo(k.State, 0o600) },
		"a link":  func() error { return os.Symlink("/dev/zero", k.State) },
	} {
		if err := errors.Join(os.Remove(k.State), leave()); err != nil {
			t.Fatal(err)
		}
		if other := read(name); !isMachineID([]byte(other)) || other == first {
			t.Errorf("%s: %q after %q", name, other, first)
		}
	}
}

func TestRootHashOrNone(t *testing.T) {
	hash := strings.Repeat("0f", 32)
	for line, want := range map[string]string{
		"": "", "quiet root=/dev/nvme0n1p2 rootflags=ro\n": "", "quiet roothash=" + hash + " panic=10\n": hash,
	} {
		if got, err := RootHash(line); err != nil || got != want {
			t.Errorf("%q: got %q, %v", line, got, err)
		}
	}
	for _, line := range []string{"roothash=" + hash + " roothash=" + hash, "roothash=", "roothash=12"} {
		if got, err := RootHash(line); err == nil {
			t.Errorf("%q: got %q", line, got)
		}
	}
}
