package bake

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// lockSuffix is what the names of lock files end with.
const lockSuffix = ".lock.yaml"

// DefaultLock is the lock that is used if none is named.
const DefaultLock = "kubernetes-1.36"

// LoadLock reads a lock: from the assets by its name, or from a local file if name is a path.
func LoadLock(assets fs.FS, name string) (*lock.Lock, error) {
	file := name + lockSuffix
	data, err := fs.ReadFile(assets, file)
	if err != nil {
		file = name
		if data, err = os.ReadFile(name); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("lock %q is neither a file nor one of the locks that come with Hardtack: %s",
				name, strings.Join(LockNames(assets), ", "))
		} else if err != nil {
			return nil, fmt.Errorf("reading the lock: %w", err)
		}
	}
	lock, problems := lock.Parse(file, data)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("the lock is not usable:\n%w", err)
	}
	return lock, nil
}

// LockNames lists the locks in the assets.
func LockNames(assets fs.FS) []string {
	files, err := fs.Glob(assets, "*"+lockSuffix)
	if err != nil {
		return nil // only a bad pattern is an error
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), lockSuffix)
	}
	return files
}

// Packages lists the Debian packages that every image needs, from the assets' file "packages": one a line, "#" begins a
// comment.
func Packages(assets fs.FS) ([]string, error) {
	data, err := fs.ReadFile(assets, "packages")
	if err != nil {
		return nil, fmt.Errorf("reading the package list: %w", err)
	}
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		names = append(names, strings.Fields(line)...)
	}
	return names, nil
}
