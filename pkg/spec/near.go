package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// near returns the candidate that is most like name, or "" where none is like it at all: within two
// letters, or more than half the same.
func near(name string, candidates []string) string {
	const alike, letters = 0.6, 2
	best, score := "", 0.0
	for _, c := range candidates {
		if s := levenshtein.Match(strings.ToLower(name), strings.ToLower(c), nil); s > score {
			best, score = c, s
		}
	}
	if score < alike && (len(name) <= letters || levenshtein.Distance(name, best, nil) > letters) {
		return ""
	}
	return best
}

// didYouMean is the hint for a name that is not known.
func didYouMean(name string, candidates []string) string {
	if best := near(name, candidates); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// documented are the types of a document, for hints about their fields.
func documented() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[Cluster](), reflect.TypeFor[API](), reflect.TypeFor[Network](), reflect.TypeFor[GroupSpec](),
		reflect.TypeFor[Node](), reflect.TypeFor[Component](), reflect.TypeFor[FileAsset](), reflect.TypeFor[Hook](),
		reflect.TypeFor[UserDataPart](),
	}
}

// nearestField is the hint for a field that a type ("spec.Network") does not have.
func nearestField(name, typeName string) string {
	for _, t := range documented() {
		if t.String() != typeName {
			continue
		}
		fields := fieldNames(t)
		if hint := didYouMean(name, fields); hint != "" {
			return hint
		}
		return "there are " + strings.Join(fields, ", ")
	}
	return ""
}

// fieldNames lists the names of a type's fields in a document, in the type's order.
func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(f.Tag.Get("yaml"), ",inline"):
			names = append(names, fieldNames(f.Type)...)
		case name != "":
			names = append(names, name)
		}
	}
	return slices.Clip(names)
}
