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

	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
)

// extract takes the members that the download names out of the archive, streaming, and returns them by
// File.Name. A name inside the archive is only compared, never used as a path, so it cannot lead
// anywhere.
func (c *cache) extract(ctx context.Context, d component.Download, archive blob) (map[string]blob, error) {
	f, err := c.open(archive)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	defer f.Close()
	members, err := c.members(ctx, bufio.NewReaderSize(f, 256<<10), d.Members)
	if err != nil {
		return nil, fmt.Errorf("extracting from %s: %w", d.URL, err)
	}
	return members, nil
}

// members reads the tar.gz until it has every wanted member (names to paths).
func (c *cache) members(ctx context.Context, r io.Reader, wanted map[string]string) (map[string]blob, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for file, member := range wanted {
		names[path.Clean(member)] = append(names[path.Clean(member)], file)
	}
	found := map[string]blob{}
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
		b, err := c.store(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		for _, file := range files {
			found[file] = b
		}
	}
	return found, nil
}

// listed is how many names of an archive a message shows.
const listed = 12

func missingMembers(wanted map[string]string, found map[string]blob, others []string) error {
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
