package userdata

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// entry is one entry of write_files.
type entry struct {
	File
	deferred bool
	// part names where it was, for findings.
	part string
}

// entryKeys are the keys of an entry of write_files.
var entryKeys = []string{"path", "content", "encoding", "permissions", "owner", "append", "defer"}

// writeFile reads one entry. An entry with a finding is left out, and makes the whole an error.
func (p *parser) writeFile(t part, index int, n *yaml.Node) {
	field := fmt.Sprintf("%s[%d]", writeFiles, index)
	if n.Kind != yaml.MappingNode {
		p.errorf(t, n, field, "must be a mapping with a path, not %s", describe(n))
		return
	}
	before := len(p.problems)
	keys := p.pairs(t, n, field)
	var unknown []string
	for _, k := range keys {
		if k.name == "source" {
			p.errorf(t, k.value, join(field, k.name), "nothing is fetched at boot: give the content itself")
		} else if !slices.Contains(entryKeys, k.name) {
			unknown = append(unknown, k.name)
		}
	}
	get := func(key string) (*yaml.Node, string) {
		value, _ := lookup(keys, key)
		return value, join(field, key)
	}
	e := entry{part: t.name}
	where, at := get("path")
	e.Path = p.path(t, n, where, at)
	e.Mode = p.permissions(t, keys, field)
	owner, at := get("owner")
	e.User, e.Group = p.owner(t, owner, at)
	more, at := get("append")
	e.Append = p.boolean(t, more, at)
	late, at := get("defer")
	e.deferred = p.boolean(t, late, at)
	e.Content = p.content(t, keys, field)
	failed := len(p.problems) > before
	if len(unknown) > 0 {
		p.problems.Add(problem.Problem{File: t.name, Line: n.Line, Field: field, Severity: problem.Warning, Rule: RuleIgnored,
			Text: "keys that write_files does not have: " + shortList(unknown), Hint: "it has " + strings.Join(entryKeys, ", ")})
	}
	if !failed {
		p.entries = append(p.entries, e)
	}
}

// text returns the text of a scalar, "" for one that is not given. Numbers and the like are findings:
// what YAML makes of them is not what was written.
func (p *parser) text(t part, n *yaml.Node, field string) string {
	switch {
	case n == nil || isNull(n):
		return ""
	case n.Kind != yaml.ScalarNode:
		p.errorf(t, n, field, "must be text, not %s", describe(n))
		return ""
	case n.ShortTag() != "!!str":
		p.errorf(t, n, field, "must be text, not %s: put it in quotes", describe(n))
		return ""
	}
	return n.Value
}

func (p *parser) path(t part, item, n *yaml.Node, field string) string {
	if n == nil {
		p.errorf(t, item, field, "is missing")
		return ""
	}
	before := len(p.problems)
	name := p.text(t, n, field)
	switch {
	case len(p.problems) > before:
	case len(name) > MaxPath:
		p.errorf(t, n, field, "is longer than %d bytes", MaxPath)
	case !strings.HasPrefix(name, "/"):
		p.errorf(t, n, field, "must be absolute, not %q", firstLine([]byte(name)))
	case strings.HasSuffix(name, "/") || path.Clean(name) == "/":
		p.errorf(t, n, field, "%q is a directory", firstLine([]byte(name)))
	case strings.ContainsRune(name, 0):
		p.errorf(t, n, field, "%q has a zero byte", name)
	default:
		return path.Clean(name)
	}
	return ""
}

// permissions reads a mode. Text is octal. A bare number is the classic trap: YAML 1.1 takes 0644 as
// octal and 644 as decimal, which is mode 1204, so the latter is refused.
func (p *parser) permissions(t part, keys []pair, field string) fs.FileMode {
	n, ok := lookup(keys, "permissions")
	field = join(field, "permissions")
	if !ok || isNull(n) {
		return DefaultMode
	}
	if n.Kind != yaml.ScalarNode {
		p.errorf(t, n, field, "must be an octal mode such as \"0644\", not %s", describe(n))
		return 0
	}
	text := n.Value
	if tag := n.ShortTag(); tag != "!!str" && !strings.HasPrefix(text, "0") {
		p.errorf(t, n, field, "%s would be read as decimal: write the mode in quotes%s", firstLine([]byte(text)), meant(text))
		return 0
	}
	digits := strings.TrimPrefix(strings.TrimPrefix(text, "0o"), "0O")
	mode, err := strconv.ParseUint(digits, 8, 16)
	if err != nil || mode > 0o7777 {
		p.errorf(t, n, field, "%q is not an octal mode such as \"0644\"", firstLine([]byte(text)))
		return 0
	}
	return fs.FileMode(mode)
}

