package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
)

// hostnameFile has the host's name for the next boot (hostname(5)).
const hostnameFile = "/etc/hostname"

// Target is the machine to which a plan is applied.
type Target struct {
	// Root is the root directory; "" is "/".
	Root string
	// SetHostname sets the kernel's name: sethostname(2). Programs that need to notice a change (journald, networkd,
	// resolved) watch the kernel's name. systemd-hostnamed is not needed: it would only set this name and write the file.
	SetHostname func(name string) error
	Log         *slog.Logger
}

// Apply writes the plan's files and sets the host's name; the environment file is the last. A file that is up to date is
// not written again.
func Apply(ctx context.Context, p Plan, t Target) error {
	files := p.Files
	if p.Name != "" {
		if err := t.SetHostname(p.Name); err != nil {
			return fmt.Errorf("setting the host's name to %q: %w", p.Name, err)
		}
		files = append([]File{{hostnameFile, p.Name + "\n"}}, files...)
	}
	for _, f := range files {
		changed, err := file.Replace(filepath.Join("/", t.Root, f.Path), []byte(f.Content), 0o644)
		if err != nil {
			return err
		}
		if t.Log != nil {
			t.Log.DebugContext(ctx, "file", "path", f.Path, "changed", changed)
		}
	}
	return nil
}

// NodeName returns the node's name from the plan that was applied below root; "" if the machine is not a node. The error
// is fs.ErrNotExist before a plan was applied.
func NodeName(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, EnvFile))
	if err != nil {
		return "", err
	}
	name, _ := envfile.Parse(string(text)).Get("NODE_NAME")
	return name, nil
}
