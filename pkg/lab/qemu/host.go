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

// The firmware's files in Debian's package ovmf, in the layout with 4 MB of flash.
const (
	ovmfCode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

// Host has this computer's means for running machines.
type Host struct {
	// Program is the path of QEMU.
	Program string
	// Code and Vars are OVMF's two files; empty if it is not installed.
	Code, Vars string
	// KVM reports whether KVM works.
	KVM bool
}

// Detect inspects this computer. A missing QEMU is an error here, a missing OVMF only for machines that need it.
func Detect() (Host, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return Host{}, fmt.Errorf("looking for %s: %w (install Debian's package qemu-system-x86)", program, err)
	}
	h := Host{Program: path, KVM: kvmWorks()}
	if exists(ovmfCode) && exists(ovmfVars) {
		h.Code, h.Vars = ovmfCode, ovmfVars
	}
	return h, nil
}

// check returns an error if the host cannot run the machine.
func (h Host) check(c Config) error {
	if c.Firmware == UEFI && h.Code == "" {
		return fmt.Errorf("looking for UEFI firmware %s: %w (install Debian's package ovmf)", ovmfCode, fs.ErrNotExist)
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
