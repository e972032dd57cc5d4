package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A mutant is one small fault.
type mutant struct {
	id    int    // what switches it on; 1 for the first
	place string // file:line, for people
	// name finds the mutant again when lines have moved: the file, the function, what stands there and what is put in its
	// place. A second of the same name has a number.
	name    string
	verdict verdict
}

func (m *mutant) String() string { return m.place + ": " + m.name }

// program is a package with its mutants.
type program struct {
	dir, path string            // the directory, and the import path
	files     map[string]string // path of a file to its text with all mutants in it
	pkgName   string
	mutants   []*mutant
}

// mutate reads the package in dir and makes its mutants. Generated files have none.
func mutate(ctx context.Context, dir string) (*program, error) {
	found, err := packages.Load(&packages.Config{
		Context: ctx,
		Mode:    packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
	}, dir)
	if err != nil {
		return nil, fmt.Errorf("loading the package: %w", err)
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("loading %s: it is %d packages; name one directory", dir, len(found))
	}
	loaded := found[0]
	if len(loaded.Errors) > 0 {
		return nil, fmt.Errorf("loading the package: %w", loaded.Errors[0])
	}
	p := &program{path: loaded.PkgPath, pkgName: loaded.Name, files: map[string]string{}}
	seen := map[string]int{}
	for _, f := range loaded.Syntax {
		file := loaded.Fset.File(f.FileStart)
		p.dir = filepath.Dir(file.Name())
		if ast.IsGenerated(f) {
			continue
		}
		text, err := os.ReadFile(file.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the package: %w", err)
		}
		w := &walker{program: p, pkg: loaded, file: file, syntax: f, src: string(text), seen: seen, swallowed: map[*ast.ReturnStmt]bool{}}
		w.walk()
		p.files[file.Name()] = w.edits.apply(w.src)
	}
	return p, nil
}

// walker makes the mutants of one file.
type walker struct {
	*program
	pkg    *packages.Package
	file   *token.File
	syntax *ast.File
	src    string
	edits  edits
	seen   map[string]int // how often a name was given
	within string         // the function or variable that is being walked
	// swallowed has the returns of which no mutant is made, since that of the condition before them does the same.
	swallowed map[*ast.ReturnStmt]bool
}

func (w *walker) walk() {
	for _, d := range w.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			w.within = d.Name.Name
			if d.Recv != nil {
				w.within = strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + w.within
			}
			ast.Inspect(d, w.visit)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					w.within = v.Names[0].Name
					ast.Inspect(v, w.visit)
				}
			}
		}
	}
}

func (w *walker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		w.statements(n.List)
	case *ast.CaseClause:
		w.statements(n.Body)
	case *ast.CommClause:
		w.statements(n.Body)
	case *ast.IfStmt:
		w.condition(n.Cond, true)
	case *ast.ForStmt:
		if n.Cond != nil {
			w.loop(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			w.cases(n)
		}
	case *ast.CompositeLit:
		w.fields(n)
	case *ast.CallExpr:
		// What is said to people is not mutated: tests that hold every word only repeat the code.
		return !w.saysSomething(n)
	case ast.Expr:
		w.expression(n)
	}
	return true
}

// text is what stands at a node.
func (w *walker) text(n ast.Node) string {
	return w.src[w.file.Offset(n.Pos()):w.file.Offset(n.End())]
}

// add makes a mutant at n: before and after are put around it, with %d for the mutant's id in before.
func (w *walker) add(n ast.Node, what, before, after string) {
	m := &mutant{id: len(w.mutants) + 1}
	p := w.file.Position(n.Pos())
	m.place = fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line)
	m.name = filepath.Base(p.Filename) + " " + w.within + ": " + what
	w.seen[m.name]++
	if k := w.seen[m.name]; k > 1 {
		m.name = fmt.Sprintf("%s (%d)", m.name, k)
	}
	w.mutants = append(w.mutants, m)
	w.edits.wrap(w.file.Offset(n.Pos()), w.file.Offset(n.End()), fmt.Sprintf(before, m.id), after)
}

// short is one line of code for a name.
func short(text string) string {
	const most = 70
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// typeName writes a type as the file would at pos, or returns false where it cannot: the file does not import what that
// takes, or a variable has the import's name there.
func (w *walker) typeName(t types.Type, pos token.Pos) (string, bool) {
	scope := w.pkg.Types.Scope().Innermost(pos)
	ok := scope != nil
	name := types.TypeString(t, func(p *types.Package) string {
		if p == w.pkg.Types {
			return ""
		}
		for _, i := range w.syntax.Imports {
			imported := w.pkg.TypesInfo.PkgNameOf(i)
			if imported == nil || imported.Imported() != p || !ok {
				continue
			}
			if _, found := scope.LookupParent(imported.Name(), pos); found == imported {
				return imported.Name()
			}
		}
		ok = false
		return p.Name()
	})
	return name, ok
}
