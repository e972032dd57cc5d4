package gpt

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// table is what sfdisk is told, and want what it means.
const table = `label: gpt
start=2048, size=2048, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, uuid=274998B1-4CBD-53C1-91F7-DC242B8C0520, name="esp"
start=4096, size=8, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, uuid=264AC39D-01C1-5A77-8C59-0CD8B12BD7F3, name="röot"
`

var want = []Partition{
	{1, uuid.MustParse("C12A7328-F81F-11D2-BA4B-00A0C93EC93B"), uuid.MustParse("274998B1-4CBD-53C1-91F7-DC242B8C0520"), 2048 * Sector, 2048 * Sector, "esp"},
	{2, uuid.MustParse("4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"), uuid.MustParse("264AC39D-01C1-5A77-8C59-0CD8B12BD7F3"), 4096 * Sector, 8 * Sector, "röot"},
}

func partitioned(t *testing.T) []byte {
	t.Helper()
	program, err := exec.LookPath("sfdisk")
	if err != nil {
		t.Skipf("%v: install Debian's package fdisk", err)
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 8<<20)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "--quiet", disk)
	cmd.Stdin = strings.NewReader(table)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(disk)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRead(t *testing.T) {
	disk := partitioned(t)
	got, err := Read(bytes.NewReader(disk))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	// A byte of the header, of the first entry, and of the unused last one.
	for _, at := range []int{Sector + 40, 2*Sector + 3, 2*Sector + 127*128 + 5} {
		other := bytes.Clone(disk)
		other[at] ^= 1
		if got, err := Read(bytes.NewReader(other)); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("byte %d changed: %+v, %v", at, got, err)
		}
	}
	for name, none := range map[string][]byte{"empty": nil, "zeros": make([]byte, 1<<20), "half": disk[:Sector+100]} {
		if got, err := Read(bytes.NewReader(none)); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := Read(bytes.NewReader(disk[:3*Sector])); err == nil {
		t.Errorf("without its entries: %+v", got)
	}
}
