// Package envfile parses files of variables as systemd's EnvironmentFile= does.
//
// Its rule: it implements systemd.exec(5), "EnvironmentFile=", and nothing else, so that a role file means the same to
// the agent and to the units. Variables are not expanded.
package envfile

import "strings"

// Variable is one assignment.
type Variable struct {
	Name, Value string
	// Line is the line of the assignment, from 1.
	Line int
}

// Variables are the assignments of a file in order. If a name is assigned twice, the last one counts.
type Variables []Variable

// Get returns the last value of a name, and false if the file does not assign it. An empty value counts as assigned.
func (v Variables) Get(name string) (value string, set bool) {
	for _, each := range v {
		if each.Name == name {
			value, set = each.Value, true
		}
	}
	return value, set
}

// state is the state of the parser: before or inside a name, a value or a comment, or after a backslash.
type state int

const (
	beforeName state = iota
	inName
	beforeValue
	inValue
	inValueEscape
	inSingle
	inDouble
	inDoubleEscape
	inComment
)

// reader parses a file byte by byte.
type reader struct {
	state       state
	name, value strings.Builder
	// blanks is the number of trailing blanks of the value, which are dropped outside quotes.
	blanks int
	line   int
	begun  int
	out    Variables
}

// Parse parses the text of a file. Lines that are not assignments are ignored, as systemd does.
func Parse(text string) Variables {
	r := reader{line: 1}
	for _, c := range []byte(text) {
		r.take(c)
		if c == '\n' {
			r.line++
		}
	}
	r.end()
	return r.out
}

func isBlank(c byte) bool   { return c == ' ' || c == '\t' || isNewline(c) }
func isNewline(c byte) bool { return c == '\n' || c == '\r' }

// take processes one byte. Quotes count at the beginning of a value, after white space and after another quoted part.
func (r *reader) take(c byte) {
	switch r.state {
	case beforeName:
		switch {
		case c == '#' || c == ';':
			r.state = inComment
		case !isBlank(c):
			r.state, r.begun = inName, r.line
			r.name.WriteByte(c)
		}
	case inName:
		switch {
		case isNewline(c):
			r.reset()
		case c == '=':
			r.state = beforeValue
		default:
			r.name.WriteByte(c)
		}
	case beforeValue:
		r.takeFirst(c)
	case inValue:
		switch {
		case isNewline(c):
			r.push()
		case c == '\\':
			r.state, r.blanks = inValueEscape, 0
		default:
			r.keep(c)
		}
	case inValueEscape:
		r.state = inValue
		if !isNewline(c) { // a line that ends in a backslash continues on the next
			r.keep(c)
			r.blanks = 0
		}
	case inSingle, inDouble, inDoubleEscape:
		r.takeQuoted(c)
	case inComment: // ends with the line, also after a backslash (systemd 257; 252 continued the comment)
		if isNewline(c) {
			r.state = beforeName
		}
	}
}

// takeFirst processes the first unquoted byte of a value.
func (r *reader) takeFirst(c byte) {
	switch {
	case isNewline(c):
		r.push()
	case c == '\'':
		r.state = inSingle
	case c == '"':
		r.state = inDouble
	case c == '\\':
		r.state = inValueEscape
	case !isBlank(c):
		r.state = inValue
		r.keep(c)
	}
}

func (r *reader) takeQuoted(c byte) {
	switch {
	case r.state == inDoubleEscape:
		r.state = inDouble
		if strings.IndexByte("\"\\`$", c) < 0 && c != '\n' {
			r.value.WriteByte('\\')
		}
		if c != '\n' {
			r.value.WriteByte(c)
		}
	case r.state == inSingle && c == '\'', r.state == inDouble && c == '"':
		r.state, r.blanks = beforeValue, 0
	case r.state == inDouble && c == '\\':
		r.state = inDoubleEscape
	default:
		r.value.WriteByte(c)
	}
}

// keep appends an unquoted byte to the value.
func (r *reader) keep(c byte) {
	r.value.WriteByte(c)
	if isBlank(c) {
		r.blanks++
	} else {
		r.blanks = 0
	}
}

func (r *reader) push() {
	value := r.value.String()
	r.out = append(r.out, Variable{strings.TrimRight(r.name.String(), " \t"), value[:len(value)-r.blanks], r.begun})
	r.reset()
}

func (r *reader) reset() {
	r.state, r.blanks = beforeName, 0
	r.name.Reset()
	r.value.Reset()
}

// end completes the last line if it has no newline. An open quote ends with the file.
func (r *reader) end() {
	switch r.state {
	case beforeValue, inValue, inValueEscape, inSingle, inDouble, inDoubleEscape:
		r.push()
	}
}