// meant is what to write for a mode that is a bare number: its digits, if they are octal, or the mode that it is as a decimal,
// which is what programs write that know no octal numbers, as JSON and Terraform do (420 is 0644).
func meant(text string) string {
	var modes []string
	if _, err := strconv.ParseUint(text, 8, 12); err == nil {
		modes = append(modes, fmt.Sprintf("%q", "0"+text))
	}
	if n, err := strconv.ParseUint(text, 10, 12); err == nil {
		modes = append(modes, fmt.Sprintf("%q if it was converted to a decimal", fmt.Sprintf("%04o", n)))
	}
	if len(modes) == 0 {
		return ""
	}
	return ", " + strings.Join(modes, ", or ")
}

// owner splits "user:group"; a user alone keeps root's group, as with cloud-init.
func (p *parser) owner(t part, n *yaml.Node, field string) (user, group string) {
	text := p.text(t, n, field)
	if text == "" {
		return "", ""
	}
	user, group, _ = strings.Cut(text, ":")
	if strings.ContainsAny(text, " \t\r\n/\x00") || strings.Contains(group, ":") || user == "" && group == "" {
		p.errorf(t, n, field, "%q is not of the form user:group", firstLine([]byte(text)))
	}
	return user, group
}

// boolean reads a truth value in the spellings of YAML 1.1, which is what cloud-init reads.
func (p *parser) boolean(t part, n *yaml.Node, field string) bool {
	if n == nil || isNull(n) {
		return false
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if !quoted {
		switch strings.ToLower(n.Value) {
		case "true", "yes", "on":
			return true
		case "false", "no", "off":
			return false
		}
	}
	p.errorf(t, n, field, "must be true or false, not %s", describe(n))
	return false
}

// content decodes the content of an entry by its encoding.
func (p *parser) content(t part, keys []pair, field string) []byte {
	n, _ := lookup(keys, "content")
	how, _ := lookup(keys, "encoding")
	before := len(p.problems)
	encoding := strings.ToLower(strings.TrimSpace(p.text(t, how, join(field, "encoding"))))
	at := join(field, "content")
	if n == nil || isNull(n) {
		n = &yaml.Node{Kind: yaml.ScalarNode}
	}
	data, packed, err := []byte(n.Value), false, error(nil)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!binary" {
		data, err = decodeBase64(data)
	} else {
		p.text(t, n, at)
	}
	if len(p.problems) > before {
		return nil
	}
	switch encoding {
	case "", "text/plain":
	case "gz", "gzip":
		packed = true
	case "b64", "base64", "gz+b64", "gz+base64", "gzip+b64", "gzip+base64":
		packed = strings.HasPrefix(encoding, "g")
		if err == nil {
			data, err = decodeBase64(data)
		}
	default:
		p.errorf(t, how, join(field, "encoding"), "%q is not known: text/plain, b64, gz and gz+b64 are", firstLine([]byte(encoding)))
		return nil
	}
	if err != nil {
		p.errorf(t, n, at, "decoding base64: %v", err)
		return nil
	}
	return p.unpack(t, n, at, data, packed)
}

// unpack counts content against the bound, after undoing gzip.
func (p *parser) unpack(t part, n *yaml.Node, field string, data []byte, packed bool) []byte {
	if !packed {
		if !p.reserve(len(data)) {
			p.errorf(t, n, field, "the files come to more than %d bytes", MaxDecoded)
			return nil
		}
		return data
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = p.readAll(r)
	}
	if err != nil {
		p.errorf(t, n, field, "unpacking gzip: %v", err)
		return nil
	}
	return data
}
