package uki

import (
	"bytes"
	"debug/pe"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki/ukitest"
)

func TestMake(t *testing.T) {
	s := ukitest.Stub(t)
	sections := []Section{{OSRelease, []byte("ID=debian\n")}, {Linux, bytes.Repeat([]byte("kernel"), 1000)}, {CommandLine, []byte("ro quiet")}}
	image, err := Make(s, sections)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range sections {
		got, err := Read(bytes.NewReader(image), want.Name)
		if err != nil || !bytes.Equal(got, want.Content) {
			t.Errorf("%s: %d bytes, %v", want.Name, len(got), err)
		}
	}
	if again, err := Make(s, sections); err != nil || !bytes.Equal(image, again) {
		t.Errorf("made again it differs, %v", err)
	}
	f, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	head, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		t.Fatal("no PE32+")
	}
	end := uint32(0)
	for _, section := range f.Sections {
		if section.VirtualAddress < end || section.VirtualAddress%head.SectionAlignment != 0 || section.Offset%head.FileAlignment != 0 {
			t.Errorf("section %s at %#x, and the one before ends at %#x", section.Name, section.VirtualAddress, end)
		}
		end = section.VirtualAddress + section.VirtualSize
	}
	if head.SizeOfImage < end || head.SizeOfImage-end >= head.SectionAlignment {
		t.Errorf("the image has %#x bytes in memory, and its last section ends at %#x", head.SizeOfImage, end)
	}
	objcopy(t, image)
	if _, err := Read(bytes.NewReader(image), Initrd); err == nil {
		t.Error("a section that is not there was read")
	}
}

// objcopy asks binutils for a section of the image.
func objcopy(t *testing.T, image []byte) {
	t.Helper()
	dir := t.TempDir()
	name, out := filepath.Join(dir, "image.efi"), filepath.Join(dir, "section")
	if err := os.WriteFile(name, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "objcopy", "-O", "binary", "--only-section="+CommandLine, name, out).CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, text)
	}
	got, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(got), "ro quiet") {
		t.Errorf("objcopy finds the command line %q, %v", got, err)
	}
}

func TestMakeWrong(t *testing.T) {
	s := ukitest.Stub(t)
	many := make([]Section, 100)
	for i := range many {
		many[i] = Section{Name: ".s" + string(rune('A'+i%26)) + string(rune('A'+i/26))}
	}
	for name, c := range map[string]struct {
		stub     []byte
		sections []Section
		want     string
	}{
		"nothing":      {nil, nil, "stub of the kernel image"},
		"no program":   {[]byte(strings.Repeat("x", 1000)), nil, "stub of the kernel image"},
		"no room":      {s, many, "has room for"},
		"there":        {s, []Section{{Name: ".text"}}, "there already"},
		"twice itself": {s[:len(s)/2], []Section{{Name: Linux}}, "stub of the kernel image"},
		"a long name":  {s, []Section{{Name: ".commandline"}}, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Make(c.stub, c.sections); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestArchive(t *testing.T) {
	files := []File{{"init", 0o755, []byte("program")}, {"modules/root/00-a.ko", 0o644, []byte("a")}, {"modules/root/01-b.ko", 0o644, nil}}
	data, err := Archive(files, "sys", "dev")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Archive(files, "dev", "sys"); err != nil || !bytes.Equal(data, again) {
		t.Errorf("made again it differs, %v", err)
	}
	z, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var got []string
	for r := cpio.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil || !h.ModTime.IsZero() && h.ModTime.Unix() != 0 {
			t.Errorf("%s: %v, of %s", h.Name, err, h.ModTime)
		}
		got = append(got, h.Mode.String()+" "+h.Name+" "+string(content))
	}
	t.Log(strings.Join(got, "\n"))
	if len(got) != 7 || !strings.HasSuffix(got[0], " dev ") || !strings.HasSuffix(got[2], " init program") || !strings.HasSuffix(got[4], " modules/root ") {
		t.Errorf("it has %q", got)
	}
	cpioTool(t, data)
}

// cpioTool has the outside judge list the archive, where it is here.
func cpioTool(t *testing.T, data []byte) {
	t.Helper()
	for _, program := range []string{"cpio", "zstd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("not listed by another program: %v", err)
			return
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "zstd -dc | cpio -t --quiet")
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "modules/root/01-b.ko\n") {
		t.Errorf("cpio: %v\n%s", err, out)
	}
}
