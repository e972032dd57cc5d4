package bake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// extract unpacks the stream. Anything in the way of a file is unlinked and never written through, since a link could
// lead anywhere. Existing directories keep their modes (/tmp, /root), and links to directories stay links.
const extract = "tar --extract --file=- --directory=/ --same-owner --numeric-owner --same-permissions" +
	" --no-overwrite-dir --keep-directory-symlink --warning=no-timestamp"

// writeTree puts the tree on the target and takes away what an earlier bake put there and this one
// does not. The journal names both before anything changes, so that a bake that is killed in between
// leaves nothing that the next one does not know of.
func (b *baker) writeTree(ctx context.Context) error {
	tree := b.job.Tree
	old, err := b.readJournal(ctx)
	if err != nil {
		return err
	}
	stale := old.without(tree)
	found, err := b.observe(ctx, tree)
	if err != nil {
		return err
	}
	b.journal = newJournal(tree, old, found)
	if err := b.writeJournal(ctx, old, b.journal.union(stale)); err != nil {
		return err
	}
	if len(stale) > 0 {
		if err := b.remove(ctx, stale); err != nil {
			return err
		}
		if found, err = b.observe(ctx, tree); err != nil {
			return err
		}
	}
	if err := b.writeDiffering(ctx, tree, found); err != nil {
		return err
	}
	return b.bootLoader(ctx, stale.has(rootfs.GrubPath))
}

// writeDiffering makes the target, of which found is known, have what the tree says. It writes only what differs.
func (b *baker) writeDiffering(ctx context.Context, tree *rootfs.Tree, found map[string]observation) error {
	var obstacles, loose []string // paths of another kind; directories with another mode or owner
	different := tree.Select(func(e rootfs.Entry) bool {
		at, there := found[e.Path]
		if differs(e, at, there) == "" {
			return false
		}
		switch {
		case there && at.kind != kind(e) && at.kind == "dir":
			obstacles = append(obstacles, e.Path+"/")
		case there && at.kind != kind(e):
			obstacles = append(obstacles, e.Path)
		case there && at.kind == "dir":
			loose = append(loose, fmt.Sprintf("%s\x00%04o\x00%s\x00", e.Owner(), e.UnixMode(), e.Path))
			return false
		}
		return true
	})
	if err := b.removeObstacles(ctx, obstacles); err != nil {
		return err
	}
	if len(loose) > 0 {
		fix := "xargs -0 -n3 sh -c 'chown \"$0\" \"$2\" && chmod \"$1\" \"$2\"'"
		if _, err := b.script(ctx, fix, strings.NewReader(strings.Join(loose, ""))); err != nil {
			return fmt.Errorf("setting the modes of directories: %w", err)
		}
		b.result.Written.Paths += len(loose)
	}
	if different.Len() == 0 {
		return nil
	}
	b.step("writing %d of %d paths, %.1f MB", different.Len(), tree.Len(), float64(different.Size())/1e6)
	return b.stream(ctx, different)
}

// stream writes the whole tree, whatever is there.
func (b *baker) stream(ctx context.Context, tree *rootfs.Tree) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	read, write := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := tree.WriteTar(ctx, &meter{w: write, total: tree.Size(), progress: b.job.Progress})
		_ = write.CloseWithError(err) // never fails, says its documentation
		written <- err
	}()
	_, err := b.script(ctx, extract, read)
	// Where tar ended early the writer still waits for a reader.
	_ = read.CloseWithError(errNotRead)
	if werr := <-written; werr != nil && !errors.Is(werr, errNotRead) {
		return werr // why the archive was not finished; that tar then complained is its consequence
	} else if err == nil && werr != nil {
		return fmt.Errorf("the target's tar ended before the archive did (the next bake repairs what it left): %w", werr)
	}
	if err != nil {
		return b.explain(ctx, err)
	}
	b.result.Written.Paths += tree.Len()
	b.result.Written.Bytes += tree.Size()
	return nil
}

