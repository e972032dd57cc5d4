package member

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	want := func(want etcd.Disk) {
		t.Helper()
		if got, err := ReadDir(dir); got != want || err != nil {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	want(etcd.Disk{Mounted: true})
	if err := os.MkdirAll(filepath.Join(dir, etcd.DataDir, "member", "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	want(etcd.Disk{Mounted: true})
	err := errors.Join(os.WriteFile(filepath.Join(dir, etcd.DataDir, "member", "wal", "0.wal"), nil, 0o600), os.WriteFile(filepath.Join(dir, etcd.MarkerFile), []byte("{"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	want(etcd.Disk{Mounted: true, WAL: true, MarkerBroken: true})
}
