package rootfs

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The values of Entry.Component for entries that are no component's of the lock.
const (
	FromUnits  = "units"
	FromRootfs = "rootfs"
	FromAgent  = "agent"
	FromReader = "reader"
	FromExtra  = "extra"
	// FromImplied marks the parent directories of other entries.
	FromImplied = "implied"
)

// The paths of Hardtack's files in the image.
const (
	Home      = "/usr/lib/hardtack"
	AgentPath = Home + "/bin/hardtack-agent"
	// ReaderPath is the program that reads the user data.
	ReaderPath = Home + "/bin/hardtack-userdata"
	// ImagesDir has the files of container images, and archives of those that are not unpacked.
	ImagesDir = Home + "/images"
	UnitDir   = "/usr/lib/systemd/system"
	// CmdlinePath is read by kernel-install, by systemd's ukify and by the disk builder; GrubPath by
	// update-grub.
	CmdlinePath = "/etc/kernel/cmdline"
	GrubPath    = "/etc/default/grub.d/90-hardtack.cfg"
	// enableDir is where systemctl enable puts its links.
	enableDir  = "/etc/systemd/system"
	sysctlPath = "/etc/sysctl.d/90-hardtack.conf"
)

// Inputs are the sources of a Tree. Every field may be empty.
type Inputs struct {
	// Files are complete entries: what the components, our own programs and the extra files put there.
	// Their order does not matter.
	Files []Entry
	// Units holds unit files and drop-in directories as systemd lays them out: at the root.
	Units fs.FS
	// Rootfs holds plain files laid out as in the image. A file that begins with "#!" becomes 0755,
	// any other 0644; names that begin with ".git" or ".keep" hold the place of an empty directory.
	Rootfs fs.FS
	// KernelArguments are added to the kernel's command line.
	KernelArguments []string
	// Sysctls are kernel parameters by name ("net.ipv4.ip_forward").
	Sysctls map[string]string
}

// Compose makes the tree. It reads Units and Rootfs, and trusts the sizes and digests of Files. The error lists
// everything that is wrong with the inputs, one problem a line.
func Compose(in Inputs) (*Tree, error) {
	entries := slices.Clone(in.Files)
	var problems problem.List
	for _, part := range []func(Inputs) ([]Entry, error){unitEntries, plainEntries, kernelEntries, sysctlEntries} {
		more, err := part(in)
		if err != nil {
			problems.Errorf("", "", "%v", err)
		}
		entries = append(entries, more...)
	}
	for _, e := range entries {
		check(e, &problems)
	}
	tree := merge(entries, &problems)
	problems.Sort()
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("composing the image's tree:\n%w", err)
	}
	return tree, nil
}

// check reports the problems of one entry.
func check(e Entry, problems *problem.List) {
	bad := func(hint, format string, args ...any) {
		problems.Add(problem.Problem{File: e.Path, Text: fmt.Sprintf(format, args...) + " (from " + e.Component + ")", Hint: hint})
	}
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || e.Path == "/" {
		bad("", "the path is not absolute and clean")
	}
	if strings.ContainsFunc(e.Path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
		bad("", "the path %q holds a control character or a backslash", e.Path)
	}
	// One path has one spelling, or two sources for one file would go unseen.
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/"} {
		if strings.HasPrefix(e.Path, dir) {
			bad("write it as /usr"+e.Path, "%s is a link into /usr", strings.TrimSuffix(dir, "/"))
		}
	}
	if _, named, _ := role.OfFile(e.Path); named {
		bad("give the role in the user data", "an image holds no role file")
	}
	switch e.Mode.Type() {
	case 0:
		if e.Open == nil || len(e.Digest) != 64 {
			bad("", "a regular file needs content and its sha256")
		}
	case fs.ModeSymlink:
		if e.Link == "" {
			bad("", "a symbolic link needs a target")
		}
	case fs.ModeDir:
	default:
		bad("", "the type %v is neither file, directory nor symbolic link", e.Mode.Type())
	}
}

// merge puts the entries and the directories that they imply in order, and reports paths that two
// sources want.
func merge(entries []Entry, problems *problem.List) *Tree {
	slices.SortStableFunc(entries, compare)
	byPath := make(map[string]Entry, len(entries))
	for _, e := range entries {
		old, taken := byPath[e.Path]
		sameDir := old.Mode == e.Mode && e.Mode.IsDir()
		if taken && !sameDir {
			problems.Add(problem.Problem{File: e.Path, Text: fmt.Sprintf("both %s and %s put it there", old.Component, e.Component)})
			continue
		}
		if !taken {
			byPath[e.Path] = e
		}
	}
	for _, e := range entries {
		for dir := path.Dir(e.Path); dir != "/" && dir != "."; dir = path.Dir(dir) {
			above, taken := byPath[dir]
			if !taken {
				byPath[dir] = Entry{Path: dir, Mode: fs.ModeDir | 0o755, Component: FromImplied}
			} else if !above.Mode.IsDir() {
				problems.Add(problem.Problem{File: e.Path, Text: fmt.Sprintf("%s puts it below %s, which from %s is no directory",
					e.Component, dir, above.Component)})
				break
			}
		}
	}
	return &Tree{entries: slices.SortedFunc(maps.Values(byPath), compare)}
}

// compare orders by path, a directory before what is in it, and then by everything else that can
// differ, so that the order of the inputs never shows.
func compare(a, b Entry) int {
	return cmp.Or(
		slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/")),
		cmp.Compare(a.Component, b.Component), cmp.Compare(a.Mode, b.Mode),
		cmp.Compare(a.Link, b.Link), cmp.Compare(a.Digest, b.Digest))
}