// errNotRead is the error of writing to a stream whose reader has stopped.
var errNotRead = errors.New("the rest of the stream was not read")

// removeObstacles removes paths that tar would not replace. An empty directory is removed; one with content may not.
func (b *baker) removeObstacles(ctx context.Context, obstacles []string) error {
	for _, path := range obstacles {
		command := "rm -f -- "
		if dir, ok := strings.CutSuffix(path, "/"); ok {
			command, path = "rmdir -- ", dir
		}
		if _, err := b.script(ctx, command+run.Quote(path), nil); err != nil {
			return fmt.Errorf("%s is in the way of a file of the image (move it away, then run the build again): %w", path, err)
		}
	}
	return nil
}

// remove takes away paths of an earlier bake; directories only when nothing else is in them.
func (b *baker) remove(ctx context.Context, stale journal) error {
	b.step("removing %d paths of an earlier bake", len(stale))
	var files, dirs strings.Builder
	for i := range stale {
		path := stale[len(stale)-1-i] // the content of a directory before the directory
		if dir, ok := strings.CutSuffix(path, "/"); ok {
			dirs.WriteString(dir + "\x00")
		} else {
			files.WriteString(path + "\x00")
		}
	}
	if _, err := b.script(ctx, "xargs -0r rm -f --", strings.NewReader(files.String())); err != nil {
		return fmt.Errorf("removing files of an earlier bake: %w", err)
	}
	// Directories that are not empty, and missing paths, are no error.
	if _, err := b.script(ctx, "xargs -0r rmdir -- 2>/dev/null || :", strings.NewReader(dirs.String())); err != nil {
		return fmt.Errorf("removing directories of an earlier bake: %w", err)
	}
	b.result.Written.Removed += len(stale)
	return nil
}

// bootLoader renews GRUB's configuration where the target boots by it and our arguments are not in
// it, or where an earlier bake's have gone.
func (b *baker) bootLoader(ctx context.Context, gone bool) error {
	entry, ok := b.job.Tree.Entry(rootfs.CmdlinePath)
	if !ok && !gone {
		return nil
	}
	test := "false"
	if ok && !gone {
		args, err := content(entry)
		if err != nil {
			return err
		}
		test = "grep -qF -- " + run.Quote(strings.TrimSpace(args)) + " /boot/grub/grub.cfg"
	}
	_, err := b.script(ctx, "command -v update-grub >/dev/null && [ -f /boot/grub/grub.cfg ] || exit 0; "+test+" || update-grub >&2", nil)
	if err != nil {
		return fmt.Errorf("writing the boot loader's configuration: %w", err)
	}
	return nil
}

func content(e rootfs.Entry) (string, error) {
	r, err := e.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

// explain adds the cause to errors of tar and other tools: a full disk, with the free space,
// and a stream that ended early. Other errors it leaves as they are.
func (b *baker) explain(ctx context.Context, err error) error {
	switch {
	case failedWith(err, "Unexpected EOF"):
		return fmt.Errorf("the stream lost its end on the way to the target (run the build again, which repairs the target): %w", err)
	case !failedWith(err, "No space left on device"):
		return err
	}
	free := "how much is free could not be learnt"
	if out, dferr := b.script(ctx, "df --output=avail -B1000000 / | tail -n1", nil); dferr == nil {
		free = strings.TrimSpace(out) + " MB are free"
	}
	return fmt.Errorf("the disk of the target is full: the tree needs %.0f MB and %s (make the disk larger and run the build again): %w",
		float64(b.job.Tree.Size())/1e6, free, err)
}

// meter reports the bytes that pass to the progress.
type meter struct {
	w        io.Writer
	total    int64
	progress Progress
}

func (m *meter) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	if m.progress != nil {
		m.progress.Sent(int64(n), m.total)
	}
	return n, err
}
