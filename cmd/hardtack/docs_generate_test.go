package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

//go:generate go test -count=1 -run TestGeneratedDocs . -update

// TestGeneratedDocs compares the parts of the documents that are made from the program with the program; with -update it
// writes them.
func TestGeneratedDocs(t *testing.T) {
	for _, part := range []struct {
		file, name string
		make       func(*testing.T) string
	}{
		{"README.md", "roles", roleTable},
		{"cmd/hardtack/README.md", "ports", portTable},
		{"cmd/hardtack/README.md", "reasons", reasonTable},
		{"cmd/hardtack/REFERENCE.md", "hardtack", commandReference},
		{"cmd/hardtack/REFERENCE.md", "hardtack-agent", agentReference},
		{"cmd/hardtack/REFERENCE.md", "hardtack-userdata", readerReference},
		{"lambda/README.md", "parameters", parameterTable},
		{"pkg/README.md", "packages", packageTable},
	} {
		t.Run(part.name, func(t *testing.T) {
			file := filepath.Join(root, part.file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			begin, end := "<!-- generated: "+part.name+" -->\n", "<!-- end: "+part.name+" -->"
			before, rest, _ := strings.Cut(string(text), begin)
			got, after, found := strings.Cut(rest, end)
			if !found {
				t.Fatalf("%s has no part between %q and %q", part.file, begin, end)
			}
			want := "\n" + part.make(t) + "\n"
			if *updateScripts {
				if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s: the part %s is stale: run make generate (-want +got):\n%s", part.file, part.name, diff)
			}
		})
	}
}

// roleTable is the output of `hardtack roles`.
func roleTable(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if err := newApp(&out, io.Discard).RunContext(t.Context(), []string{"hardtack", "roles"}); err != nil {
		t.Fatal(err)
	}
	return "```text\n" + out.String() + "```\n"
}

// table renders rows below a header.
func table(rows ...[]string) string {
	var b strings.Builder
	for i, row := range rows {
		for j, cell := range row {
			row[j] = strings.ReplaceAll(cell, "|", `\|`)
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

func portTable(*testing.T) string {
	rows := [][]string{{"role", "port", "program", "open to"}}
	for _, r := range role.All() {
		for _, p := range r.Ports() {
			from := role.Join(p.From, ", ")
			if from == "" {
				from = "127.0.0.1 only"
			}
			rows = append(rows, []string{string(r), fmt.Sprintf("%s %d", p.Protocol, p.Number), p.What(), from})
		}
	}
	return table(rows...)
}

// reasonTable has every reason of a failed boot: its meaning from the comment beside it, and its next step.
func reasonTable(t *testing.T) string {
	t.Helper()
	meaning := map[string]string{}
	ast.Inspect(parse(t, "pkg/node/reason/reason.go"), func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Comment != nil && len(spec.Values) == 1 {
			if word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value); err == nil {
				meaning[word] = strings.TrimSpace(spec.Comment.Text())
			}
		}
		return true
	})
	rows := [][]string{{"reason", "meaning", "next step"}}
	for _, r := range reason.All() {
		if meaning[string(r)] == "" {
			t.Errorf("the reason %s has no comment that says its meaning", r)
		}
		rows = append(rows, []string{"`" + string(r) + "`", meaning[string(r)], r.Next()})
	}
	return table(rows...)
}

// parameterTable has the parameters of the DNS function's template.
func parameterTable(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "lambda/template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Parameters yaml.Node `yaml:"Parameters"`
	}
	if err := yaml.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	rows := [][]string{{"parameter", "meaning", "default"}}
	for i := 0; i < len(template.Parameters.Content); i += 2 {
		var p struct {
			Description   string   `yaml:"Description"`
			Default       *string  `yaml:"Default"`
			AllowedValues []string `yaml:"AllowedValues"`
		}
		if err := template.Parameters.Content[i+1].Decode(&p); err != nil {
			t.Fatal(err)
		}
		value := "required"
		if p.Default != nil {
			value = "`" + *p.Default + "`"
		}
		if len(p.AllowedValues) > 0 {
			p.Description = strings.TrimSpace(p.Description + " One of " + strings.Join(p.AllowedValues, ", ") + ".")
		}
		rows = append(rows, []string{"`" + template.Parameters.Content[i].Value + "`", p.Description, strings.Replace(value, "``", "empty", 1)})
	}
	return table(rows...)
}

// commandReference lists every command with its flags.
func commandReference(*testing.T) string {
	var b strings.Builder
	machine := fmt.Sprintf("(default: %q)", runtime.GOARCH)
	var list func(above string, commands []*cli.Command)
	list = func(above string, commands []*cli.Command) {
		for _, c := range commands {
			if c.Hidden {
				continue
			}
			name := above + " " + c.Name
			fmt.Fprintf(&b, "### %s\n\n%s.\n\n", strings.TrimSpace(name+" "+c.ArgsUsage), strings.ToUpper(c.Usage[:1])+c.Usage[1:])
			if flags := c.VisibleFlags(); len(flags) > 0 {
				rows := [][]string{{"flag", ""}}
				for _, f := range flags {
					flag, usage, _ := strings.Cut(cli.FlagStringer(f), "\t")
					usage = strings.TrimSpace(strings.TrimSuffix(usage, "(default: false)"))
					rows = append(rows, []string{"`" + flag + "`", strings.Replace(usage, machine, "(default: this machine's)", 1)})
				}
				b.WriteString(table(rows...) + "\n")
			}
			if text := examples[strings.TrimPrefix(name, "hardtack ")]; text != "" {
				b.WriteString("```\n" + text + "\n```\n\n")
			}
			list(name, c.Subcommands)
		}
	}
	list("hardtack", newApp(io.Discard, io.Discard).Commands)
	return strings.TrimSuffix(b.String(), "\n")
}

// agentReference and readerReference are the help of the programs of a machine, as a block.
func agentReference(t *testing.T) string {
	t.Helper()
	return "```text\n" + usageOf(t, "cmd/hardtack-agent/app.go") + "```\n"
}

func readerReference(t *testing.T) string {
	t.Helper()
	return "```text\n" + usageOf(t, "cmd/hardtack-userdata/userdata.go") + "```\n"
}

// usageOf is the help of another program, which is a constant in one of its files.
func usageOf(t *testing.T, file string) string {
	t.Helper()
	text := ""
	ast.Inspect(parse(t, file), func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name == "usage" {
			text, _ = strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		}
		return true
	})
	if text == "" {
		t.Fatalf("%s has no constant usage", file)
	}
	return text
}

// packageTable has a line for each package below pkg: the first sentence of its comment.
func packageTable(t *testing.T) string {
	t.Helper()
	synopsis := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), "pkg", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if dir := filepath.Dir(file); err == nil && dir != "pkg" && strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			if comment := parse(t, file).Doc; comment != nil || synopsis[dir] == "" {
				synopsis[dir] = new(doc.Package).Synopsis(comment.Text())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := [][]string{{"package", "what it does"}}
	for _, dir := range slices.Sorted(maps.Keys(synopsis)) {
		text := strings.TrimPrefix(synopsis[dir], "Package "+filepath.Base(dir)+" ")
		if text == "" {
			t.Errorf("%s has no package comment", dir)
		}
		rows = append(rows, []string{"`" + dir + "`", text})
	}
	return table(rows...)
}

// parse reads one Go file of the repository.
func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
