package spec

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// Explanation describes one field: its meaning, its value in this cluster and the origin, and where the value ends up.
type Explanation struct {
	Path string `json:"path"`
	// What is the field's meaning, or where upstream documents it.
	What string `json:"what,omitempty"`
	// Type is upstream's type for flags and fields of configuration documents, else such as string, integer, or list of objects.
	Type  string `json:"type,omitempty"`
	Value any    `json:"value"`
	// Origin is absent for an object or a list of objects.
	Origin *Origin `json:"origin,omitempty"`
	// Default is upstream's default; absent if it is not known.
	Default any `json:"default,omitempty"`
	// Why is the image's reason for its value: the comment before it in the file that Origin names.
	Why string `json:"why,omitempty"`
	// Becomes lists where the value ends up on machines, on AWS and in DNS.
	Becomes []string `json:"becomes,omitempty"`
	// Parts are the fields that each object of a list may have, also of a list that is empty.
	Parts []Part `json:"parts,omitempty"`
	// Fields are the leaves below an object or a list.
	Fields []FieldValue `json:"fields,omitempty"`
}

// FieldValue is one leaf below a path.
type FieldValue struct {
	Path   string `json:"path"`
	Value  any    `json:"value"`
	Origin Origin `json:"origin"`
}

// Explain describes the field at a path of the document: "kubeAPIServer.flags.secure-port", "groups[0]", "network". A path with [] is
// about any element of a list, and has no value: "groups[].roles".
func (c *Complete) Explain(path string) (Explanation, error) {
	if strings.Contains(path, "[]") {
		return c.explainShape(path)
	}
	names, err := splitPath(path)
	if err != nil {
		return Explanation{}, fmt.Errorf("path %q: %w", path, err)
	}
	path = joinPath(names)
	tree, err := c.tree()
	if err != nil {
		return Explanation{}, err
	}
	value, ok := valueAt(tree, names)
	if !ok {
		return c.unset(path, names)
	}
	e := Explanation{Path: path, Value: value}
	if o, ok := c.Origins[path]; ok {
		e.Origin = &o
	} else {
		e.Value = nil
		e.Fields = c.below(path, tree)
	}
	c.describe(&e, names)
	return e, nil
}

// unset explains a path without a value in the complete document: a flag or a field that upstream knows, or an unknown
// path.
func (c *Complete) unset(path string, names []string) (Explanation, error) {
	if len(names) == 3 && names[1] == "flags" {
		if u, ok := c.upstream.Flags[names[0]][names[2]]; ok {
			e := Explanation{Path: path, Type: u.Type, Default: u.Default}
			c.describe(&e, names)
			return e, nil
		}
	}
	if len(names) > 2 && names[1] == "config" {
		s := c.upstream.Documents[names[0]]
		if kind, ok := s.Fields[strings.Join(names[2:], ".")]; ok {
			return Explanation{Path: path, Type: kind, What: c.document(names[0]), Becomes: []string{"nothing: it is not given"}}, nil
		}
	}
	if generic := index.ReplaceAllString(path, "[]"); generic != path {
		if e, err := c.explainShape(generic); err == nil {
			e.Path = path
			return e, nil
		}
	}
	return Explanation{}, nothingAt(path, maps.Keys(c.Origins))
}

// explainShape explains a path in which [] is any index: what the field is, whatever the document has there.
func (c *Complete) explainShape(path string) (Explanation, error) {
	if _, ok := shapeAt(path); !ok {
		return Explanation{}, nothingAt(path, maps.Keys(shapes()))
	}
	e := Explanation{Path: path}
	c.describeOwn(&e, path)
	return e, nil
}

func nothingAt(path string, known iter.Seq[string]) error {
	text := "there is nothing at " + path
	if best := near.To(path, slices.Collect(known)); best != "" {
		text += fmt.Sprintf(" (did you mean %s?)", best)
	}
	return errors.New(text)
}

