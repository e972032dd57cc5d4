package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Dir is a store in a directory of the local file system: for the lab, for bare metal, and for tests. It is protected
// by the modes of its files: 0600, and 0644 below public/.
type Dir struct{ root string }

var _ Store = (*Dir)(nil)

// publicDir is readable by everyone.
const publicDir = "public"

// NewDir returns the store in a directory, which the first Create or Put makes.
func NewDir(root string) *Dir { return &Dir{root: root} }

// String returns the location.
func (d *Dir) String() string { return KindDir + ":" + d.root }

func (d *Dir) file(object string) string { return filepath.Join(d.root, filepath.FromSlash(object)) }

// Get reads the object's file.
func (d *Dir) Get(_ context.Context, object string) ([]byte, error) {
	if err := checkObject(object); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(d.file(object))
	if err == nil {
		return data, nil
	}
	return nil, d.missing("reading", object, err)
}

// missing is explain where an object that is not there may be one of a store that is not there.
func (d *Dir) missing(doing, object string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		// A missing or empty root is a file system that is not mounted (systemd creates a mount point before it mounts), or a
		// wrong path.
		entries, rootErr := os.ReadDir(d.root)
		switch {
		case errors.Is(rootErr, fs.ErrNotExist):
			return fmt.Errorf("%s %s in %s: %w: there is no such directory", doing, object, d, pki.ErrUnreachable)
		case rootErr == nil && len(entries) == 0:
			return fmt.Errorf("%s %s in %s: %w: the directory is empty: is what it is for mounted?", doing, object, d, pki.ErrUnreachable)
		}
	}
	return d.explain(doing, object, err)
}

// List reads the directory, with those below it.
func (d *Dir) List(_ context.Context, dir string) ([]string, error) {
	object := strings.TrimSuffix(dir, "/")
	if err := checkObject(object); err != nil {
		return nil, err
	}
	var objects []string
	err := filepath.WalkDir(d.file(object), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), tempPrefix) {
			return err
		}
		below, err := filepath.Rel(d.root, name)
		objects = append(objects, filepath.ToSlash(below))
		return err
	})
	if err = d.missing("listing", dir, err); err != nil && !errors.Is(err, pki.ErrNotFound) {
		return nil, err
	}
	slices.Sort(objects)
	return objects, nil
}

// Delete removes the object's file.
func (d *Dir) Delete(ctx context.Context, object string) error {
	if err := cmp.Or(checkObject(object), ctx.Err()); err != nil {
		return err
	}
	err := os.Remove(d.file(object))
	if err == nil {
		err = syncDir(filepath.Dir(d.file(object)))
	}
	return d.missing("deleting", object, err)
}

// GetAll reads the objects' files, one after the other.
func (d *Dir) GetAll(ctx context.Context, objects ...string) (map[string][]byte, error) {
	return each(ctx, d, objects)
}

// each reads objects one at a time.
func each(ctx context.Context, s Store, objects []string) (map[string][]byte, error) {
	found := map[string][]byte{}
	for _, object := range objects {
		content, err := s.Get(ctx, object)
		if errors.Is(err, pki.ErrNotFound) {
			continue
		}
		if err != nil {
			return found, err
		}
		found[object] = content
	}
	return found, nil
}

// Create writes a temporary file and links it to the object's path: a link never replaces a file.
func (d *Dir) Create(ctx context.Context, object string, content []byte) error {
	return d.write(ctx, "creating", object, content, func(temp, file string) error {
		return os.Link(temp, file)
	})
}

// Put writes a temporary file and renames it to the object's path.
func (d *Dir) Put(ctx context.Context, object string, content []byte) error {
	return d.write(ctx, "writing", object, content, os.Rename)
}

// Swap compares and replaces under a lock on the object's directory, which another Swap waits for.
func (d *Dir) Swap(ctx context.Context, object string, old, content []byte) (err error) {
	if _, err := d.Get(ctx, object); err != nil {
		return err
	}
	unlock, err := file.LockDir(filepath.Dir(d.file(object)))
	if err != nil {
		return d.explain("locking", object, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	have, err := d.Get(ctx, object)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, old) {
		return changed(d, object)
	}
	return d.Put(ctx, object, content)
}

// changed is the error of an object that is not what the caller of Swap has read.
func changed(s fmt.Stringer, object string) error {
	return fmt.Errorf("replacing %s in %s: %w; next: read it again", object, s, pki.ErrChanged)
}

// write writes a temporary file, lets place move it to its path, and syncs both to disk.
func (d *Dir) write(ctx context.Context, doing, object string, content []byte, place func(temp, file string) error) error {
	if err := cmp.Or(checkObject(object), ctx.Err()); err != nil {
		return err
	}
	file := d.file(object)
	if err := d.makeDirs(object); err != nil {
		return d.explain(doing, object, err)
	}
	temp, err := stage(filepath.Dir(file), content, modeOf(object))
	if err != nil {
		return d.explain(doing, object, err)
	}
	defer os.Remove(temp)
	if err := place(temp, file); err != nil {
		return d.explain(doing, object, err)
	}
	if err := syncDir(filepath.Dir(file)); err != nil {
		return d.explain(doing, object, err)
	}
	return nil
}

// makeDirs makes the parent directories of an object: world-readable for public objects, private for others.
func (d *Dir) makeDirs(object string) error {
	if err := os.MkdirAll(d.root, 0o755); err != nil {
		return err
	}
	dir := d.root
	for part := range strings.SplitSeq(path.Dir(object), "/") {
		dir = filepath.Join(dir, part)
		mode := fs.FileMode(0o700)
		if public(object) {
			mode = 0o755
		}
		if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func public(object string) bool { return strings.HasPrefix(object, publicDir+"/") }

func modeOf(object string) fs.FileMode {
	if public(object) {
		return 0o644
	}
	return 0o600
}

// tempPrefix begins the names of files that are not complete.
const tempPrefix = ".hardtack-"

// stage writes a complete file under a temporary name.
func stage(dir string, content []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(dir, tempPrefix+"*") // 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// explain maps an error of a file to one of the store's errors.
func (d *Dir) explain(doing, object string, err error) error {
	var kind error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		kind = pki.ErrNotFound
	case errors.Is(err, fs.ErrExist):
		kind = pki.ErrExists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		kind = pki.ErrForbidden
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.ETIMEDOUT):
		kind = pki.ErrUnreachable // from a network file system
	default:
		return fmt.Errorf("%s %s in %s: %w", doing, object, d, err)
	}
	return fmt.Errorf("%s %s in %s: %w (%w)", doing, object, d, kind, err)
}
