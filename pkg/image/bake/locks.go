package bake

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// lockSuffix is what the names of lock files end with.
const lockSuffix = ".lock.yaml"

// DefaultLock is the lock that is used if none is named.
const DefaultLock = "kubernetes-1.36"

// UnknownLockError is a name that is neither a file nor one of Hardtack's locks.
type UnknownLockError struct {
	Name string
	// Locks are the names of Hardtack's locks.
	Locks []string
}

func (e *UnknownLockError) Error() string {
	text := fmt.Sprintf("lock %q is neither a file nor one of the locks that come with Hardtack: %s", e.Name, strings.Join(e.Locks, ", "))
	if meant := near.DidYouMean(e.Name, e.Locks); meant != "" {
		text += " (" + meant + ")"
	}
	return text
}

// LoadLock reads a lock: from the assets by its name, or from a local file if name is a path. A lock that lies over others
// (lock.Lock.Over) is returned complete.
func LoadLock(assets fs.FS, name string) (*lock.Lock, error) { return loadLock(assets, name, nil) }

// loadLock is LoadLock; above are the locks that lie over this one.
func loadLock(assets fs.FS, name string, above []string) (*lock.Lock, error) {
	data, err := fs.ReadFile(assets, name+lockSuffix)
	if err == nil {
		return parsed(lock.Parse(name+lockSuffix, data))
	}
	if slices.Contains(above, filepath.Clean(name)) {
		return nil, fmt.Errorf("%s lies over itself, by %s: take one of them out of the other's field over", name, strings.Join(above, " over "))
	}
	data, err = file.ReadUpTo(name, lock.MaxInput)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &UnknownLockError{Name: name, Locks: LockNames(assets)}
	case err != nil:
		return nil, fmt.Errorf("reading the lock: %w", err)
	}
	top, problems := ParseLock(assets, name, data)
	if problems.Err() != nil || len(top.Over) == 0 {
		return parsed(top, problems)
	}
	above = append(slices.Clip(above), filepath.Clean(name))
	var below []*lock.Lock
	for i, other := range top.Over {
		at := other
		if _, err := fs.Stat(assets, other+lockSuffix); err != nil && !filepath.IsAbs(other) {
			at = filepath.Join(filepath.Dir(name), other)
		}
		l, err := loadLock(assets, at, above)
		if unknown := new(UnknownLockError); errors.As(err, &unknown) && unknown.Name == at {
			unknown.Name = other
		}
		if err != nil {
			problems.Errorf(name, yamlfile.At("over", i), "%v", err)
			continue
		}
		below = append(below, l)
	}
	if problems.Err() != nil {
		return parsed(nil, problems)
	}
	return parsed(top.On(name, below...))
}

func parsed(l *lock.Lock, problems problem.List) (*lock.Lock, error) {
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("the lock is not usable:\n%w", err)
	}
	return l, nil
}

// ParseLock parses one lock file without what it lies over, and reads the module archives that are beside it.
func ParseLock(assets fs.FS, file string, data []byte) (*lock.Lock, problem.List) {
	l, problems := lock.Parse(file, data)
	if l == nil {
		return nil, problems
	}
	for i, c := range l.Components {
		if c.Modules == nil {
			continue
		}
		field := yamlfile.At("components", i) + ".modules"
		problems = append(problems, readArchive(assets, file, field+".source", c, c.Modules.Source)...)
		for j, shared := range c.Modules.Shared {
			problems = append(problems, readArchive(assets, file, yamlfile.At(field+".shared", j), c, shared)...)
		}
	}
	return l, problems
}

// readArchive reads one of the component's archives of modules if it is beside the lock file; else it is one of the assets.
func readArchive(assets fs.FS, file, field string, c lock.Component, name string) (problems problem.List) {
	archive, err := os.ReadFile(filepath.Join(filepath.Dir(file), filepath.FromSlash(name)))
	if err == nil {
		m := c.Modules
		if m.Archives == nil {
			m.Archives, m.ArchiveDigests = map[string][]byte{}, map[string]string{}
		}
		sum := sha256.Sum256(archive)
		m.Archives[name], m.ArchiveDigests[name] = archive, hex.EncodeToString(sum[:])
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		problems.Errorf(file, field, "reading the module archive: %v", err)
		return problems
	}
	if _, err := fs.Stat(assets, name); err == nil {
		return nil
	}
	hint := "write it there: a txtar archive of Go packages"
	if name == c.Modules.Source {
		hint = "write it there: a txtar archive of a go.mod that requires " + c.Modules.Module + " " + c.Version + ", and its go.sum"
	}
	problems.Add(problem.Problem{File: file, Field: field, Rule: "lock", Text: fmt.Sprintf("%s is neither beside the lock nor one of Hardtack's archives", name), Hint: hint})
	return problems
}

// LockNames lists the locks in the assets.
func LockNames(assets fs.FS) []string {
	files, err := fs.Glob(assets, "*"+lockSuffix)
	if err != nil {
		return nil // only a bad pattern is an error
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(file, lockSuffix)
	}
	return files
}

// LockFile returns one of Hardtack's locks as a file of its own: its name, its text, and by their names the module archives
// that it needs beside it.
func LockFile(assets fs.FS, name string) (map[string][]byte, error) {
	file := name + lockSuffix
	data, err := fs.ReadFile(assets, file)
	if err != nil {
		return nil, &UnknownLockError{Name: name, Locks: LockNames(assets)}
	}
	l, err := parsed(lock.Parse(file, data))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{file: data}
	for _, c := range l.Components {
		if c.Modules == nil {
			continue
		}
		for _, archive := range c.Modules.Sources() {
			if files[archive], err = fs.ReadFile(assets, archive); err != nil {
				return nil, fmt.Errorf("module archive of %s: %w", c.Name, err)
			}
		}
	}
	return files, nil
}
