//go:build linux

package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tree makes a small directory; order reverses the order in which files are made.
func tree(t *testing.T, reverse bool) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c"}
	if reverse {
		names = []string{"c", "b", "a"}
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func measure(t *testing.T, dir string) Content {
	t.Helper()
	c, err := Measure(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMeasure(t *testing.T) {
	want := measure(t, tree(t, false))
	if got := measure(t, tree(t, true)); got != want {
		t.Errorf("the order in which files were made shows: %x and %x", got.Digest, want.Digest)
	}
	if want.Files != 5 {
		t.Errorf("files: got %d, want 5 with the directory itself", want.Files)
	}
	changes := map[string]func(dir string) error{
		"content": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("A"), 0o644) },
		"mode":    func(dir string) error { return os.Chmod(filepath.Join(dir, "b"), 0o755) },
		"setuid":  func(dir string) error { return os.Chmod(filepath.Join(dir, "b"), 0o644|os.ModeSetuid) },
		"name":    func(dir string) error { return os.Rename(filepath.Join(dir, "c"), filepath.Join(dir, "d")) },
		"more":    func(dir string) error { return os.Mkdir(filepath.Join(dir, "e"), 0o755) },
		"target": func(dir string) error {
			link := filepath.Join(dir, "link")
			if err := os.Remove(link); err != nil {
				return err
			}
			return os.Symlink("b", link)
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, false)
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if measure(t, dir).Digest == want.Digest {
				t.Error("the digest does not show it")
			}
		})
	}
}

func TestSettle(t *testing.T) {
	dir := tree(t, false)
	old := time.Unix(1_000_000_000, 0)
	if err := os.Chtimes(filepath.Join(dir, "a"), time.Time{}, old); err != nil {
		t.Fatal(err)
	}
	const epoch = 1_500_000_000
	if err := clampTimes(t.Context(), dir, epoch); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"a": old.Unix(), "b": epoch, "link": epoch, ".": epoch} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.ModTime().Unix(); got != want {
			t.Errorf("%s: changed at %d, want %d", name, got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	content := strings.Repeat("x", 10)
	if err := sparse(from, 3*mib); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(from, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(content), 2*mib); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sparse(to, 8*mib); err != nil {
		t.Fatal(err)
	}
	if err := copySparse(from, to, mib); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != 8*mib || string(data[3*mib:3*mib+10]) != content || strings.Trim(string(data), "\x00") != content {
		t.Error("the partition is not where it belongs, or more was written")
	}
	if err := sparse(to, mib); err == nil {
		t.Error("an existing file was taken for a new disk")
	}
}

func TestCheckSpace(t *testing.T) {
	dir := t.TempDir()
	if err := CheckSpace(dir, 1); err != nil {
		t.Error(err)
	}
	err := CheckSpace(dir, 1<<60)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "1099511627776 MiB are needed") {
		t.Errorf("got %v, want the directory and what is needed", err)
	}
}

// TestDifferences compares a directory with copies of it: each has lost something else.
func TestDifferences(t *testing.T) {
	fill := func(change func(dir string) error) string {
		t.Helper()
		dir := t.TempDir()
		if err := errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(filepath.Join(dir, "etc/conf.d"), 0o755), os.WriteFile(filepath.Join(dir, "etc/a"), []byte("a"), 0o644),
			os.Symlink("a", filepath.Join(dir, "etc/link"))); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	read := func(change func(dir string) error) []item {
		t.Helper()
		items, err := readAll(t.Context(), fill(change))
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	same := func(string) error { return nil }
	root := read(same)
	owner := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	cases := map[string]func(dir string) error{
		"": same,
		`/etc/conf.d: 40755 OWNER  "", and is 40777 OWNER  ""`: func(dir string) error { return os.Chmod(filepath.Join(dir, "etc/conf.d"), 0o777) },
		`/etc/link: 120777 OWNER  "a", and is not there`:       func(dir string) error { return os.Remove(filepath.Join(dir, "etc/link")) },
		`/etc/b: not there, and is 100644 OWNER  "`:            func(dir string) error { return os.WriteFile(filepath.Join(dir, "etc/b"), nil, 0o644) },
		`/etc/a: 100644 OWNER  "ca978112ca1bbdcafac231b39a`:    func(dir string) error { return os.WriteFile(filepath.Join(dir, "etc/a"), []byte("b"), 0o644) },
	}
	if os.Geteuid() == 0 {
		cases[`/etc/conf.d: 40755 OWNER  "", and is 40755 5:6  ""`] = func(dir string) error { return os.Chown(filepath.Join(dir, "etc/conf.d"), 5, 6) }
	}
	for want, change := range cases {
		want = strings.ReplaceAll(want, "OWNER", owner)
		got := differences(root, read(change))
		if len(got) > 1 || (want == "") != (got == nil) || want != "" && !strings.HasPrefix(got[0], want) {
			t.Errorf("%v; want %s", got, want)
		}
	}
	many := read(func(dir string) error {
		for i := range differencesMost + 2 {
			if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
				return err
			}
		}
		return nil
	})
	if got := differences(root, many); len(got) != differencesMost+1 || got[differencesMost] != "and 2 more" {
		t.Errorf("%q", got)
	}
}
