package lock

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// Schema is the version of the lock format that this package reads.
const Schema = 1

// MaxInput is the largest lock file that is read, in bytes: far above any real one, so that what is none does not take the
// machine's memory.
const MaxInput = 1 << 20

// Parse reads a lock file. file is only for messages. The list holds every finding, each with its
// line; the lock is nil when the list has an error, since half a lock must not be used.
func Parse(file string, data []byte) (*Lock, problem.List) {
	var problems problem.List
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		addYAML(&problems, file, err, nil)
		return nil, problems
	}
	var l Lock
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	switch err := dec.Decode(&l); {
	case errors.Is(err, io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "lock-empty", Text: "the lock file is empty"})
		return nil, problems
	case err != nil:
		addYAML(&problems, file, err, &root)
	case !errors.Is(dec.Decode(new(yaml.Node)), io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "lock-documents",
			Text: "there is a second YAML document", Hint: "a lock file is one document: remove the line ---"})
	}
	// A mapping with a duplicate key is not decoded at all, so its content is not known.
	if slices.ContainsFunc(problems, func(p problem.Problem) bool { return strings.Contains(p.Text, "already defined") }) {
		return nil, problems
	}
	v := validator{file: file, lines: yamlfile.Lines(&root), problems: &problems, refused: map[int]bool{}}
	// Fields that the decoder refused are missing from l; do not report them again.
	for _, p := range problems {
		v.refused[p.Line] = true
	}
	v.lock(&l)
	problems.Sort()
	if problems.Err() != nil {
		return nil, problems
	}
	l.pins()
	return &l, problems
}

// addYAML turns what the YAML library says into findings.
func addYAML(problems *problem.List, file string, err error, root *yaml.Node) {
	yamlfile.Add(problems, file, "lock-yaml", err, root, func(string, string) string {
		return "pkg/image/lock documents the fields of a lock"
	})
}
