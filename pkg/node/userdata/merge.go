package userdata

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// The merge types of cloud-init say how the cloud-config of one part is laid over that of the parts before it: one merger for
// each kind of value, with options. What each does is cloud-init's (cloudinit/mergers), also where it surprises.
//
// Stricter than cloud-init, which leaves a whole part out then and says so in its log only: a merger or an option that it does
// not have is an error, and so is a merge type without a dict.

// defaultText is the merge type of a part that names none, for findings. dict() alone would keep the earlier values: cloud-init's
// own default for parts of user data is another one than that of its mergers.
const defaultText = "dict(replace)+list()+str()"

// defaultMerge is the same as a value, so that most user data needs no reader of merge types.
var defaultMerge = merger{"dict": {"replace"}, "list": {}, "str": {}}

// merger is a merge type: for each kind of value its options, nil where it has no merger for the kind, whose earlier value is
// then kept.
type merger map[string][]string

// mergeOptions are the options of each merger.
var mergeOptions = map[string][]string{
	"dict": {"replace", "no_replace", "recurse_dict", "recurse_array", "recurse_list", "recurse_str", "allow_delete"},
	"list": {"append", "prepend", "replace", "no_replace", "recurse_dict", "recurse_array", "recurse_list", "recurse_str"},
	"str":  {"append", "replace"},
}

// has reports whether the merger of a kind has one of the options.
func (m merger) has(kind string, options ...string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return slices.Contains(m[kind], o) })
}

// recurses reports whether a merger goes on into two values, by the kind of the later one. That of dicts always goes on into
// dicts.
func (m merger) recurses(of string, later *yaml.Node) bool {
	switch kindOf(later) {
	case "dict":
		return of == "dict" || m.has(of, "recurse_dict")
	case "list":
		return m.has(of, "recurse_array", "recurse_list")
	case "str":
		return m.has(of, "recurse_str")
	}
	return false
}

// kindOf returns the kind of a value as the mergers have it, "" for numbers and the like. PyYAML takes yes and its kin for
// truth values.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "dict"
	case n.Kind == yaml.SequenceNode:
		return "list"
	case n.ShortTag() == "!!str":
		if n.Style == 0 && slices.Contains([]string{"yes", "no", "on", "off"}, strings.ToLower(n.Value)) {
			return ""
		}
		return "str"
	}
	return ""
}

// merging is the merge of one part.
type merging struct {
	merger
	p *parser
	// full: what was made goes over the bound.
	full bool
}

// nodeSize and itemSize are about what a mapping or a list takes of the bound, and each value in it, in bytes.
const (
	nodeSize = 256
	itemSize = 8
)

// fits reports whether more bytes are within the bound. It bounds the depth, too: aliases may nest without an end, or make a lot
// of little text.
func (m *merging) fits(n int) bool {
	m.full = m.full || !m.p.reserve(n)
	return !m.full
}

// merge returns what an earlier and a later value make. Neither is changed.
func (m *merging) merge(earlier, later *yaml.Node) *yaml.Node {
	earlier, later = resolve(earlier), resolve(later)
	kind := kindOf(earlier)
	if m.merger[kind] == nil {
		return earlier
	}
	if kind != "str" && !m.fits(nodeSize+itemSize*(len(earlier.Content)+len(later.Content))) {
		return later
	}
	switch kind {
	case "dict":
		return m.dicts(earlier, later)
	case "list":
		return m.lists(earlier, later)
	}
	if kindOf(later) != "str" || !m.has("str", "append") {
		return later
	}
	if !m.fits(len(earlier.Value) + len(later.Value)) {
		return later
	}
	joined := *earlier
	joined.Value += later.Value
	return &joined
}

