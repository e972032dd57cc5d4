package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// document reads a configuration document of the image.
func (img *Image) document(name string) (map[string]any, error) {
	data, err := img.file(name)
	if err != nil {
		return nil, err
	}
	if isManifest(name) {
		return decodeObjects(data)
	}
	return decodeDocument(name, data)
}

// decodeObjects reads a manifest of several objects, each of another kind, by their kinds.
func decodeObjects(data []byte) (map[string]any, error) {
	out := map[string]any{}
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var object map[string]any
		switch err := dec.Decode(&object); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case object == nil:
			continue
		}
		kind, _ := object["kind"].(string)
		if _, again := out[kind]; kind == "" || again {
			return nil, fmt.Errorf("the kind %q is missing or there twice", kind)
		}
		out[kind] = plain(object)
	}
}

// objectOrder is in which order objects are applied: what others name comes first.
var objectOrder = []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap"}

// encodeObjects writes what decodeObjects reads.
func encodeObjects(objects map[string]any) ([]byte, error) {
	kinds := slices.SortedStableFunc(maps.Keys(objects), func(a, b string) int {
		rank := func(kind string) int {
			if i := slices.Index(objectOrder, kind); i >= 0 {
				return i
			}
			return len(objectOrder)
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	var b bytes.Buffer
	for i, kind := range kinds {
		if i > 0 {
			b.WriteString("---\n")
		}
		data, err := encodeYAML(objects[kind])
		if err != nil {
			return nil, err
		}
		b.Write(data)
	}
	return b.Bytes(), nil
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
	if isManifest(name) {
		return encodeObjects(value)
	}
	switch path.Ext(name) {
	case ".toml":
		return toml.Marshal(value)
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

// exact is up to where a float64 holds every whole number.
const exact = 1 << 53

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
	case int64:
		return int(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < exact {
			return int(v)
		}
	}
	return v
}
