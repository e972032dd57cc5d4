package lock

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// otherBreak is what ends a line for the YAML library beside LF and CRLF, so that its line numbers are not those of the text.
var otherBreak = regexp.MustCompile(`\r([^\n]|$)|[\x{85}\x{2028}\x{2029}]`)

// Rewrite replaces scalars of a lock file and nothing else: comments, empty lines and the style of
// every other value stay as they are, byte for byte. values maps fields ("components[0].version") to
// their new values; each field must be there. The result is parsed again, so it is a valid lock.
func Rewrite(file string, data []byte, values map[string]string) ([]byte, error) {
	if at := otherBreak.FindIndex(data); at != nil {
		r, _ := utf8.DecodeRune(data[at[0]:])
		return nil, fmt.Errorf("rewriting %s:%d: %q ends a line in YAML and hardly anywhere else: put an ordinary line end in its place", file, 1+bytes.Count(data[:at[0]], []byte("\n")), r)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("rewriting %s: %w", file, err)
	}
	fields := map[string]*yaml.Node{}
	scalars(fields, "", &root)
	edits := make([]edit, 0, len(values))
	lines := bytes.SplitAfter(data, []byte("\n"))
	for _, field := range slices.Sorted(maps.Keys(values)) {
		n, ok := fields[field]
		if !ok {
			return nil, fmt.Errorf("rewriting %s: it has no scalar %s", file, field)
		}
		e, err := newEdit(lines, n, values[field])
		if err != nil {
			return nil, fmt.Errorf("rewriting %s:%d: %s: %w", file, n.Line, field, err)
		}
		edits = append(edits, e)
	}
	// From the end, so that the remaining positions stay valid.
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(b.start, a.start) })
	out := bytes.Clone(data)
	for _, e := range edits {
		out = slices.Replace(out, e.start, e.end, e.text...)
	}
	if _, problems := Parse(file, out); problems.Err() != nil {
		return nil, fmt.Errorf("rewriting %s: what came out is no lock: %w", file, problems.Err())
	}
	return out, nil
}

// scalars collects every scalar below n by its field path. Aliases are left out: their text is
// somewhere else.
func scalars(fields map[string]*yaml.Node, field string, n *yaml.Node) {
	switch n.Kind {
	case yaml.DocumentNode:
		scalars(fields, field, n.Content[0])
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			scalars(fields, yamlfile.Join(field, n.Content[i].Value), n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			scalars(fields, yamlfile.At(field, i), item)
		}
	case yaml.ScalarNode:
		fields[field] = n
	}
}

// edit replaces the bytes from start to end.
type edit struct {
	start, end int
	text       []byte
}

// newEdit finds the scalar's text and writes the new value in the same style.
func newEdit(lines [][]byte, n *yaml.Node, value string) (edit, error) {
	start := n.Column - 1
	for _, line := range lines[:n.Line-1] {
		start += len(line)
	}
	line := lines[n.Line-1][n.Column-1:]
	var old, text string
	switch n.Style {
	case 0:
		old, text = n.Value, value
	case yaml.DoubleQuotedStyle:
		old, text = strconv.Quote(n.Value), strconv.Quote(value)
	case yaml.SingleQuotedStyle:
		old, text = "'"+n.Value+"'", "'"+value+"'"
	}
	// A value over several lines or with escapes is nothing that a version, a URL, a digest or a size is.
	if old == "" || !bytes.HasPrefix(line, []byte(old)) {
		return edit{}, fmt.Errorf("%q is not written plainly on one line", n.Value)
	}
	return edit{start, start + len(old), []byte(text)}, nil
}
