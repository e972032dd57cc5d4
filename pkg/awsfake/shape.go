package awsfake

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A shape is a struct that says which fields a structure of an API may have: `cfn` is a field's name in a
// CloudFormation template, `query` in a request of the Query protocol (the cfn name where there is none), `xml` in
// an answer, and `update` how CloudFormation updates it ("replace"; in place if there is none).
// A required field's `cfn` tag ends with ",required". Decoding refuses fields that a shape does not have.

// shapeProblem is one violation of a shape.
type shapeProblem struct {
	// Path leads to the field: "Ebs.VolumeSize".
	Path string
	// Unknown fields are not part of the shape, Missing ones required and absent; the others have a wrong value.
	Unknown, Missing bool
	// Want is the required type of the value: "Integer".
	Want string
}

// name is the last part of the problem's path.
func (p shapeProblem) name() string { return p.Path[strings.LastIndexByte(p.Path, '.')+1:] }

// formTree returns the fields below prefix as a tree: maps by name, and lists for names that are numbers from 1.
func (p params) formTree(prefix string) map[string]any {
	root := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(p)) {
		rest, below := strings.CutPrefix(key, prefix+".")
		if !below {
			continue
		}
		at := root
		steps := strings.Split(rest, ".")
		for _, step := range steps[:len(steps)-1] {
			next, ok := at[step].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[step] = next
			}
			at = next
		}
		at[steps[len(steps)-1]] = p.get(key)
	}
	for name, v := range root {
		root[name] = numbered(v)
	}
	return root
}

// numbered turns the maps below v whose keys are all numbers into lists.
func numbered(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	byIndex := map[int]any{}
	for key, value := range m {
		m[key] = numbered(value)
		if n, err := strconv.Atoi(key); err == nil {
			byIndex[n] = m[key]
		}
	}
	if list, ok := m["member"].([]any); ok && len(m) == 1 {
		return list
	}
	if len(byIndex) < len(m) || len(m) == 0 {
		return m
	}
	var list []any
	for _, n := range sortedKeys(byIndex) {
		list = append(list, byIndex[n])
	}
	return list
}

// first returns the first problem; false if there is none.
func first(problems []shapeProblem) (p shapeProblem, wrong bool) {
	if len(problems) == 0 {
		return p, false
	}
	return problems[0], true
}

// decodeShape reads a tree of maps, lists and scalars into the struct that into points to, by the names of one tag,
// and returns all problems. Scalars may be strings: "8" is a number and "true" a boolean.
func decodeShape(tree map[string]any, into any, tag string) []shapeProblem {
	d := shapeDecoder{tag: tag}
	d.object(tree, reflect.ValueOf(into).Elem(), "")
	return d.problems
}

type shapeDecoder struct {
	tag      string
	problems []shapeProblem
}

func (d *shapeDecoder) wrong(path, want string) {
	d.problems = append(d.problems, shapeProblem{Path: path, Want: want})
}

// shapeField is one field of a shape, those of embedded structs included.
type shapeField struct {
	name     string
	required bool
	index    []int
	update   string
}

// shapeFields lists a shape's fields by the names of one tag.
func shapeFields(t reflect.Type, tag string) map[string]shapeField {
	fields := map[string]shapeField{}
	for _, f := range reflect.VisibleFields(t) {
		text, tagged := f.Tag.Lookup(tag)
		cfn, isShape := f.Tag.Lookup("cfn")
		if !tagged {
			text = cfn
		}
		if f.Anonymous || !isShape {
			continue
		}
		name, _, _ := strings.Cut(text, ",")
		fields[name] = shapeField{name: name, required: strings.HasSuffix(cfn, ",required"), index: f.Index, update: f.Tag.Get("update")}
	}
	return fields
}

func (d *shapeDecoder) object(v any, into reflect.Value, path string) {
	tree, ok := v.(map[string]any)
	if !ok {
		d.wrong(path, "Object")
		return
	}
	fields := shapeFields(into.Type(), d.tag)
	for _, key := range sortedKeys(tree) {
		at := strings.TrimPrefix(path+"."+key, ".")
		f, known := fields[key]
		if !known {
			d.problems = append(d.problems, shapeProblem{Path: at, Unknown: true})
			continue
		}
		d.value(tree[key], into.FieldByIndex(f.index), at)
	}
	for _, name := range sortedKeys(fields) {
		if _, given := tree[name]; fields[name].required && !given {
			d.problems = append(d.problems, shapeProblem{Path: strings.TrimPrefix(path+"."+name, "."), Missing: true})
		}
	}
}

func (d *shapeDecoder) value(v any, into reflect.Value, path string) {
	switch into.Kind() {
	case reflect.Interface:
		into.Set(reflect.ValueOf(v))
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(v, into.Elem(), path)
	case reflect.Struct:
		d.object(v, into, path)
	case reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			d.wrong(path, "List")
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		for i, item := range list {
			d.value(item, into.Index(i), path)
		}
	default:
		d.scalar(v, into, path)
	}
}

func (d *shapeDecoder) scalar(v any, into reflect.Value, path string) {
	text, ok := scalarText(v)
	if !ok {
		d.wrong(path, "String")
		return
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			d.wrong(path, "Boolean")
		}
		into.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			d.wrong(path, "Integer")
		}
		into.SetInt(int64(n))
	default:
		panic(fmt.Sprintf("a shape has no fields of type %s", into.Type()))
	}
}

// scalarText is a scalar as a text; false for lists and maps.
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool, int, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}
