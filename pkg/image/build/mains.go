package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// mainsDir is the directory of the main module that has upstream's packages main.
const mainsDir = "mains"

// copyMains copies the packages main of the program into the main module, as packages that can be imported: Go imports no
// package main, and one program of several has to call theirs.
func (j job) copyMains(ctx context.Context, w workspace) error {
	for _, name := range j.program.Mains {
		dir, err := j.packageDir(ctx, w, name)
		if err != nil {
			return err
		}
		if err := copyMain(dir, filepath.Join(w.dir, mainsDir, path.Base(name))); err != nil {
			return fmt.Errorf("package %s: %w", name, err)
		}
	}
	return nil
}

// packageDir returns the directory of a package in Go's module cache, downloading its module if necessary.
func (j job) packageDir(ctx context.Context, w workspace, name string) (string, error) {
	var out bytes.Buffer
	err := run.Run(ctx, run.Command{
		Name: j.tools.goCommand, Args: []string{"list", "-find", "-json=Dir,Name", name},
		Dir: w.dir, Env: j.tools.environment(j.program, w), Stdout: &out,
	})
	if err != nil {
		return "", j.tools.explain(fmt.Errorf("looking for the package %s: %w", name, err))
	}
	var found struct{ Dir, Name string }
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return "", fmt.Errorf("looking for the package %s: %w", name, err)
	}
	if found.Name != "main" {
		return "", fmt.Errorf("package %s is named %s and not main: import it as it is", name, found.Name)
	}
	return found.Dir, nil
}

// copyMain copies the Go files of a package main from one directory to another.
func copyMain(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	mains := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		code, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		code, has, err := importable(filepath.Base(file), code, strings.ReplaceAll(filepath.Base(to), "-", ""))
		if err != nil {
			return err
		}
		if has {
			mains++
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), code, 0o644); err != nil {
			return err
		}
	}
	if mains != 1 {
		return fmt.Errorf("it has %d functions main, and should have one", mains)
	}
	return nil
}

// importable returns a file of a package main as one of the named package, whose function main is called Main, and whether the
// file has that function. All else stays as it is, so that errors of the compiler name upstream's lines.
func importable(file string, code []byte, name string) ([]byte, bool, error) {
	places := token.NewFileSet()
	parsed, err := parser.ParseFile(places, file, code, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, false, err
	}
	if parsed.Name.Name != "main" {
		return nil, false, errors.New(file + " is of the package " + parsed.Name.Name)
	}
	out := replaced(code, places.Position(parsed.Name.Pos()).Offset, "main", name)
	shift, has := len(out)-len(code), false
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "main" {
			has = true
			out = replaced(out, places.Position(f.Name.Pos()).Offset+shift, "main", "Main")
		}
	}
	return out, has, nil
}

// replaced has the new text in the place of the old one.
func replaced(code []byte, at int, old, text string) []byte {
	return append(append(append([]byte{}, code[:at]...), text...), code[at+len(old):]...)
}
