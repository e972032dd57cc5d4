// Package qemu runs virtual machines with QEMU.
//
// Its rule: a Config describes a machine completely, and a machine lives no longer than its context. No disk is written to
// unless its Disk says so, and no process, socket or file remains except those that the Config names.
package qemu

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Config describes a machine. The zero value of each field but Disks is a usable default.
type Config struct {
	// Name is the name in process lists; empty means "hardtack".
	Name string
	// Arch is the architecture, AMD64 or ARM64; empty means AMD64.
	Arch string
	// Memory is in MiB; 0 means 1024.
	Memory int
	// CPUs is the number of virtual processors; 0 means 1.
	CPUs int
	// Firmware boots the disk; empty means BIOS, and UEFI where there is no BIOS.
	Firmware Firmware
	// Variables is a file of UEFI variables that the firmware begins with; empty means those of Debian's package.
	Variables string
	// Disks are attached as NVMe drives in this order, as on EC2 Nitro. The first one is booted.
	Disks []Disk
	// Slots is how many drives can be plugged in while it runs, at most 4; 0 means none. QEMU 7.2 has crashed in the first
	// seconds of a machine with empty ones, so that only a machine that needs them has them.
	Slots int
	// Credentials are systemd system credentials by name, passed as SMBIOS strings.
	Credentials map[string][]byte
	// DMI identifies the machine to its guest.
	DMI DMI
	// Network is the machine's only network card; the zero value means none.
	Network Network
	// Accel is the accelerator; empty means KVM if it works, else TCG.
	Accel Accel
	// Skew is how far the machine's clock is ahead of the host's at power-on; negative is behind.
	Skew time.Duration
	// Reboots lets the guest reboot and keep its disks; without it the first reboot ends the machine.
	Reboots bool
}

// Firmware is the firmware that boots the disk.
type Firmware string

// The firmwares: BIOS is SeaBIOS, which is part of QEMU; UEFI is OVMF or AAVMF, a separate package.
const (
	BIOS Firmware = "bios"
	UEFI Firmware = "uefi"
	// SecureBoot is OVMF that starts only what was signed with TestKey.
	SecureBoot Firmware = "uefi-secure-boot"
)

// The key pair of Debian's package ovmf that machines with SecureBoot trust. Everybody has it: it is for tests. TestKeyPassword
// unlocks the key.
const (
	TestKey         = "/usr/share/ovmf/PkKek-1-snakeoil.key"
	TestCertificate = "/usr/share/ovmf/PkKek-1-snakeoil.pem"
	TestKeyPassword = "snakeoil"
)

// Accel is an accelerator, which runs the guest's code.
type Accel string

// The accelerators: KVM uses the processor's virtualization, TCG translates code (20 times slower, works anywhere).
//
// Instructions is TCG with one processor, whatever CPUs says, on which each instruction takes 2 ns by the machine's clock (QEMU's
// -icount): what a machine measures of itself does not depend on this computer's speed. By this computer's clock it is slower.
const (
	KVM          Accel = "kvm"
	TCG          Accel = "tcg"
	Instructions Accel = "instructions"
)

// Disk is a disk image. Unless Overlay or Writable is set, writes are discarded when the machine ends.
type Disk struct {
	Path string
	// Format is "qcow2" or "raw"; empty means raw.
	Format string
	// Serial is the drive's serial number, at most 20 bytes; on EC2 it is the volume's id without its hyphen. Empty means
	// "disk0" for the first disk, and so on.
	Serial string
	// Overlay is a qcow2 file that receives the machine's writes and is kept; a missing one is created. Path must not change
	// while it exists. It needs qemu-img, from Debian's package qemu-utils.
	Overlay string
	// Writable lets the machine write to Path itself: a volume that outlives it. QEMU locks the file, so that only one
	// machine can use it at a time.
	Writable bool
}

// serialLimit is NVMe's limit: 20 bytes of the controller's data.
const serialLimit = 20

// DMI has fields of the machine's DMI tables. Empty fields keep QEMU's values. On EC2 Vendor and BIOSVendor are
// "Amazon EC2", by which software recognizes it.
type DMI struct {
	BIOSVendor string
	Vendor     string
	Product    string
	Serial     string
}

