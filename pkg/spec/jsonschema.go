package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
)

// jsonSchema is a JSON Schema, or a part of one.
type jsonSchema = map[string]any

// schemaMaker makes the schema for a minor version of Kubernetes.
type schemaMaker struct {
	*upstream
	version string
}

// schemaDialect is what editors know best: the language server for YAML that they share reads it, and later ones only in part.
const schemaDialect = "http://json-schema.org/draft-07/schema#"

// JSONSchema returns the JSON Schema (draft 7) of a document of a Kubernetes minor version, such as 1.36, for editors and for programs
// that write documents. It knows every field, flag and field of a configuration document, and the values of those that have a few. What
// depends on other fields, as the sizes of address ranges, only Parse and Complete check.
func JSONSchema(version string) ([]byte, error) {
	u, err := readUpstream(version)
	if err != nil {
		return nil, err
	}
	m := schemaMaker{upstream: u, version: version}
	own := m.object("", reflect.TypeFor[Cluster]())
	own["$schema"] = schemaDialect
	own["title"] = "a cluster of Hardtack, with Kubernetes " + version
	properties := own["properties"].(jsonSchema)
	properties["version"] = versionSchema(version)
	for _, c := range components {
		properties[c.name] = m.component(c, properties[c.name])
	}
	data, err := json.MarshalIndent(own, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the schema: %w", err)
	}
	return append(data, '\n'), nil
}

// versionSchema takes the version as text, and as the number that YAML makes of it without quotes.
func versionSchema(version string) jsonSchema {
	out := jsonSchema{"description": fieldTexts()["version"], "enum": []any{version, json.Number(version)}}
	if version == DefaultVersion {
		out["enum"] = append(out["enum"].([]any), nil) // left out, it is this one
	}
	return out
}

// needed are the fields without which a document, or an object of a list, is refused.
func needed(version string) map[string][]string {
	top := []string{"apiVersion", "kind", "name"}
	if version != DefaultVersion {
		top = append(top, "version")
	}
	return map[string][]string{
		"": top, "groups[]": {"name", "roles"}, "fileAssets[]": {"path"}, "hooks[]": {"name", "manifest"}, "additionalUserData[]": {"name"}, "aws.podRoles[]": {"name"}, "machines.kernelModules[]": {"name"}, "registries[]": {"name"},
	}
}

// choices are the values of fields that have a few, as the checks of a document have them.
func choices(path string) []string {
	path = strings.TrimSuffix(path, "[]")
	switch {
	case path == "apiVersion":
		return []string{APIVersion}
	case path == "kind":
		return []string{Kind}
	case path == "arch":
		return architectures
	case path == "podSecurity":
		return podSecurityLevels
	case path == "aws.loadBalancer":
		return loadBalancers
	case path == "etcd.storage":
		return machine.Storages()
	case path == "groups[].node.naming":
		return namings
	case path == "groups[].aws.spot.allocation":
		return allocations
	case strings.HasPrefix(path, "groups[].aws.notices."):
		return notice.Actions
	}
	return nil
}

// object is the schema of an object of Hardtack's own fields.
func (m schemaMaker) object(path string, t reflect.Type) jsonSchema {
	properties := jsonSchema{}
	for name, field := range fieldTypes(t) {
		if field == reflect.TypeFor[Component]() {
			properties[name] = jsonSchema{} // JSONSchema writes it
			continue
		}
		at := join(path, name)
		property := m.value(at, field)
		property["description"] = fieldTexts()[at]
		properties[name] = property
	}
	out := jsonSchema{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if path == "" {
		out["type"] = "object"
	}
	if names := needed(m.version)[path]; names != nil {
		out["required"] = names
	}
	return out
}

// value is the schema of a value of Hardtack's own. Null is as if the field were left out.
func (m schemaMaker) value(path string, t reflect.Type) jsonSchema {
	switch t.Kind() {
	case reflect.Pointer:
		return m.value(path, t.Elem())
	case reflect.Int:
		return jsonSchema{"type": []string{"integer", "null"}}
	case reflect.Bool:
		return jsonSchema{"type": []string{"boolean", "null"}}
	case reflect.Slice:
		return jsonSchema{"type": []string{"array", "null"}, "items": m.value(path+"[]", t.Elem())}
	case reflect.Struct:
		return m.object(path, t)
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return jsonSchema{"type": []string{"object", "null"}, "additionalProperties": jsonSchema{"type": "string"}}
		}
		return jsonSchema{"type": []string{"object", "null"}}
	}
	if values := toAny(choices(path)); values != nil {
		if !slices.Contains(needed(m.version)[""], path) && !strings.HasSuffix(path, "[]") {
			values = append(values, "", nil) // as if it were left out
		}
		return jsonSchema{"enum": values}
	}
	return jsonSchema{"type": []string{"string", "null"}}
}

