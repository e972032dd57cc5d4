// Package sealed is the body of hardtack-init, the first program of a machine with a sealed root: it opens the root file
// system by the root hash on the kernel's command line, finds or makes the state partition, and hands over to systemd.
//
// Its rule: no byte of the root is used that the root hash does not vouch for, and nothing is decided here that systemd
// could decide later. Whatever cannot be done is an error with its reason on the console, after which the kernel panics:
// such a machine is replaced and not mended.
package sealed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/gpt"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
)

// The initial RAM disk's own paths, which who makes it fills.
const (
	// RootModules are the kernel modules without which there is no root, DriverModules those that some disks need. They are
	// loaded in the order of their names, each after the ones that it needs.
	RootModules   = "/modules/root"
	DriverModules = "/modules/driver"
	// SystemRoot is the directory where the root file system is opened.
	SystemRoot = "/sysroot"
)

// Repart is where the sealed root has the definition of the state partition, for systemd-repart. It is not one of the
// directories that systemd-repart.service reads: the partition is there, and grown, before systemd starts.
const Repart = "/usr/lib/hardtack/repart.d"

// OrphanFile is mke2fs's option (-E) for the file of orphans, of a writable root too. The kernel reads all of it at each mount, in
// reads of 4 KiB, one after the other: 2 MB by default. 32 blocks are its least size, and more than a few for each processor,
// which mke2fs(8) calls ideal. Without its unit the number would be blocks.
const OrphanFile = "orphan_file_size=128k"

// Argument is the argument of the kernel with the root hash.
const Argument = "roothash"

// Kept is a file of /etc that lasts longer than a boot. Everything else in /etc is the image's or is written by each boot
// anew, so that a reboot is a fresh machine with its user data.
type Kept struct {
	// Path is where the machine reads it, State where it lasts.
	Path, State string
	// Reason is why it lasts.
	Reason string
	// make makes it where there is none yet, or none that is valid.
	make    func() ([]byte, error)
	isValid func([]byte) bool
}

// KeptFiles is the one list of what lasts. What is in /var lasts by itself: what the user data was, and what it has
// appended; etcd's data; containers, images and pods; logs.
func KeptFiles() []Kept {
	return []Kept{{
		Path: "/etc/machine-id", State: "/var/lib/hardtack/machine-id", make: newMachineID, isValid: isMachineID,
		Reason: "the journal in /var is named by it, and so is the machine to a DHCP server, which would give it another address",
	}}
}

// RootHash finds the root hash on a kernel's command line, in hexadecimal digits; it is empty where the root is written to.
func RootHash(commandLine string) (string, error) {
	if len(arguments(commandLine)) == 0 {
		return "", nil
	}
	hash, err := rootHash(commandLine)
	if err != nil {
		return "", err
	}
	return hash.String(), nil
}

// rootHash finds the root hash on a kernel's command line, which must have one.
func rootHash(commandLine string) (verity.Hash, error) {
	found := arguments(commandLine)
	if len(found) != 1 {
		return verity.Hash{}, fmt.Errorf("the kernel's command line has %d arguments %s=, and needs one: %s", len(found), Argument, strings.TrimSpace(commandLine))
	}
	return verity.ParseHash(found[0])
}

// arguments are the values of Argument.
func arguments(commandLine string) (found []string) {
	for _, field := range strings.Fields(commandLine) {
		if value, ok := strings.CutPrefix(field, Argument+"="); ok {
			found = append(found, value)
		}
	}
	return found
}

// partition is one of a disk, by the names of their devices.
type partition struct{ name, disk, id string }

// look reads the tables of all disks, and finds the partitions of them.
func look(sys, dev string) (map[string]map[string]string, []partition, error) {
	disks, err := tables(sys, dev)
	if err != nil {
		return nil, nil, err
	}
	all, err := partitions(sys, dev, disks)
	return disks, all, err
}

// tables reads the tables of all disks: the identifiers of each disk's partitions by their numbers. sys is where sysfs is, and dev
// where the devices are. A disk without a table that can be read has none: it is another's.
func tables(sys, dev string) (map[string]map[string]string, error) {
	names, err := filepath.Glob(path.Join(sys, "block/*"))
	found := map[string]map[string]string{}
	for _, name := range names {
		found[path.Base(name)] = table(path.Join(dev, path.Base(name)))
	}
	return found, err
}

