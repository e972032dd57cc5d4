package spec

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// document is the configuration document of a component.
type document struct {
	// path is where it is on a machine; its suffix is its format.
	path string
	// image is the image's document, value has every field; null is a field without a value.
	image, value map[string]any
	// defaults are upstream's.
	defaults map[string]any
}

// documentFlags are the flags that name a component's configuration document.
var documentFlags = []string{"config", "net-config-path"}

// The directories of the manifests that the agent applies, as pkg/node/addons has them: the image's, and the one whose
// files replace those of the same name. The document of a component that runs in pods is such a manifest, by the kinds
// of its objects.
const (
	imageAddons   = "/usr/lib/hardtack/addons"
	replaceAddons = "/etc/hardtack/addons"
	// optionalAddons, below the first, has those that a document chooses.
	optionalAddons = "optional"
)

// isManifest reports whether a document is a manifest of several objects.
func isManifest(name string) bool {
	return path.Dir(name) == imageAddons || path.Dir(name) == replaceAddons
}

// imageDocument is the path of the component's configuration document in the image, or "" if it has none.
func (r *resolved) imageDocument() string {
	for _, name := range documentFlags {
		if b, ok := r.program.flags[name]; ok && b.set {
			return b.value
		}
	}
	return r.documentPath
}

// derivedFields are the fields of documents that follow from the cluster.
func (f *completer) derivedFields() []derivation {
	n := f.out.Cluster.Network
	return []derivation{
		{"kubelet", "clusterDNS", []any{n.DNSAddress}, "network.dnsAddress", false},
		{"kubelet", "clusterDomain", n.DNSDomain, "network.dnsDomain", false},
		{"kubeProxy", "clusterCIDR", n.PodCIDR, "network.podCIDR", false},
		{"flannel", "Network", n.PodCIDR, "network.podCIDR", false},
	}
}

// document lays the layers of a component's document over each other.
func (f *completer) document(p *resolved, given map[string]any) {
	field := p.name + ".config"
	name := p.imageDocument()
	if name == "" {
		if len(given) > 0 {
			f.errorf(field, "%s has no configuration document", p.name)
		}
		return
	}
	bare, err := f.image.document(name)
	if err != nil {
		f.errorf(field, "reading the image's %s: %v", name, err)
		return
	}
	s := f.upstream.Documents[p.name]
	written := plain(given).(map[string]any)
	f.fields(field, s, "", written)
	upstream := Origin{Default, f.upstream.program(p.component)}
	l := layering{origins: f.out.Origins, value: map[string]any{}, defaults: s.Defaults}
	l.merge(field, l.value, s.skeleton(), upstream)
	l.merge(field, l.value, bare, Origin{Default, name})
	for _, m := range machine.AllComputed() {
		if _, said := bare[m.Name]; m.IsField && m.Component == p.name && !said {
			l.origins[join(field, m.Name)] = Origin{ByMachine, m.Rule}
		}
	}
	for _, d := range f.derivedFields() {
		if d.component == p.name {
			// Also where the image happens to say the same: it would follow.
			l.value[d.name], l.origins[join(field, d.name)] = d.value, Origin{Derived, d.from}
		}
	}
	l.merge(field, l.value, f.documentBySize(p.name), Origin{Derived, "groups"})
	l.overlay(field, l.value, written, s.Defaults)
	if isManifest(name) {
		name = path.Join(replaceAddons, path.Base(name))
	}
	p.document = &document{path: name, image: bare, value: l.value, defaults: s.Defaults}
	p.overrides(&f.out.Cluster.Components).Config = l.value
}

// file is the document as it is written, and whether it says something else than the image's does. What
// the image does not say and is upstream's own default is left to upstream.
func (d document) file() (value map[string]any, differs bool) {
	value = prune(d.value, d.image, d.defaults)
	return value, !reflect.DeepEqual(value, d.image)
}

// prune drops values that are null, and values that equal the default and are not in the image's document.
func prune(value, bare, defaults map[string]any) map[string]any {
	out := map[string]any{}
	for key, v := range value {
		below, isMap := v.(map[string]any)
		inBare, _ := bare[key].(map[string]any)
		inDefaults, _ := defaults[key].(map[string]any)
		def, known := defaults[key]
		_, said := bare[key]
		switch {
		case v == nil:
		case isMap && len(below) > 0:
			if kept := prune(below, inBare, inDefaults); len(kept) > 0 {
				out[key] = kept
			}
		case known && !said && reflect.DeepEqual(v, def):
		default:
			out[key] = v
		}
	}
	return out
}

// layering is a document that layers are added to.
type layering struct {
	origins  map[string]Origin
	value    map[string]any
	defaults map[string]any
}

// merge adds one layer: maps are merged, and every other value is replaced. A value that does not change keeps its
// origin.
func (l layering) merge(field string, into, layer map[string]any, o Origin) {
	for _, key := range slices.Sorted(maps.Keys(layer)) {
		at, value := join(field, key), layer[key]
		if deep, ok := value.(map[string]any); ok && len(deep) > 0 {
			l.merge(at, l.below(at, into, key), deep, o)
			continue
		}
		l.set(at, into, key, value, o)
	}
}

// overlay adds the document's values over everything else, as merge does, except that null is upstream's default.
func (l layering) overlay(field string, into, layer, defaults map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(layer)) {
		at, value := join(field, key), layer[key]
		deep, isMap := value.(map[string]any)
		inDefaults, _ := defaults[key].(map[string]any)
		switch {
		case value == nil && inDefaults != nil:
			l.forget(at)
			delete(into, key)
			l.merge(field, into, map[string]any{key: inDefaults}, Origin{Kind: User})
		case value == nil:
			l.set(at, into, key, defaults[key], Origin{Kind: User})
		case isMap && len(deep) > 0:
			l.overlay(at, l.below(at, into, key), deep, inDefaults)
		default:
			l.set(at, into, key, value, Origin{Kind: User})
		}
	}
}

// below is the map under a key; what stands there and is none is replaced.
func (l layering) below(at string, into map[string]any, key string) map[string]any {
	old, had := into[key]
	deep, ok := old.(map[string]any)
	if !ok || len(deep) == 0 {
		if had {
			l.forget(at)
		}
		deep = map[string]any{}
		into[key] = deep
	}
	return deep
}

func (l layering) set(at string, into map[string]any, key string, value any, o Origin) {
	old, had := into[key]
	if had && reflect.DeepEqual(old, value) {
		return
	}
	if had {
		l.forget(at)
	}
	into[key] = value
	l.origins[at] = o
}

// forget drops the origins of a value and of all below it.
func (l layering) forget(field string) {
	for key := range l.origins {
		if within(key, field) {
			delete(l.origins, key)
		}
	}
}

// within reports whether a path is field or below it.
func within(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
