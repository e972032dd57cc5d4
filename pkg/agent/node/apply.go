package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// hostnameFile is where the host's name is kept over a boot (hostname(5)).
const hostnameFile = "/etc/hostname"

// Target is where a plan is made true.
type Target struct {
	// Root is the root directory; "" is "/".
	Root string
	// SetHostname gives the kernel its name: sethostname(2). Who has to know of a change (journald, networkd,
	// resolved) watches the kernel's, and systemd-hostnamed does no other thing than to write the two.
	SetHostname func(name string) error
	Log         *slog.Logger
}

// Apply writes the plan's files and sets the host's name; the environment file comes last. A file that is as it
// should be is not written again.
func Apply(ctx context.Context, p Plan, t Target) error {
	files := p.Files
	if p.Name != "" {
		if err := t.SetHostname(p.Name); err != nil {
			return fmt.Errorf("setting the host's name to %q: %w", p.Name, err)
		}
		files = append([]File{{hostnameFile, p.Name + "\n"}}, files...)
	}
	for _, f := range files {
		changed, err := replace(filepath.Join("/", t.Root, f.Path), []byte(f.Content))
		if err != nil {
			return err
		}
		if t.Log != nil {
			t.Log.DebugContext(ctx, "file", "path", f.Path, "changed", changed)
		}
	}
	return nil
}

// replace writes a file by renaming, so that a reader sees the old one or the new one.
func replace(name string, content []byte) (changed bool, err error) {
	have, err := os.ReadFile(name)
	if err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// The kubelet reads every *.conf of its directory; this name ends otherwise.
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return false, err
	}
	return true, os.Rename(f.Name(), name)
}
