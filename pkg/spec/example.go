package spec

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// exampleFile has every field of a document, without comments.
//
//go:embed example.yaml
var exampleFile []byte

// Example returns a document that has every field of Hardtack's own, each with its meaning in a comment before it, and for each component
// an override. It is a valid cluster, and nobody's: the values are to be replaced, and most fields to be left out.
func Example() ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(exampleFile, &root); err != nil {
		return nil, fmt.Errorf("reading the example: %w", err)
	}
	u, err := readUpstream(DefaultVersion)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for path, text := range fieldTexts() {
		texts[path] = text
	}
	for _, c := range components {
		if texts[c.name] == "" {
			texts[c.name] = "overrides of " + u.program(c) + ": its flags, and fields of its configuration document if it has one"
		}
	}
	explainNode(root.Content[0], "", texts)
	var out bytes.Buffer
	out.WriteString("# Every field of a cluster's document. What is left out has its default, and is explained by hardtack explain PATH.\n\n")
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("writing the example: %w", err)
	}
	return out.Bytes(), enc.Close()
}

// explainNode puts before each field its meaning, where it stands for the first time.
func explainNode(n *yaml.Node, path string, texts map[string]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			at := join(path, key.Value)
			if text := texts[at]; text != "" {
				width := exampleWidth - 2*strings.Count(at, ".") - 2*strings.Count(at, "[]")
				key.HeadComment = wrapped(strings.ToUpper(text[:1])+text[1:]+".", width)
				delete(texts, at)
			}
			explainNode(value, at, texts)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			explainNode(item, path+"[]", texts)
		}
	}
}

// exampleWidth is how many characters a line of a comment has at most, with its indentation.
const exampleWidth = 96

// wrapped breaks a text into lines of a comment.
func wrapped(text string, width int) string {
	var lines []string
	line := "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > width && line != "#" {
			lines, line = append(lines, line), "#"
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}
