package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// document is the configuration document of a component.
type document struct {
	// path is where it is on a machine; its suffix is its format.
	path string
	// bare is what the image has, value what it is to be.
	bare, value map[string]any
}

// documentFlags are the flags that name a component's configuration document.
var documentFlags = []string{"config", "net-config-path"}

// containerdConfig is where containerd looks when it is not told.
const containerdConfig = "/etc/containerd/config.toml"

// documentPath is the path of the component's configuration document, "" for one that has none.
func (p program) documentPath(field string) string {
	if field == "containerd" {
		return containerdConfig
	}
	for _, name := range documentFlags {
		if b, ok := p.flags[name]; ok && b.set {
			return b.value
		}
	}
	return ""
}

// derivedFields are the fields of documents that follow from the cluster.
func (f *completer) derivedFields() []derivation {
	n := f.out.Cluster.Network
	derived := []derivation{
		{"kubelet", "clusterDNS", []any{n.DNSAddress}, "network.dnsAddress"},
		{"kubelet", "clusterDomain", n.DNSDomain, "network.dnsDomain"},
		{"kubeProxy", "clusterCIDR", n.PodCIDR, "network.podCIDR"},
		{"flannel", "Network", n.PodCIDR, "network.podCIDR"},
	}
	return derived
}

// document lays the layers of a component's document over each other.
func (f *completer) document(p *part, given map[string]any) {
	name := p.program.documentPath(p.field)
	if name == "" {
		if len(given) > 0 {
			f.errorf(p.field+".config", "%s has no configuration document", p.field)
		}
		return
	}
	bare, err := f.out.image.document(name)
	if err != nil {
		f.errorf(p.field+".config", "reading the image's %s: %v", name, err)
		return
	}
	layers := layering{at: p.field + ".config", origins: f.out.Origins, value: map[string]any{}}
	layers.add(bare, Origin{Default, name})
	for _, d := range f.derivedFields() {
		if d.component == p.field {
			layers.add(map[string]any{d.name: d.value}, Origin{Derived, d.from})
		}
	}
	layers.add(plain(given).(map[string]any), Origin{Kind: User})
	p.document = &document{path: name, bare: bare, value: layers.value}
	f.out.Cluster.component(p.field).Config = layers.value
}

// document reads a configuration document of the image.
func (img *Image) document(name string) (map[string]any, error) {
	data, err := img.file(name)
	if err != nil {
		return nil, err
	}
	return decodeDocument(name, data)
}

// decodeDocument reads a document by its suffix. What it returns has maps with text keys, lists, text,
// numbers and truth values, and nothing else.
func decodeDocument(name string, data []byte) (map[string]any, error) {
	out := map[string]any{}
	var err error
	if path.Ext(name) == ".toml" {
		err = toml.Unmarshal(data, &out)
	} else { // JSON is YAML
		err = yaml.Unmarshal(data, &out)
	}
	if err != nil {
		return nil, err
	}
	return plain(out).(map[string]any), nil
}

// encodeDocument writes a document by its suffix.
func encodeDocument(name string, value map[string]any) ([]byte, error) {
	switch path.Ext(name) {
	case ".toml":
		var b bytes.Buffer
		enc := toml.NewEncoder(&b)
		enc.SetIndentTables(false)
		err := enc.Encode(value)
		return b.Bytes(), err
	case ".json":
		data, err := json.MarshalIndent(value, "", "  ")
		return append(data, '\n'), err
	}
	return encodeYAML(value)
}

func encodeYAML(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(value), enc.Close())
	return b.Bytes(), err
}

// plain makes one kind of each value, so that values from different decoders can be compared.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = plain(value)
		}
		return out
	case map[any]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[fmt.Sprint(key)] = plain(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = plain(item)
		}
		return out
	case []string:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = item
		}
		return out
	case int64:
		return int(v)
	case uint64:
		return int(v)
	}
	return v
}

// layering is a document that layers are added to.
type layering struct {
	at      string
	origins map[string]Origin
	value   map[string]any
}

// add lays one layer over what is there: maps are merged, everything else is replaced, and null takes
// away. What does not change keeps its origin.
func (l layering) add(layer map[string]any, o Origin) {
	l.merge(l.at, l.value, layer, o)
}

func (l layering) merge(field string, into, layer map[string]any, o Origin) {
	for _, key := range slices.Sorted(maps.Keys(layer)) {
		at, value := join(field, key), layer[key]
		old, had := into[key]
		deep, isMap := value.(map[string]any)
		switch {
		case value == nil && !had:
		case value == nil:
			l.forget(at)
			delete(into, key)
		case isMap && len(deep) > 0:
			below, ok := old.(map[string]any)
			if !ok {
				l.forget(at)
				below = map[string]any{}
				into[key] = below
			}
			delete(l.origins, at)
			l.merge(at, below, deep, o)
		case had && reflect.DeepEqual(old, value):
		default:
			l.forget(at)
			into[key] = value
			l.origins[at] = o
		}
	}
}

// forget drops the origins of a value and of all below it.
func (l layering) forget(field string) {
	for key := range l.origins {
		if rest, ok := cutPath(key, field); ok && rest != key {
			delete(l.origins, key)
		}
	}
}

// cutPath reports whether key is field or below it.
func cutPath(key, field string) (rest string, ok bool) {
	if len(key) < len(field) || key[:len(field)] != field {
		return key, false
	}
	rest = key[len(field):]
	return rest, rest == "" || rest[0] == '.' || rest[0] == '['
}
