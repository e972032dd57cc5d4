package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// values splits the text of a flag that is given once for each value; any other flag has one.
func (u UpstreamFlag) values(text string) []string {
	switch {
	case !repeats(u.Type):
		return []string{text}
	case text == "":
		return []string{}
	}
	return []string{text}
}

// check reports a value that the flag's type does not take. What the program makes of it beyond that is
// the program's matter.
func (u UpstreamFlag) check(value string) error {
	var err error
	if strings.Contains(value, memberParameter) {
		return nil
	}
	switch u.Type {
	case "bool":
		_, err = strconv.ParseBool(value)
	case "int", "int32", "Level":
		_, err = strconv.ParseInt(value, 0, 64)
	case "uint":
		_, err = strconv.ParseUint(value, 0, 64)
	case "float", "float32":
		_, err = strconv.ParseFloat(value, 64)
	case "duration":
		_, err = time.ParseDuration(value)
	case "ip":
		if value != "" {
			_, err = netip.ParseAddr(value)
		}
	}
	if err != nil {
		return fmt.Errorf("%q is no value for a flag of the type %s", value, u.Type)
	}
	return nil
}

// plain is the flag's value as a document has it.
func (f flag) plain() any {
	if repeats(f.upstream.Type) && len(f.values) != 1 {
		out := make([]any, len(f.values))
		for i, v := range f.values {
			out[i] = v
		}
		return out
	}
	text := f.text()
	switch f.upstream.Type {
	case "bool":
		if b, err := strconv.ParseBool(text); err == nil && strconv.FormatBool(b) == text {
			return b
		}
	case "int", "int32", "uint", "Level":
		if n, err := strconv.Atoi(text); err == nil && strconv.Itoa(n) == text {
			return n
		}
	}
	return text
}

// text is the flag's value for people.
func (f flag) text() string { return strings.Join(f.values, " ") }

// words are the words of a command line that give the flag, for the machine of a member.
func (f flag) words(name, member string) []string {
	words := make([]string, len(f.values))
	for i, v := range f.values {
		words[i] = "--" + name + "=" + strings.ReplaceAll(v, memberParameter, member)
	}
	return words
}

// texts are the texts of several values.
func texts(items []any) ([]string, error) {
	out := make([]string, len(items))
	for i, item := range items {
		var err error
		if out[i], err = flagText(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// flagText is the text of a flag's value as it stands on a command line: lists are joined by commas, and
// so are the pairs of a map.
func flagText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("a flag is one line of text")
		}
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case []any:
		items, err := texts(v)
		return strings.Join(items, ","), err
	case map[string]any:
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, err := flagText(v[key])
			if err != nil {
				return "", err
			}
			pairs = append(pairs, key+"="+text)
		}
		return strings.Join(pairs, ","), nil
	case nil:
		return "", nil
	}
	return "", fmt.Errorf("%v is no value of a flag: text, a number, true or false, or a list or map of these", v)
}
