package qemu

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoes reads a byte from the second serial line, and writes it back, for ever.
var echoes = []byte{
	0xba, 0xfd, 0x02, // again: mov dx, the line's status
	0xec,       // in al, dx
	0xa8, 0x01, // test al, "a byte is there"
	0x74, 0xf8, // jz again
	0xba, 0xf8, 0x02, // mov dx, its data
	0xec,       // in al, dx
	0xee,       // out dx, al
	0xeb, 0xf1, // jmp again
}

// reboots asks the keyboard's controller for a reset.
var reboots = append([]byte{0xb0, 0xfe, 0xe6, 0x64}, hang...)

// writeDisk makes a disk of a boot sector and a hole.
func writeDisk(t *testing.T, sector []byte) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(disk, sector, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 1<<20); err != nil {
		t.Fatal(err)
	}
	return disk
}

func power(t *testing.T, c Config) *Machine {
	t.Helper()
	c.Memory, c.Accel = 64, TCG
	m, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop() })
	return m
}

// awaitOutput waits until the machine has printed a text that many times.
func awaitOutput(t *testing.T, m *Machine, text string, times int) {
	t.Helper()
	if err := m.Await(t.Context(), time.Minute, func() bool { return bytes.Count(m.Console().Bytes(), []byte(text)) >= times }); err != nil {
		t.Fatal(err)
	}
}

// secondSector is the sector that the machine has written, read through qemu-img.
func secondSector(t *testing.T, format, path string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	if text, err := exec.Command("qemu-img", "convert", "-f", format, "-O", "raw", path, out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return content[512:1024]
}

func TestWhereWritesGo(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Fatalf("%v (install Debian's package qemu-utils)", err)
	}
	sector, zeros := bootSector("written\n", powerOff), make([]byte, 512)
	disk := writeDisk(t, sector)
	overlay := filepath.Join(t.TempDir(), "overlay,1.qcow2")
	run := func(d Disk) {
		t.Helper()
		m := power(t, Config{Disks: []Disk{d}})
		if err := m.Wait(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		awaitOutput(t, m, "written", 1)
	}
	run(Disk{Path: disk})
	if !bytes.Equal(secondSector(t, "raw", disk), zeros) {
		t.Error("a disk that is thrown away was written to")
	}
	run(Disk{Path: disk, Overlay: overlay})
	if !bytes.Equal(secondSector(t, "raw", disk), zeros) {
		t.Error("the disk under an overlay was written to")
	}
	if !bytes.Equal(secondSector(t, "qcow2", overlay), sector) {
		t.Error("the overlay has not what was written")
	}
	run(Disk{Path: disk, Overlay: overlay}) // the same one again
	run(Disk{Path: disk, Writable: true, Serial: "vol01234567890abcdef"})
	if !bytes.Equal(secondSector(t, "raw", disk), sector) {
		t.Error("a writable disk has not what was written")
	}
	if left, _ := filepath.Glob(overlay + "*"); len(left) != 1 {
		t.Errorf("beside the overlay: %v", left)
	}
}

func TestOverlayOfNothing(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(disk, []byte("not a disk image"), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay")
	_, err := Start(t.Context(), Config{Disks: []Disk{{Path: disk, Format: "qcow2", Overlay: overlay}}})
	if err == nil || !strings.Contains(err.Error(), "making overlay") {
		t.Errorf("got %v, want what qemu-img said", err)
	}
	if left, _ := filepath.Glob(overlay + "*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPowerDownCutsPowerInTheEnd(t *testing.T) {
	m := power(t, Config{Disks: []Disk{{Path: writeDisk(t, bootSector("here\n", hang))}}})
	awaitOutput(t, m, "here", 1)
	if err := syscall.Kill(m.PID(), 0); err != nil {
		t.Errorf("process %d: %v", m.PID(), err)
	}
	if err := m.PowerDown(t.Context(), time.Second); err != nil {
		t.Error(err)
	}
	if err := m.Pause(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("a machine that has ended was paused: %v", err)
	}
	if err := syscall.Kill(m.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: %v", m.PID(), err)
	}
}

func TestReboots(t *testing.T) {
	disk := writeDisk(t, bootSector("again\n", reboots))
	m := power(t, Config{Disks: []Disk{{Path: disk}}, Reboots: true})
	awaitOutput(t, m, "again", 3)
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	m = power(t, Config{Disks: []Disk{{Path: disk}}})
	if err := m.Wait(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := m.Reason(); got != "guest-reset" {
		t.Errorf("ended for %q, want guest-reset", got)
	}
}

func TestShellAndPause(t *testing.T) {
	m := power(t, Config{Disks: []Disk{{Path: writeDisk(t, bootSector("here\n", echoes))}}})
	if err := m.Await(t.Context(), time.Minute, func() bool { return m.Channel().Contains("here\n") }); err != nil {
		t.Fatal(err)
	}
	talk, err := m.Shell()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Shell(); err == nil {
		t.Error("two users at a time")
	}
	lines := bufio.NewReader(talk)
	for range 2 {
		if _, err := io.WriteString(talk, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "hello\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		if err := m.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := talk.Close(); err != nil {
		t.Error(err)
	}
	other, err := m.Shell()
	if err != nil {
		t.Fatalf("after it was given back: %v", err)
	}
	_ = m.Stop()
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from a machine that has ended: %v", err)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	var l Log
	var out bytes.Buffer
	_, _ = l.Write([]byte("one "))
	if err := l.Follow(&out); err != nil {
		t.Fatal(err)
	}
	_, _ = l.Write([]byte("two"))
	if got := out.String(); got != "one two" {
		t.Errorf("followed %q", got)
	}
}
