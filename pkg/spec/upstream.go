package spec

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// upstreamFiles holds what the programs of each Kubernetes minor version say of themselves: a file a
// minor, made from the real programs by TestUpstream (go test ./pkg/spec -run TestUpstream -update).
//
//go:embed upstream/*.json
var upstreamFiles embed.FS

// upstream is what is known about the programs of one minor version: their flags, and the fields of their documents.
type upstream struct {
	// Versions are the versions of the programs, by component of the lock.
	Versions map[string]string `json:"versions"`
	// Flags are by component of a document, and name.
	Flags map[string]map[string]UpstreamFlag `json:"flags"`
	// Documents are by component of a document.
	Documents map[string]schema `json:"documents"`
	// Gates are the feature gates, by component.
	Gates map[string][]string `json:"featureGates"`
}

// UpstreamFlag is one flag of a program.
type UpstreamFlag struct {
	// Type is the type in the program's --help; "bool" if it names none.
	Type string `json:"type"`
	// Default is the value of a flag that is not given, as it would be written.
	Default string `json:"default,omitempty"`
	// Note is empty, "deprecated", "document" (deprecated, since the configuration document has it) or
	// "ignored" (by a program that is given a configuration document).
	Note string `json:"note,omitempty"`
}

// The notes of a flag.
const (
	noteDeprecated = "deprecated"
	noteDocument   = "document"
	noteIgnored    = "ignored"
)

// schema is a configuration document's fields and defaults.
type schema struct {
	// Fields maps paths to types; [] is any item of a list, and * any key of a map. Empty where upstream
	// has no list of them, as containerd's plugins have none.
	Fields   map[string]string `json:"fields,omitempty"`
	Defaults map[string]any    `json:"defaults"`
}

// Versions lists the supported Kubernetes minor versions, the oldest first.
func Versions() []string {
	files, err := fs.Glob(upstreamFiles, "upstream/*.json")
	if err != nil { // only a malformed pattern can be
		return nil
	}
	var versions []string
	for _, f := range files {
		versions = append(versions, strings.TrimSuffix(path.Base(f), ".json"))
	}
	return versions
}

// readUpstream reads the file of a minor version.
func readUpstream(version string) (*upstream, error) {
	data, err := fs.ReadFile(upstreamFiles, "upstream/"+version+".json")
	if err != nil {
		return nil, fmt.Errorf("%q is none of the versions that this program knows: %s", version, strings.Join(Versions(), ", "))
	}
	var u upstream
	if err := json.Unmarshal(data, &u); err != nil {
		return nil, fmt.Errorf("reading upstream's flags and fields for Kubernetes %s: %w", version, err)
	}
	for name, s := range u.Documents {
		s.Defaults = plain(s.Defaults).(map[string]any)
		u.Documents[name] = s
	}
	u.Documents["flannel"] = schema{Fields: flannelFields} // no program says it
	return &u, nil
}

// program names a component's program and its version: "kube-apiserver v1.36.3".
func (u *upstream) program(c component) string { return c.executable + " " + u.Versions[c.release] }

// accumulates reports whether a flag of the type that is given twice has the values of both; for every
// other type the last one counts.
func accumulates(kind string) bool {
	switch kind {
	case "strings", "stringArray", "ints", "int32Slice", "namedCertKey", "mapStringString", "mapStringBool",
		"stringToString", "colonSeparatedMultimapStringString":
		return true
	}
	return false
}

// repeats reports whether a flag of the type is given once for each of its values.
func repeats(kind string) bool { return kind == "stringArray" || kind == "namedCertKey" }

// flagNames lists a component's flags, sorted.
func (u *upstream) flagNames(field string) []string {
	return slices.Sorted(maps.Keys(u.Flags[field]))
}
