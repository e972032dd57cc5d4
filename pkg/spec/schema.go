package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
)

// flannelFields are the fields of flannel's network configuration, for the backends that are in the image
// (https://github.com/flannel-io/flannel/blob/v0.28.4/Documentation/configuration.md, and backends.md
// beside it). flannel itself passes over fields that it does not know.
var flannelFields = map[string]string{
	"Network": "string", "EnableNFTables": "bool", "EnableIPv4": "bool", "EnableIPv6": "bool", "IPv6Network": "string",
	"SubnetLen": "int", "SubnetMin": "string", "SubnetMax": "string",
	"IPv6SubnetLen": "int", "IPv6SubnetMin": "string", "IPv6SubnetMax": "string",
	"Backend": "map", "Backend.Type": "string", "Backend.VNI": "int", "Backend.Port": "int", "Backend.GBP": "bool",
	"Backend.DirectRouting": "bool", "Backend.MTU": "int", "Backend.MacPrefix": "string",
}

// skeleton is every field of the document: upstream's default, or null where it has none.
func (s schema) skeleton() map[string]any {
	out := plain(s.Defaults).(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(s.Fields)) {
		if strings.Contains(path, "[]") || strings.Contains(path, "*") || s.isStruct(path) {
			continue
		}
		names := strings.Split(path, ".")
		into := out
		for _, name := range names[:len(names)-1] {
			deep, ok := into[name].(map[string]any)
			if !ok {
				deep = map[string]any{}
				into[name] = deep
			}
			into = deep
		}
		if _, ok := into[names[len(names)-1]]; !ok {
			into[names[len(names)-1]] = nil
		}
	}
	return out
}

// isStruct reports whether a field is an object with known fields.
func (s schema) isStruct(path string) bool {
	if s.Fields[path] != "map" {
		return false
	}
	_, open := s.Fields[path+".*"]
	return !open
}

// fields checks the document's values against the schema.
func (f *completer) fields(field string, s schema, path string, written map[string]any) {
	if len(s.Fields) == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(written)) {
		at, below := join(field, key), key
		if path != "" {
			below = path + "." + key
		}
		if _, ok := s.Fields[path+".*"]; ok {
			below = path + ".*"
		}
		kind, ok := s.Fields[below]
		if !ok {
			if path == "" && (key == "apiVersion" || key == "kind") {
				continue
			}
			f.hint(at, near.DidYouMean(key, s.names(path)), "there is no such field")
			continue
		}
		f.value(at, s, below, kind, written[key])
	}
}

// value checks one value against its type.
func (f *completer) value(field string, s schema, path, kind string, value any) {
	ok := true
	switch v := value.(type) {
	case nil:
	case map[string]any:
		if ok = kind == "map"; ok {
			f.fields(field, s, path, v)
		}
		ok = ok || kind == "any"
	case []any:
		if ok = kind == "list"; ok {
			for i, item := range v {
				f.value(at(field, i), s, path+"[]", s.Fields[path+"[]"], item)
			}
		}
		ok = ok || kind == "any"
	case string:
		ok = slices.Contains([]string{"string", "quantity", "duration", "time", "bytes", "any", "int or string"}, kind)
		if _, err := time.ParseDuration(v); kind == "duration" && err != nil {
			ok = false
		}
	case bool:
		ok = kind == "bool" || kind == "any"
	case int:
		ok = strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") || strings.HasPrefix(kind, "float") || kind == "quantity" || kind == "any"
	case float64:
		ok = strings.HasPrefix(kind, "float") || kind == "quantity" || kind == "any"
	}
	if !ok {
		f.errorf(field, "%v is not of the type %s", short(value), kind)
	}
}

// short is a value as a message can show it.
func short(v any) string {
	text := fmt.Sprintf("%v", v)
	if s, ok := v.(string); ok {
		text = fmt.Sprintf("%q", s)
	}
	if len(text) > 60 {
		return text[:60] + "…"
	}
	return text
}

// names are the names of the fields directly below a path.
func (s schema) names(path string) []string {
	prefix := ""
	if path != "" {
		prefix = path + "."
	}
	var names []string
	for p := range s.Fields {
		if rest, ok := strings.CutPrefix(p, prefix); ok && !strings.ContainsAny(rest, ".[*") {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return names
}