// partitions are those of the disks' tables that the kernel has made devices for. One that cannot be opened yet is left out.
func partitions(sys, dev string, tables map[string]map[string]string) ([]partition, error) {
	// What is a directory there and has a number is a partition of the device above it.
	names, err := filepath.Glob(path.Join(sys, "block/*/*/partition"))
	if err != nil {
		return nil, err
	}
	var found []partition
	for _, name := range names {
		dir := path.Dir(name)
		p := partition{name: path.Base(dir), disk: path.Base(path.Dir(dir))}
		number, err := readText(name)
		if err != nil {
			continue // it has just gone
		}
		if p.id = tables[p.disk][strings.TrimSpace(number)]; p.id != "" && opens(path.Join(dev, p.name)) {
			found = append(found, p)
		}
	}
	return found, nil
}

// copies are the disks with the two partitions of a root hash, in order. The identifiers follow from what the image holds, so that
// every machine has the same ones, and a volume with them may be attached: another machine's root, or what a pod has written to a
// volume of its own. None of them vouches for the state beside the root, so that of two no one is taken.
func copies(tables map[string]map[string]string, root verity.Hash) (disks []string) {
	for disk, ids := range tables {
		has := slices.Collect(maps.Values(ids))
		if slices.Contains(has, root.Data().String()) && slices.Contains(has, root.Tree().String()) {
			disks = append(disks, disk)
		}
	}
	slices.Sort(disks)
	return disks
}

// unseen are the NVMe controllers of which the kernel has shown no disk yet, by their places on the bus. It looks at them side by
// side, so that the machine's own disk is not always the first. Where other drivers find the root, that is not known.
func unseen(sys string) (controllers []string) {
	const nvme = "0x010802"                                                // PCI's class: mass storage, non-volatile memory, NVM Express
	classes, _ := filepath.Glob(path.Join(sys, "bus/pci/devices/*/class")) // the pattern is right
	for _, name := range classes {
		class, _ := readText(name) // "" where it has just gone
		if disks, _ := filepath.Glob(path.Join(path.Dir(name), "nvme/nvme*/nvme*n*")); strings.TrimSpace(class) == nvme && len(disks) == 0 {
			controllers = append(controllers, path.Base(path.Dir(name)))
		}
	}
	return controllers
}

// opens reports whether a device can be opened. The kernel shows a partition in sysfs before it makes the device, and makes the
// device before it can be opened (add_partition in block/partitions/core.c).
func opens(device string) bool {
	f, err := os.Open(device)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// table is the identifiers of a disk's partitions by their numbers.
func table(device string) map[string]string {
	ids := map[string]string{}
	f, err := os.Open(device)
	if err != nil {
		return ids
	}
	defer func() { _ = f.Close() }() // only read
	entries, err := gpt.Read(f)
	if err != nil {
		return ids
	}
	for _, e := range entries {
		ids[strconv.Itoa(e.Number)] = e.ID.String()
	}
	return ids
}

// pair finds the partitions of a root hash. They are on one disk: a volume that has one of them may be attached too.
func pair(all []partition, root verity.Hash) (data, tree partition, ok bool) {
	for _, d := range all {
		if d.id != root.Data().String() {
			continue
		}
		at := slices.IndexFunc(all, func(t partition) bool { return t.disk == d.disk && t.id == root.Tree().String() })
		if at >= 0 {
			return d, all[at], true
		}
	}
	return partition{}, partition{}, false
}

// stateID finds the identifier of the partition that is mounted on /var, in the root's fstab.
func stateID(fstab string) (string, error) {
	for line := range strings.Lines(fstab) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "/var" {
			continue
		}
		if id, ok := strings.CutPrefix(fields[0], "PARTUUID="); ok {
			return strings.ToLower(id), nil
		}
	}
	return "", errors.New("/etc/fstab of the root names no partition for /var by PARTUUID=")
}

// erofsSize is the size in bytes of the erofs on a device, by its superblock (struct erofs_super_block in the kernel's
// fs/erofs/erofs_fs.h).
func erofsSize(device io.ReaderAt) (uint64, error) {
	const (
		offset, magic = 1024, 0xe0f5e1e2
		atBits, at    = 12, 36 // of the block's size, as a power of two, and of the number of blocks
	)
	var super [at + 4]byte
	if _, err := device.ReadAt(super[:], offset); err != nil {
		return 0, err
	}
	if found := binary.LittleEndian.Uint32(super[:]); found != magic {
		return 0, fmt.Errorf("is no erofs (magic %#x)", found)
	}
	return uint64(binary.LittleEndian.Uint32(super[at:])) << super[atBits], nil
}
