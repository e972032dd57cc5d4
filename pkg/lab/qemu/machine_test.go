package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A boot sector that copies itself to the disk's second sector, prints a text on both serial lines, and then does
// what end says.
func bootSector(text string, end []byte) []byte {
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0xe0, 0x7d, // mov si, what to write: below, 0x1e0 from the start
		0xb8, 0x00, 0x43, // mov ax, "extended write"
		0xcd, 0x13, // int 0x13, dl is the drive still
		0xbe, 0, 0, // mov si, the text
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 10, // jz end
		0xba, 0xf8, 0x03, 0xee, // out 0x3f8, al
		0xba, 0xf8, 0x02, 0xee, // out 0x2f8, al
		0xeb, 0xf1, // jmp next
	}
	code = append(code, end...)
	at := 0x7c00 + len(code)
	code[13], code[14] = byte(at), byte(at>>8)
	code = append(append(code, text...), 0)
	sector := make([]byte, 512)
	copy(sector, code)
	// 16 bytes of this: one sector, from 0:7c00, to the second one.
	copy(sector[0x1e0:], []byte{16, 0, 1, 0, 0x00, 0x7c, 0, 0, 1})
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

var (
	// hang is "hlt; jmp back", with interrupts on: a machine that neither prints nor ends.
	hang = []byte{0xf4, 0xeb, 0xfd}
	// powerOff asks ACPI's port, where SeaBIOS puts it on a q35: mov dx, 0x604; mov ax, 0x2000; out dx, ax.
	powerOff = append([]byte{0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef}, hang...)
)

// tiny starts a machine with a disk of one sector, with the machines' directories in a temporary one.
func tiny(t *testing.T, text string, end []byte) (*Machine, string) {
	t.Helper()
	dirs := t.TempDir()
	disk := filepath.Join(t.TempDir(), "disk.raw")
	// A drive is larger than one sector; the rest is a hole.
	if err := os.WriteFile(disk, bootSector(text, end), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 1<<20); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dirs)
	m, err := Start(t.Context(), Config{Memory: 64, Disks: []Disk{{Path: disk}}, Accel: TCG, Credentials: map[string][]byte{"a": []byte("b")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	return m, dirs
}

// nothingLeft asserts that the directory of the machine is gone; that its process is follows from Stop, which
// waits for it.
func nothingLeft(t *testing.T, dirs string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dirs, "hardtack-qemu-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestPowerOff(t *testing.T) {
	m, dirs := tiny(t, "ship's biscuit\n", powerOff)
	if err := m.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for name, log := range map[string]*Log{"console": m.Console(), "channel": m.Channel()} {
		if got := log.Tail(1); got != "ship's biscuit" {
			t.Errorf("%s ends with %q", name, got)
		}
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dirs)
}

func TestStop(t *testing.T) {
	m, dirs := tiny(t, "here\n", hang)
	if err := m.Await(t.Context(), time.Minute, func() bool { return m.Console().Contains("here") }); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dirs)
}

func TestStalled(t *testing.T) {
	m, _ := tiny(t, "last words\n", hang)
	if err := m.Await(t.Context(), time.Minute, func() bool { return m.Console().Contains("last words") }); err != nil {
		t.Fatal(err)
	}
	err := m.Wait(t.Context(), 2*time.Second)
	var stalled *StalledError
	if !errors.As(err, &stalled) || !strings.Contains(stalled.Console, "last words") {
		t.Errorf("got %v, want a stalled machine with its last words", err)
	}
}

func TestEndsTooEarly(t *testing.T) {
	m, _ := tiny(t, "panic\n", powerOff)
	err := m.Await(t.Context(), time.Minute, func() bool { return m.Console().Contains("login:") })
	if err == nil || !strings.Contains(err.Error(), "ended too early") || !strings.Contains(err.Error(), "panic") {
		t.Errorf("got %v, want the console's end", err)
	}
}

// TestEmulatorCrash has a guest that says what a kernel says which QEMU's emulator has broken.
func TestEmulatorCrash(t *testing.T) {
	m, _ := tiny(t, "Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n", powerOff)
	err := m.Await(t.Context(), time.Minute, func() bool { return m.Console().Contains("login:") })
	if err == nil || !strings.Contains(err.Error(), emulatorCrash) || !m.EmulatorCrash() {
		t.Errorf("got %v, want what to do about a defect of the emulator", err)
	}
	m.emulated = false
	if m.EmulatorCrash() {
		t.Error("with KVM it is the guest's own fault")
	}
}

func TestContextEndsMachine(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := t.TempDir()
	t.Setenv("TMPDIR", dirs)
	ctx, cancel := context.WithCancel(t.Context())
	m, err := Start(ctx, Config{Memory: 64, Disks: []Disk{{Path: disk}}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-m.Ended():
	case <-time.After(time.Minute):
		t.Error("the machine outlived its context")
	}
	nothingLeft(t, dirs)
}

func TestQEMURefuses(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(disk, []byte("not a disk image"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Start(t.Context(), Config{Memory: 64, Disks: []Disk{{Path: disk, Format: "qcow2"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "qcow2") {
		t.Errorf("got %v, want what QEMU said", err)
	}
}

func TestLogKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var l Log
	line := strings.Repeat("x", 1023) + "\n"
	for range 9 << 10 { // 9 MiB
		if _, err := l.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = l.Write([]byte("one\ntwo\n"))
	if got := len(l.Bytes()); got > logLimit {
		t.Errorf("kept %d bytes, limit %d", got, logLimit)
	}
	if got, want := l.Total(), int64(9<<20+8); got != want {
		t.Errorf("total %d, want %d", got, want)
	}
	if got := l.Tail(2); got != "one\ntwo" {
		t.Errorf("tail %q", got)
	}
	if got := (&Log{}).Tail(3); got != "" {
		t.Errorf("tail of nothing %q", got)
	}
}
