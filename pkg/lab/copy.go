package lab

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// copyPiece is how much of an archive one command carries to a machine, in bytes before base64: a shell takes no longer
// argument than 128 KiB (MAX_ARG_STRLEN).
const copyPiece = 60 << 10

// shell runs a script on a machine, as Client.Exec does.
type shell func(ctx context.Context, script string, out io.Writer) (status int, err error)

// Fetch copies a file or directory of a machine to this computer, by the machine's second serial line, which takes a minute
// for a few megabytes. Where to is a directory, the copy gets into it. The copy appears whole or not at all, and replaces a
// file but no directory.
func (c *Client) Fetch(ctx context.Context, id, from, to string) error {
	return fetchBy(ctx, c.shellOf(id), from, to)
}

// Send copies a file or directory of this computer to a machine, as Fetch does the other way; root owns the copy.
func (c *Client) Send(ctx context.Context, id, from, to string) error {
	return sendBy(ctx, c.shellOf(id), from, to)
}

func (c *Client) shellOf(id string) shell {
	return func(ctx context.Context, script string, out io.Writer) (int, error) {
		return c.Exec(ctx, id, script, out)
	}
}

// say runs a script, whose output is the error where its status is not 0.
func (s shell) say(ctx context.Context, script string) (string, error) {
	var out bytes.Buffer
	status, err := s(ctx, script, &out)
	if err == nil && status != 0 {
		err = errors.New(strings.TrimSpace(out.String()))
	}
	return out.String(), err
}

func fetchBy(ctx context.Context, machine shell, from, to string) error {
	from = path.Clean(from)
	text, err := machine.say(ctx, fmt.Sprintf(`t=$(mktemp) && trap 'rm -f "$t"' EXIT && tar --create --gzip --file "$t" --directory %s -- %s && base64 --wrap=0 "$t"`,
		run.Quote(path.Dir(from)), run.Quote(path.Base(from))))
	if err != nil {
		return fmt.Errorf("copying %s of the machine: %w", from, err)
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		to = filepath.Join(to, path.Base(from))
	}
	// Beside its place, so that it gets there by a name alone.
	work, err := os.MkdirTemp(filepath.Dir(to), ".hardtack-cp-*")
	if err != nil {
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := unpack(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)), work); err != nil {
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	if err := os.Rename(filepath.Join(work, path.Base(from)), to); err != nil {
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	return nil
}

// unpack writes the files of what a machine sends below dir.
func unpack(in io.Reader, dir string) error {
	zipped, err := gzip.NewReader(in)
	if err == nil {
		err = untar(zipped, dir)
	}
	if err != nil {
		return fmt.Errorf("reading what the machine sends: %w", err)
	}
	return nil
}

// untar writes an archive's files below dir, and nothing elsewhere, whatever names the archive has.
func untar(in io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackOne(root, h, archive); err != nil {
			return err
		}
	}
}

func unpackOne(root *os.Root, h *tar.Header, in io.Reader) error {
	name := filepath.FromSlash(path.Clean(h.Name))
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, h.FileInfo().Mode().Perm()|0o700)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		// An archive may leave out the directories of its files.
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, in)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%s is neither a file, a directory nor a symbolic link: leave it out", h.Name)
}

func sendBy(ctx context.Context, machine shell, from, to string) error {
	data, err := pack(from)
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	temp, err := machine.say(ctx, "mktemp")
	if err != nil {
		return fmt.Errorf("copying to %s of the machine: %w", to, err)
	}
	temp = strings.TrimSpace(temp)
	for piece := range slices.Chunk(data, copyPiece) {
		if _, err = machine.say(ctx, "echo "+base64.StdEncoding.EncodeToString(piece)+" | base64 --decode >>"+run.Quote(temp)); err != nil {
			break
		}
	}
	if err == nil {
		_, err = machine.say(ctx, fmt.Sprintf(`to=%s; if [ -d "$to" ]; then to=$to/%s; fi
work=$(mktemp --directory "$(dirname "$to")/.hardtack-cp-XXXXXX") && trap 'rm -rf "$work"' EXIT &&
tar --extract --gzip --no-same-owner --file %s --directory "$work" && mv --no-target-directory "$work/it" "$to"`,
			run.Quote(path.Clean(to)), run.Quote(filepath.Base(from)), run.Quote(temp)))
	}
	// Also where the caller was interrupted: the machine would keep the archive.
	_, clearing := machine.say(context.WithoutCancel(ctx), "rm -f "+run.Quote(temp))
	if err != nil {
		return fmt.Errorf("copying to %s of the machine: %w", to, err)
	}
	return clearing
}

// pack makes an archive of a file or a directory, which is named "it" there.
func pack(from string) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	err := filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		return packOne(archive, file, path.Join("it", filepath.ToSlash(below)))
	})
	err = errors.Join(err, archive.Close(), zipped.Close())
	return out.Bytes(), err
}

func packOne(archive *tar.Writer, file, name string) error {
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(file); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name = name
	if err := archive.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(archive, f)
	return err
}
