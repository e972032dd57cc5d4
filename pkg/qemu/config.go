// Package qemu runs virtual machines.
//
// Its rule: a Config is a value that says everything about a machine, and a machine lives no longer
// than its context; no disk that it is given is written to but where the Disk says so, and no process,
// socket or file stays behind but what the Config names.
package qemu

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Config is one machine. The zero value of each field but Disks is a usable default.
type Config struct {
	// Name is what process lists show; empty means "hardtack".
	Name string
	// Memory is in MiB; 0 means 1024.
	Memory int
	// CPUs is the number of virtual processors; 0 means 1.
	CPUs int
	// Firmware is what starts the disk; empty means BIOS.
	Firmware Firmware
	// Disks are NVMe drives in this order, as on EC2 Nitro. The first one is booted.
	Disks []Disk
	// Credentials are systemd's system credentials by name, handed over as SMBIOS strings.
	Credentials map[string][]byte
	// DMI is how the machine introduces itself.
	DMI DMI
	// Network is the machine's only network card; the zero value is no card.
	Network Network
	// Accel is how the processor is run; empty means KVM where it works, else TCG.
	Accel Accel
	// Skew is how far the machine's clock is ahead of ours at power-on; negative is behind.
	Skew time.Duration
	// Reboots lets the guest reboot and keep what it has written; else its first reboot ends the machine.
	Reboots bool
}

// Firmware is what starts the disk.
type Firmware string

// The firmwares: BIOS is SeaBIOS, which QEMU carries; UEFI is OVMF, a package of its own.
const (
	BIOS Firmware = "bios"
	UEFI Firmware = "uefi"
)

// Accel is how the guest's processor is run.
type Accel string

// The accelerators: KVM runs the guest on the processor, TCG translates it (20 times slower, runs anywhere).
const (
	KVM Accel = "kvm"
	TCG Accel = "tcg"
)

// Disk is a disk image. Unless Overlay or Writable says otherwise the machine sees a copy that is thrown away when
// it ends.
type Disk struct {
	Path string
	// Format is "qcow2" or "raw"; empty means raw.
	Format string
	// Serial is the drive's serial number, at most 20 bytes; EC2 shows a volume's id there, without its hyphen. Empty
	// means "disk0" for the first, and so on.
	Serial string
	// Overlay is a file in qcow2 that takes what the machine writes, and is kept; it is made where it is missing.
	// Path must not change while there is one. It needs qemu-img, of Debian's package qemu-utils.
	Overlay string
	// Writable lets the machine write to Path itself: a volume that outlives it. One machine at a time, which QEMU
	// makes sure of by a lock.
	Writable bool
}

// serialLimit is NVMe's: 20 bytes of the controller's data.
const serialLimit = 20

// DMI is a part of what firmware says about the machine. Empty fields keep QEMU's own strings. On EC2 Vendor
// and BIOSVendor are "Amazon EC2", by which software tells where it runs.
type DMI struct {
	BIOSVendor string
	Vendor     string
	Product    string
	Serial     string
}

// NetworkKind is how a network card is connected.
type NetworkKind string

// The kinds: User is QEMU's own network, with DHCP and DNS and no need of root; Stream is a Unix socket
// on which somebody listens who moves Ethernet frames.
const (
	NoNetwork NetworkKind = ""
	User      NetworkKind = "user"
	Stream    NetworkKind = "stream"
)

// Network is a network card, of the kind virtio-net.
type Network struct {
	Kind NetworkKind
	// MAC is the card's address; empty means QEMU's default.
	MAC string
	// Socket is the path of the Unix socket; Stream only.
	Socket string
	// Subnet is the network's addresses; the zero value means QEMU's 10.0.2.0/24; User only.
	Subnet netip.Prefix
	// Isolated cuts the machine off from everything but Forwards; User only.
	Isolated bool
	// Forwards are servers that the machine finds on its network; User only.
	Forwards []Forward
}

// Forward is a TCP server on the machine's network.
type Forward struct {
	// Guest is the address and port that the machine connects to; the address is in the subnet.
	Guest netip.AddrPort
	// Command is run for each connection, with the connection as its standard input and output. It is
	// split into words as a shell would, without a shell.
	Command string
}

// withDefaults returns the Config with what its zero values mean, except Accel, which the Host decides.
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
	if c.Firmware == "" {
		c.Firmware = BIOS
	}
	return c
}

// Validate says what about the Config makes no machine.
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
			bad("disk %s: what is written goes to the disk or to overlay %s, not to both", d.Path, d.Overlay)
		}
	}
	if c.Firmware != "" && c.Firmware != BIOS && c.Firmware != UEFI {
		bad("firmware %q is not %s or %s", c.Firmware, BIOS, UEFI)
	}
	if c.Accel != "" && c.Accel != KVM && c.Accel != TCG {
		bad("accelerator %q is not %s or %s", c.Accel, KVM, TCG)
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