// Paths lists the paths that Explain knows and that begin with prefix, sorted; for completion.
func (c *Complete) Paths(prefix string) []string {
	var paths []string
	for path := range c.Origins {
		if strings.HasPrefix(path, prefix) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// below lists the leaves under a path.
func (c *Complete) below(path string, tree any) []FieldValue {
	var fields []FieldValue
	for _, p := range slices.Sorted(maps.Keys(c.Origins)) {
		if path != "" && !within(p, path) {
			continue
		}
		names, err := splitPath(p)
		if err != nil {
			continue
		}
		if value, ok := valueAt(tree, names); ok {
			fields = append(fields, FieldValue{p, value, c.Origins[p]})
		}
	}
	return fields
}

// describe adds the field's meaning and where its value ends up.
func (c *Complete) describe(e *Explanation, names []string) {
	if len(names) == 0 {
		return
	}
	for _, p := range c.components {
		if p.name != names[0] || len(names) > 1 && names[1] != "flags" && names[1] != "config" {
			continue
		}
		switch {
		case len(names) == 3 && names[1] == "flags":
			c.describeFlag(e, p, names[2])
		case len(names) > 2 && names[1] == "config":
			c.describeField(e, p, names[2:])
		default:
			e.What = cmp.Or(fieldTexts()[e.Path], "the flags and the configuration document of "+c.upstream.program(p.component))
		}
		return
	}
	c.describeOwn(e, index.ReplaceAllString(e.Path, "[]"))
}

// describeOwn describes a field of Hardtack's own, by its path with [] for any index.
func (c *Complete) describeOwn(e *Explanation, path string) {
	if t, ok := shapeAt(path); ok {
		e.Type = shapeText(t)
		if t.Kind() == reflect.Slice || strings.HasSuffix(path, "[]") {
			e.Parts = parts(path)
		}
	}
	e.What = nearest(fieldTexts(), path)
	for _, b := range nearest(becomes, path) {
		e.Becomes = append(e.Becomes, strings.ReplaceAll(b, clusterParameter, c.Cluster.Name))
	}
}

var index = regexp.MustCompile(`\[\d+\]`)

func (c *Complete) describeFlag(e *Explanation, p resolved, name string) {
	e.What = fmt.Sprintf("the flag --%s of %s: see %s --help", name, c.upstream.program(p.component), p.executable)
	u, ok := c.upstream.Flags[p.name][name]
	if !ok {
		return
	}
	e.Type, e.Default = u.Type, flag{values: u.values(u.Default), upstream: u}.plain()
	fl, ok := p.flags[name]
	switch {
	case ok:
	case decided(p.name, name):
		e.Becomes = []string{"what hardtack-member decides on each machine, from the records of the cluster's store: a document does not set it"}
		return
	default:
		e.Becomes = []string{"nothing: the configuration document decides (" + c.document(p.name) + ")"}
		return
	}
	e.Why = whyScaled(p.name, name, fl.origin)
	words := fl.words(name, memberParameter)
	line := strings.Join(words, " ")
	switch p.carrier(fl, words, name) {
	case byImage:
		if fl.origin.Kind == ByMachine {
			e.Becomes = []string{fmt.Sprintf("--%s by each machine's hardtack-node, at boot: %s", name, fl.origin.From)}
			return
		}
		e.Becomes = []string{"not given: " + p.executable + " has it by itself"}
		if fl.image != nil && fl.image.set {
			e.Becomes = []string{line + ", as the image has it (" + fl.image.from + ")"}
			e.Why = fl.image.why
		}
	case byEnvironment:
		e.Becomes = []string{fmt.Sprintf("%s=%s in %s", p.envVariable(name), fl.text(), p.program.role.File())}
	case byVariable:
		e.Becomes = []string{fmt.Sprintf("%s=%s in %s", fl.image.variable, line, p.program.role.File())}
	case byArguments:
		e.Becomes = []string{fmt.Sprintf("%s in %s of %s", line, p.program.args, p.program.role.File())}
	case byDropIn:
		e.Becomes = []string{fmt.Sprintf("%s in the drop-in 50-hardtack-spec.conf of %s", line, p.program.unit)}
	}
}

// document names the configuration document of a component.
func (c *Complete) document(field string) string {
	for _, p := range c.components {
		if p.name == field && p.document != nil {
			return "the document " + p.document.path + " of " + c.upstream.program(p.component)
		}
	}
	return ""
}

func (c *Complete) describeField(e *Explanation, p resolved, names []string) {
	if p.document == nil {
		return
	}
	e.What = "a field of " + c.document(p.name)
	e.Type = c.upstream.Documents[p.name].Fields[strings.Join(names, ".")]
	if value, ok := valueAt(p.document.defaults, names); ok {
		e.Default = value
	}
	if e.Origin != nil {
		e.Why = whyScaled(p.name, strings.Join(names, "."), *e.Origin)
	}
	file, differs := p.document.file()
	given, inFile := valueAt(file, names)
	switch {
	case e.Origin != nil && e.Origin.Kind == ByMachine:
		e.Becomes = []string{fmt.Sprintf("%s in %s, which each machine's hardtack-node writes at boot: %s", strings.Join(names, "."), machine.KubeletFile, e.Origin.From)}
		return
	case !inFile || given == nil:
		e.Becomes = []string{"not given: the program has it by itself"}
	case differs:
		e.Becomes = []string{fmt.Sprintf("%s in %s, by the user data of the groups with the role %s", strings.Join(names, "."), p.document.path, p.program.role)}
	default:
		e.Becomes = []string{fmt.Sprintf("%s in %s, as the image has it", strings.Join(names, "."), p.document.path)}
	}
	if p.name == "kubelet" {
		e.Becomes = append(e.Becomes, "what a machine finds out about itself comes over it: /etc/kubernetes/kubelet.conf.d/*.conf")
	}
}
