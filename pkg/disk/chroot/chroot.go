// Package chroot runs commands inside a root directory that will become a machine's file system.
//
// Its rule: nothing has to be undone. Every command has its own mount, process, host name and IPC namespaces, and
// everything it needs is mounted there; when the command ends, or its context is cancelled, the kernel ends all its
// processes and drops all its mounts. The network is the host's, since package managers need it. Commands have few
// capabilities, but that is against accidents: a root directory is no boundary against what is installed in it.
package chroot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Tools maps each program of the host that this package runs to its Debian package.
func Tools() map[string]string {
	return map[string]string{"sh": "dash", "mount": "mount", "setpriv": "util-linux", "chroot": "coreutils"}
}

// Root is a root directory. It is safe for concurrent use.
type Root struct {
	dir   string
	env   []string
	binds map[string]string // path in the root -> directory of the host
}

// New returns the Root of a directory that holds a root file system. epoch is the SOURCE_DATE_EPOCH of its commands, in
// seconds since 1970; 0 leaves it unset.
func New(dir string, epoch int64) (*Root, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("root directory %s: %w", dir, err)
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("root directory: %w", err)
	}
	if abs == "/" {
		return nil, errors.New("root directory /: this is the host's own file system")
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("root directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("root directory %s: is not a directory", abs)
	}
	return &Root{dir: abs, env: environment(epoch)}, nil
}

// Dir is the absolute path of the root directory on the host.
func (r *Root) Dir() string { return r.dir }

// Bind returns a Root whose commands also see the host's directory at the path at, which must be below
// /mnt: a tmpfs covers /mnt for those commands, so that no mount point is left in the root. The bind
// is not recursive: bound on itself, the root shows what it holds beneath any mount.
func (r *Root) Bind(at, host string) *Root {
	bound := *r
	bound.binds = maps.Clone(r.binds)
	if bound.binds == nil {
		bound.binds = make(map[string]string)
	}
	bound.binds[at] = host
	return &bound
}

// Run passes script to the root's /bin/sh and waits. exit is its exit status, or 128 and the signal's number if a
// signal ended it; err is only set if it could not be run to its end: no such root, no right to mount, an error of
// stdin, or a cancelled context. A nil stdin is empty, and writers may be nil.
func (r *Root) Run(ctx context.Context, script string, stdin io.Reader, stdout, stderr io.Writer) (exit int, err error) {
	status, diagnose, err := statusPipe()
	if err != nil {
		return 0, err
	}
	args := []string{r.dir, strconv.Itoa(len(r.binds))}
	for _, at := range slices.Sorted(maps.Keys(r.binds)) {
		args = append(args, at, r.binds[at])
	}
	args = append(args, script)
	exit, err = isolated{
		script: enter, args: args, env: r.env, stdin: stdin, stdout: stdout, stderr: stderr, status: status,
	}.run(ctx)
	why := diagnose()
	if err == nil && why != "" {
		return 0, fmt.Errorf("entering %s: %s", r.dir, why)
	}
	return exit, err
}

// environment is all that a command in a root sees: nothing of the host's environment leaks in.
func environment(epoch int64) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"LANG=C.UTF-8",
		"TERM=dumb",
		"DEBIAN_FRONTEND=noninteractive",
		// systemctl then changes links only and never asks a running manager.
		"SYSTEMD_OFFLINE=1",
		// The disk's composer makes the initrd once, not every package that asks for one.
		"INITRD=No",
	}
	if epoch > 0 {
		env = append(env, "SOURCE_DATE_EPOCH="+strconv.FormatInt(epoch, 10))
	}
	return env
}