func toAny(values []string) (out []any) {
	for _, v := range values {
		out = append(out, v)
	}
	return out
}

// component is the schema of a component's overrides; own has its fields beside these, as etcd has some.
func (m schemaMaker) component(c component, own any) jsonSchema {
	properties, ok := own.(jsonSchema)["properties"].(jsonSchema)
	if !ok {
		properties = jsonSchema{}
	}
	flags := jsonSchema{}
	for name, f := range m.Flags[c.name] {
		text := "--" + name + " of " + m.program(c) + ", of the type " + f.Type
		if f.Default != "" {
			text += "; upstream's default is " + f.Default
		}
		flags[name] = jsonSchema{"description": text}
	}
	properties["flags"] = jsonSchema{"description": "the flags of " + m.program(c) + " by name, without dashes; null is upstream's default",
		"type": []string{"object", "null"}, "properties": flags, "additionalProperties": false}
	config := jsonSchema{"description": "merged into the configuration document of " + m.program(c) + "; null is upstream's default", "type": []string{"object", "null"}}
	document, has := m.Documents[c.name]
	switch {
	case has && len(document.Fields) > 0:
		maps.Copy(config, document.jsonSchema(""))
	case !has && c.documentPath == "":
		config = jsonSchema{"description": m.program(c) + " has no configuration document", "type": "null"}
	}
	properties["config"] = config
	return jsonSchema{"description": "overrides of " + m.program(c), "type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

// jsonSchema is the schema of the object at a path of a configuration document.
func (s schema) jsonSchema(path string) jsonSchema {
	if kind, open := s.Fields[strings.TrimPrefix(path+".*", ".")]; open {
		return jsonSchema{"type": []string{"object", "null"}, "additionalProperties": s.valueSchema(strings.TrimPrefix(path+".*", "."), kind)}
	}
	names := s.names(path)
	properties := jsonSchema{}
	for _, name := range names {
		below := strings.TrimPrefix(path+"."+name, ".")
		properties[name] = s.valueSchema(below, s.Fields[below])
	}
	if path == "" { // every document may say what it is
		properties["apiVersion"], properties["kind"] = jsonSchema{}, jsonSchema{}
	}
	out := jsonSchema{"type": []string{"object", "null"}}
	if len(names) > 0 {
		out["properties"], out["additionalProperties"] = properties, false
	}
	return out
}

// valueSchema is the schema of a value of upstream's type, which takes what schema.value takes.
func (s schema) valueSchema(path, kind string) jsonSchema {
	switch {
	case kind == "map":
		return s.jsonSchema(path)
	case kind == "list":
		return jsonSchema{"type": []string{"array", "null"}, "items": s.valueSchema(path+"[]", s.Fields[path+"[]"])}
	case kind == "bool":
		return jsonSchema{"type": []string{"boolean", "null"}}
	case strings.HasPrefix(kind, "int") && kind != "int or string", strings.HasPrefix(kind, "uint"):
		return jsonSchema{"type": []string{"integer", "null"}}
	case strings.HasPrefix(kind, "float"):
		return jsonSchema{"type": []string{"number", "null"}}
	case kind == "quantity":
		return jsonSchema{"type": []string{"string", "number", "null"}}
	case slices.Contains([]string{"string", "duration", "time", "bytes"}, kind):
		return jsonSchema{"type": []string{"string", "null"}}
	}
	return jsonSchema{}
}