func (m *merging) dicts(earlier, later *yaml.Node) *yaml.Node {
	if later.Kind != yaml.MappingNode {
		return earlier
	}
	out := *earlier
	out.Content = slices.Clone(earlier.Content)
	for i := 0; i+1 < len(later.Content); i += 2 {
		key, value := resolve(later.Content[i]), resolve(later.Content[i+1])
		at := keyAt(&out, key)
		switch {
		case at < 0:
			out.Content = append(out.Content, key, value)
		case isNull(value) && m.has("dict", "allow_delete"):
			out.Content = slices.Delete(out.Content, at, at+2)
		case m.has("dict", "replace"):
			out.Content[at+1] = value
		case m.recurses("dict", value):
			out.Content[at+1] = m.merge(out.Content[at+1], value)
		}
	}
	m.p.origins[&out] = m.p.origins[later]
	return &out
}

// keyAt returns where a mapping has a key, -1 if it does not.
func keyAt(n, key *yaml.Node) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := resolve(n.Content[i]); k.Value == key.Value && k.ShortTag() == key.ShortTag() {
			return i
		}
	}
	return -1
}

func (m *merging) lists(earlier, later *yaml.Node) *yaml.Node {
	if later.Kind != yaml.SequenceNode {
		if m.has("list", "append", "prepend", "no_replace") {
			return earlier
		}
		return later
	}
	out := *earlier
	switch {
	case m.has("list", "append"):
		out.Content = slices.Concat(earlier.Content, later.Content)
	case m.has("list", "prepend"):
		out.Content = slices.Concat(later.Content, earlier.Content)
	case m.has("list", "replace") || !m.has("list", "no_replace"):
		// Item by item, and the later list's items beyond the earlier one's length are lost.
		out.Content = slices.Clone(earlier.Content)
		for i := range min(len(out.Content), len(later.Content)) {
			if item := resolve(later.Content[i]); m.recurses("list", item) {
				out.Content[i] = m.merge(out.Content[i], item)
			} else {
				out.Content[i] = item
			}
		}
	}
	return &out
}

// mergeFiles lays the write_files of a part over those of the parts before it.
func (p *parser) mergeFiles(t part, keys []pair, list *yaml.Node) {
	for i, item := range list.Content {
		p.origins[resolve(item)] = origin{t, i}
	}
	how, text, at, err := mergeType(keys, t.merge)
	if err != nil {
		if at == nil {
			at = list
		}
		p.errorf(t, at, writeFiles, "%v: the default is %s, and list(append)+dict(recurse_array)+str() joins the lists", err, defaultText)
		return
	}
	if p.list == nil {
		p.list = list
		return
	}
	before := append(pathsOf(p.list), pathsOf(list)...)
	m := &merging{merger: how, p: p}
	switch {
	case how.has("dict", "replace"):
		p.list = list
	case how.recurses("dict", list):
		p.list = m.merge(p.list, list)
	}
	if m.full {
		p.errorf(t, list, writeFiles, "grows over the bound of %d bytes as it is merged, with each alias written out", MaxDecoded)
		return
	}
	after := pathsOf(p.list)
	lost := slices.DeleteFunc(before, func(name string) bool { return slices.Contains(after, name) })
	slices.Sort(lost)
	if lost = slices.Compact(lost); len(lost) == 0 {
		return
	}
	found := problem.Problem{File: t.name, Line: list.Line, Field: writeFiles, Severity: problem.Warning,
		Text: "replaces the write_files of the parts before it, so these are not written: " + shortList(lost),
		Hint: "give the part merge_how: list(append)+dict(recurse_array)+str() to keep both"}
	if text != "" {
		found.Text = fmt.Sprintf("with the merge type %s these are not written: %s", text, shortList(lost))
	}
	p.problems.Add(found)
}

// pathsOf lists the paths of a list of files, as far as it has any.
func pathsOf(list *yaml.Node) (paths []string) {
	for _, item := range list.Content {
		item = resolve(item)
		for i := 0; item.Kind == yaml.MappingNode && i+1 < len(item.Content); i += 2 {
			if value := resolve(item.Content[i+1]); resolve(item.Content[i]).Value == "path" && value.Kind == yaml.ScalarNode {
				paths = append(paths, value.Value)
			}
		}
	}
	return paths
}

