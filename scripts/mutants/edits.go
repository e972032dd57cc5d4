package main

import (
	"cmp"
	"slices"
	"strings"
)

// edits are insertions into a text, around ranges that contain each other or are apart.
type edits struct{ ranges []insertion }

type insertion struct {
	start, end    int
	before, after string
}

// wrap puts before at start and after at end. Of two on one range the first is outside.
func (e *edits) wrap(start, end int, before, after string) {
	e.ranges = append(e.ranges, insertion{start, end, before, after})
}

// apply returns the text with all insertions.
func (e *edits) apply(text string) string {
	type mark struct {
		at, other, order int
		text             string
	}
	var opening, closing []mark
	for i, r := range e.ranges {
		opening = append(opening, mark{r.start, r.end, i, r.before})
		closing = append(closing, mark{r.end, r.start, i, r.after})
	}
	slices.SortFunc(opening, func(a, b mark) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.other, a.other), cmp.Compare(a.order, b.order))
	})
	slices.SortFunc(closing, func(a, b mark) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.other, a.other), cmp.Compare(b.order, a.order))
	})
	var b strings.Builder
	at := 0
	for len(opening) > 0 || len(closing) > 0 {
		next := &closing
		if len(opening) > 0 && opening[0].at < closing[0].at {
			next = &opening
		}
		m := (*next)[0]
		*next = (*next)[1:]
		b.WriteString(text[at:m.at])
		b.WriteString(m.text)
		at = m.at
	}
	b.WriteString(text[at:])
	return b.String()
}

// escape keeps code whole in a format.
func escape(code string) string { return strings.ReplaceAll(code, "%", "%%") }
