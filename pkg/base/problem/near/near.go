// Package near suggests the name that was probably meant, for a misspelled one.
//
// Its rule: it only suggests; a name that is like none of the candidates gets no suggestion.
package near

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// To returns the candidate most similar to name, or "" if none is similar: at most two letters differ, or more than
// half are the same.
func To(name string, candidates []string) string {
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

// Typo returns the candidate that differs from name in one letter, or in the order of two, or "": so near that the name is
// more likely a slip than a name of its own.
func Typo(name string, candidates []string) string {
	letters := func(s string) string { return string(slices.Sorted(slices.Values([]rune(s)))) }
	const shortest = 3 // any two letters are near
	for _, c := range candidates {
		if len(name) < shortest || len(c) < shortest {
			continue
		}
		switch levenshtein.Distance(name, c, nil) {
		case 1:
			return c
		case 2: // two letters changed places
			if letters(name) == letters(c) {
				return c
			}
		}
	}
	return ""
}

// DidYouMean returns the hint for an unknown name, or "" if there is nothing to suggest.
func DidYouMean(name string, candidates []string) string {
	if best := To(name, candidates); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// Field returns a function that makes the hint for an unknown field of one of the types ("spec.Network"): the most
// similar field, or the list of all.
func Field(types ...reflect.Type) func(name, typeName string) string {
	return func(name, typeName string) string {
		for _, t := range types {
			if t.String() != typeName {
				continue
			}
			fields := fieldNames(t)
			if hint := DidYouMean(name, fields); hint != "" {
				return hint
			}
			return "there are " + strings.Join(fields, ", ")
		}
		return ""
	}
}

// fieldNames lists the YAML names of a type's fields, in order.
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
