package userdata

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// valueOf reads one YAML document.
func valueOf(t *testing.T, text string) *yaml.Node {
	t.Helper()
	n, err := decodeYAML([]byte(text))
	if err != nil || n == nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// textOf writes a value in one line, without anchors, and with all texts in quotes.
func textOf(n *yaml.Node) string {
	n = resolve(n)
	var all []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			all = append(all, textOf(n.Content[i])+": "+textOf(n.Content[i+1]))
		}
		return "{" + strings.Join(all, ", ") + "}"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			all = append(all, textOf(item))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	if n.ShortTag() == "!!str" {
		return strconv.Quote(n.Value)
	}
	return n.Value
}

// mergerOf reads a merge type; one that says nothing of dicts has dict().
func mergerOf(t *testing.T, text string) merger {
	t.Helper()
	if !strings.Contains(text, "dict(") {
		text += "+dict()"
	}
	m, _, _, err := mergeType(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMergers: what an earlier and a later value make is what the mergers of cloud-init 22.4 make of them
// (cloudinit/mergers/m_dict.py, m_list.py and m_str.py), row by row.
func TestMergers(t *testing.T) {
	tests := []struct{ how, earlier, later, want string }{
		// Without an option a mapping keeps what it has, and goes on into mappings only.
		{"dict()", "{a: 1, b: 2}", "{b: 3, c: 4}", "{a: 1, b: 2, c: 4}"},
		{"dict()", "{a: {b: 1}}", "{a: {b: 2, c: 3}}", "{a: {b: 1, c: 3}}"},
		{"dict()+list(append)", "{a: [1]}", "{a: [2]}", "{a: [1]}"},
		{"dict()+str(append)", "{a: x}", "{a: y}", "{a: x}"},
		{"dict(no_replace)", "{a: 1}", "{a: 2}", "{a: 1}"},
		{"dict(replace)", "{a: 1, b: 2}", "{b: 3, c: 4}", "{a: 1, b: 3, c: 4}"},
		{"dict(replace)", "{a: 1, b: 2}", "{a: 3}", "{a: 3, b: 2}"},
		{"dict(replace)", "{a: {b: 1}}", "{a: {c: 2}}", "{a: {c: 2}}"},
		{"dict(no_replace,replace)", "{a: 1}", "{a: 2}", "{a: 2}"},
		{"dict(replace)", "{a: 1}", "[a, 2]", "{a: 1}"},
		{"dict(replace)", "{a: 1}", "x", "{a: 1}"},
		{"dict(recurse_array)+list(append)", "{a: [1, 2]}", "{a: [3]}", "{a: [1, 2, 3]}"},
		{"dict(recurse_list)+list(append)", "{a: [1, 2]}", "{a: [3]}", "{a: [1, 2, 3]}"},
		{"dict(recurse_array)", "{a: [1, 2]}", "{a: [3]}", "{a: [1, 2]}"},
		{"dict(recurse_array)+list(append)", "{a: 1}", "{a: [3]}", "{a: 1}"},
		{"dict(recurse_array)+str()", "{a: x}", "{a: [3]}", "{a: [3]}"},
		{"dict(recurse_str)+str(append)", "{a: x}", "{a: y}", "{a: xy}"},
		{"dict(recurse_str)+str()", "{a: x}", "{a: y}", "{a: y}"},
		{"dict(recurse_str)+str()", "{a: x}", "{a: 1}", "{a: x}"},
		{"dict(recurse_str)+str()", "{a: 1}", "{a: x}", "{a: 1}"},
		{"dict()+str()", "{a: x}", "{a: {b: 1}}", "{a: {b: 1}}"},
		// Numbers and the like have no merger.
		{"dict(recurse_str,recurse_array)+list()+str()", "{a: 1}", "{a: 2}", "{a: 1}"},
		{"dict()+list()+str()", "1", "x", "1"},
		{"dict()+list()", "x", "y", "x"},
		// PyYAML's truth values are no texts, but in quotes.
		{"dict(recurse_str)+str()", "{a: x}", "{a: yes}", "{a: x}"},
		{"dict(recurse_str)+str()", "{a: x}", "{a: Off}", "{a: x}"},
		{"dict(recurse_str)+str()", "{a: x}", "{a: 'on'}", "{a: \"on\"}"},
		// A key of which the later value is null is deleted.
		{"dict(allow_delete)", "{a: 1, b: 2, c: 3}", "{b: null}", "{a: 1, c: 3}"},
		{"dict(allow_delete)", "{a: 1, b: 2}", "{b: 3}", "{a: 1, b: 2}"},
		{"dict(allow_delete)", "{a: 1}", "{b: null}", "{a: 1, b: null}"},
		{"dict(allow_delete,replace)", "{a: 1, b: 2}", "{a: null, b: 3}", "{b: 3}"},
		{"dict(replace)", "{a: 1}", "{a: null}", "{a: null}"},
		{"dict()", "{a: 1}", "{a: null}", "{a: 1}"},
		{"dict(replace)", "{1: a}", "{'1': b}", "{1: a, \"1\": b}"},
		// A list is replaced item by item, as far as it goes.
		{"list()", "[1, 2]", "[3]", "[3, 2]"},
		{"list()", "[1]", "[2, 3]", "[2]"},
		{"list(replace)", "[1, 2]", "[3]", "[3, 2]"},
		{"list(no_replace)", "[1, 2]", "[3]", "[1, 2]"},
		{"list(no_replace,replace)", "[1, 2]", "[3]", "[3, 2]"},
		{"list(append)", "[1, 2]", "[3]", "[1, 2, 3]"},
		{"list(prepend)", "[1, 2]", "[3]", "[3, 1, 2]"},
		{"list(prepend,append)", "[1, 2]", "[3]", "[1, 2, 3]"},
		{"list(replace,prepend)", "[1, 2]", "[3]", "[3, 1, 2]"},
		{"list()", "[1]", "{a: 1}", "{a: 1}"},
		{"list()", "[1]", "x", "x"},
		{"list(no_replace)", "[1]", "x", "[1]"},
		{"list()+dict()", "[{a: 1}]", "[{b: 2}]", "[{b: 2}]"},
		{"list(recurse_dict)+dict()", "[{a: 1}]", "[{b: 2}]", "[{a: 1, b: 2}]"},
		{"list(recurse_dict)+dict()", "[x]", "[{b: 2}]", "[x]"},
		{"list()", "[[1, 2]]", "[[3]]", "[[3]]"},
		{"list(recurse_array)", "[[1, 2]]", "[[3]]", "[[3, 2]]"},
		{"list(recurse_list)", "[[1, 2]]", "[[3]]", "[[3, 2]]"},
		{"list()+str(append)", "[a]", "[b]", "[b]"},
		{"list(recurse_str)+str(append)", "[a]", "[b]", "[ab]"},
		{"list(recurse_str)+str(append)", "[a]", "[1]", "[1]"},
		{"list(no_replace,recurse_str)+str(append)", "[a]", "[b]", "[a]"},
		{"str()", "x", "y", "y"},
		{"str(replace)", "x", "y", "y"},
		{"str(append)", "x", "y", "xy"},
		{"str()", "x", "[1]", "[1]"},
		// cloud-init ends with an error here, and writes nothing; what comes of it is refused as the content of a file.
		{"dict()+str(append)", "{a: x}", "{a: {b: 1}}", "{a: {b: 1}}"},
		// An alias is what it stands for, and what it stands for stays.
		{"dict(recurse_array)+list(append)", "{a: &x [1], b: *x}", "{b: [2]}", "{a: [1], b: [1, 2]}"},
		{"dict(recurse_array)+list(append)", "{a: [1]}", "{b: &x [2], a: *x}", "{a: [1, 2], b: [2]}"},
		{"list(recurse_dict)+dict(replace)", "[&x {a: 1}, *x]", "[{b: 2}, {c: 3}]", "[{a: 1, b: 2}, {a: 1, c: 3}]"},
		{"dict(replace)", "{&x a: 1, b: 2}", "{y: &x b, *x : 3}", "{a: 1, b: 3, y: b}"},
	}
	for _, test := range tests {
		earlier, later := valueOf(t, test.earlier), valueOf(t, test.later)
		before := textOf(earlier) + textOf(later)
		m := &merging{merger: mergerOf(t, test.how), p: &parser{left: MaxDecoded, origins: map[*yaml.Node]origin{}}}
		got := m.merge(earlier, later)
		if text := textOf(got); text != textOf(valueOf(t, test.want)) || m.full {
			t.Errorf("%s of %s and %s: %s, want %s", test.how, test.earlier, test.later, text, test.want)
		}
		if after := textOf(earlier) + textOf(later); after != before {
			t.Errorf("%s of %s and %s changed them: %s", test.how, test.earlier, test.later, after)
		}
	}
}

// TestMergeBound: texts that are joined count against the bound, both of them, as far as it goes.
func TestMergeBound(t *testing.T) {
	for left, fits := range map[int]bool{5: true, 4: false} {
		m := &merging{merger: mergerOf(t, "str(append)+list(recurse_str)"), p: &parser{left: left}}
		if got := m.merge(valueOf(t, "abc"), valueOf(t, "de")); m.full == fits || (got.Value == "abcde") != fits || fits && m.p.left != 0 {
			t.Errorf("%d left: %s, full %v, %d left then", left, got.Value, m.full, m.p.left)
		}
		if !fits {
			if m.merge(valueOf(t, "a"), valueOf(t, "b")); !m.full {
				t.Error("not full any more, by what is short enough")
			}
		}
	}
}

// TestMergeType: the merge type of a part is that of its key, and of its header for the kinds that the key leaves out, in all
// spellings of cloud-init (cloudinit/mergers/__init__.py).
func TestMergeType(t *testing.T) {
	joins := merger{"list": {"append"}, "dict": {"recurse_array"}}
	tests := map[string]struct {
		keys, header string
		want         merger
	}{
		"none":                  {"a: b", "", defaultMerge},
		"the default":           {"a: b", defaultText, defaultMerge},
		"empty text":            {"merge_how: ''", " + ", defaultMerge},
		"null":                  {"merge_how: null", "", defaultMerge},
		"text":                  {"merge_how: list(append)+dict(recurse_array)", "", joins},
		"merge_type":            {"merge_type: list(append)+dict(recurse_array)", "", joins},
		"merge_how counts":      {"{merge_type: dict(replace)+str(), merge_how: list(append)+dict(recurse_array)}", "", joins},
		"null and merge_type":   {"{merge_how: null, merge_type: list(append)+dict(recurse_array)}", "", joins},
		"header":                {"a: b", "list(append)+dict(recurse_array)", joins},
		"key before header":     {"merge_how: list(append)+dict(recurse_array)", "list(prepend)+dict(replace)", joins},
		"header for the rest":   {"merge_how: list(append)", "list(prepend)+dict(recurse_array)", joins},
		"spelling":              {"merge_how: '+ M_List( Append, ) + DICT(recurse-array) +'", "", joins},
		"options":               {"merge_how: 'dict(recurse_list, allow_delete)'", "", merger{"dict": {"recurse_list", "allow_delete"}}},
		"a kind twice":          {"merge_how: list(append)+dict(recurse_array)+list(prepend)+dict()", "", joins},
		"a kind without twice":  {"merge_how: dict()+list()+dict(replace)", "", merger{"dict": {}, "list": {}}},
		"mappings":              {"merge_how: [{name: ' m-list ', settings: [append]}, {name: dict, settings: [recurse_array]}]", "", joins},
		"mapping, no option":    {"merge_how: [{name: dict, settings: []}]", "", merger{"dict": {}}},
		"lists":                 {"merge_how: [[list, append], [dict, recurse_array]]", "", joins},
		"list, no option":       {"merge_how: [[m_dict]]", "", merger{"dict": {}}},
		"aliases":               {"{x: &x [list, append], merge_how: [*x, [dict, recurse_array]]}", "", joins},
		"a list beside header":  {"merge_how: [[list, append]]", "dict(recurse_array)", joins},
		"every option of dicts": {"merge_how: dict(" + strings.Join(mergeOptions["dict"], ",") + ")", "", merger{"dict": mergeOptions["dict"]}},
	}
	for name, test := range tests {
		p := &parser{}
		got, text, _, err := mergeType(p.pairs(part{}, valueOf(t, test.keys), ""), test.header)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n-want +got\n%s", name, err, diff)
		}
		if named := name != "none" && name != "null" && name != "empty text"; named != (text != "") {
			t.Errorf("%s: text %q", name, text)
		}
	}
}

// TestMergeTypeRefused: where cloud-init leaves out the part, or passes over what it does not know, there is an error at the
// line of the key, or at that of write_files if the key has no part in it.
func TestMergeTypeRefused(t *testing.T) {
	const end = "\nwrite_files: [{path: /etc/sysconfig/kubernetes-minions}]\n"
	for name, test := range map[string]struct {
		part partOf
		line int
	}{
		"no form":               {config("#\nmerge_how: append" + end), 2},
		"no form beside a form": {config("merge_how: dict()+append" + end), 1},
		"unknown merger":        {config("#\nmerge_how: dict()+set()" + end), 2},
		"unknown option":        {config("#\nmerge_how: dict(sometimes)" + end), 2},
		"another's option":      {config("merge_how: dict()+str(prepend)" + end), 1},
		"no dict":               {config("#\nmerge_type: list(append)" + end), 2},
		"a number":              {config("merge_how: 5" + end), 1},
		"a mapping":             {config("merge_how: {name: dict, settings: []}" + end), 1},
		"an empty mapping":      {config("merge_how: {}" + end), 1},
		"a text as a list":      {config("merge_how: !!str [dict]" + end), 1},
		"texts":                 {config("merge_how: ['dict()']" + end), 1},
		"an empty list":         {config("merge_how: [[dict], []]" + end), 1},
		"a list in a list":      {config("merge_how: [[dict, [replace]]]" + end), 1},
		"no settings":           {config("merge_how: [{name: dict}]" + end), 1},
		"settings as text":      {config("merge_how: [{name: dict, settings: replace}]" + end), 1},
		"null":                  {config("merge_how: [[dict], null]" + end), 1},
		"header, no form":       {partOf{"Content-Type: text/cloud-config\nMerge-Type: append", "hostname: x" + end}, 2},
		"header, no dict":       {partOf{"Content-Type: text/cloud-config\nMerge-Type: list()", "hostname: x" + end}, 2},
		"header beside a key":   {partOf{"Content-Type: text/cloud-config\nMerge-Type: append", "merge_how: dict()\n" + end}, 3},
	} {
		// The first part's counts for nothing, and is read nevertheless: it may be the second tomorrow.
		for _, first := range []bool{true, false} {
			parts := []partOf{config(roleFile("etcd")), test.part}
			file := "part 2"
			if first {
				parts, file = parts[1:], "part 1"
			}
			_, findings := Parse([]byte(messageOf(parts...)), nil)
			if err := findings.Err(); err == nil || findings[len(findings)-1].Line != test.line ||
				findings[len(findings)-1].File != file || findings[len(findings)-1].Field != writeFiles {
				t.Errorf("%s: %v, want line %d", name, findings, test.line)
			}
		}
	}
}

// TestMergeFiles: the part that loses files of the parts before it names them, each once and in order, and a finding about an
// entry names the part that it is from.
func TestMergeFiles(t *testing.T) {
	tests := map[string]struct {
		first, second string
		files         string   // the paths, with what they contain
		findings      []string // in each the place of a finding, and what it says
	}{
		"replaced": {
			"x: &a {path: /a, owner: path}\nwrite_files: [{path: /c}, {path: /b, content: x}, *a, *a, {path: [/d]}]",
			"#\nwrite_files: [{path: /b}]", "/b:",
			[]string{"part 1: warning: keys",
				"part 2:2: write_files: warning: replaces the write_files of the parts before it, so these are not written: /a, /c ("},
		},
		"kept": {
			"write_files: [{path: /a}]", "#\nmerge_how: dict()\nwrite_files: [{path: /b}, {path: /a}]",
			"/a:", []string{"part 2:3: write_files: warning: with the merge type dict() these are not written: /b ("},
		},
		"without a merger of lists": {
			"write_files: [{path: /a}]", "merge_how: dict(recurse_array)+str()\nwrite_files: [{path: /b}]",
			"/a:", []string{"part 2:2: write_files: warning: with the merge type dict(recurse_array)+str() these are not written: /b ("},
		},
		"nothing lost": {"write_files: [{path: /a, content: x}]", "write_files: [{path: /a, content: y}]", "/a:y", nil},
		"joined":       {"write_files: [{path: /a}]", "merge_how: dict(recurse_array)+list(append)\nwrite_files: [{path: /b}]", "/a: /b:", nil},
		"nothing before it": {
			"hostname: x", "merge_how: dict()\nwrite_files: [{path: /b}]",
			"/b:", []string{"part 1: warning: keys"},
		},
		"entries' own parts": {
			"#\nwrite_files:\n- {path: /a}\n- {path: b}", "merge_how: dict(recurse_array)+list(append)\nwrite_files:\n- {path: /c}\n- {path: d}",
			"/a: /c:", []string{"part 1:4: write_files[1].path", "part 2:4: write_files[1].path"},
		},
		// What is made of two entries is known by the later one, and has its first line from the earlier one.
		"an entry of two": {
			"#\nwrite_files:\n- {path: /a, x: y}", "merge_how: dict(recurse_array)+list(recurse_dict)\nwrite_files:\n- {content: x}",
			"/a:x", []string{"part 2:3: write_files[0]: warning: keys"},
		},
		"texts of two entries": {
			"write_files: [{path: /a, content: x}]",
			"merge_how: dict(recurse_array,recurse_str)+list(recurse_dict)+str(append)\nwrite_files: [{content: y}]",
			"/a:xy", nil,
		},
	}
	for name, test := range tests {
		data := messageOf(config(test.first), config(test.second), config(roleFile("minions")))
		result, findings := Parse([]byte(data), nil)
		var files []string
		for _, f := range result.Files[:max(0, len(result.Files)-1)] {
			files = append(files, f.Path+":"+string(f.Content))
		}
		good := len(findings) == len(test.findings) && result.Roles.String() == "minions"
		for i, want := range test.findings {
			good = good && strings.HasPrefix(findings[i].String(), want)
		}
		if got := strings.Join(files, " "); !good || got != test.files {
			t.Errorf("%s: files %s of %s, want %s; findings %v", name, got, result.Roles, test.files, findings)
		}
	}
}

// TestMergeGrows: parts that add to a text again and again are within the bound of all that is decoded, too.
func TestMergeGrows(t *testing.T) {
	const joins = "merge_how: dict(recurse_array,recurse_str)+list(recurse_dict)+str(append)\n"
	more := config(joins + "write_files: [{content: " + strings.Repeat("x", 15<<10) + "}]")
	for n, over := range map[int]bool{2: false, 5: true} {
		parts := []partOf{config("write_files: [{path: /a, content: x}]")}
		for range n {
			parts = append(parts, more)
		}
		p := &parser{left: 350 << 10, origins: map[*yaml.Node]origin{}}
		p.part(part{name: topName, data: []byte(messageOf(parts...))})
		got := p.problems.Err()
		if (got != nil) != over || over && (len(p.problems) != 1 || !strings.Contains(got.Error(), "write_files: grows over")) {
			t.Errorf("%d parts: %.300v", n, p.problems)
		}
	}
}

// TestMergeAliases: aliases that contain themselves, and those by which little text is a lot, are over the bound, and come to an end
// at once; those that are in use are not.
func TestMergeAliases(t *testing.T) {
	const recurses = "merge_how: dict(recurse_array)+list(recurse_list,recurse_dict)\n"
	doubled := "x0: &x0 [a]\n"
	for i := range 60 {
		doubled += fmt.Sprintf("x%d: &x%d [*x%d, *x%d]\n", i+1, i+1, i, i)
	}
	doubled += "write_files: *x60\n"
	wide := func(anchored string) string {
		return "x: &x [" + anchored + "]\nwrite_files: [" + strings.Repeat("*x, ", 20000) + "]\n"
	}
	for name, test := range map[string]struct {
		first, second string
		over          bool
	}{
		"a list in itself":      {"write_files: &a [*a]\n", "write_files: &a [*a]\n", true},
		"a mapping in itself":   {"write_files: &a [{x: *a}]\n", "write_files: &a [{x: *a}]\n", true},
		"a circle of two sizes": {"write_files: &a [*a]\n", "write_files: &a [[[*a]]]\n", true},
		"doubled":               {doubled, doubled, true},
		"long lists":            {wide(strings.Repeat("a, ", 20000)), wide("a"), true},
		"an end":                {"write_files: &a [*a]\n", "write_files: [[[a]]]\n", false},
		"entries":               {wide("[{path: /a}]"), "x: &x {content: y}\nwrite_files: [*x, *x, *x]\n", false},
	} {
		p := &parser{left: MaxDecoded, origins: map[*yaml.Node]origin{}}
		p.part(part{name: topName, data: []byte(messageOf(config(test.first), config(recurses+test.second)))})
		err := p.problems.Err()
		if over := err != nil && strings.Contains(err.Error(), "write_files: grows over"); over != test.over {
			t.Errorf("%s: %.300v", name, p.problems)
		}
	}
}