// NetworkKind is the backend of a network card.
type NetworkKind string

// The kinds: User is QEMU's user network, with DHCP and DNS and without root; Stream is a Unix socket on which another
// program listens, such as pkg/lab/vnet, and exchanges Ethernet frames.
const (
	NoNetwork NetworkKind = ""
	User      NetworkKind = "user"
	Stream    NetworkKind = "stream"
)

// Network is a network card of the type virtio-net.
type Network struct {
	Kind NetworkKind
	// MAC is the card's address; empty means QEMU's default.
	MAC string
	// Socket is the path of the Unix socket; Stream only.
	Socket string
	// Subnet is the network's address range; the zero value means QEMU's 10.0.2.0/24; User only.
	Subnet netip.Prefix
	// Isolated blocks all traffic of the machine but to Forwards; User only.
	Isolated bool
	// Forwards are servers on the machine's network; User only.
	Forwards []Forward
}

// Forward is a TCP server on the machine's network.
type Forward struct {
	// Guest is the server's address and port, in the subnet.
	Guest netip.AddrPort
	// Command is run for each connection, with the connection as its stdin and stdout. It is split into words as by a
	// shell, but runs without one.
	Command string
}

// withDefaults replaces zero values by their defaults, except Accel, which depends on the Host.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "hardtack"
	}
	if c.Memory == 0 {
		c.Memory = 1024
	}
	if c.CPUs == 0 {
		c.CPUs = 1
	}
	if c.Firmware == "" && c.arch() == AMD64 {
		c.Firmware = BIOS
	}
	c.Firmware = cmp.Or(c.Firmware, UEFI)
	return c
}

func (c Config) arch() string { return cmp.Or(c.Arch, AMD64) }

// Validate returns an error for each invalid field.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Disks) == 0 {
		bad("machine %q has no disk", c.Name)
	}
	for _, d := range c.Disks {
		if d.Format != "" && d.Format != "raw" && d.Format != "qcow2" {
			bad("disk %s: format %q is not raw or qcow2", d.Path, d.Format)
		}
		if len(d.Serial) > serialLimit {
			bad("disk %s: serial number %q is longer than %d bytes", d.Path, d.Serial, serialLimit)
		}
		if d.Writable && d.Overlay != "" {
			bad("disk %s: Writable and overlay %s exclude each other", d.Path, d.Overlay)
		}
	}
	if c.Slots < 0 || c.Slots > mostSlots {
		bad("machine %q has %d slots, not 0 to %d", c.Name, c.Slots, mostSlots)
	}
	if !slices.Contains([]Firmware{"", BIOS, UEFI, SecureBoot}, c.Firmware) {
		bad("firmware %q is not %s, %s or %s", c.Firmware, BIOS, UEFI, SecureBoot)
	}
	switch c.arch() {
	case AMD64:
	case ARM64:
		if c.Firmware != "" && c.Firmware != UEFI {
			bad("firmware %q: a machine of %s has %s", c.Firmware, ARM64, UEFI)
		}
	default:
		bad("architecture %q is not %s or %s", c.Arch, AMD64, ARM64)
	}
	if !slices.Contains([]Accel{"", KVM, TCG, Instructions}, c.Accel) {
		bad("accelerator %q is not %s, %s or %s", c.Accel, KVM, TCG, Instructions)
	}
	return errors.Join(append(errs, c.Network.validate())...)
}

func (n Network) validate() error {
	switch n.Kind {
	case NoNetwork:
		if n.MAC != "" || n.Socket != "" || n.Subnet.IsValid() || n.Isolated || len(n.Forwards) > 0 {
			return errors.New("network: settings without a kind")
		}
	case User:
		for _, f := range n.Forwards {
			if n.Subnet.IsValid() && !n.Subnet.Contains(f.Guest.Addr()) {
				return fmt.Errorf("network: %s is not in %s, so no machine could reach it there", f.Guest, n.Subnet)
			}
		}
	case Stream:
		if n.Socket == "" {
			return errors.New("network: a stream needs a socket")
		}
	default:
		return fmt.Errorf("network kind %q is not %s or %s", n.Kind, User, Stream)
	}
	return nil
}
