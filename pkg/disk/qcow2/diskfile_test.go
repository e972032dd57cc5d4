package qcow2_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
)

const mib = 1 << 20

// sparseDisk is a raw disk with data here and there, some of it zeros that take space, and an end that is no whole
// block of anything but sectors.
func sparseDisk(t *testing.T) (name string, size int64) {
	t.Helper()
	name, size = filepath.Join(t.TempDir(), "disk.raw"), 30*mib+1536
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	for _, at := range []int64{0, 5*mib + 512, 8 * mib, 8*mib + 300<<10, 20 * mib, size - 1000} {
		data := make([]byte, min(300<<10, size-at))
		_, _ = random.Read(data)
		// Half of it is easily compressed.
		copy(data[len(data)/2:], bytes.Repeat([]byte("hardtack"), len(data)/16))
		if _, err := f.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt(make([]byte, mib), 12*mib); err != nil {
		t.Fatal(err)
	}
	return name, size
}

func convert(t *testing.T, raw string, options ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "disk.qcow2")
	args := append([]string{"convert", "-f", "raw", "-O", "qcow2"}, options...)
	if msg, err := exec.CommandContext(t.Context(), "qemu-img", append(args, raw, out)...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v\n%s", err, msg)
	}
	return out
}

func open(t *testing.T, name string) *qcow2.File {
	t.Helper()
	d, err := qcow2.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// What is read is what is on the disk, by several readers at once and at any place; and what Data leaves out is zero.
func TestFormats(t *testing.T) {
	raw, size := sparseDisk(t)
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"raw": raw, "qcow2": convert(t, raw),
		"zstd": convert(t, raw, "-c", "-o", "compression_type=zstd,cluster_size=256k"),
		"zlib": convert(t, raw, "-c", "-o", "compression_type=zlib,cluster_size=2M"),
		"tiny": convert(t, raw, "-c", "-o", "cluster_size=4k"),
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, file)
			if d.Size() != size {
				t.Fatalf("the disk has %d bytes, want %d", d.Size(), size)
			}
			var wait sync.WaitGroup
			for worker := range 4 {
				wait.Go(func() { readAll(t, d, want, int64(worker)) })
			}
			wait.Wait()
			covered := int64(0)
			for at := int64(0); ; {
				start, end, ok, err := d.Data(at)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					start = size
				}
				if !zero(want[at:min(start, size)]) {
					t.Errorf("Data leaves out something between %d and %d", at, start)
				}
				if !ok {
					break
				}
				covered += end - start
				at = end
			}
			if covered > 12*mib {
				t.Errorf("Data says that %d bytes hold something", covered)
			}
		})
	}
}

// readAll compares pieces of odd sizes, beginning at another place for each worker.
func readAll(t *testing.T, d *qcow2.File, want []byte, worker int64) {
	t.Helper()
	buffer := make([]byte, 700<<10+13)
	for at := worker * 1000; at < int64(len(want)); at += int64(len(buffer)) {
		n, err := d.ReadAt(buffer, at)
		if whole := at+int64(len(buffer)) <= int64(len(want)); whole && err != nil || !whole && !errors.Is(err, io.EOF) {
			t.Errorf("reading at %d: %d, %v", at, n, err)
			return
		}
		if !bytes.Equal(buffer[:n], want[at:at+int64(n)]) {
			t.Errorf("what was read at %d differs", at)
			return
		}
	}
}

func zero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func TestRefusals(t *testing.T) {
	raw, _ := sparseDisk(t)
	base := convert(t, raw)
	overlay := filepath.Join(t.TempDir(), "overlay.qcow2")
	if msg, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v\n%s", err, msg)
	}
	for name, file := range map[string]string{"a directory": t.TempDir(), "nothing": filepath.Join(t.TempDir(), "nothing"), "an overlay": overlay} {
		if d, err := qcow2.Open(file); err == nil {
			t.Errorf("%s was opened, with %d bytes", name, d.Size())
		}
	}
}

// The image that the bake made, against qemu-img's reading of it.
func TestBakedImage(t *testing.T) {
	file := os.Getenv("HARDTACK_IMAGE")
	if file == "" {
		t.Skip("HARDTACK_IMAGE names no baked image (make e2e sets it)")
	}
	d := open(t, file)
	raw := filepath.Join(t.TempDir(), "disk.raw")
	cmd := exec.CommandContext(t.Context(), "qemu-img", "convert", "-O", "raw", file, raw)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v\n%s", err, msg)
	}
	plain := open(t, raw)
	a, b := make([]byte, 4*mib), make([]byte, 4*mib)
	for _, by := range []*qcow2.File{plain, d} { // what either says is there
		for at := int64(0); ; {
			start, end, ok, err := by.Data(at)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			for at = start; at < end; at += int64(len(a)) {
				n := min(int64(len(a)), d.Size()-at)
				_, err1 := d.ReadAt(a[:n], at)
				_, err2 := plain.ReadAt(b[:n], at)
				if err1 != nil || err2 != nil || !bytes.Equal(a[:n], b[:n]) {
					t.Fatalf("the reader and qemu-img disagree about the %d bytes at %d: %v, %v", n, at, err1, err2)
				}
			}
		}
	}
}
