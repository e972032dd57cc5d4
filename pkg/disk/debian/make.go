package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
)

// maxOutput is how much of mmdebstrap's output an error carries, in bytes.
const maxOutput = 4 << 10

// Tools maps each program of the host that this package runs to its Debian package.
func Tools() map[string]string {
	tools := chroot.Tools()
	tools["mmdebstrap"], tools["tar"] = "mmdebstrap", "tar"
	return tools
}

// Maker makes root directories. Its zero value has no cache and reports no progress.
type Maker struct {
	// Cache is the directory of cached results; empty is no cache.
	Cache string
	// Offline uses the newest cached result without checking whether the archive has changed.
	Offline bool
	// Work is an existing directory for temporary files, on the file system of the result.
	Work string
	// Epoch overrides the archive's date as the time of what is made, in seconds since 1970; 0 does not.
	Epoch int64
	// Progress takes a line of progress; nil discards.
	Progress func(string)
}

// Result describes the directory.
type Result struct {
	Release Release `json:"release"`
	// Epoch is the time of the created files, in seconds since 1970.
	Epoch int64 `json:"epoch"`
	// Cached: the directory came from the cache.
	Cached bool `json:"cached"`
}

// Make creates the directory target, which must not exist.
func (m Maker) Make(ctx context.Context, o Options, target string) (Result, error) {
	o, err := o.complete()
	if err != nil {
		return Result{}, err
	}
	if err := m.checkOwn(); err != nil {
		return Result{}, err
	}
	if m.Offline {
		return m.newest(ctx, o, target)
	}
	release, err := Pin(ctx, o, m.Work)
	if err != nil {
		return Result{}, err
	}
	m.sayf("Archive as of %s, %d release files", release.Date.Format("2006-01-02 15:04 MST"), len(release.Digests))
	result := Result{Release: release, Epoch: release.Date.Unix()}
	if m.Epoch > 0 {
		result.Epoch = m.Epoch
	}
	entry, err := m.entry(ctx, o, result)
	if err != nil {
		return Result{}, err
	}
	err = entry.usable()
	if err == nil {
		m.sayf("Base system from %s", entry.tar())
		result.Cached = true
		return result, unpack(ctx, entry.tar(), target)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		m.sayf("Made again: %v", err)
	}
	env := environment(m.Work, result.Epoch, o.Initrd)
	if err := mmdebstrap(ctx, m.Work, env, m.Progress, o.command(target)); err != nil {
		return Result{}, fmt.Errorf("making a base system of %s: %w", o.Suite, err)
	}
	return result, entry.store(ctx, target, result)
}

func (m Maker) sayf(format string, args ...any) {
	if m.Progress != nil {
		m.Progress(fmt.Sprintf(format, args...))
	}
}

// mmdebstrap runs mmdebstrap in its own namespaces, so that its mounts disappear when it ends.
func mmdebstrap(ctx context.Context, dir string, env []string, say func(string), args []string) error {
	var said tailBuffer
	out := io.MultiWriter(&said, &lineWriter{say: say})
	exit, err := chroot.RunHost(ctx, dir, env, out, out, args...)
	if err != nil {
		return fmt.Errorf("mmdebstrap: %w", err)
	}
	if exit != 0 {
		return fmt.Errorf("mmdebstrap: exit status %d\n%s", exit, reasons(string(said)))
	}
	return nil
}

// reasons returns the error lines of apt, dpkg and mmdebstrap, if there are any; the command that failed is
// not a reason.
func reasons(output string) string {
	var found []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		reason := strings.HasPrefix(line, "E: ") || strings.HasPrefix(line, "Err:") || strings.HasPrefix(line, "dpkg: error")
		if reason && !strings.HasPrefix(line, "E: command failed") && !strings.HasPrefix(line, "E: mmdebstrap failed") {
			found = append(found, line)
		}
	}
	if len(found) == 0 {
		return strings.TrimSpace(output)
	}
	return strings.Join(found, "\n")
}

// environment is what mmdebstrap sees: the host's proxies and nothing else of its environment.
func environment(work string, epoch int64, initrd bool) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8", "TMPDIR=" + work,
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if epoch > 0 {
		env = append(env, "SOURCE_DATE_EPOCH="+strconv.FormatInt(epoch, 10))
	}
	if !initrd {
		env = append(env, "INITRD=No") // the kernel package's hook then makes none
	}
	return env
}

// xattrs has tar keep file capabilities and every other extended attribute.
var xattrs = []string{"--xattrs", "--xattrs-include=*", "--numeric-owner"}

func unpack(ctx context.Context, archive, target string) error {
	if err := os.Mkdir(target, 0o755); err != nil {
		return fmt.Errorf("unpacking base system: %w", err)
	}
	args := append([]string{"-C", target, "-p", "-xf", archive}, xattrs...)
	if err := run.Run(ctx, run.Command{Name: "tar", Args: args}); err != nil {
		return fmt.Errorf("unpacking base system: %w", err)
	}
	return nil
}

func pack(ctx context.Context, source, archive string) error {
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return fmt.Errorf("keeping base system: %w", err)
	}
	args := append([]string{"-C", source, "--sort=name", "-cf", archive}, xattrs...)
	if err := run.Run(ctx, run.Command{Name: "tar", Args: append(args, ".")}); err != nil {
		return fmt.Errorf("keeping base system: %w", err)
	}
	return nil
}

// unsandboxed is a warning of apt that always comes: the working directory is closed to other users,
// since programs that run as their owner lie in it, and so also to apt's own user.
const unsandboxed = "Download is performed unsandboxed"

// lineWriter passes each complete line to say.
type lineWriter struct {
	say  func(string)
	rest []byte
}

func (l *lineWriter) Write(p []byte) (int, error) {
	if l.say == nil {
		return len(p), nil
	}
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if !bytes.Contains(line, []byte(unsandboxed)) {
			l.say(strings.TrimRight(string(line), "\r"))
		}
		l.rest = rest
	}
}

// tailBuffer keeps the last bytes written to it.
type tailBuffer []byte

func (t *tailBuffer) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if len(*t) > maxOutput {
		*t = append((*t)[:0], (*t)[len(*t)-maxOutput:]...)
	}
	return len(p), nil
}
