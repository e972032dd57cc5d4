package boot

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The actions of a Change.
const (
	actionWrite     = "write"
	actionAppend    = "append"
	actionUnchanged = "unchanged"
	actionRemove    = "remove"
)

// keepOwner leaves a new file to the user that runs the reader. On a machine that is root, and a run
// by anyone else cannot give a file away.
const keepOwner = -1

// step is one file to write.
type step struct {
	path     string // on the machine, without the root directory
	place    string // the same, with the links on the way to it followed
	content  []byte
	mode     fs.FileMode // the twelve bits of chmod(2)
	uid, gid int
	action   string
	// created: nothing was there before.
	created bool
}

func (s step) change() Change {
	return Change{Path: s.path, Action: s.action, Mode: fmt.Sprintf("%04o", s.mode), Size: len(s.content),
		Owner: fmt.Sprintf("%d:%d", max(s.uid, 0), max(s.gid, 0))}
}

// plan computes every file before the first is written, with every error in one. Role files come
// last: everything that a role needs exists before the role does.
func (a *agent) plan(files []userdata.File) ([]step, error) {
	var steps, roles []step
	var errs []error
	for _, f := range files {
		s, err := a.step(f)
		if err == nil && s.action != actionUnchanged {
			err = a.checkSealed(f.Path)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, ok := f.Role(); ok {
			roles = append(roles, s)
		} else {
			steps = append(steps, s)
		}
	}
	return append(steps, roles...), errors.Join(errs...)
}

// checkSealed returns an error if a file is on the sealed root: a file system that nothing is written to, beside an /etc that is.
// An error in the midst of writing would say less, and be one for each file in turn. Where all is read-only something else is
// wrong, and writing says what.
func (a *agent) checkSealed(name string) error {
	if readOnly, err := isReadOnly(a.path(name)); err != nil || !readOnly {
		return err
	}
	if broken, err := isReadOnly(a.path(role.Dir)); err != nil || broken {
		return err
	}
	return fmt.Errorf("%s cannot be written: the root of this image is sealed, and user data writes to /etc, /var and /run alone "+
		"(units and drop-ins go to /etc/systemd/system; what has to be in /usr is baked into the image, by a block file of the provisioner)", name)
}

// isReadOnly reports whether a path is on a file system that is mounted read-only; what is missing of it is made there.
func isReadOnly(name string) (bool, error) {
	var stat unix.Statfs_t
	for dir := name; ; dir = filepath.Dir(dir) {
		err := unix.Statfs(dir, &stat)
		if err == nil {
			return stat.Flags&unix.ST_RDONLY != 0, nil
		}
		if missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR); !missing || dir == filepath.Dir(dir) {
			return false, fmt.Errorf("file system of %s: %w", name, err)
		}
	}
}

// step compares a file with the existing one.
func (a *agent) step(f userdata.File) (step, error) {
	s := step{path: f.Path, content: f.Content, mode: f.Mode, action: actionWrite}
	var err error
	if s.uid, err = a.lookupID("/etc/passwd", f.User); err != nil {
		return step{}, fmt.Errorf("owner of %s: %w", f.Path, err)
	}
	if s.gid, err = a.lookupID("/etc/group", f.Group); err != nil {
		return step{}, fmt.Errorf("group of %s: %w", f.Path, err)
	}
	dir, err := a.directory(path.Dir(f.Path))
	if err != nil {
		return step{}, fmt.Errorf("the way to %s: %w", f.Path, err)
	}
	s.place = path.Join(dir, path.Base(f.Path))
	info, err := os.Lstat(a.path(s.place))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.created = true
		if f.Append {
			_ = a.appended.needs(f.Path, nil, f.Content) // recorded: nothing has it yet
		}
		return s, nil
	case err != nil:
		return step{}, err
	case info.IsDir():
		return step{}, fmt.Errorf("%s is to be a file and is a directory", f.Path)
	case !info.Mode().IsRegular() && !a.isOurs(f.Path):
		return step{}, a.otherKind(f.Path, info)
	}
	var have []byte
	if info.Mode().IsRegular() || f.Append {
		if have, err = os.ReadFile(a.path(s.place)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return step{}, err
		}
	}
	if f.Append {
		s.content, s.action = have, actionAppend
		if a.appended.needs(f.Path, have, f.Content) {
			s.content = slices.Concat(have, f.Content)
		}
	}
	if info.Mode().IsRegular() && bytes.Equal(have, s.content) && s.sameAs(info) {
		s.action = actionUnchanged
	}
	return s, nil
}

// isOurs reports whether whatever stands at a path may be replaced: role files and the reader's own files, and what the last user
// data has written, where somebody has put a link since (systemctl mask does).
func (a *agent) isOurs(name string) bool {
	_, named, _ := role.OfFile(name)
	return named || strings.HasPrefix(name, path.Dir(statePath)+"/") || slices.Contains(a.before.Files, name)
}

// otherKind is the error about a link or device in the place of a file. cloud-init writes to what it leads to. Here it is not
// followed: whoever may place a link, in a directory of some daemon's, would choose which file root writes at the next boot.
func (a *agent) otherKind(name string, info fs.FileInfo) error {
	if info.Mode().Type() != fs.ModeSymlink {
		return fmt.Errorf("%s is to be a file and is of another kind (%s)", name, info.Mode())
	}
	target, err := os.Readlink(a.path(name))
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is a symbolic link to %s, and nothing is written through links: name the file itself", name, target)
}

// sameAs compares mode and owner.
func (s step) sameAs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	return fs.FileMode(stat.Mode&0o7777) == s.mode && (s.uid == keepOwner || int(stat.Uid) == s.uid) && (s.gid == keepOwner || int(stat.Gid) == s.gid)
}

// lookupID finds the number of a name in the machine's own passwd or group file, whose first and third
// fields are name and number. "" is root's.
func (a *agent) lookupID(file, name string) (int, error) {
	if name == "" || name == "root" {
		if os.Geteuid() != 0 {
			return keepOwner, nil
		}
		return 0, nil
	}
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	f, err := os.Open(a.path(file))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), ":"); len(fields) > 2 && fields[0] == name {
			return strconv.Atoi(fields[2])
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading %s: %w", file, err)
	}
	return 0, fmt.Errorf("%q is not in %s: this early only the users of the image exist", name, file)
}

// roleFiles returns the roles that have a file on the machine and are not in except.
func (a *agent) roleFiles(except role.Set) ([]role.Role, error) {
	entries, err := os.ReadDir(a.path(role.Dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("looking for role files: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return slices.DeleteFunc(role.Files(names), except.Has), nil
}
