package awsfake

import (
	"fmt"
	"strings"
)

// normalName spells a domain name as Route 53 keeps it: lower case, final dot, and every character
// but letters, digits, hyphen and underscore as an octal escape (Developer Guide, "DNS domain name
// format"). The problem is empty for a name that Route 53 takes.
func normalName(name string) (normal, problem string) {
	labels, problem := splitName(name)
	if problem != "" {
		return "", problem
	}
	var b strings.Builder
	length := 0
	for _, label := range labels {
		if len(label) > 63 {
			return "", fmt.Sprintf("FATAL problem: DomainLabelTooLong (Domain label is too long) encountered with '%s'", name)
		}
		length += len(label) + 1
		for _, c := range label {
			writeNameByte(&b, c)
		}
		b.WriteByte('.')
	}
	if length > 255 {
		return "", fmt.Sprintf("FATAL problem: DomainNameTooLong (Domain name is too long) encountered with '%s'", name)
	}
	if len(labels) == 0 {
		return ".", ""
	}
	return b.String(), ""
}

func writeNameByte(b *strings.Builder, c byte) {
	switch {
	case c >= 'A' && c <= 'Z':
		b.WriteByte(c + 'a' - 'A')
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		b.WriteByte(c)
	default:
		fmt.Fprintf(b, `\%03o`, c)
	}
}

// splitName reads the labels of a name, with its escapes resolved.
func splitName(name string) (labels [][]byte, problem string) {
	rest := strings.TrimSuffix(name, ".")
	if rest == "" {
		if name == "." {
			return nil, ""
		}
		return nil, "FATAL problem: DomainLabelEmpty (Domain label is empty) encountered with '" + name + "'"
	}
	label := []byte{}
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\':
			escaped, ok := octal(rest[i+1:])
			if !ok {
				return nil, "FATAL problem: InvalidEscape (Value contains an invalid escape) encountered with '" + name + "'"
			}
			label = append(label, escaped)
			i += 3
		case c == '.':
			if len(label) == 0 {
				return nil, "FATAL problem: DomainLabelEmpty (Domain label is empty) encountered with '" + name + "'"
			}
			labels, label = append(labels, label), []byte{}
		case c <= ' ' || c >= 0x7f:
			return nil, "FATAL problem: UnsupportedCharacter (Value contains unsupported characters) encountered with '" + name + "'"
		default:
			label = append(label, c)
		}
	}
	if len(label) == 0 {
		return nil, "FATAL problem: DomainLabelEmpty (Domain label is empty) encountered with '" + name + "'"
	}
	return append(labels, label), ""
}

// octal reads the three digits of an escape.
func octal(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s[:3]) {
		if c < '0' || c > '7' {
			return 0, false
		}
		n = n*8 + int(c-'0')
	}
	return byte(n), n < 256
}

// compareNames is Route 53's order of names: by the labels reversed, "k8s.demo.masters.", with the
// final dot, which sorts after a hyphen.
func compareNames(a, b string) int {
	for a != b {
		var x, y string
		a, x = cutLast(a)
		b, y = cutLast(b)
		if x != y {
			return strings.Compare(x+".", y+".")
		}
		if a == "" || b == "" {
			return len(a) - len(b)
		}
	}
	return 0
}

// cutLast cuts the last label off.
func cutLast(name string) (rest, label string) {
	name = strings.TrimSuffix(name, ".")
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

// compareSets is Route 53's order of listing: reversed name, then type.
func compareSets(a, b RecordSet) int {
	if a.Name != b.Name {
		return compareNames(a.Name, b.Name)
	}
	return strings.Compare(a.Type, b.Type)
}

// within reports whether name is the zone or below it.
func within(name, zone string) bool {
	return name == zone || strings.HasSuffix(name, "."+zone)
}
