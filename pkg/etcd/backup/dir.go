package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// dir is a place in a directory, which several machines may have mounted.
type dir struct{ root, cluster string }

func (d dir) String() string { return "dir:" + d.root }

// List implements Place.
func (d dir) List(ctx context.Context) ([]Object, error) { return list(ctx, d, d.cluster) }

// Newest implements Place.
func (d dir) Newest(ctx context.Context, epoch int) (*Object, error) {
	return newest(ctx, d, d.cluster, epoch)
}

// there returns an error if the root does not exist. It is neither made nor taken for an empty one: it may not be mounted.
func (d dir) there() error {
	_, err := os.Stat(d.root)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (mount it, or make it)", err)
	}
	return forbidden(err)
}

// names implements shelf.
func (d dir) names(_ context.Context, prefix string) ([]string, error) {
	if err := d.there(); err != nil {
		return nil, fmt.Errorf("listing the backups in %s: %w", d, err)
	}
	var names []string
	err := filepath.WalkDir(filepath.Join(d.root, filepath.FromSlash(prefix)), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // no backup yet, or one that is being removed
		}
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(d.root, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the backups in %s: %w", d, forbidden(err))
	}
	return names, nil
}

// Put implements Place.
func (d dir) Put(ctx context.Context, o Object, file string) error { return put(ctx, d, o, file) }

// Open implements Place.
func (d dir) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return d.open(ctx, name)
}

func (d dir) open(_ context.Context, name string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(d.root, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (%w)", ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s in %s: %w", name, d, forbidden(err))
	}
	return f, nil
}

func forbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w (%w)", ErrForbidden, err)
	}
	return err
}

// put implements shelf: the file appears whole or not at all, and replaces none.
func (d dir) put(_ context.Context, name string, from content) (err error) {
	to := filepath.Join(d.root, filepath.FromSlash(name))
	where := filepath.Dir(to)
	if err := d.there(); err != nil {
		return fmt.Errorf("storing %s in %s: %w", name, d, err)
	}
	if err := os.MkdirAll(where, 0o700); err != nil {
		return fmt.Errorf("storing %s in %s: %w", name, d, forbidden(err))
	}
	f, err := os.CreateTemp(where, ".new-*")
	if err != nil {
		return fmt.Errorf("storing %s in %s: %w", name, d, forbidden(err))
	}
	defer func() { _ = os.Remove(f.Name()) }()
	in, err := from.open()
	if err == nil {
		_, err = io.Copy(f, in)
		err = errors.Join(err, in.Close(), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if err = os.Link(f.Name(), to); errors.Is(err, fs.ErrExist) {
			err = ErrExists
		}
	}
	if err == nil {
		err = syncDir(where)
	}
	if err != nil {
		return fmt.Errorf("storing %s in %s: %w", name, d, err)
	}
	return nil
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
