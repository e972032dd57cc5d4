package containerd

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/cache"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// The names by which a layer deletes what is below it (OCI image specification, layer.md, "Whiteouts"): a file or directory, and all that a directory
// has.
const (
	whiteout = ".wh."
	opaque   = whiteout + whiteout + ".opq"
)

// flatten returns the files of all layers of an image as one directory, the root first. They are what containerd has once it has applied layer after
// layer: what a layer deletes is not there, and a hard link becomes a file of its own. why says what of the image a tree cannot have, or what programs
// that unpack layers do not agree about.
//
// diffs are the digests of what the layers unpack to, as the image's configuration has them. They are compared: containerd knows files by them, so that
// an image with the digests of another would have its files in the other's place, on every node.
func flatten(ctx context.Context, layers []v1.Layer, diffs []v1.Hash, c *cache.Cache) (entries []rootfs.Entry, why string, err error) {
	files := map[string]rootfs.Entry{"/": {Path: "/", Mode: fs.ModeDir | 0o755}}
	for i, l := range layers {
		diff, why, err := apply(ctx, l, files, c)
		if err != nil || why != "" {
			return nil, why, err
		}
		if diff != diffs[i] {
			return nil, "", fmt.Errorf("its layer %d unpacks to %s, and its configuration says %s: it is broken or forged, build it again", i+1, diff, diffs[i])
		}
	}
	byPath := func(a, b rootfs.Entry) int { return strings.Compare(a.Path, b.Path) }
	return slices.SortedFunc(maps.Values(files), byPath), "", nil
}

// apply applies a layer to the files of those below it. diff is the digest of all that it unpacks to.
func apply(ctx context.Context, l v1.Layer, files map[string]rootfs.Entry, c *cache.Cache) (diff v1.Hash, why string, err error) {
	r, err := l.Uncompressed()
	if err != nil {
		return v1.Hash{}, "", err
	}
	defer func() { _ = r.Close() }() // it was only read
	s := state{files: files, own: map[string]bool{}, deleted: map[string]bool{}}
	sum := sha256.New()
	all := io.TeeReader(r, sum)
	t := tar.NewReader(all)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return v1.Hash{}, "", fmt.Errorf("reading its layers: %w", err)
		}
		content := func() (rootfs.Entry, error) {
			blob, err := c.Store(ctx, t)
			return c.Entry("", lock.File{}, blob), err
		}
		if why, err := s.add(h, content); err != nil || why != "" {
			return v1.Hash{}, why, err
		}
	}
	if _, err := io.Copy(io.Discard, all); err != nil { // what is behind the end of the tar counts too
		return v1.Hash{}, "", fmt.Errorf("reading its layers: %w", err)
	}
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}, s.conflict(), nil
}

// state is a layer that is being applied.
type state struct {
	// files are those so far, by path, with all directories above them.
	files map[string]rootfs.Entry
	// own has the paths of this layer: true for what a header names, false for a directory above that.
	own map[string]bool
	// deleted are the paths that the layer deletes, with all that is below them.
	deleted map[string]bool
}

// add applies one path of the layer.
func (s state) add(h *tar.Header, content func() (rootfs.Entry, error)) (why string, err error) {
	name := path.Clean("/" + h.Name)
	if name == "/" {
		return "", nil // containerd takes its own directory as it is
	}
	if why := s.above(name); why != "" {
		return why, nil
	}
	if s.own[name] {
		return name + " is in one layer twice", nil
	}
	s.own[name] = true
	if of, found := strings.CutPrefix(path.Base(name), whiteout); found {
		return s.hide(path.Dir(name), of), nil
	}
	e, why := entryOf(h)
	switch {
	case why != "":
		return why, nil
	case h.Typeflag == tar.TypeLink:
		of := path.Clean("/" + h.Linkname)
		target, there := s.files[of]
		if !there || !s.own[of] || !target.Mode.IsRegular() {
			return fmt.Sprintf("%s is a hard link to %s, which is no file before it in its layer", name, of), nil
		}
		e = target
		e.Path = name
	case e.Mode.IsRegular():
		stored, err := content()
		if err != nil {
			return "", fmt.Errorf("reading its layers: %s: %w", name, err)
		}
		e.Size, e.Digest, e.Open = stored.Size, stored.Digest, stored.Open
	}
	if !e.Mode.IsDir() {
		s.remove(name)
	}
	s.files[name] = e
	return "", nil
}

// above makes the directories above a path that are not there. why names what is none.
func (s state) above(name string) (why string) {
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		e, there := s.files[dir]
		if there && !e.Mode.IsDir() {
			return fmt.Sprintf("%s is below %s, which is no directory", name, dir)
		}
		if !there {
			s.files[dir] = rootfs.Entry{Path: dir, Mode: fs.ModeDir | 0o755}
		}
		if _, own := s.own[dir]; !own {
			s.own[dir] = false
		}
	}
	return ""
}

// hide deletes a name of a directory from the layers below, or all that the directory has there, whatever of it the layer has had before.
func (s state) hide(dir, name string) (why string) {
	if whiteout+name == opaque {
		maps.DeleteFunc(s.files, func(file string, _ rootfs.Entry) bool {
			_, own := s.own[file]
			return !own && below(file, dir)
		})
		return ""
	}
	of := path.Join(dir, name)
	if !below(of, dir) {
		return fmt.Sprintf("%s deletes no name of %s", path.Join(dir, whiteout+name), dir)
	}
	s.deleted[of] = true
	s.remove(of)
	return ""
}

// remove removes a file, or a directory with all that is below it.
func (s state) remove(name string) {
	if s.files[name].Mode.IsDir() {
		maps.DeleteFunc(s.files, func(file string, _ rootfs.Entry) bool { return below(file, name) })
	}
	delete(s.files, name)
}

// conflict names a path that the layer both has and deletes. By the specification only what is in the layers below is deleted, but containerd shows that
// again: the directory that takes the place of overlayfs's mark hides nothing.
func (s state) conflict() (why string) {
	for _, name := range slices.Sorted(maps.Keys(s.own)) {
		for at := name; s.own[name] && at != "/"; at = path.Dir(at) {
			if s.deleted[at] {
				return fmt.Sprintf("%s is in the layer that deletes %s", name, at)
			}
		}
	}
	return ""
}

// below reports whether a path is below a directory.
func below(name, dir string) bool {
	return name != dir && strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
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
