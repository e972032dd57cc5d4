package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestEveryResultHasForms: a command has a result for programs, with the same flags as all others, or is listed as one that
// has none.
func TestEveryResultHasForms(t *testing.T) {
	have := map[string]bool{}
	var check func(above string, commands []*cli.Command)
	check = func(above string, commands []*cli.Command) {
		for _, c := range commands {
			path := strings.TrimSpace(above + " " + c.Name)
			check(path, c.Subcommands)
			if len(c.Subcommands) > 0 && examples[path] == "" { // a group
				continue
			}
			have[path] = true
			_, none := withoutResult[path]
			var flags []string
			for _, f := range c.Flags {
				flags = append(flags, f.Names()...)
			}
			for _, name := range []string{"output", "o", "json"} {
				if n := strings.Count(" "+strings.Join(flags, " ")+" ", " "+name+" "); none && n != 0 || !none && n != 1 {
					t.Errorf("%s has the flag %s %d times; it is listed as without a result: %v", path, name, n, none)
				}
			}
		}
	}
	check("", newApp(io.Discard, io.Discard).Commands)
	for path := range withoutResult {
		if !have[path] {
			t.Errorf("%q is listed as without a result, and is no command", path)
		}
	}
}

// TestEveryActionPrintsItsResult: the action of each command comes to printResult or printDocument, so that a command that
// forgets the forms is found. It follows the names of functions in the source.
func TestEveryActionPrintsItsResult(t *testing.T) {
	calls, actions := map[string][]string{}, map[string][]string{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_elsewhere.go") || name == "output.go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			calls[f.Name.Name] = append(calls[f.Name.Name], words(f.Body)...)
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if literal, ok := n.(*ast.CompositeLit); ok {
					if verb, action := commandOf(literal); action != nil {
						at := f.Name.Name + ": " + verb
						if verb == "" { // the name is a variable
							at = f.Name.Name
						}
						actions[at] = words(action)
					}
				}
				return true
			})
		}
	}
	var quiet []string
	for path := range withoutResult {
		words := strings.Fields(path)
		quiet = append(quiet, words[len(words)-1])
	}
	checked := 0
	for at, from := range actions {
		_, verb, _ := strings.Cut(at, ": ")
		if slices.Contains(quiet, verb) || slices.Equal(from, []string{"unknownCommand"}) {
			continue
		}
		checked++
		if !comesTo(calls, from, map[string]bool{}) {
			t.Errorf("%s prints nothing for programs: give its result to printResult, or list it in withoutResult with the reason", at)
		}
	}
	if checked < 60 {
		t.Errorf("only %d actions were found", checked)
	}
}

// commandOf is the name and the action of a literal command.
func commandOf(literal *ast.CompositeLit) (verb string, action ast.Expr) {
	for _, e := range literal.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := kv.Key.(*ast.Ident)
		if key == nil {
			continue
		}
		switch value, _ := kv.Value.(*ast.BasicLit); {
		case key.Name == "Name" && value != nil:
			verb, _ = strconv.Unquote(value.Value)
		case key.Name == "Action":
			action = kv.Value
		}
	}
	return verb, action
}

// words are the names in a piece of source.
func words(n ast.Node) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			names = append(names, name.Name)
		}
		return true
	})
	return names
}

func comesTo(calls map[string][]string, from []string, seen map[string]bool) bool {
	for _, name := range from {
		if slices.Contains([]string{"printResult", "printDocument", "inForm", "formatOf"}, name) {
			return true
		}
		if !seen[name] {
			seen[name] = true
			if comesTo(calls, calls[name], seen) {
				return true
			}
		}
	}
	return false
}

// TestEncode: YAML has the keys and values of the JSON, in its order.
func TestEncode(t *testing.T) {
	t.Parallel()
	v := struct {
		Zulu  string         `json:"zulu"`
		Alpha []int          `json:"alpha"`
		None  []string       `json:"none"`
		Yes   string         `json:"yes"`
		Under map[string]any `json:"under"`
	}{"a: b\nc", []int{1, 2}, []string{}, "true", map[string]any{"x": nil}}
	var out bytes.Buffer
	if err := encode(&out, asYAML, v); err != nil {
		t.Fatal(err)
	}
	want := "---\nzulu: |-\n  a: b\n  c\nalpha:\n  - 1\n  - 2\nnone: []\nyes: \"true\"\nunder:\n  x: null\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
