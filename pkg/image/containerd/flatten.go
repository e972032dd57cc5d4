package containerd

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// flatten returns the files of all layers of an image as one directory, the root first: what a layer deletes is not there. A hard link becomes a file
// of its own. why says what of the image a tree cannot have.
func flatten(ctx context.Context, image v1.Image, c *cache.Cache) (entries []rootfs.Entry, why string, err error) {
	if why, err := throughLink(image); err != nil || why != "" {
		return nil, why, err
	}
	files := mutate.Extract(image)
	defer func() { err = errors.Join(err, files.Close()) }()
	found := map[string]rootfs.Entry{"/": {Path: "/", Mode: fs.ModeDir | 0o755}}
	hard := map[string]string{}
	t := tar.NewReader(files)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, "", fmt.Errorf("reading its layers: %w", err)
		}
		e, why := entryOf(h)
		switch {
		case why != "":
			return nil, why, nil
		case h.Typeflag == tar.TypeLink:
			hard[e.Path] = path.Clean("/" + h.Linkname)
		case e.Mode.IsRegular():
			blob, err := c.Store(ctx, t)
			if err != nil {
				return nil, "", fmt.Errorf("reading its layers: %s: %w", e.Path, err)
			}
			stored := c.Entry("", lock.File{}, blob)
			e.Size, e.Digest, e.Open = stored.Size, stored.Digest, stored.Open
			fallthrough
		default:
			found[e.Path] = e
		}
	}
	for name, of := range hard {
		target, ok := found[of]
		if !ok || !target.Mode.IsRegular() {
			return nil, fmt.Sprintf("%s is a hard link to %s, which is no file of it", name, of), nil
		}
		target.Path = name
		found[name] = target
	}
	entries = slices.Collect(maps.Values(found))
	slices.SortFunc(entries, func(a, b rootfs.Entry) int { return strings.Compare(a.Path, b.Path) })
	return entries, "", nil
}

// throughLink names a path of a layer that is below what is no directory in any layer, as a file that a layer puts below a link: Extract leaves it
// out, or in place of the link.
func throughLink(image v1.Image) (why string, err error) {
	layers, err := image.Layers()
	if err != nil {
		return "", err
	}
	var names []string
	others := map[string]bool{}
	for _, l := range layers {
		err := headers(l, func(h *tar.Header) {
			name := path.Clean("/" + h.Name)
			names = append(names, name)
			if h.Typeflag != tar.TypeDir {
				others[name] = true
			}
		})
		if err != nil {
			return "", fmt.Errorf("reading its layers: %w", err)
		}
	}
	for _, name := range names {
		for above := path.Dir(name); above != "/"; above = path.Dir(above) {
			if others[above] {
				return fmt.Sprintf("%s is below %s, which is no directory", name, above), nil
			}
		}
	}
	return "", nil
}

// headers calls see for each path of a layer.
func headers(l v1.Layer, see func(*tar.Header)) error {
	r, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		see(h)
	}
}

// entryOf is the entry of a tar's header, without its content. why says what of it a tree cannot have.
func entryOf(h *tar.Header) (e rootfs.Entry, why string) {
	info := h.FileInfo().Mode()
	e = rootfs.Entry{Path: path.Clean("/" + h.Name), UID: h.Uid, GID: h.Gid}
	e.Mode = info.Perm() | info&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)
	for key := range h.PAXRecords {
		if strings.Contains(key, ".xattr.") {
			return e, fmt.Sprintf("%s has the extended attribute %s", e.Path, key[strings.Index(key, ".xattr.")+len(".xattr."):])
		}
	}
	if strings.ContainsFunc(e.Path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
		return e, fmt.Sprintf("the name %q has a control character or a backslash", e.Path)
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeLink:
	case tar.TypeDir:
		e.Mode |= fs.ModeDir
	case tar.TypeSymlink:
		e.Mode, e.Link = fs.ModeSymlink|0o777, h.Linkname
	default:
		return e, e.Path + " is neither file, directory nor link"
	}
	return e, ""
}
