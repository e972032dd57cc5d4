// Package disk makes a bootable disk image from a root directory.
//
// Its rule: nothing is mounted and no loop device is used. File systems are written into plain sparse files by tools
// that take a directory, so that there is nothing to clean up. Every identifier and every time on the disk follows from
// the directory's content and Options, never from a clock or a random number.
package disk

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// Sizes in bytes.
const (
	mib    = 1 << 20
	sector = 512
	// first is where the first partition begins, as with every partitioning tool since 2010.
	first = mib
	// espSize holds a kernel of 12 MB, an initrd and a boot loader, and is large enough that FAT32 has
	// the number of clusters that firmware recognises it by.
	espSize = 64 * mib
	// tail is left free at the end for the second partition table (33 sectors), in whole MiB.
	tail = mib
)

// Partition types of the discoverable partitions specification.
const typeESP = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"

// machine has the properties that depend on the architecture.
type machine struct {
	rootType string // partition type of the root file system
	treeType string // and of its hash tree, where it is sealed
	loader   string // systemd-boot in the root directory
	stub     string // systemd's stub of a unified kernel image, likewise
	removed  string // where firmware looks for a loader on a disk that it does not know
	serial   string // the serial console
	// quirks are kernel arguments, each with a space after it. An emulated timer on a busy computer fails the
	// kernel's test of it ("IO-APIC + timer doesn't work!"); under KVM the kernel leaves the test out by itself.
	quirks string
	bios   bool // whether there is a BIOS that can boot it
}

// architectures are those that machineOf knows.
var architectures = []string{"amd64", "arm64"}

func machineOf(arch string) (machine, error) {
	switch arch {
	case "amd64":
		return machine{
			rootType: "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", treeType: "2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5",
			loader: "usr/lib/systemd/boot/efi/systemd-bootx64.efi", stub: "usr/lib/systemd/boot/efi/linuxx64.efi.stub",
			removed: "BOOTX64.EFI", serial: "ttyS0,115200", quirks: "no_timer_check ", bios: true,
		}, nil
	case "arm64":
		return machine{
			rootType: "B921B045-1DF0-41C3-AF44-4C6F280D3FAE", treeType: "DF3300CE-D69F-4C92-978C-9BFB0F38D820",
			loader: "usr/lib/systemd/boot/efi/systemd-bootaa64.efi", stub: "usr/lib/systemd/boot/efi/linuxaa64.efi.stub",
			removed: "BOOTAA64.EFI", serial: "ttyS0,115200",
		}, nil
	}
	return machine{}, fmt.Errorf("architecture %q: only amd64 and arm64 disks can be made", arch)
}

// Layout has the positions and identifiers of everything on the disk. It is a value: nothing is written yet.
type Layout struct {
	// Size of the whole disk, and where the root partition begins and how long it is, in bytes.
	Size, RootStart, RootSize int64
	// Disk, ESP and Root are the identifiers of the partition table and its partitions; FileSystem
	// is the root file system's. State is that of a sealed disk's state partition, which the first boot makes.
	Disk, ESP, Root, FileSystem, State uuid.UUID
	// Volume is the serial number of the EFI partition's file system.
	Volume uint32
}

// Plan lays out a disk of size bytes whose identifiers follow from digest, the content's sha256.
func Plan(size int64, digest [32]byte) (Layout, error) {
	size = size / mib * mib
	l := Layout{Size: size, RootStart: first + espSize}
	l.RootSize = size - l.RootStart - tail
	if l.RootSize < 64*mib {
		return Layout{}, fmt.Errorf("disk of %d MiB: too small for any root file system", size/mib)
	}
	// Version 5 UUIDs: a name space of the content, a name for each use.
	space := uuid.NewSHA1(uuid.NameSpaceURL, []byte("sha256:"+hex.EncodeToString(digest[:])))
	name := func(use string) uuid.UUID { return uuid.NewSHA1(space, []byte(use)) }
	l.Disk, l.ESP, l.Root, l.FileSystem = name("disk"), name("esp"), name("root"), name("file system")
	l.State = name("state")
	l.Volume = name("volume").ID()
	return l, nil
}

// table is the input of sfdisk.
func (l Layout) table(m machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "label: gpt\nlabel-id: %s\nunit: sectors\nsector-size: %d\n\n", upper(l.Disk), sector)
	attributes := "GUID:63" // not to be mounted by systemd: nothing in a running machine reads it
	if m.bios {
		attributes = "LegacyBIOSBootable " + attributes // what gptmbr.bin looks for
	}
	fmt.Fprintf(&b, "start=%d, size=%d, type=%s, uuid=%s, name=\"esp\", attrs=\"%s\"\n",
		first/sector, espSize/sector, typeESP, upper(l.ESP), attributes)
	fmt.Fprintf(&b, "start=%d, size=%d, type=%s, uuid=%s, name=\"root\"\n",
		l.RootStart/sector, l.RootSize/sector, m.rootType, upper(l.Root))
	return b.String()
}

func upper(id uuid.UUID) string { return strings.ToUpper(id.String()) }

// fstab has no line for the root: with one, systemd checks the file system and mounts it for writing before it starts udev and the
// network. The kernel mounts it for writing instead; after a crash its journal is enough for that. One in which the kernel finds an
// error becomes read-only (mke2fs -e), and its machine is to be replaced, not repaired.
const fstab = "# The kernel mounts the root file system for writing. Nothing checks it, and with an error it becomes read-only:\n" +
	"# replace the machine.\n"

// repartRoot makes systemd-repart grow the root partition if the disk is larger than the image was.
const repartRoot = "[Partition]\nType=root\n"

// The partition and its file system grow when the user data are read, for which they are large enough. The kubelet waits for it,
// and so they have the weight of what a node waits for.
const (
	repartOrder = "[Unit]\nWants=systemd-growfs-root.service\nAfter=hardtack-userdata.service\n" + nodeWeight
	nodeWeight  = "[Service]\nSlice=hardtack-node.slice\nStartupCPUWeight=1000\n"
)

// kernelArguments is the whole line. Of the consoles the last one is /dev/console, where systemd writes.
// rootwait is needed: disks are found at their own pace, and without an initrd nobody else waits. A kernel that
// panics tries again after 10 s instead of standing still until somebody looks.
//
// notests: Debian's kernel tests its ciphers at each boot, for drivers of hardware that a machine may have. No cloud's machine has
// any, and Linux leaves the tests out unless it is told otherwise (CRYPTO_MANAGER_DISABLE_TESTS, by default y). They took a seventh
// of the time to a Ready node where the processor is emulated. With fips=1 the kernel runs them in any case.
func (l Layout) kernelArguments(m machine, extra string) string {
	return commandLine(fmt.Sprintf("root=PARTUUID=%s rw rootwait", l.Root), m, extra)
}

// commandLine is the whole line of a kernel whose root is found by the arguments root.
func commandLine(root string, m machine, extra string) string {
	line := fmt.Sprintf("%s panic=10 cryptomgr.notests %sconsole=tty0 console=%s", root, m.quirks, m.serial)
	return strings.TrimSpace(line + " " + strings.Join(strings.Fields(extra), " "))
}
