package rootfs

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"
)

// buffer is the size of a write of WriteTar: a write may be one remote call.
const buffer = 1 << 20

// Tree holds the entries that a bake adds to a machine. It is immutable; the zero value is empty.
type Tree struct{ entries []Entry }

// Entries lists all entries, a directory before its content.
func (t *Tree) Entries() []Entry { return slices.Clone(t.entries) }

// All yields everything in the order of Entries.
func (t *Tree) All() iter.Seq[Entry] { return slices.Values(t.entries) }

// Len is the number of entries.
func (t *Tree) Len() int { return len(t.entries) }

// Has reports whether there is an entry at the path.
func (t *Tree) Has(file string) bool {
	_, ok := t.Entry(file)
	return ok
}

// Entry returns the entry at the path.
func (t *Tree) Entry(file string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(t.entries, file, func(e Entry, file string) int {
		return slices.Compare(strings.Split(e.Path, "/"), strings.Split(file, "/"))
	})
	if !ok {
		return Entry{}, false
	}
	return t.entries[i], true
}

// Size is the number of bytes of all regular files.
func (t *Tree) Size() int64 {
	var total int64
	for _, e := range t.entries {
		total += e.Size
	}
	return total
}

// Digest is the sha256, in hex, of path, mode, owner, link, size and content digest of every entry: two trees have the same
// digest exactly if they write the same files.
func (t *Tree) Digest() string {
	hash := sha256.New()
	for _, e := range t.entries {
		fmt.Fprintf(hash, "%s\x00%o\x00%s\x00%d\x00%s", e.Path, e.Mode, e.Link, e.Size, e.Digest)
		if e.UID != 0 || e.GID != 0 {
			fmt.Fprintf(hash, "\x00%s", e.Owner())
		}
		fmt.Fprintln(hash)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Sums lists the regular files in the format of `sha256sum --check`.
func (t *Tree) Sums() string {
	var b strings.Builder
	for _, e := range t.entries {
		if e.Mode.IsRegular() {
			fmt.Fprintf(&b, "%s  %s\n", e.Digest, e.Path)
		}
	}
	return b.String()
}

// Listing is a readable list of the tree: mode, size, path, link and component, a line each.
func (t *Tree) Listing() string {
	var b strings.Builder
	for _, e := range t.entries {
		fmt.Fprintf(&b, "%v %10d %s", e.Mode, e.Size, e.Path)
		if e.Link != "" {
			b.WriteString(" -> " + e.Link)
		}
		b.WriteString("  [" + e.Component + "]\n")
	}
	return b.String()
}

// Select returns the tree of the entries for which keep returns true.
func (t *Tree) Select(keep func(Entry) bool) *Tree {
	var s Tree
	for _, e := range t.entries {
		if keep(e) {
			s.entries = append(s.entries, e)
		}
	}
	return &s
}

// WriteTar streams the tree as a tar archive: owners are numbers, times are the epoch. Names are
// relative to the root directory. The content of each file is compared with its size and digest while
// it passes; on any difference, or when ctx ends, the archive is left unfinished and the error says why.
func (t *Tree) WriteTar(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, buffer)
	archive := tar.NewWriter(out)
	for _, e := range t.entries {
		if err := writeEntry(ctx, archive, e); err != nil {
			return fmt.Errorf("writing %s: %w", e.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return out.Flush()
}

func writeEntry(ctx context.Context, archive *tar.Writer, e Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	header := &tar.Header{
		Name: strings.TrimPrefix(e.Path, "/"), Linkname: e.Link, Mode: int64(e.UnixMode()), Size: e.Size,
		ModTime: time.Unix(0, 0), Uid: e.UID, Gid: e.GID,
	}
	switch e.Mode.Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
	case fs.ModeSymlink:
		header.Typeflag = tar.TypeSymlink
	default:
		header.Typeflag = tar.TypeReg
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	return writeContent(ctx, archive, e)
}

func writeContent(ctx context.Context, archive *tar.Writer, e Entry) error {
	content, err := e.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(archive, hash), &reader{ctx: ctx, r: content})
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); n != e.Size || got != e.Digest {
		return fmt.Errorf("the file changed since its digest was taken: %d bytes with sha256 %s, expected %d with %s (run the build again)",
			n, got, e.Size, e.Digest)
	}
	return nil
}

// reader ends when its context does.
type reader struct {
	ctx context.Context //nolint:containedctx // it lives as long as one copy
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
