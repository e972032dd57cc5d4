package store_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store/storetest"
)

// stranger is a store as another user sees it. Only root can become one.
type stranger struct{ store.Store }

// nobody is Debian's user of that name.
const nobody = 65534

// as runs f with another user's rights over files. The thread is never used again: it ends with its goroutine.
func as(uid int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := syscall.Setfsuid(uid); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

func (s stranger) Get(ctx context.Context, object string) (data []byte, err error) {
	err = as(nobody, func() (err error) { data, err = s.Store.Get(ctx, object); return err })
	return data, err
}

func (s stranger) GetAll(ctx context.Context, objects ...string) (found map[string][]byte, err error) {
	err = as(nobody, func() (err error) { found, err = s.Store.GetAll(ctx, objects...); return err })
	return found, err
}

func (s stranger) Create(ctx context.Context, object string, content []byte) error {
	return as(nobody, func() error { return s.Store.Create(ctx, object, content) })
}

func (s stranger) Put(ctx context.Context, object string, content []byte) error {
	return as(nobody, func() error { return s.Store.Put(ctx, object, content) })
}

func (s stranger) Swap(ctx context.Context, object string, old, content []byte) error {
	return as(nobody, func() error { return s.Store.Swap(ctx, object, old, content) })
}

func (s stranger) List(ctx context.Context, dir string) (objects []string, err error) {
	err = as(nobody, func() (err error) { objects, err = s.Store.List(ctx, dir); return err })
	return objects, err
}

func (s stranger) Delete(ctx context.Context, object string) error {
	return as(nobody, func() error { return s.Store.Delete(ctx, object) })
}

func TestDir(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		t.Helper()
		root := filepath.Join(t.TempDir(), "store")
		s := storetest.Subject{Store: store.NewDir(root), Again: store.NewDir(root), Gone: store.NewDir(filepath.Join(root, "not", "mounted"))}
		if os.Geteuid() == 0 {
			s.Stranger = stranger{store.NewDir(root)}
		}
		return s
	})
}

// TestDirModes looks at what others could read, and at what a broken write leaves.
func TestDirModes(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s := store.NewDir(root)
	for _, object := range []string{pki.KubernetesCA + pki.Key, pki.PublicKubernetes} {
		if err := s.Create(t.Context(), object, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Create(t.Context(), object, []byte("y")); err == nil {
			t.Fatal("created twice")
		}
	}
	want := map[string]fs.FileMode{
		"masters": 0o700, "masters/kubernetes-ca.key": 0o600,
		"public": 0o755, "public/kubernetes-ca.crt": 0o644,
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		info, err := d.Info()
		if err != nil {
			return err
		}
		if mode, ok := want[name]; !ok || info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v, want %v (there: %v)", name, info.Mode().Perm(), mode, ok)
		}
		delete(want, name)
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Errorf("%v; missing %v", err, want)
	}
}

func TestParseLocation(t *testing.T) {
	for text, want := range map[string]string{
		"dir:/var/store": "", "ssm:/hardtack/demo": "",
		"": "not of the form", "s3:/x": "not of the form", "dir:": "not an absolute", "dir:x": "not an absolute",
		"dir:/": "not an absolute", "ssm:hardtack/demo": "not an absolute", "ssm:/hardtack/demo/": "not an absolute", "dir:/a/../b": "not an absolute",
	} {
		got, err := store.ParseLocation(text)
		if want == "" && (err != nil || got.String() != text) {
			t.Errorf("%q: %v %v", text, got, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
