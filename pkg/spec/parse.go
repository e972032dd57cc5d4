package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// MaxInput is the largest document that Parse reads, in bytes: far above any real one, so that a
// crafted one does not take the machine's memory.
const MaxInput = 1 << 20

// source is where the fields of a document stand, for findings.
type source struct {
	file    string
	lines   map[string]int
	refused refused
	// given holds the path of every field that is written with something but null.
	given map[string]bool
	root  *yaml.Node
}

func newSource(file string) *source {
	return &source{file: file, lines: map[string]int{}, given: map[string]bool{}}
}

// refused is what the decoder has refused, of which nothing else is told.
type refused struct {
	fields []string
	// lines have a value whose field is not certain, unknown ones a field that is not known.
	lines, unknown []int
}

func refusedBy(problems problem.List) (r refused) {
	for _, p := range problems {
		switch {
		case p.Field != "":
			r.fields = append(r.fields, p.Field)
		case p.Line == 0: // about the whole file
		case strings.HasPrefix(p.Text, "field "):
			r.unknown = append(r.unknown, p.Line)
		default:
			r.lines = append(r.lines, p.Line)
		}
	}
	return r
}

// has reports whether a finding would be about what is refused; given says that its field is written. What is missing may be
// there by a name that is not known.
func (r refused) has(field string, line int, given bool) bool {
	return slices.Contains(r.lines, line) || !given && slices.Contains(r.unknown, line) ||
		slices.ContainsFunc(r.fields, func(other string) bool { return within(field, other) || within(other, field) })
}

// Parse reads a cluster.yaml strictly. file is only for messages. The list holds every finding about the
// document's form, each with its line; the cluster is nil when the list has an error.
func Parse(file string, data []byte) (*Cluster, problem.List) {
	c, problems := parse(file, data)
	if problems.Err() != nil {
		return nil, problems
	}
	return c, problems
}

// parse is Parse, with what could be read also where the list has an error; nil where that is nothing.
func parse(file string, data []byte) (*Cluster, problem.List) {
	var problems problem.List
	if len(data) > MaxInput {
		problems.Errorf(file, "", "is larger than %d bytes", MaxInput)
		return nil, problems
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		addYAML(&problems, file, err, nil)
		return nil, problems
	}
	c := &Cluster{source: newSource(file)}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	switch err := dec.Decode(c); {
	case errors.Is(err, io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "spec-empty", Text: "the document is empty",
			Hint: "the least is apiVersion: " + APIVersion + ", kind: " + Kind + " and a name"})
		return nil, problems
	case err != nil:
		addYAML(&problems, file, err, &root)
	case !errors.Is(dec.Decode(new(yaml.Node)), io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "spec-documents",
			Text: "there is a second YAML document", Hint: "a cluster is one document: remove the line ---"})
	}
	problems = wholeFirst(whole(file, "", &root, reflect.TypeFor[Cluster]()), problems)
	if slices.ContainsFunc(problems, func(p problem.Problem) bool { return strings.Contains(p.Text, "already defined") }) {
		return nil, problems
	}
	c.source.refused, c.source.root = refusedBy(problems), &root
	c.source.index("", &root)
	v := checker{source: c.source, problems: &problems}
	v.document(c)
	problems.Sort()
	return c, problems
}

// index records the line of every field below n.
func (s *source) index(field string, n *yaml.Node) {
	if field != "" {
		s.lines[field], s.given[field] = n.Line, n.ShortTag() != "!!null"
	}
	switch n.Kind {
	case yaml.DocumentNode:
		s.index(field, n.Content[0])
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := join(field, n.Content[i].Value)
			s.index(key, n.Content[i+1])
			s.lines[key] = n.Content[i].Line
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			s.index(at(field, i), item)
		}
	}
}

// join is the path of a key; one that has a dot or a bracket in it is quoted, so that paths stay unique.
func join(field, key string) string {
	if strings.ContainsAny(key, `.[]"`) || key == "" {
		return field + "[" + strconv.Quote(key) + "]"
	}
	if field == "" {
		return key
	}
	return field + "." + key
}

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// checker collects findings.
type checker struct {
	source   *source
	problems *problem.List
}

// errorf adds a finding about field; where the field is not written, the line is that of the nearest
// parent that is.
func (v checker) errorf(field, format string, args ...any) { v.hint(field, "", format, args...) }

// hint adds a finding with what to do next.
func (v checker) hint(field, hint, format string, args ...any) {
	v.add(field, problem.Problem{Hint: hint, Text: fmt.Sprintf(format, args...)})
}

// warn adds a finding that makes nothing unusable.
func (v checker) warn(field, hint, format string, args ...any) {
	v.add(field, problem.Problem{Severity: problem.Warning, Hint: hint, Text: fmt.Sprintf(format, args...)})
}

func (v checker) add(field string, p problem.Problem) {
	line, parent := v.source.lines[field], field
	for line == 0 && parent != "" {
		parent = parent[:max(0, strings.LastIndexAny(parent, ".["))]
		line = v.source.lines[parent]
	}
	if v.source.refused.has(field, line, v.source.given[field]) {
		return
	}
	p.File, p.Line, p.Field, p.Rule = v.source.file, line, field, "spec"
	v.problems.Add(p)
}

// addYAML turns what the YAML library says into findings.
func addYAML(problems *problem.List, file string, err error, root *yaml.Node) {
	yamlfile.Add(problems, file, "spec-yaml", err, root, near.Field(documented()...))
}

// documented are the struct types of a document, for hints about their fields.
func documented() []reflect.Type { return structs(nil, reflect.TypeFor[Cluster]()) }

// structs adds a type and the struct types of its fields to those that were found before.
func structs(found []reflect.Type, t reflect.Type) []reflect.Type {
	for t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(found, t) {
		return found
	}
	found = append(found, t)
	for f := range t.Fields() {
		if f.IsExported() {
			found = structs(found, f.Type)
		}
	}
	return found
}
