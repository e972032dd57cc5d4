package debian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// policy keeps packages that are installed later from starting their services.
const policy = "usr/sbin/policy-rc.d"

// hosts is for programs that ask no resolver; mmdebstrap leaves no such file.
const hosts = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"

// Prepare prepares the directory for commands that change it: until Clean no service starts when a package is
// installed, and localhost has its addresses.
func Prepare(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("preparing root: %w", err)
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	if err := root.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return fmt.Errorf("preparing root: %w", err)
	}
	file, err := root.OpenFile("etc/hosts", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("preparing root: %w", err)
	}
	_, err = file.WriteString(hosts)
	return errors.Join(err, file.Close())
}

// emptyDirs are directories whose content a machine creates itself.
var emptyDirs = []string{
	"run", "tmp", "var/tmp", "var/cache/apt", "var/lib/apt/lists", "var/log/journal", "var/lib/systemd/coredump",
}

// removedFiles are files of the build host, of the one machine this is not yet, or backups; patterns of fs.Glob.
var removedFiles = []string{
	policy,
	"etc/hostname", "etc/*-", "etc/.pwd.lock", "etc/ssh/ssh_host_*",
	"root/.bash_history", "root/.wget-hsts", "root/.lesshst",
	"var/lib/dpkg/*-old", "var/lib/dbus/machine-id",
	"var/lib/systemd/random-seed", "var/lib/systemd/credential.secret",
	"var/cache/debconf/*-old", "var/cache/ldconfig/aux-cache",
	"var/log/*.log", "var/log/apt/*", "var/log/wtmp", "var/log/btmp", "var/log/lastlog", "var/log/faillog",
	// Links to a kernel that the disk keeps elsewhere.
	"vmlinuz", "vmlinuz.old", "initrd.img", "initrd.img.old",
}

// hwdbFiles are the databases of device names, which no role needs; systemd makes them from files that
// Options.Documentation alone keeps.
var hwdbFiles = []string{"usr/lib/udev/hwdb.bin", "etc/udev/hwdb.bin"}

// updateStamps are the files by which systemd sees that what follows from /usr is made already: the caches of the
// linker and of the journal's catalog came with the packages, and need not be made again at first boot.
var updateStamps = []string{"etc/.updated", "var/.updated"}

// Clean removes from the directory what must not be in an image: identities, caches, logs, the
// host's name and resolver, and what keeps services from starting. /etc/machine-id is left empty.
func Clean(dir string, o Options) error {
	root, err := os.OpenRoot(dir) // a link in the directory cannot lead out of it
	if err != nil {
		return fmt.Errorf("cleaning root: %w", err)
	}
	defer func() { _ = root.Close() }() // a handle on a directory
	patterns := removedFiles
	if !o.Documentation {
		patterns = append(patterns[:len(patterns):len(patterns)], hwdbFiles...)
	}
	var errs []error
	for _, name := range emptyDirs {
		errs = append(errs, empty(root, name))
	}
	for _, pattern := range patterns {
		errs = append(errs, remove(root, pattern))
	}
	errs = append(errs, resolver(root), root.WriteFile("etc/machine-id", nil, 0o644))
	for _, name := range updateStamps {
		errs = append(errs, root.WriteFile(name, nil, 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cleaning root: %w", err)
	}
	return nil
}

func empty(root *os.Root, name string) error {
	entries, err := fs.ReadDir(root.FS(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		errs = append(errs, root.RemoveAll(path.Join(name, entry.Name())))
	}
	return errors.Join(errs...)
}

func remove(root *os.Root, pattern string) error {
	if !strings.ContainsAny(pattern, "*?[") {
		return root.RemoveAll(pattern) // fs.Glob does not find a link whose target is gone
	}
	names, err := fs.Glob(root.FS(), pattern)
	errs := []error{err}
	for _, name := range names {
		errs = append(errs, root.RemoveAll(name))
	}
	return errors.Join(errs...)
}

// resolver removes the host's resolv.conf, but not a link, which is the image's own choice.
func resolver(root *os.Root) error {
	const name = "etc/resolv.conf"
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil
	}
	return root.Remove(name)
}
