package cmd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestElsewhere type-checks what people run on another system: the command and the plugin, without the lab and the builder. Compiling
// them would take minutes for each system, nearly all of them for others' packages, of which only the declarations matter here.
func TestElsewhere(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			checked := 0
			loaded, err := packages.Load(&packages.Config{
				Context: t.Context(),
				Dir:     root,
				Env:     append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0"),
				Mode: packages.NeedName | packages.NeedModule | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
					packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
				ParseFile: func(set *token.FileSet, name string, source []byte) (*ast.File, error) {
					f, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
					if err == nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
						withoutBodies(f)
					}
					return f, err
				},
			}, "./cmd/hardtack", "./cmd/packer-plugin-hardtack")
			if err != nil {
				t.Fatal(err)
			}
			packages.Visit(loaded, nil, func(p *packages.Package) {
				if p.Module == nil || !p.Module.Main {
					return
				}
				checked++
				for _, e := range p.Errors {
					t.Errorf("%s: %v", p.PkgPath, e)
				}
			})
			if checked < 50 {
				t.Errorf("%d packages of this module were checked, which cannot be all", checked)
			}
		})
	}
}

// withoutBodies leaves a file's declarations.
func withoutBodies(f *ast.File) {
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok {
			d.Body = nil
		}
	}
}
