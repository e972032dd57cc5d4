package machine

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// Parse reads a machine file. file is only for messages. The list holds every finding, each with its
// field and line; the Config is the zero value when the list has an error, since half of it must not be used. What the
// file leaves out is no finding: it is the machine's to know.
func Parse(file string, data []byte) (Config, problem.List) {
	var problems problem.List
	var c Config
	lines, refused, ok := decode(file, data, &c, &problems, "the machine file is empty: leave it out, or write what differs")
	if !ok {
		return Config{}, problems
	}
	validator{file: file, lines: lines, problems: &problems, refused: refused}.config(c)
	problems.Sort()
	if problems.Err() != nil {
		return Config{}, problems
	}
	return c, problems
}

// decode reads the one document of a file into a value. It returns the lines of its fields, and those that the decoder
// refused, whose findings were reported already. ok is false if nothing of the file can be checked.
func decode(file string, data []byte, into any, problems *problem.List, empty string) (lines map[string]int, refused map[int]bool, ok bool) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		addYAML(problems, file, err, nil)
		return nil, nil, false
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	switch err := dec.Decode(into); {
	case errors.Is(err, io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "machine-empty", Text: empty})
		return nil, nil, false
	case err != nil:
		addYAML(problems, file, err, &root)
	case !errors.Is(dec.Decode(new(yaml.Node)), io.EOF):
		problems.Add(problem.Problem{File: file, Rule: "machine-documents",
			Text: "there is a second YAML document", Hint: "it is to be one document: remove the line ---"})
	}
	refused = map[int]bool{}
	for _, p := range *problems {
		// A mapping with a duplicate key is not decoded at all, so its content is not known.
		if strings.Contains(p.Text, "already defined") {
			return nil, nil, false
		}
		refused[p.Line] = true
	}
	return yamlfile.Lines(&root), refused, true
}

// addYAML turns an error of the YAML library into findings.
func addYAML(problems *problem.List, file string, err error, root *yaml.Node) {
	yamlfile.Add(problems, file, "machine-yaml", err, root, near.Field(
		reflect.TypeFor[Config](), reflect.TypeFor[API](), reflect.TypeFor[Etcd](), reflect.TypeFor[Network](), reflect.TypeFor[Node](),
		reflect.TypeFor[ClusterInfo](), reflect.TypeFor[InfoAPI](), reflect.TypeFor[InfoNetwork](), reflect.TypeFor[InfoEtcd](),
	))
}
