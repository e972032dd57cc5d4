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
	typeForm  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("^cannot unmarshal (!!\\S+)(?: `(?s:(.*))`)? into (.+)$")
	})
	// blockForm and parserForm are what the library's parser says, and scannerForm is what its scanner says, as far as a line
	// of the document is meant.
	blockForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^did not find expected (key|'-' indicator)$`) })
	parserForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(did not find expected (<.*>|node content|',' or '[]}]')|found (undefined tag handle|duplicate %.*|incompatible YAML document))$`)
	})
	scannerForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(did not find|could not find|found|mapping|block) `)
	})
)

// Add adds the findings of err, with their lines, and where root is the document that could be parsed, with the fields of values
// of the wrong kind. hint, which may be nil, returns the next step for a field that a Go type does not have.
func Add(found *problem.List, file, rule string, err error, root *yaml.Node, hint func(field, goType string) string) {
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
		if typed == nil {
			atLine(&p)
		}
		if m := fieldForm().FindStringSubmatch(p.Text); m != nil {
			p.Text = fmt.Sprintf("field %q is not known", m[1])
			if hint != nil {
				p.Hint = hint(m[1], m[2])
			}
		}
		if m := typeForm().FindStringSubmatch(p.Text); m != nil {
			p.Field = fieldOf(root, p.Line, m[1], m[2])
			p.Text = mismatch(m[1], m[2], m[3])
		}
		found.Add(p)
	}
}

// atLine corrects the line of an error of form. Marks count from 0: the library adds 1 to those of its scanner alone, and
// leaves out the first line. For a block its parser has the line where that begins, or that of the fault.
func atLine(p *problem.Problem) {
	switch block := blockForm().MatchString(p.Text); {
	case block || parserForm().MatchString(p.Text):
		p.Line++
		if block {
			p.Hint = "a line here or below is indented unlike its block"
		}
	case p.Line == 0 && scannerForm().MatchString(p.Text):
		p.Line = 1
	}
}

const (
	wholeNumber = "a whole number"
	isExpected  = " is expected"
	// WantsWhole is the end of a finding about a value that is to be a whole number.
	WantsWhole = wholeNumber + isExpected
)

// mismatch says that a value, of a YAML tag, is not what a Go type takes.
func mismatch(tag, value, goType string) string {
	have := strconv.Quote(value)
	switch tag {
	case "!!seq":
		have = "a list"
	case "!!map":
		have = "a mapping"
	}
	want := "a mapping" // documents name no types but structs
	switch {
	case strings.HasPrefix(goType, "[]"):
		want = "a list"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		want = wholeNumber
	case strings.HasPrefix(goType, "float"):
		want = "a number"
	case goType == "bool":
		want = "true or false"
	case goType == "string":
		want = "text"
	}
	if have == want {
		return "is " + have + ", which does not belong here"
	}
	return fmt.Sprintf("is %s, %s%s", have, want, isExpected)
}

// fieldOf is the field of the value of a tag in a line: empty if it is not certain.
func fieldOf(root *yaml.Node, line int, tag, value string) string {
	if root == nil {
		return ""
	}
	begin, cut := strings.CutSuffix(value, "...") // the library cuts long ones
	var fields []string
	repeated := false // by an alias, where it may be wrong and here not
	walk("", nil, root, func(field string, _, n *yaml.Node) {
		if n.Line != line || n.ShortTag() != tag || field == "" && tag == "!!map" { // the document's own is right
			return
		}
		if n.Kind != yaml.ScalarNode || n.Value == value || cut && strings.HasPrefix(n.Value, begin) {
			fields, repeated = append(fields, field), repeated || n.Anchor != ""
		}
	})
	if len(fields) != 1 || repeated {
		return ""
	}
	return fields[0]
}

// Lines returns the line of every field below n by its path ("components[3].files[0].mode"). Aliases are not followed:
// their target has its own lines, and an anchor may contain itself.
func Lines(n *yaml.Node) map[string]int {
	lines := map[string]int{}
	walk("", nil, n, func(field string, key, n *yaml.Node) {
		lines[field] = n.Line
		if key != nil {
			lines[field] = key.Line
		}
	})
	return lines
}

// walk visits a value and all below it, each with its field and its key, which is nil for what has none.
func walk(field string, key, n *yaml.Node, visit func(field string, key, n *yaml.Node)) {
	visit(field, key, n)
	switch n.Kind {
	case yaml.DocumentNode:
		walk(field, nil, n.Content[0], visit)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			walk(Join(field, n.Content[i].Value), n.Content[i], n.Content[i+1], visit)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			walk(At(field, i), nil, item, visit)
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
