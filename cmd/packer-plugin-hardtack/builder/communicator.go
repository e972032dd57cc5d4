//go:build linux

package builder

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
)

var _ packersdk.Communicator = (*communicator)(nil)

// communicator lets provisioners work in the root directory. Packer's RPC passes a context that is never cancelled, so
// commands use the build's context instead.
type communicator struct {
	build   func() context.Context
	root    *chroot.Root
	running sync.WaitGroup
}

func newCommunicator(ctx context.Context, root *chroot.Root) *communicator {
	return &communicator{build: func() context.Context { return ctx }, root: root}
}

// wait waits until no command runs in the root directory.
func (c *communicator) wait() { c.running.Wait() }

// statusAborted is the exit status of a command that could not run to its end, as ssh has it.
const statusAborted = 255

// Start runs the command and returns at once.
func (c *communicator) Start(_ context.Context, cmd *packersdk.RemoteCmd) error {
	c.running.Go(func() {
		exit, err := c.root.Run(c.build(), cmd.Command, cmd.Stdin, cmd.Stdout, cmd.Stderr)
		if err != nil {
			log.Printf("[ERROR] command in the root directory: %v", err)
			if cmd.Stderr != nil {
				fmt.Fprintf(cmd.Stderr, "command in the root directory: %v\n", err)
			}
			exit = statusAborted
		}
		cmd.SetExited(exit)
	})
	return nil
}

// Upload writes one file, with the mode of info unless it is nil.
func (c *communicator) Upload(dst string, content io.Reader, info *os.FileInfo) error {
	c.running.Add(1)
	defer c.running.Done()
	var mode fs.FileMode
	if info != nil && *info != nil {
		mode = (*info).Mode()
		if strings.HasSuffix(dst, "/") {
			dst = path.Join(dst, (*info).Name())
		}
	}
	return c.root.WriteFile(c.build(), dst, mode, content)
}

// Download reads one file.
func (c *communicator) Download(src string, w io.Writer) error {
	c.running.Add(1)
	defer c.running.Done()
	return c.root.ReadFile(c.build(), src, w)
}

// UploadDir copies the host's directory src into dst; unless src ends with a slash, into a subdirectory with its name.
func (c *communicator) UploadDir(dst, src string, exclude []string) error {
	c.running.Add(1)
	defer c.running.Done()
	if !strings.HasSuffix(src, "/") {
		dst = path.Join(dst, filepath.Base(src))
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(archive(w, src, exclude)) }()
	err := c.root.Unpack(c.build(), dst, r)
	_ = r.Close() // ends the archiver if the target stopped reading
	return err
}

// DownloadDir copies the root's directory src into dst; unless src ends with a slash, into a subdirectory with its
// name.
func (c *communicator) DownloadDir(src, dst string, exclude []string) error {
	c.running.Add(1)
	defer c.running.Done()
	if !strings.HasSuffix(src, "/") {
		dst = filepath.Join(dst, path.Base(src))
	}
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return fmt.Errorf("download directory: %w", err)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := c.root.Pack(c.build(), src, w)
		_ = w.CloseWithError(err)
		packed <- err
	}()
	err := extract(r, dst, exclude)
	_ = r.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	if perr := <-packed; perr != nil && err == nil {
		err = perr
	}
	return err
}

// archive writes the tree below src as a tar stream: files, directories and links with their modes.
func archive(w io.Writer, src string, exclude []string) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(src, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, name)
		if err != nil {
			return err
		}
		if excluded(rel, exclude) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return archiveOne(out, name, rel, entry)
	})
	return errors.Join(err, out.Close())
}

func archiveOne(out *tar.Writer, name, rel string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	var link string
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(name); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = rel, 0, 0, "", ""
	if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(out, file)
	return err
}

// extract unpacks a tar stream from the root directory into dst. No entry can lead outside of dst.
func extract(r io.Reader, dst string, exclude []string) error {
	root, err := os.OpenRoot(dst)
	if err != nil {
		return fmt.Errorf("download directory: %w", err)
	}
	defer func() { _ = root.Close() }() // the directory was only read
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("downloading directory: %w", err)
		}
		name := path.Clean(header.Name)
		if name == "." || excluded(name, exclude) {
			continue
		}
		if err := extractOne(root, in, header, name); err != nil {
			return fmt.Errorf("downloading %s: %w", name, err)
		}
	}
}

func extractOne(root *os.Root, in io.Reader, header *tar.Header, name string) error {
	mode := header.FileInfo().Mode()
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode.Perm()|0o700)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return root.Link(path.Clean(header.Linkname), name)
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode.Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(file, in)
		return errors.Join(err, file.Close())
	}
	return nil // devices and sockets are not downloaded
}

// excluded reports whether exclude names rel or one of its parent directories.
func excluded(rel string, exclude []string) bool {
	for _, name := range exclude {
		name = path.Clean(name)
		if rel == name || strings.HasPrefix(rel, name+"/") {
			return true
		}
	}
	return false
}
