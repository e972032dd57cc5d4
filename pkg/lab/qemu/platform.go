package qemu

// The architectures of machines, by Debian's and Go's names.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// platform is what depends on a machine's architecture.
type platform struct {
	// program is the emulator, and debian its package.
	program, debian string
	// firmwares are those of the package firmware; BIOS is none of them.
	firmwares map[Firmware]flash
	firmware  string
	// board is QEMU's machine, and tcgCPU the processor where it is emulated.
	board, tcgCPU string
	// ports makes a serial port of a chardev, ttyS0 of the first.
	ports func(chardev string) []string
}

var platforms = map[string]platform{
	AMD64: {
		program: "qemu-system-x86_64", debian: "qemu-system-x86", firmware: "ovmf",
		// The layout with 4 MB of flash.
		firmwares: map[Firmware]flash{
			UEFI:       {"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},
			SecureBoot: {"/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd"},
		},
		// Q35 without devices that our images do not use, but for which kernels load modules: the SATA controller (libata and SCSI) and
		// the SMBus (I2C). The HPET stays: the kernel verifies the TSC with it, and the only other clock wraps within 5 s, a time for which
		// an overloaded host can stop a guest.
		board: "q35,sata=off,smbus=off",
		// All features of TCG except five levels of page tables, which make every TLB miss slower, nested virtualization, for which
		// the guest would load KVM, and fast strings (ERMS), with which the kernel clears and copies by the byte: TCG emulates each.
		tcgCPU: "max,la57=off,svm=off,erms=off",
		ports:  func(chardev string) []string { return []string{"-serial", "chardev:" + chardev} },
	},
	ARM64: {
		program: "qemu-system-aarch64", debian: "qemu-system-arm", firmware: "qemu-efi-aarch64",
		firmwares: map[Firmware]flash{UEFI: {"/usr/share/AAVMF/AAVMF_CODE.fd", "/usr/share/AAVMF/AAVMF_VARS.fd"}},
		board:     "virt,gic-version=max",
		// Pointer authentication with QEMU's own cipher: emulating the architecture's takes half of a boot ("Arm CPU features" of
		// QEMU's documentation, pauth-impdef).
		tcgCPU: "max,pauth-impdef=on",
		// As on EC2's Graviton a port of PCI is ttyS0; the board's own would be ttyAMA0, and there is one of them only.
		ports: func(chardev string) []string { return []string{"-device", "pci-serial,chardev=" + chardev} },
	},
}
