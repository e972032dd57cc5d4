package userdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// writeFiles is the key of cloud-config that Hardtack acts on.
const writeFiles = "write_files"

// cloudConfig reads one cloud-config part.
func (p *parser) cloudConfig(t part) {
	if len(t.data) > MaxInput {
		p.problems.Errorf(t.name, "", "a cloud-config of %d bytes is over the bound of %d", len(t.data), MaxInput)
		return
	}
	root, err := decodeYAML(t.data)
	if err != nil {
		p.problems.Errorf(t.name, "", "reading the cloud-config: %v", err)
		return
	}
	if root == nil {
		p.warn(t, RuleIgnored, "is a cloud-config without any key", "")
		return
	}
	if root.Kind != yaml.MappingNode {
		p.errorf(t, root, "", "a cloud-config is a mapping of keys, not %s", describe(root))
		return
	}
	keys := p.pairs(t, root, "")
	var ignored []string
	for _, k := range keys {
		if !slices.Contains([]string{writeFiles, "merge_how", "merge_type"}, k.name) {
			ignored = append(ignored, k.name)
		}
	}
	if len(ignored) > 0 {
		p.warn(t, RuleIgnored, "keys that Hardtack does not act on: "+shortList(ignored), "")
	}
	list, ok := lookup(keys, writeFiles)
	if !ok {
		return
	}
	if list.Kind != yaml.SequenceNode {
		p.errorf(t, list, writeFiles, "must be a list, not %s", describe(list))
		return
	}
	p.merge(t, keys, list)
	for i, item := range list.Content {
		if len(p.problems) > MaxFindings {
			p.errorf(t, item, writeFiles, "and more: the rest of the list is not looked at")
			return
		}
		p.writeFile(t, i, resolve(item))
	}
}

// merge makes room for the list of a part: as with cloud-init, the list of a later part replaces that
// of the earlier ones unless the part asks for the lists to be joined.
func (p *parser) merge(t part, keys []pair, list *yaml.Node) {
	if len(p.entries) == 0 {
		return
	}
	how := t.merge
	for _, key := range []string{"merge_type", "merge_how"} {
		if n, ok := lookup(keys, key); ok {
			how = mergeText(n)
		}
	}
	switch {
	case how == "":
		var lost []string
		for _, e := range p.entries {
			lost = append(lost, e.Path)
		}
		p.problems.Add(problem.Problem{File: t.name, Line: list.Line, Field: writeFiles, Severity: problem.Warning,
			Text: "replaces the write_files of the parts before it, so these are not written: " + shortList(lost),
			Hint: "give the part merge_how: list(append)+dict(recurse_array)+str() to keep both"})
		p.entries = nil
	case !appendingMerge.MatchString(how):
		p.errorf(t, list, writeFiles, "merge type %q is not known: list(append)+dict(recurse_array) joins the lists, and without one the later list replaces the earlier", how)
	}
}

// appendingMerge matches the merge types that append one part's list to another's, in either order.
var appendingMerge = regexp.MustCompile(`(?i)^(?:.*\+)?\s*(?:list\([^)]*append[^)]*\).*dict\([^)]*recurse_(?:array|list)[^)]*\)|dict\([^)]*recurse_(?:array|list)[^)]*\).*list\([^)]*append[^)]*\))`)

// mergeText writes a merge_how as one text: it may also be a list of names with settings.
func mergeText(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	var list []struct {
		Name     string
		Settings []string
	}
	if n.Decode(&list) != nil {
		return "?"
	}
	texts := make([]string, len(list))
	for i, m := range list {
		texts[i] = m.Name + "(" + strings.Join(m.Settings, ",") + ")"
	}
	return strings.Join(texts, "+")
}

// decodeYAML returns the only document of data, nil where there is none.
func decodeYAML(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("more than one document: a line --- begins a second one")
		}
		return nil, err
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return nil, nil
	}
	return resolve(doc.Content[0]), nil
}

// shortList lists names as far as a message can.
func shortList(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// pair is one key of a mapping with its value.
type pair struct {
	name  string
	value *yaml.Node
}

// pairs returns the keys of a mapping in order; keys that are no text, are given twice or merge
// another mapping are findings.
func (p *parser) pairs(t part, n *yaml.Node, field string) []pair {
	var out []pair
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		switch {
		case len(p.problems) > MaxFindings:
			return out
		case key.ShortTag() == "!!merge":
			p.errorf(t, key, field, "a merge key (<<) is not understood here: write the keys out")
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			p.errorf(t, key, field, "a key must be text, not %s", describe(key))
		case seen[key.Value]:
			p.errorf(t, key, join(field, key.Value), "is given twice")
		default:
			seen[key.Value] = true
			out = append(out, pair{key.Value, value})
		}
	}
	return out
}

func lookup(keys []pair, name string) (*yaml.Node, bool) {
	for _, k := range keys {
		if k.name == name {
			return k.value, true
		}
	}
	return nil, false
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe says what a node is, for messages.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "nothing"
		case "!!int", "!!float":
			return "the number " + firstLine([]byte(n.Value))
		case "!!bool":
			return "the truth value " + firstLine([]byte(n.Value))
		case "!!str":
			return "the text " + firstLine([]byte(n.Value))
		}
		return "a value of type " + n.ShortTag()
	default:
		return "something else"
	}
}

func join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// errorf adds an error about a node.
func (p *parser) errorf(t part, n *yaml.Node, field, format string, args ...any) {
	var l problem.List
	l.Errorf(t.name, field, format, args...)
	l[0].Line = n.Line
	p.problems = append(p.problems, l...)
}
