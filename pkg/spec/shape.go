package spec

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// shapes are the Go types of Hardtack's own fields, by their paths in which [] is any index. Flags and fields of configuration documents
// are upstream's.
var shapes = sync.OnceValue(func() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	addShapes(all, "", reflect.TypeFor[Cluster]())
	return all
})

func addShapes(all map[string]reflect.Type, path string, in reflect.Type) {
	for name, t := range fieldTypes(in) {
		if t == reflect.TypeFor[Component]() || in == reflect.TypeFor[Etcd]() && (name == "flags" || name == "config") {
			continue
		}
		at := join(path, name)
		all[at] = t
		if t.Kind() == reflect.Slice {
			at, t = at+"[]", t.Elem()
		}
		if t.Kind() == reflect.Struct {
			addShapes(all, at, t)
		}
	}
}

// shapeText is a type as people say it: "string", "list of objects".
func shapeText(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return shapeText(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Int:
		return "integer"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list of " + shapeText(t.Elem()) + "s"
	case reflect.Map:
		return "map of " + shapeText(t.Elem()) + "s"
	}
	return "object"
}

// shapeAt is the type of the field at a path, in which [] is any index; a path that ends in [] is an element of a list. False if there is
// no such field of Hardtack's own.
func shapeAt(path string) (reflect.Type, bool) {
	if list, ok := strings.CutSuffix(path, "[]"); ok {
		t, ok := shapes()[list]
		if !ok || t.Kind() != reflect.Slice {
			return nil, false
		}
		return t.Elem(), true
	}
	t, ok := shapes()[path]
	return t, ok
}

// Part is a field of an object, or of each object of a list.
type Part struct {
	// Path has [] for any index, as in groups[].roles.
	Path string `json:"path"`
	// Type is such as string, or list of objects.
	Type string `json:"type"`
	What string `json:"what"`
}

// parts are the fields below a path of Hardtack's own, sorted: those of an object, or of each object of a list.
func parts(path string) []Part {
	t, ok := shapeAt(path)
	if !ok {
		return nil
	}
	if t.Kind() == reflect.Slice {
		path += "[]"
	}
	var out []Part
	for _, at := range slices.Sorted(maps.Keys(shapes())) {
		if strings.HasPrefix(at, path+".") {
			out = append(out, Part{Path: at, Type: shapeText(shapes()[at]), What: fieldTexts()[at]})
		}
	}
	return out
}
