package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// RuleStale is the rule of findings about files that the user data has no more and that stay.
const RuleStale = "stale-file"

// stale returns the files of the last user data that this one has no more: those that are removed, since user data made
// them, with all units and drop-ins; and those that stay, since the image or somebody else had a file there before.
// Role files are not among them.
func stale(before state, files []userdata.File) (removed, left []string) {
	for _, name := range before.Files {
		if _, ok, _ := role.OfFile(name); ok || slices.ContainsFunc(files, func(f userdata.File) bool { return f.Path == name }) {
			continue
		}
		if isUnitFile(name) || slices.Contains(before.Created, name) {
			removed = append(removed, name)
		} else {
			left = append(left, name)
		}
	}
	return removed, left
}

// createdFiles are the files that user data has made, by this run or an earlier one.
func createdFiles(before state, steps []step) []string {
	created := []string{}
	for _, s := range steps {
		if s.created || slices.Contains(before.Created, s.path) {
			created = append(created, s.path)
		}
	}
	return created
}

// removeFiles removes regular files, and no others, and follows no link on the way to them: what stands there now may
// be somebody else's. Each file that stays is a finding.
func (a *agent) removeFiles(report *Report, names []string) error {
	if len(names) == 0 {
		return nil
	}
	root, err := unix.Open(a.root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", a.root, err)
	}
	defer func() { _ = unix.Close(root) }() // only a place
	for _, name := range names {
		err := removeRegular(root, strings.TrimPrefix(path.Clean(name), "/"))
		switch {
		case errors.Is(err, errOtherKind), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
			report.left(name, err.Error())
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("removing %s, which the user data has no more: %w", name, err)
		}
	}
	return nil
}

var errOtherKind = errors.New("it is no regular file any more")

// removeRegular removes a regular file below a directory.
func removeRegular(root int, name string) error {
	dir, err := unix.Openat2(root, path.Dir(name), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }() // only a place
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, path.Base(name), &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return errOtherKind
	}
	return unix.Unlinkat(dir, path.Base(name), 0)
}

// left adds the finding about a file that stays.
func (r *Report) left(name, why string) {
	r.Findings.Add(problem.Problem{File: name, Severity: problem.Warning, Rule: RuleStale,
		Text: "the user data has this file no more, and it stays: " + why, Hint: "replace the machine, or change the file by hand"})
}
