// Package yamlfile turns errors of the YAML library into findings with line numbers.
//
// Its rule: it knows no document. Which fields a document may have is defined by the package that reads it.
//
// Version 3 of the library gives the line of an error in its text alone. It gets fixes of security; version 4, which goes on, is not yet
// released (4.0.0-rc.6).
package yamlfile

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// Compiled at their first use: most documents have no error.
var (
	lineForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:yaml: )?line (\d+): (?s:(.*))$`) })
	fieldForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^field (\S+) not found in type (\S+)$`) })
)

// Add adds the findings of err, with the lines that the library has in its text. hint, which may be nil, returns the
// next step for a field that a Go type does not have.
func Add(found *problem.List, file, rule string, err error, hint func(field, goType string) string) {
	texts := []string{err.Error()}
	var typed *yaml.TypeError
	if errors.As(err, &typed) {
		texts = typed.Errors
	}
	for _, text := range texts {
		p := problem.Problem{File: file, Rule: rule, Text: strings.TrimPrefix(text, "yaml: ")}
		if m := lineForm().FindStringSubmatch(text); m != nil {
			p.Line, _ = strconv.Atoi(m[1])
			p.Text = m[2]
		}
		if m := fieldForm().FindStringSubmatch(p.Text); m != nil {
			p.Text = fmt.Sprintf("field %q is not known", m[1])
			if hint != nil {
				p.Hint = hint(m[1], m[2])
			}
		}
		found.Add(p)
	}
}

// Lines returns the line of every field below n by its path ("components[3].files[0].mode"). Aliases are not followed:
// their target has its own lines, and an anchor may contain itself.
func Lines(n *yaml.Node) map[string]int {
	lines := map[string]int{}
	index(lines, "", n)
	return lines
}

func index(lines map[string]int, field string, n *yaml.Node) {
	lines[field] = n.Line
	switch n.Kind {
	case yaml.DocumentNode:
		index(lines, field, n.Content[0])
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := Join(field, n.Content[i].Value)
			index(lines, key, n.Content[i+1])
			lines[key] = n.Content[i].Line
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			index(lines, At(field, i), item)
		}
	}
}

// Join returns the path of a key below field.
func Join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// At returns the path of an item of the list field.
func At(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
