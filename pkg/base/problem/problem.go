// Package problem collects findings about input: the place, the problem and the next step.
//
// Its rule: a check reports every finding it has, each with its position, instead of stopping at the
// first; only the caller decides whether a list of findings is an error.
package problem

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Severity says whether a finding makes the input unusable.
type Severity string

// The severities: an Error makes the input unusable, a Warning does not.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one finding: an error or a warning.
type Problem struct {
	// File is the file that was read; empty if there is none.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 means the whole file.
	Line int `json:"line,omitempty"`
	// Field is the path inside the document ("components[3].files[0].mode"), or empty.
	Field    string   `json:"field,omitempty"`
	Severity Severity `json:"severity"`
	// Rule is the short, stable name of the check that found it, for filters; may be empty.
	Rule string `json:"rule,omitempty"`
	// Text says what is wrong, in the lower case of an error text.
	Text string `json:"text"`
	// Hint says what to do next, or is empty.
	Hint string `json:"hint,omitempty"`
}

// String prints "file:line: field: text (hint)", leaving out what is not set.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	if p.Severity == Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Text)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// List is a list of findings. The zero value is empty and ready to use.
type List []Problem

// Add appends a finding; an unset severity becomes Error.
func (l *List) Add(p Problem) {
	p.Severity = cmp.Or(p.Severity, Error)
	*l = append(*l, p)
}

// Errorf appends an error about file and field (either may be empty).
func (l *List) Errorf(file, field, format string, args ...any) {
	l.Add(Problem{File: file, Field: field, Text: fmt.Sprintf(format, args...)})
}

// Sort orders the findings by file, line, field and text, so that output does not depend on the
// order of the checks.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Text, b.Text))
	})
}

// Err returns nil when no finding is an error, else one error whose text is every error, a line each.
func (l List) Err() error {
	var lines []string
	for _, p := range l {
		if p.Severity != Warning {
			lines = append(lines, p.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}
