package spec

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// What Explain says of a field is the field's doc comment: "// Name is the cluster's name." becomes "the cluster's name".
func TestFieldTexts(t *testing.T) {
	texts := map[string]string{}
	addTexts(t, texts, fieldComments(t), "", reflect.TypeFor[Cluster]())
	data, err := json.MarshalIndent(texts, "", "  ")
	assert.NilError(t, err)
	golden.Assert(t, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(data))+"\n", filepath.Join("..", "fields.json"))
	for path := range becomes {
		assert.Assert(t, texts[path] != "", "becomes has %s, which is no field", path)
	}
}

// addTexts adds the texts of a type's fields in a document, and of those below them.
func addTexts(t *testing.T, texts, comments map[string]string, path string, in reflect.Type) {
	t.Helper()
	for f := range in.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case !f.IsExported() || f.Type == reflect.TypeFor[Component]():
			continue
		case strings.Contains(options, "inline"):
			addTexts(t, texts, comments, path, f.Type)
			continue
		}
		at, comment := join(path, name), comments[in.Name()+"."+f.Name]
		text, ok := strings.CutPrefix(comment, f.Name+" is ")
		if !ok {
			text, ok = strings.CutPrefix(comment, f.Name+" are ")
		}
		assert.Assert(t, ok, "%s.%s: the comment %q does not begin with the field's name and is or are", in.Name(), f.Name, comment)
		texts[at] = strings.TrimSuffix(text, ".")
		of := f.Type
		if of.Kind() == reflect.Slice {
			at, of = at+"[]", of.Elem()
		}
		if of.Kind() == reflect.Struct {
			addTexts(t, texts, comments, at, of)
		}
	}
}

// fieldComments are the doc comments of the fields of the package's types, by "Type.Field", each on one line.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	files, err := filepath.Glob("*.go")
	assert.NilError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		assert.NilError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					for _, id := range f.Names {
						comments[spec.Name.Name+"."+id.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return comments
}