// mergeSetting is one merger of a merge type, with its options.
type mergeSetting struct {
	name    string
	options []string
}

// mergeType returns the merge type of a part: the cloud-config's, and that of the header for the kinds that it leaves out.
// text is empty if the part has none; at is where it is, if in the cloud-config.
func mergeType(keys []pair, header string) (m merger, text string, at *yaml.Node, err error) {
	var all []mergeSetting
	for _, key := range []string{"merge_how", "merge_type"} {
		if n, ok := lookup(keys, key); ok && !isNull(n) {
			at = n
			if all, err = mergeNode(n); err != nil {
				return nil, "", at, fmt.Errorf("%s: %w", key, err)
			}
			break
		}
	}
	more, err := mergeText(header)
	if err != nil {
		return nil, "", nil, fmt.Errorf("the header Merge-Type: %w", err)
	}
	if all = append(all, more...); len(all) == 0 {
		return defaultMerge, "", at, nil
	}
	var texts []string
	for _, s := range all {
		texts = append(texts, s.name+"("+strings.Join(s.options, ",")+")")
	}
	text = strings.Join(texts, "+")
	m = merger{}
	for _, s := range all {
		known, ok := mergeOptions[s.name]
		if !ok {
			return nil, "", at, fmt.Errorf("merge type %s: %q is not known: dict, list and str are", text, s.name)
		}
		for _, o := range s.options {
			if !slices.Contains(known, o) {
				return nil, "", at, fmt.Errorf("merge type %s: %s has no option %q: it has %s", text, s.name, o, strings.Join(known, ", "))
			}
		}
		if m[s.name] == nil { // the first one of a kind counts
			m[s.name] = append([]string{}, s.options...)
		}
	}
	if m["dict"] == nil {
		return nil, "", at, fmt.Errorf("merge type %s has no dict(), without which nothing of the part would be used", text)
	}
	return m, text, at, nil
}

// mergeForm is compiled at its first use: most user data has one part.
var mergeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([a-z_][a-z0-9_]*)\((.*)\)$`) })

// mergeText reads a merge type as text: name(option,...)+name(...).
func mergeText(text string) (all []mergeSetting, err error) {
	for one := range strings.SplitSeq(text, "+") {
		one = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(one)), "-", "_")
		if one == "" {
			continue
		}
		found := mergeForm().FindStringSubmatch(one)
		if found == nil {
			return nil, fmt.Errorf("merge type %q: %q is not of the form name(option,...)", firstLine([]byte(text)), firstLine([]byte(one)))
		}
		s := mergeSetting{name: strings.TrimPrefix(found[1], "m_")}
		for o := range strings.SplitSeq(found[2], ",") {
			if o = strings.TrimSpace(o); o != "" {
				s.options = append(s.options, o)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// mergeNode reads the merge type of a cloud-config: text, or a list of {name, settings} or [name, option...].
func mergeNode(n *yaml.Node) (all []mergeSetting, err error) {
	if n.Kind == yaml.ScalarNode {
		return mergeText(n.Value)
	}
	form := errors.New("must be text such as list(append)+dict(recurse_array)+str(), or a list of {name: list, settings: [append]}")
	if n.Kind != yaml.SequenceNode {
		return nil, form
	}
	for _, item := range n.Content {
		var s struct {
			Name     string
			Settings *[]string
		}
		var words []string
		switch item = resolve(item); {
		case item.Decode(&words) == nil && len(words) > 0:
			s.Name, words = words[0], words[1:]
		case item.Decode(&s) == nil && s.Settings != nil:
			words = *s.Settings
		default:
			return nil, form
		}
		name := strings.TrimSpace(strings.ReplaceAll(s.Name, "-", "_"))
		all = append(all, mergeSetting{strings.TrimPrefix(name, "m_"), words})
	}
	return all, nil
}
