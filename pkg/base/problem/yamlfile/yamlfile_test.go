package yamlfile_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// document has a field of every kind that documents have.
type document struct {
	Number int
	Yes    bool
	Text   string
	Share  float64
	List   []string
	Any    map[string]any
	Part   part
	Parts  []part
}

type part struct{ Size *int }

// TestAdd: findings name the line where people see the fault, and say what is there and what belongs there.
func TestAdd(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		// What the library's parser says; it counts lines from 0.
		"a key among items":         {"number: 1\nlist:\n - a\n text: b\n", "f:3: did not find expected '-' indicator (a line here or below is indented unlike its block)"},
		"a key too far left":        {"part:\n  size: 1\n text: a\n", "f:3: did not find expected key (a line here or below is indented unlike its block)"},
		"a key between":             {"number: 1\nparts:\n- size: 1\n  list: [a]\n size: 3\n", "f:5: did not find expected key (a line here or below is indented unlike its block)"},
		"a list that is not closed": {"number: 1\nlist: [a\ntext: b\n", "f:2: did not find expected ',' or ']'"},
		"a bracket too many":        {"number: 1\ntext: ]\n", "f:2: did not find expected node content"},
		"in the first line":         {"]\n", "f:1: did not find expected node content"},
		// What its scanner says; it counts from 1.
		"a tab":                       {"part:\n\tsize: 1\n", "f:2: found character that cannot start any token"},
		"two colons":                  {"number: 1\ntext: a: b\n", "f:2: mapping values are not allowed in this context"},
		"no colon":                    {"number: 1\nlist:\n- a\nb\n", "f:4: could not find expected ':'"},
		"a text that is not closed":   {"number: 1\ntext: \"a\nlist: []\n", "f:2: found unexpected end of stream"},
		"a character in line 1":       {"text: @a\n", "f:1: found character that cannot start any token"},
		"what has no line of its own": {"number: 1\ntext: *a\n", "f: unknown anchor 'a' referenced"},
		// Values of the wrong kind.
		"a list for a mapping":      {"text: a\npart: [1]\n", "f:2: part: is a list, a mapping is expected"},
		"a list for any mapping":    {"any: [1]\n", "f:1: any: is a list, a mapping is expected"},
		"a text for a list":         {"list: a\n", `f:1: list: is "a", a list is expected`},
		"a long text for a list":    {"list: abcdefghijkl\n", `f:1: list: is "abcdefg...", a list is expected`},
		"a mapping for a text":      {"text: {}\n", "f:1: text: is a mapping, text is expected"},
		"a text for a number":       {"parts:\n- size: 1\n- size: many\n", `f:3: parts[1].size: is "many", a whole number is expected`},
		"a number for yes or no":    {"yes: 3\n", `f:1: yes: is "3", true or false is expected`},
		"a text for a share":        {"share: half\n", `f:1: share: is "half", a number is expected`},
		"a list for the document":   {"- a\n", "f:1: is a list, a mapping is expected"},
		"two of a kind in a line":   {"parts: [{size: a}, {size: a}]\n", "f:1: is \"a\", a whole number is expected\nf:1: is \"a\", a whole number is expected"},
		"a field that there is not": {"number: 1\nnumbr: 2\n", `f:2: field "numbr" is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			var root yaml.Node
			var found problem.List
			if err := yaml.Unmarshal([]byte(tt.text), &root); err != nil {
				yamlfile.Add(&found, "f", "", err, nil, nil)
			} else if err := strict(tt.text); err != nil {
				yamlfile.Add(&found, "f", "", err, &root, nil)
			}
			if err := found.Err(); err == nil || err.Error() != tt.want {
				t.Errorf("%v, want\n%s", err, tt.want)
			}
		})
	}
}

func strict(text string) error {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	return decoder.Decode(new(document))
}
