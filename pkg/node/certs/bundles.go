package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// bundles keeps what is minted: a directory for each daemon, in which every file is a link through one link to the
// generation that is current,
//
//	server.crt -> .current/server.crt
//	server.key -> .current/server.key
//	.current   -> .generation-1234
//
// so that one rename replaces all files of a daemon together. A reader that opens a certificate and then its key, and
// is overtaken in between, has two halves that do not belong together; every daemon here notices that (Go's
// tls.X509KeyPair compares the public keys), goes on with what it has, and reads again.
type bundles struct {
	// root is the machine's root directory; "" is "/".
	root string
}

const (
	currentLink      = ".current"
	generationPrefix = ".generation-"
	// restartMark is there from before a file that the daemon reads only at its start is replaced until the daemon was
	// started again, so that a run that breaks off in between loses nothing.
	restartMark = ".restart"
)

func (b bundles) dir(name string) string { return filepath.Join("/", b.root, pki.Dir, name) }

// check refuses to keep keys on anything but memory, on a real machine.
func (b bundles) check() error {
	if filepath.Join("/", b.root) != "/" {
		return nil // a test's directory
	}
	if err := os.MkdirAll(pki.Dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the certificates: %w", err)
	}
	return requireTmpfs(pki.Dir)
}

// renew mints a bundle when any of it is due.
func (b bundles) renew(bundle pki.Bundle, now time.Time) (minted Minted, err error) {
	dir := b.dir(bundle.Dir)
	unlock, err := lockDir(dir)
	if err != nil {
		return Minted{}, fmt.Errorf("locking %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	minted = Minted{Dir: bundle.Path(""), Action: actionKept, Reason: b.due(bundle, now)}
	if minted.Reason != "" {
		minted.Action = actionMinted
		files, err := bundle.Mint(now)
		if err != nil {
			return Minted{}, err
		}
		if err := b.mark(bundle, files); err != nil {
			return Minted{}, err
		}
		if err := replace(dir, files); err != nil {
			return Minted{}, fmt.Errorf("replacing the files of %s: %w", dir, err)
		}
	}
	minted.Certificates, err = b.describe(bundle)
	return minted, err
}

// mark notes that the daemon has to be started again, because of what of its files changes. What was never there has no
// reader yet.
func (b bundles) mark(bundle pki.Bundle, files []pki.File) error {
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join(b.dir(bundle.Dir), f.Name))
		if err != nil || string(have) == string(f.Content) || !slices.Contains(bundle.AtStart, f.Name) {
			continue
		}
		if err := os.WriteFile(filepath.Join(b.dir(bundle.Dir), restartMark), nil, 0o600); err != nil {
			return fmt.Errorf("noting that %s is to be started again: %w", bundle.Dir, err)
		}
	}
	return nil
}

// due says why the bundle has to be minted; "" is that it need not be.
func (b bundles) due(bundle pki.Bundle, now time.Time) string {
	dir := b.dir(bundle.Dir)
	for _, l := range bundle.Leaves {
		// A bundle that cannot be read is minted again, whatever the reason.
		crt, _ := os.ReadFile(filepath.Join(dir, l.Name+pki.Crt))
		key, _ := os.ReadFile(filepath.Join(dir, l.Name+pki.Key))
		if why := l.Due(crt, key, now); why != "" {
			return l.Name + pki.Crt + ": " + why
		}
	}
	for _, f := range bundle.Files {
		if have, err := os.ReadFile(filepath.Join(dir, f.Name)); err != nil || string(have) != string(f.Content) {
			return f.Name + ": it is not there, or has changed"
		}
	}
	return ""
}

func (b bundles) describe(bundle pki.Bundle) ([]MintedCertificate, error) {
	out := []MintedCertificate{}
	for _, l := range bundle.Leaves {
		data, err := os.ReadFile(filepath.Join(b.dir(bundle.Dir), l.Name+pki.Crt))
		if err != nil {
			return nil, fmt.Errorf("reading back a certificate: %w", err)
		}
		cert, err := pki.ParseCertificate(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", bundle.Path(l.Name+pki.Crt), err)
		}
		out = append(out, MintedCertificate{Path: bundle.Path(l.Name + pki.Crt), Subject: cert.Subject.String(),
			Expires: cert.NotAfter, Renew: pki.RenewAt(cert).UTC().Truncate(time.Second)})
	}
	return out, nil
}

// lockDir makes the directory where it is not there, and keeps other runs out of it.
func lockDir(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return file.LockDir(dir)
}

// replace makes the files those of the directory, all at once. Whoever may read the directory by its group may read
// the files: its mode and its group, which the image's tmpfiles.d gives it, decide.
func replace(dir string, files []pki.File) (err error) {
	generation, err := os.MkdirTemp(dir, generationPrefix+"*") // 0700
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(generation)
		}
	}()
	if err := fillGeneration(dir, generation, files); err != nil {
		return err
	}
	if err := symlink(filepath.Base(generation), filepath.Join(dir, currentLink)); err != nil {
		return err
	}
	for _, f := range files {
		if err := symlink(filepath.Join(currentLink, f.Name), filepath.Join(dir, f.Name)); err != nil {
			return err
		}
	}
	return sweep(dir, filepath.Base(generation), files)
}

func fillGeneration(dir, generation string, files []pki.File) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	gid := groupOf(info)
	give := func(name string, mode fs.FileMode) error {
		if info.Mode().Perm()&0o050 == 0 {
			return nil // only the owner may read it
		}
		if err := os.Chown(name, -1, gid); err != nil {
			return err
		}
		return os.Chmod(name, mode)
	}
	for _, f := range files {
		name := filepath.Join(generation, f.Name)
		if err := os.WriteFile(name, f.Content, 0o600); err != nil {
			return err
		}
		if err := give(name, 0o640); err != nil {
			return err
		}
	}
	return give(generation, 0o750)
}

// symlink makes a symbolic link, in place of whatever is there. One that says the same already is left alone.
func symlink(target, name string) error {
	if have, err := os.Readlink(name); err == nil && have == target {
		return nil
	}
	temp := filepath.Join(filepath.Dir(name), ".link-"+filepath.Base(name))
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	return os.Rename(temp, name)
}

// sweep removes older generations, leftovers of killed runs, and links to files that no longer exist.
func sweep(dir, generation string, files []pki.File) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		old := strings.HasPrefix(name, generationPrefix) && name != generation || strings.HasPrefix(name, ".link-")
		gone := e.Type() == fs.ModeSymlink && name != currentLink &&
			!slices.ContainsFunc(files, func(f pki.File) bool { return f.Name == name })
		if !old && !gone {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
