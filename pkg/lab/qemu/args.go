package qemu

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of files and sockets in a machine's directory.
const (
	consoleSocket = "console.sock"
	channelSocket = "channel.sock"
	monitorSocket = "monitor.sock"
	varsFile      = "efivars.fd"
)

// tcgEngine has a thread for each virtual processor. Its cache of translated code has 512 MiB, not the default 1 GiB: boots are as fast,
// and a machine takes a third of a GiB less memory.
const tcgEngine = "tcg,thread=multi,tb-size=512"

// Instructions are counted by one thread. Shift 1 is 2^1 ns for each.
const (
	countingEngine = "tcg,thread=single,tb-size=512"
	counting       = "shift=1,sleep=on"
)

// board is the machine's. The variables of Secure Boot are the firmware's alone: it writes them in system management mode.
func (c Config) board() string {
	board := platforms[c.arch()].board
	if c.Firmware == SecureBoot {
		return board + ",smm=on"
	}
	return board
}

// accelerator is the one that the machine runs with.
func (c Config) accelerator(h Host) Accel {
	if c.Accel == "" && h.kvm(c.arch()) {
		return KVM
	}
	return cmp.Or(c.Accel, TCG)
}

// Emulates reports whether a machine's processors are emulated on this computer.
func (h Host) Emulates(c Config) bool { return c.accelerator(h) != KVM }

// args returns QEMU's arguments for a machine that is powered on at that time. It has no side effects: dir is the
// directory in which Start writes the files that the arguments name.
func (c Config) args(h Host, dir string, now time.Time) []string {
	engine, cpu, cpus, platform := string(KVM), "host", c.CPUs, platforms[c.arch()]
	switch c.accelerator(h) {
	case TCG:
		engine, cpu = tcgEngine, platform.tcgCPU
	case Instructions:
		engine, cpu, cpus = countingEngine, platform.tcgCPU, 1
	}
	a := []string{
		"-name", option(c.Name),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", c.board(), "-accel", engine, "-cpu", cpu,
		"-m", strconv.Itoa(c.Memory), "-smp", strconv.Itoa(cpus),
	}
	if c.accelerator(h) == Instructions {
		a = append(a, "-icount", counting)
	}
	if c.Firmware == SecureBoot {
		a = append(a, "-global", "driver=cfi.pflash01,property=secure,value=on")
	}
	if !c.Reboots {
		a = append(a, "-no-reboot")
	}
	if c.Skew != 0 {
		a = append(a, "-rtc", "base="+now.Add(c.Skew).UTC().Format("2006-01-02T15:04:05"))
	}
	a = append(a, "-chardev", "socket,id=monitor,path="+option(filepath.Join(dir, monitorSocket)), "-mon", "chardev=monitor,mode=control")
	for _, port := range []struct{ id, socket string }{{"console", consoleSocket}, {"channel", channelSocket}} {
		a = append(a, "-chardev", "socket,id="+port.id+",path="+option(filepath.Join(dir, port.socket)))
		a = append(a, platform.ports(port.id)...)
	}
	if f, ok := h.firmwares[c.arch()][c.Firmware]; ok {
		a = append(a,
			"-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+option(f.code),
			"-drive", "if=pflash,unit=1,format=raw,file="+option(filepath.Join(dir, varsFile)))
	}
	a = append(a, diskArgs(c.Disks)...)
	a = append(a, c.DMI.args()...)
	for _, name := range c.credentialNames() {
		a = append(a, "-smbios", "type=11,path="+option(credentialFile(dir, name)))
	}
	a = append(a, c.Network.args()...)
	// After all else: the addresses of the other devices are the same with and without them.
	for n := range c.Slots {
		a = append(a, "-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%d", slotName(n), n+1, n+1))
	}
	return a
}

// diskArgs returns the arguments that attach the disks.
func diskArgs(disks []Disk) []string {
	var a []string
	for i, d := range disks {
		id := fmt.Sprintf("disk%d", i)
		a = append(a,
			"-drive", "if=none,id="+id+","+d.drive(),
			"-device", fmt.Sprintf("nvme,drive=%s,serial=%s,bootindex=%d", id, option(cmp.Or(d.Serial, id)), i))
	}
	return a
}

// drive returns the disk's drive argument. snapshot=on writes to an unnamed file in TMPDIR, so that an image serves
// many machines at once and never changes. Disks that are kept are flushed when the machine asks for it.
func (d Disk) drive() string {
	switch {
	case d.Overlay != "":
		return "format=qcow2,file=" + option(d.Overlay)
	case d.Writable:
		return "format=" + d.format() + ",file=" + option(d.Path)
	default:
		return "format=" + d.format() + ",snapshot=on,file=" + option(d.Path)
	}
}

func (d Disk) format() string { return cmp.Or(d.Format, "raw") }

func (d DMI) args() []string {
	var a []string
	if d.BIOSVendor != "" {
		a = append(a, "-smbios", "type=0,vendor="+option(d.BIOSVendor))
	}
	system := ""
	for _, f := range []struct{ key, value string }{{"manufacturer", d.Vendor}, {"product", d.Product}, {"serial", d.Serial}} {
		if f.value != "" {
			system += "," + f.key + "=" + option(f.value)
		}
	}
	if system != "" {
		a = append(a, "-smbios", "type=1"+system)
	}
	return a
}

func (n Network) args() []string {
	var back string
	switch n.Kind {
	case NoNetwork:
		return nil
	case Stream:
		back = "stream,id=net0,server=off,addr.type=unix,addr.path=" + option(n.Socket)
	case User:
		back = "user,id=net0"
		if n.Subnet.IsValid() {
			back += ",net=" + n.Subnet.String()
		}
		if n.Isolated {
			back += ",restrict=on"
		}
		for _, f := range n.Forwards {
			back += ",guestfwd=" + option(fmt.Sprintf("tcp:%s-cmd:%s", hostPort(f.Guest), f.Command))
		}
	}
	card := "virtio-net-pci,netdev=net0"
	if n.MAC != "" {
		card += ",mac=" + n.MAC
	}
	return []string{"-netdev", back, "-device", card}
}

func hostPort(a netip.AddrPort) string { return a.Addr().String() + ":" + strconv.Itoa(int(a.Port())) }

// option escapes a value of a comma-separated option: QEMU reads two commas as one.
func option(value string) string { return strings.ReplaceAll(value, ",", ",,") }

func (c Config) credentialNames() []string { return slices.Sorted(maps.Keys(c.Credentials)) }

// credentialFile returns the file with the SMBIOS string of a credential. It is a file, since arguments are visible to
// everyone in the process list, and a credential may be secret or longer than an argument.
func credentialFile(dir, name string) string {
	return filepath.Join(dir, "credential-"+base64.RawURLEncoding.EncodeToString([]byte(name)))
}

// smbios returns the SMBIOS string of a credential, see systemd.system-credentials(7). It is in base64, since an SMBIOS
// string cannot contain a zero byte.
func smbios(name string, value []byte) []byte {
	return []byte("io.systemd.credential.binary:" + name + "=" + base64.StdEncoding.EncodeToString(value))
}
