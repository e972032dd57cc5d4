package qemu

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// flash is a firmware's code, and the variables of a machine that has never run.
type flash struct{ code, vars string }

// Host has this computer's means for running machines.
type Host struct {
	// arch is this computer's architecture.
	arch string
	// programs are the paths of the emulators that are installed, by architecture.
	programs map[string]string
	// firmwares are those that are installed, by architecture.
	firmwares map[string]map[Firmware]flash
	// KVM reports whether KVM works, for machines of this computer's architecture.
	KVM bool
}

// Detect inspects this computer. A missing emulator is an error here where there is none at all; else it is one, as a missing firmware
// is, only for machines that need it.
func Detect() (Host, error) {
	h := Host{arch: runtime.GOARCH, KVM: kvmWorks(), programs: map[string]string{}, firmwares: map[string]map[Firmware]flash{}}
	for arch, p := range platforms {
		if path, err := exec.LookPath(p.program); err == nil {
			h.programs[arch] = path
		}
		h.firmwares[arch] = map[Firmware]flash{}
		for name, f := range p.firmwares {
			if exists(f.code) && exists(f.vars) {
				h.firmwares[arch][name] = f
			}
		}
	}
	if len(h.programs) == 0 {
		return h, h.checkProgram(AMD64)
	}
	return h, nil
}

// checkProgram returns an error if there is no emulator of an architecture.
func (h Host) checkProgram(arch string) error {
	if h.programs[arch] == "" {
		p := platforms[arch]
		return fmt.Errorf("looking for %s: %w (install Debian's package %s)", p.program, exec.ErrNotFound, p.debian)
	}
	return nil
}

// check returns an error if the host cannot run the machine.
func (h Host) check(c Config) error {
	arch := c.arch()
	if err := h.checkProgram(arch); err != nil {
		return err
	}
	if f, wanted := platforms[arch].firmwares[c.Firmware]; wanted && h.firmwares[arch][c.Firmware].code == "" {
		return fmt.Errorf("looking for UEFI firmware %s and %s: %w (install Debian's package %s)", f.code, f.vars, fs.ErrNotExist, platforms[arch].firmware)
	}
	if c.Accel == KVM && !h.kvm(arch) {
		return errors.New("machine wants kvm, and this computer cannot: /dev/kvm must open, and the processor be of the machine's architecture and show vmx or svm where it is amd64")
	}
	for _, d := range c.Disks {
		if _, err := os.Stat(d.Path); err != nil {
			return fmt.Errorf("looking for the machine's disk: %w", err)
		}
	}
	return nil
}

// kvm reports whether KVM runs machines of an architecture.
func (h Host) kvm(arch string) bool { return h.KVM && arch == h.arch }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// kvmWorks reports whether KVM can run guests. Opening /dev/kvm is not enough: in some virtual machines it succeeds, but
// guests then fail in emulation, so an amd64 processor must also have the extension.
func kvmWorks() bool {
	opens := unix.Access("/dev/kvm", unix.R_OK|unix.W_OK) == nil
	if runtime.GOARCH != AMD64 {
		return opens
	}
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
		return opens && (slices.Contains(words, "vmx") || slices.Contains(words, "svm"))
	}
	return false
}
