package spec

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

var indexForm = regexp.MustCompile(`\[[0-9]+\]`)

// whole finds what is written where a whole number belongs and is none, with the field and its unit. The YAML library takes
// 2.5 for 2 without a word, and says of "2GiB" neither.
func whole(file, field string, n *yaml.Node, t reflect.Type) problem.List {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var found problem.List
	switch {
	case n.Kind == yaml.DocumentNode:
		return whole(file, field, n.Content[0], t)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		types := fieldTypes(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if below, ok := types[n.Content[i].Value]; ok {
				found = append(found, whole(file, join(field, n.Content[i].Value), n.Content[i+1], below)...)
			}
		}
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, item := range n.Content {
			found = append(found, whole(file, at(field, i), item, t.Elem())...)
		}
	case n.Kind == yaml.ScalarNode && t.Kind() == reflect.Int && !isWhole(n):
		p := problem.Problem{File: file, Line: n.Line, Field: field, Rule: "spec", Text: fmt.Sprintf("%q is not a whole number", n.Value)}
		if what := fieldTexts()[indexForm.ReplaceAllString(field, "[]")]; what != "" {
			p.Hint = "it is " + what
		}
		found.Add(p)
	}
	return found
}

// isWhole reports whether a scalar is a whole number, or left out.
func isWhole(n *yaml.Node) bool {
	switch n.ShortTag() {
	case "!!int", "!!null":
		return true
	case "!!float":
		f, err := strconv.ParseFloat(n.Value, 64)
		return err == nil && f == math.Trunc(f)
	}
	return false
}

// fieldTypes are the types of a struct's fields by their names in a document.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if options == "inline" {
			for name, below := range fieldTypes(f.Type) {
				types[name] = below
			}
			continue
		}
		types[name] = f.Type
	}
	return types
}

// wholeFirst puts findings of whole before the decoder's, and drops what the decoder says of the same lines less well.
func wholeFirst(ours, decoder problem.List) problem.List {
	decoder = slices.DeleteFunc(decoder, func(p problem.Problem) bool {
		return strings.HasSuffix(p.Text, yamlfile.WantsWhole) && slices.ContainsFunc(ours, func(o problem.Problem) bool { return o.Line == p.Line })
	})
	return append(ours, decoder...)
}
