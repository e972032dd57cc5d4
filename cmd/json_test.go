// Package cmd holds the test of how the programs spell what they print for programs.
package cmd

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hardtack/packer-plugin-hardtack"

// snakeCase is how every key is spelled.
var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// TestJSONKeys: every key of every --json is snake_case, so that a script that has seen one command knows the others.
// It follows the types of what is given to printJSON, the one way in which the programs of a machine print JSON, and to
// printResult and printAs, those of the command. Not looked into are
// types of other modules, and those that encode themselves: a cluster's document has Kubernetes' spelling.
func TestJSONKeys(t *testing.T) {
	for _, program := range []string{"hardtack", "hardtack-agent", "hardtack-userdata"} {
		t.Run(program, func(t *testing.T) {
			w := &walker{t: t, seen: map[types.Type]bool{}}
			printed := printedTypes(t, program)
			if len(printed) == 0 {
				t.Fatal("nothing is printed as JSON: has the function another name now?")
			}
			for _, p := range printed {
				w.walk(p, types.TypeString(p, nil))
			}
		})
	}
}

// printedTypes are the types of everything that a program gives to printJSON.
func printedTypes(t *testing.T, program string) []types.Type {
	t.Helper()
	fset := token.NewFileSet()
	files := parseProgram(t, fset, program)
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Instances: map[*ast.Ident]types.Instance{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", exports(t, program))}
	if _, err := conf.Check(module+"/cmd/"+program, fset, files, info); err != nil {
		t.Fatal(err)
	}
	var out []types.Type
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); ok && slices.Contains([]string{"printJSON", "printResult", "printAs"}, name.Name) {
				out = append(out, concrete(t, info, info.Types[call.Args[len(call.Args)-1]].Type, fset.Position(call.Pos()))...)
			}
			return true
		})
	}
	return out
}

// concrete replaces a type parameter by the types that it stands for in this program.
func concrete(t *testing.T, info *types.Info, printed types.Type, where token.Position) (out []types.Type) {
	t.Helper()
	parameter, generic := printed.(*types.TypeParam)
	if !generic {
		if types.IsInterface(printed) {
			t.Errorf("%s: printJSON is given a %s: give it a type whose keys can be seen", where, printed)
		}
		return []types.Type{printed}
	}
	for name, instance := range info.Instances {
		function, ok := info.Uses[name].(*types.Func)
		if !ok {
			continue
		}
		parameters := function.Origin().Signature().TypeParams()
		for i := range parameters.Len() {
			if parameters.At(i) == parameter {
				out = append(out, instance.TypeArgs.At(i))
			}
		}
	}
	if len(out) == 0 {
		t.Errorf("%s: printJSON is given a %s, which stands for nothing", where, printed)
	}
	return out
}

func parseProgram(t *testing.T, fset *token.FileSet, program string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(program, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		built, err := build.Default.MatchFile(program, filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		if !built || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// exports finds what the compiler has written down of the packages that a program imports.
func exports(t *testing.T, program string) func(string) (io.ReadCloser, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+program).Output()
	if err != nil {
		t.Fatalf("listing what %s imports: %v", program, err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("the compiler has written nothing of %s", path)
		}
		return os.Open(files[path])
	}
}

// walker goes through types as encoding/json does.
type walker struct {
	t    *testing.T
	seen map[types.Type]bool
}

func (w *walker) walk(typ types.Type, path string) {
	if w.seen[typ] {
		return
	}
	w.seen[typ] = true
	if named, ok := types.Unalias(typ).(*types.Named); ok && opaque(named) {
		return
	}
	switch u := typ.Underlying().(type) {
	case *types.Pointer:
		w.walk(u.Elem(), path)
	case *types.Slice:
		w.walk(u.Elem(), path)
	case *types.Array:
		w.walk(u.Elem(), path)
	case *types.Map:
		w.walk(u.Elem(), path)
	case *types.Struct:
		for i := range u.NumFields() {
			w.field(u.Field(i), u.Tag(i), path)
		}
	}
}

// opaque reports whether a type says itself how it is encoded, or is not ours.
func opaque(named *types.Named) bool {
	pkg := named.Obj().Pkg()
	if pkg == nil || !strings.HasPrefix(pkg.Path(), module) {
		return true
	}
	methods := types.NewMethodSet(types.NewPointer(named))
	return methods.Lookup(pkg, "MarshalJSON") != nil || methods.Lookup(pkg, "MarshalText") != nil
}

func (w *walker) field(f *types.Var, tag, path string) {
	key, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	switch {
	case key == "-" && options == "", !f.Exported() && !f.Embedded():
		return
	case key == "" && f.Embedded():
	case key == "":
		w.t.Errorf("%s.%s has no json tag, and is printed as %q", path, f.Name(), f.Name())
	case !snakeCase.MatchString(key):
		w.t.Errorf("%s.%s: the key %q is not snake_case", path, f.Name(), key)
	}
	w.walk(f.Type(), path+"."+f.Name())
}
