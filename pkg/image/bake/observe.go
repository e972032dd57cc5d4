package bake

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// observation is the state of a path on the target.
type observation struct {
	kind   string // "file", "dir", "link", or "other" for what a tree never holds
	mode   fs.FileMode
	owner  string // "uid:gid"
	size   int64
	link   string
	digest string
}

// The bits of st_mode that tell a file's type, and the types of a tree; they are the same on every Linux.
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	permMask = 0o7777
)

// observe reads what the target has at the paths of the tree. Paths that are not there are not in the
// map. Directories are followed through links, since Debian has links for directories (/var/run).
// Only files that have the size of the tree's are read for their digest.
func (b *baker) observe(ctx context.Context, tree *rootfs.Tree) (map[string]observation, error) {
	found := make(map[string]observation, tree.Len())
	dirs, others := paths(tree, true), paths(tree, false)
	for option, names := range map[string]string{"--dereference": dirs, "": others} {
		// stat fails for missing paths, which is an answer; its messages are discarded.
		out, err := b.script(ctx, `xargs -0r stat `+option+` --printf '%f\t%u:%g\t%s\t%n\t%N\0' -- 2>/dev/null || :`, strings.NewReader(names))
		if err != nil {
			return nil, err
		}
		if err := parseStat(out, found); err != nil {
			return nil, err
		}
	}
	var same strings.Builder
	for e := range tree.All() {
		if at, ok := found[e.Path]; ok && e.Mode.IsRegular() && at.kind == "file" && at.size == e.Size {
			same.WriteString(e.Path + "\x00")
		}
	}
	out, err := b.script(ctx, `xargs -0r sha256sum --`, strings.NewReader(same.String()))
	if err != nil {
		return nil, fmt.Errorf("reading the files of the target: %w", err)
	}
	for line := range strings.Lines(out) {
		digest, name, ok := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		at, known := found[name]
		if !ok || !known {
			return nil, fmt.Errorf("%q is not a line of sha256sum", line)
		}
		at.digest = digest
		found[name] = at
	}
	return found, nil
}

// paths lists the directories of a tree, or everything else, each ended by NUL.
func paths(tree *rootfs.Tree, dirs bool) string {
	var b strings.Builder
	for e := range tree.All() {
		if e.Mode.IsDir() == dirs {
			b.WriteString(e.Path + "\x00")
		}
	}
	return b.String()
}

func parseStat(out string, found map[string]observation) error {
	for record := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		if record == "" {
			continue
		}
		f := strings.SplitN(record, "\t", 5)
		if len(f) != 5 {
			return fmt.Errorf("%q is not a line of stat", record)
		}
		bits, err := strconv.ParseUint(f[0], 16, 32)
		if err != nil {
			return fmt.Errorf("%q is not a line of stat: %w", record, err)
		}
		size, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a line of stat: %w", record, err)
		}
		at := observation{kind: "other", mode: fs.FileMode(bits & permMask), owner: f[1], size: size}
		switch bits & typeMask {
		case typeDir:
			at.kind = "dir"
		case typeFile:
			at.kind = "file"
		case typeLink:
			at.kind = "link"
			at.link = strings.TrimPrefix(f[4], f[3]+" -> ")
		}
		found[f[3]] = at
	}
	return nil
}

// differs says in what the target's path differs from the entry; "" where it does not.
func differs(e rootfs.Entry, at observation, there bool) string {
	want := kind(e)
	switch {
	case !there:
		return "it is not there"
	case at.kind != want:
		return fmt.Sprintf("it is a %s instead of a %s", at.kind, want)
	case want == "link" && at.link != e.Link:
		return fmt.Sprintf("it leads to %s instead of %s", at.link, e.Link)
	case want == "link" || want == "dir" && e.Component == rootfs.FromImplied:
		return "" // a link has no mode, and an implied directory keeps the one that it had
	case at.owner != e.Owner():
		return fmt.Sprintf("it belongs to %s instead of %s (0:0 is root)", at.owner, e.Owner())
	case at.mode != e.UnixMode():
		return fmt.Sprintf("its mode is %04o instead of %04o", at.mode, e.UnixMode())
	case want == "file" && at.size != e.Size:
		return fmt.Sprintf("it has %d bytes instead of %d", at.size, e.Size)
	case want == "file" && at.digest != e.Digest:
		return fmt.Sprintf("its sha256 is %s instead of %s", at.digest, e.Digest)
	}
	return ""
}

func kind(e rootfs.Entry) string {
	switch e.Mode.Type() {
	case fs.ModeDir:
		return "dir"
	case fs.ModeSymlink:
		return "link"
	}
	return "file"
}
