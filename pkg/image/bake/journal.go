package bake

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
)

// JournalPath is the list of what bakes have put on the target, a path a line.
const JournalPath = rootfs.Home + "/paths"

// journal is a sorted list of paths that bakes put there: files, links, and with a slash at the end
// directories that were not there before.
type journal []string

func newJournal(tree *rootfs.Tree, old journal, found map[string]observation) journal {
	var j journal
	for e := range tree.All() {
		name := journalName(e)
		_, before := found[e.Path]
		if !e.Mode.IsDir() || !before || old.has(name) {
			j = append(j, name)
		}
	}
	slices.Sort(j)
	return j
}

func journalName(e rootfs.Entry) string {
	if e.Mode.IsDir() {
		return e.Path + "/"
	}
	return e.Path
}

func (j journal) has(name string) bool {
	_, ok := slices.BinarySearch(j, name)
	return ok
}

// union returns the paths of both lists.
func (j journal) union(more journal) journal {
	both := slices.Concat(j, more)
	slices.Sort(both)
	return slices.Compact(both)
}

// without lists what the tree does not have, of the same kind.
func (j journal) without(tree *rootfs.Tree) journal {
	names := make(map[string]bool, tree.Len())
	for e := range tree.All() {
		names[journalName(e)] = true
	}
	return slices.DeleteFunc(slices.Clone(j), func(name string) bool { return names[name] })
}

// readJournal returns what earlier bakes wrote; nothing where there was none.
func (b *baker) readJournal(ctx context.Context) (journal, error) {
	out, err := b.script(ctx, "if [ -e "+JournalPath+" ]; then cat "+JournalPath+"; fi", nil)
	if err != nil {
		return nil, fmt.Errorf("reading what earlier bakes wrote: %w", err)
	}
	var j journal
	for line := range strings.Lines(out) {
		name := strings.TrimRight(line, "\n")
		if clean := strings.TrimSuffix(name, "/"); !path.IsAbs(clean) || path.Clean(clean) != clean || clean == "/" {
			return nil, fmt.Errorf("%s on the target is damaged: %q is no path (remove it, and by hand what the earlier bake wrote)", JournalPath, name)
		}
		j = append(j, name)
	}
	slices.Sort(j)
	return j, nil
}

// writeJournal replaces the list at once, or not at all.
func (b *baker) writeJournal(ctx context.Context, was, now journal) error {
	if slices.Equal(was, now) {
		return nil
	}
	text := strings.Join(now, "\n") + "\n"
	_, err := b.script(ctx, fmt.Sprintf(`mkdir -p %s && cat >%[2]s.new && [ "$(wc -c <%[2]s.new)" -eq %[3]d ] && mv %[2]s.new %[2]s`,
		rootfs.Home, JournalPath, len(text)), strings.NewReader(text))
	if err != nil {
		return b.explain(ctx, fmt.Errorf("writing the journal: %w", err))
	}
	return nil
}
