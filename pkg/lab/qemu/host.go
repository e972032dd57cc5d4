package qemu

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// program is the emulator; images are for amd64.
const program = "qemu-system-x86_64"

// flash is a firmware's code, and the variables of a machine that has never run.
type flash struct{ code, vars string }

// ovmf has the firmwares of Debian's package ovmf, in the layout with 4 MB of flash.
var ovmf = map[Firmware]flash{
	UEFI:       {"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},
	SecureBoot: {"/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd"},
}

// Host has this computer's means for running machines.
type Host struct {
	// Program is the path of QEMU.
	Program string
	// firmwares are those of OVMF that are installed.
	firmwares map[Firmware]flash
	// KVM reports whether KVM works.
	KVM bool
}

// Detect inspects this computer. A missing QEMU is an error here, a missing OVMF only for machines that need it.
func Detect() (Host, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return Host{}, fmt.Errorf("looking for %s: %w (install Debian's package qemu-system-x86)", program, err)
	}
	h := Host{Program: path, KVM: kvmWorks(), firmwares: map[Firmware]flash{}}
	for name, f := range ovmf {
		if exists(f.code) && exists(f.vars) {
			h.firmwares[name] = f
		}
	}
	return h, nil
}

// check returns an error if the host cannot run the machine.
func (h Host) check(c Config) error {
	if f, wanted := ovmf[c.Firmware]; wanted && h.firmwares[c.Firmware].code == "" {
		return fmt.Errorf("looking for UEFI firmware %s and %s: %w (install Debian's package ovmf)", f.code, f.vars, fs.ErrNotExist)
	}
	if c.Accel == KVM && !h.KVM {
		return errors.New("machine wants kvm, and this computer cannot: /dev/kvm must open and the processor show vmx or svm")
	}
	for _, d := range c.Disks {
		if _, err := os.Stat(d.Path); err != nil {
			return fmt.Errorf("looking for the machine's disk: %w", err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// kvmWorks reports whether KVM can run guests. Opening /dev/kvm is not enough: in some virtual machines it succeeds, but
// guests then fail in emulation, so the processor must also have the extension.
func kvmWorks() bool {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, flags, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		words := strings.Fields(flags)
		return (slices.Contains(words, "vmx") || slices.Contains(words, "svm")) &&
			unix.Access("/dev/kvm", unix.R_OK|unix.W_OK) == nil
	}
	return false
}
