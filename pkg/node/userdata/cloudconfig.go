package userdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	if !p.isForUs(t, keys) {
		return
	}
	var ignored []string
	for _, k := range keys {
		if !slices.Contains([]string{writeFiles, "merge_how", "merge_type", launchIndexKey}, k.name) {
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
	p.mergeFiles(t, keys, list)
}

// origin is where an entry of write_files was.
type origin struct {
	part  part
	index int
}

// readFiles reads the entries of write_files that all parts together have.
func (p *parser) readFiles() {
	if p.list == nil {
		return
	}
	for _, item := range p.list.Content {
		item = resolve(item)
		from := p.origins[item]
		if len(p.problems) >= MaxFindings {
			p.errorf(from.part, item, writeFiles, "and more: the rest of the list is not looked at")
			return
		}
		p.writeFile(from.part, from.index, item)
	}
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
	if isNull(doc.Content[0]) {
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
		case len(p.problems) >= MaxFindings:
			p.errorf(t, key, field, "and more: the rest of the keys is not looked at")
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
	if n.Alias != nil {
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
