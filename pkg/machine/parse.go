package machine

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/problem/yamlfile"
)

// Parse reads a machine file. file is only for messages. The list holds every finding, each with its
// field and line; the Config is the zero value when the list has an error, since half of it must not be used.
func Parse(file string, data []byte) (Config, problem.List) {
	var problems problem.List
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		addYAML(&problems, file, err)
		return Config{}, problems
	}
	var c Config
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	switch err := dec.Decode(&c); {
	case errors.Is(err, io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "machine-empty", Text: "the machine file is empty",
			Hint: "hardtack userdata writes it"})
		return Config{}, problems
	case err != nil:
		addYAML(&problems, file, err)
	case !errors.Is(dec.Decode(new(yaml.Node)), io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "machine-documents",
			Text: "there is a second YAML document", Hint: "a machine file is one document: remove the line ---"})
	}
	// A mapping that has a key twice is not decoded at all: what is in it is not known.
	if slices.ContainsFunc(problems, func(p problem.Problem) bool { return strings.Contains(p.Text, "already defined") }) {
		return Config{}, problems
	}
	v := validator{file: file, lines: yamlfile.Lines(&root), problems: &problems, refused: map[int]bool{}}
	// What the decoder refused is missing from c; to say so again would help nobody.
	for _, p := range problems {
		v.refused[p.Line] = true
	}
	v.config(c)
	problems.Sort()
	if problems.Err() != nil {
		return Config{}, problems
	}
	return c, problems
}

// addYAML turns what the YAML library says into findings.
func addYAML(problems *problem.List, file string, err error) {
	yamlfile.Add(problems, file, "machine-yaml", err, func(string, string) string {
		return "pkg/machine documents the fields of a machine file"
	})
}
