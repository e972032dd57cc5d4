package unit

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// scanner goes through a unit by the rules of systemd.syntax(7).
type scanner struct {
	file     string
	section  string
	options  []Option
	problems problem.List
	// pending is what continued lines have given so far, and the line it began on; 0 is none.
	pending     strings.Builder
	pendingLine int
}

// scan splits a unit into its assignments and their lines.
func scan(file string, data []byte) ([]Option, problem.List) {
	s := scanner{file: file}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		s.line(number, strings.TrimRight(line, "\r\n"))
	}
	if s.pendingLine > 0 {
		s.add(s.pendingLine, "the last line ends in a backslash, with nothing to continue")
	}
	return s.options, s.problems
}

func (s *scanner) add(line int, format string, args ...any) {
	s.problems.Add(problem.Problem{File: s.file, Line: line, Rule: "syntax", Text: fmt.Sprintf(format, args...)})
}

// line takes one line of the file: a comment, a part of a continued line, or a whole one.
func (s *scanner) line(number int, text string) {
	trimmed := strings.TrimLeft(text, " \t")
	if strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
		return // also inside a continued line, and whatever it ends in
	}
	if s.pendingLine == 0 {
		s.pendingLine = number
	}
	rest, continued := strings.CutSuffix(text, `\`)
	s.pending.WriteString(rest)
	if continued {
		s.pending.WriteByte(' ')
		return
	}
	start, joined := s.pendingLine, s.pending.String()
	s.pending.Reset()
	s.pendingLine = 0
	s.logical(start, strings.TrimSpace(joined))
}

// logical takes one joined line.
func (s *scanner) logical(number int, text string) {
	if text == "" {
		return
	}
	if strings.HasPrefix(text, "[") {
		name, ok := strings.CutSuffix(text[1:], "]")
		if !ok {
			s.add(number, "section header %q does not end in ]", text)
		}
		s.section = name
		return
	}
	name, value, ok := strings.Cut(text, "=")
	switch {
	case !ok:
		s.add(number, "%q is neither a section nor an assignment", text)
	case s.section == "":
		s.add(number, "assignment of %s= stands before any section", strings.TrimSpace(name))
	default:
		s.options = append(s.options, Option{
			Section: s.section, Name: strings.TrimSpace(name), Value: strings.TrimSpace(value),
			File: s.file, Line: number,
		})
	}
}
