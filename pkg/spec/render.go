package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// YAML writes the complete document, with where each value comes from as a comment. It is itself a
// document that completes to the same.
func (c *Complete) YAML() ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(c.Cluster); err != nil {
		return nil, fmt.Errorf("writing the complete document: %w", err)
	}
	c.comment("", &root)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(&root), enc.Close())
	return b.Bytes(), err
}

// comment notes the origin of every value below n.
func (c *Complete) comment(field string, n *yaml.Node) {
	o, ok := c.Origins[field]
	switch {
	case n.Kind == yaml.MappingNode && (!ok || len(n.Content) > 0):
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			c.comment(join(field, key.Value), value)
			// The comment of a block stands behind its key.
			if value.LineComment != "" && value.Kind != yaml.ScalarNode && len(value.Content) > 0 {
				key.LineComment, value.LineComment = value.LineComment, ""
			} else if value.Kind == yaml.ScalarNode && value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
				value.LineComment = ""
			}
		}
	case n.Kind == yaml.SequenceNode && !ok:
		for i, item := range n.Content {
			c.comment(at(field, i), item)
		}
	case ok:
		n.LineComment = o.String()
	}
}

// completeJSON is the stable form for scripts.
type completeJSON struct {
	Schema  int               `json:"schema"`
	Cluster any               `json:"cluster"`
	Groups  []Group           `json:"groups"`
	Origins map[string]Origin `json:"origins"`
}

// MarshalJSON writes the complete document, its groups, and the origin of every value by its path. Fields
// are added, never changed.
func (c *Complete) MarshalJSON() ([]byte, error) {
	value, err := c.tree()
	if err != nil {
		return nil, err
	}
	return json.Marshal(completeJSON{Schema: 1, Cluster: value, Groups: c.Groups, Origins: c.Origins})
}

// tree is the complete document as maps, lists and scalars.
func (c *Complete) tree() (any, error) {
	data, err := encodeYAML(c.Cluster)
	if err != nil {
		return nil, fmt.Errorf("writing the complete document: %w", err)
	}
	var value any
	if err := yaml.Unmarshal(data, &value); err != nil {
		return nil, fmt.Errorf("writing the complete document: %w", err)
	}
	return plain(value), nil
}

// valueAt is what a tree has at a path; ok is false where there is nothing.
func valueAt(tree any, names []string) (value any, ok bool) {
	value = tree
	for _, name := range names {
		switch v := value.(type) {
		case map[string]any:
			if value, ok = v[name]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// joinPath is the path of names as findings and origins write it; a number is an index.
func joinPath(names []string) string {
	path := ""
	for _, name := range names {
		if i, err := strconv.Atoi(name); err == nil && path != "" {
			path = at(path, i)
			continue
		}
		path = join(path, name)
	}
	return path
}

// splitPath takes a path apart: groups[0].size, kubeAPIServer.flags["a.b"].
func splitPath(path string) ([]string, error) {
	var names []string
	for path != "" {
		end := 0
		for end < len(path) && path[end] != '.' && path[end] != '[' {
			end++
		}
		if end > 0 {
			names = append(names, path[:end])
		}
		path = path[end:]
		switch {
		case path == "":
		case path[0] == '.':
			path = path[1:]
			if path == "" || path[0] == '.' || path[0] == '[' {
				return nil, fmt.Errorf("a name is missing after a dot")
			}
		default:
			name, rest, err := bracket(path[1:])
			if err != nil {
				return nil, err
			}
			names, path = append(names, name), rest
		}
	}
	return names, nil
}

// bracket reads what stands in brackets: an index, or a name in quotes.
func bracket(text string) (name, rest string, err error) {
	if len(text) > 0 && text[0] == '"' {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", "", fmt.Errorf("a quote is not closed")
		}
		if name, err = strconv.Unquote(quoted); err != nil {
			return "", "", err
		}
		rest = text[len(quoted):]
		if rest == "" || rest[0] != ']' {
			return "", "", fmt.Errorf("a bracket is not closed")
		}
		return name, rest[1:], nil
	}
	for i := range len(text) {
		if text[i] == ']' {
			return text[:i], text[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("a bracket is not closed")
}
