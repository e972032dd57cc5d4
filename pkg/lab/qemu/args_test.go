package qemu

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
)

// installed are both emulators.
var installed = map[string]string{AMD64: "/usr/bin/qemu", ARM64: "/usr/bin/qemu-arm"}

func TestArgs(t *testing.T) {
	t.Parallel()
	host := Host{arch: AMD64, programs: installed, firmwares: map[string]map[Firmware]flash{
		AMD64: {UEFI: {"/ovmf/code.fd", "/ovmf/vars.fd"}, SecureBoot: {"/ovmf/code.secboot.fd", "/ovmf/vars.snakeoil.fd"}},
		ARM64: {UEFI: {"/aavmf/code.fd", "/aavmf/vars.fd"}}}}
	kvm := host
	kvm.KVM = true
	cases := map[string]struct {
		host   Host
		config Config
	}{
		"minimal":      {host, Config{Disks: []Disk{{Path: "/disk.raw"}}}},
		"kvm":          {kvm, Config{Disks: []Disk{{Path: "/disk.raw"}}}},
		"tcg":          {kvm, Config{Disks: []Disk{{Path: "/disk.raw"}}, Accel: TCG}},
		"instructions": {kvm, Config{Disks: []Disk{{Path: "/disk.raw"}}, Accel: Instructions}},
		"uefi": {host, Config{
			Name: "masters,etcd", Memory: 2048, CPUs: 2, Firmware: UEFI,
			Disks:       []Disk{{Path: "/a,b.qcow2", Format: "qcow2"}, {Path: "/seed.img"}},
			Credentials: map[string][]byte{"hardtack.userdata": []byte("x"), "another": nil},
		}},
		"arm64":       {host, Config{Arch: ARM64, Memory: 2048, Disks: []Disk{{Path: "/disk.qcow2", Format: "qcow2"}}, Credentials: map[string][]byte{"a": nil}}},
		"arm64-kvm":   {kvm, Config{Arch: ARM64, Disks: []Disk{{Path: "/disk.raw"}}}},
		"secure-boot": {host, Config{Disks: []Disk{{Path: "/disk.raw"}}, Firmware: SecureBoot}},
		"ec2": {host, Config{
			Disks: []Disk{{Path: "/disk.raw"}},
			DMI:   DMI{BIOSVendor: "Amazon EC2", Vendor: "Amazon EC2", Product: "m7i.large", Serial: "ec2,1"},
			Network: Network{
				Kind: User, Subnet: netip.MustParsePrefix("169.254.169.0/24"), Isolated: true,
				Forwards: []Forward{{netip.MustParseAddrPort("169.254.169.254:80"), "/bin/pipe a,b"}},
			},
		}},
		"stream": {host, Config{
			Disks:   []Disk{{Path: "/disk.raw"}},
			Network: Network{Kind: Stream, MAC: "02:00:00:00:00:01", Socket: "/run/lab.sock"},
		}},
		"lab": {host, Config{
			Disks: []Disk{
				{Path: "/disk.qcow2", Format: "qcow2", Overlay: "/lab/i-1/disk.qcow2"},
				{Path: "/lab/vol-1.raw", Serial: "vol01234567890abcdef", Writable: true},
			},
			Skew: -90 * time.Minute, Reboots: true,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.config.Validate(); err != nil {
				t.Fatal(err)
			}
			// One option a line, as people read them.
			got := strings.ReplaceAll(strings.Join(c.config.withDefaults().args(c.host, "/run/machine", time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)), " "), " -", "\n-") + "\n"
			golden.Assert(t, got, "args-"+name+".txt")
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	disks := []Disk{{Path: "d"}}
	subnet := netip.MustParsePrefix("10.1.0.0/24")
	cases := map[string]struct {
		config Config
		want   string
	}{
		"no disk":        {Config{}, "has no disk"},
		"format":         {Config{Disks: []Disk{{Path: "d", Format: "vdi"}}}, `format "vdi" is not raw or qcow2`},
		"serial":         {Config{Disks: []Disk{{Path: "d", Serial: "vol-01234567890abcdef"}}}, "longer than 20 bytes"},
		"two places":     {Config{Disks: []Disk{{Path: "d", Overlay: "o", Writable: true}}}, "exclude each other"},
		"firmware":       {Config{Disks: disks, Firmware: "coreboot"}, `firmware "coreboot" is not bios, uefi or uefi-secure-boot`},
		"architecture":   {Config{Disks: disks, Arch: "riscv64"}, `architecture "riscv64" is not amd64 or arm64`},
		"no BIOS":        {Config{Disks: disks, Arch: ARM64, Firmware: BIOS}, `firmware "bios": a machine of arm64 has uefi`},
		"accelerator":    {Config{Disks: disks, Accel: "xen"}, `accelerator "xen" is not kvm, tcg or instructions`},
		"no kind":        {Config{Disks: disks, Network: Network{MAC: "02::"}}, "settings without a kind"},
		"kind":           {Config{Disks: disks, Network: Network{Kind: "tap"}}, `kind "tap" is not user or stream`},
		"no socket":      {Config{Disks: disks, Network: Network{Kind: Stream}}, "a stream needs a socket"},
		"forward beside": {Config{Disks: disks, Network: Network{Kind: User, Subnet: subnet, Forwards: []Forward{{Guest: netip.MustParseAddrPort("10.2.0.1:80")}}}}, "10.2.0.1:80 is not in 10.1.0.0/24"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestHostCheck(t *testing.T) {
	t.Parallel()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	disks := []Disk{{Path: disk}}
	cases := map[string]struct {
		config Config
		want   string
	}{
		"no ovmf":  {Config{Disks: disks, Firmware: UEFI}, "install Debian's package ovmf"},
		"no aavmf": {Config{Disks: disks, Arch: ARM64, Firmware: UEFI}, "install Debian's package qemu-efi-aarch64"},
		"no kvm":   {Config{Disks: disks, Accel: KVM}, "/dev/kvm must open"},
		"no disk":  {Config{Disks: []Disk{{Path: disk + "x"}}}, "looking for the machine's disk"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := (Host{programs: installed}).check(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	for arch, debian := range map[string]string{AMD64: "qemu-system-x86", ARM64: "qemu-system-arm"} {
		if err := (Host{}).check(Config{Disks: disks, Arch: arch}); err == nil || !strings.Contains(err.Error(), "install Debian's package "+debian+")") {
			t.Errorf("without an emulator of %s: %v", arch, err)
		}
	}
	if err := (Host{programs: installed}).check(Config{Disks: disks}); err != nil {
		t.Errorf("a BIOS machine under TCG: %v", err)
	}
}

func TestDetectMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Detect()
	if err == nil || !strings.Contains(err.Error(), "install Debian's package qemu-system-x86") {
		t.Errorf("got %v, want the package to install", err)
	}
}
