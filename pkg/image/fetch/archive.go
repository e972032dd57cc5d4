package fetch

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// extract extracts the members that the download names, streaming, and returns them by File.Name. Names in the archive
// are only compared, never used as paths, so that they cannot escape a directory.
func extract(ctx context.Context, c *cache.Cache, d lock.Download, archive cache.Blob) (map[string]cache.Blob, error) {
	f, err := c.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	defer f.Close()
	found, err := members(ctx, c, bufio.NewReaderSize(f, 256<<10), d.Members)
	if err != nil {
		return nil, fmt.Errorf("extracting from %s: %w", d.URL, err)
	}
	return found, nil
}

// members reads the tar.gz until it has every wanted member (names to paths).
func members(ctx context.Context, c *cache.Cache, r io.Reader, wanted map[string]string) (map[string]cache.Blob, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for file, member := range wanted {
		names[path.Clean(member)] = append(names[path.Clean(member)], file)
	}
	found := map[string]cache.Blob{}
	var others []string
	for t := tar.NewReader(z); len(found) < len(wanted); {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil, missingMembers(wanted, found, others)
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean(h.Name)
		files, ok := names[name]
		if !ok {
			others = append(others, h.Name)
			continue
		}
		if h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s is not a regular file", h.Name)
		}
		b, err := c.Store(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		for _, file := range files {
			found[file] = b
		}
	}
	return found, nil
}

// listed is the number of an archive's names that a message shows.
const listed = 12

func missingMembers(wanted map[string]string, found map[string]cache.Blob, others []string) error {
	var missing []string
	for _, file := range slices.Sorted(maps.Keys(wanted)) {
		if _, ok := found[file]; !ok {
			missing = append(missing, wanted[file])
		}
	}
	text := "nothing else"
	if len(others) > 0 {
		text = strings.Join(others[:min(len(others), listed)], ", ")
		if len(others) > listed {
			text += fmt.Sprintf(" and %d more", len(others)-listed)
		}
	}
	return fmt.Errorf("the archive has no %s; it has %s", strings.Join(missing, ", "), text)
}
