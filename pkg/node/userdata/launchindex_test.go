package userdata

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// TestLaunchIndex: a part with a launch index is for the instance with it, by its header or, without one, by its key, as with
// cloud-init (cloudinit/user_data.py, filters/launch_index.py). Stricter than that: what is no number from 0 is an error,
// and so is a machine of which nobody knows the index.
func TestLaunchIndex(t *testing.T) {
	const header = "Content-Type: text/cloud-config\nLaunch-Index: "
	body := roleFile("minions")
	key := func(value string) string { return "#cloud-config\nlaunch-index: " + value + "\n" + body }
	const (
		ours    = "ours"
		others  = "others"  // a warning
		unknown = "unknown" // an error, of which NeedsLaunchIndex tells
		wrong   = "wrong"   // an error
	)
	tests := map[string]struct {
		data  string
		index int // none below 0
		want  string
	}{
		"no index":               {"#cloud-config\n" + body, 0, ours},
		"no index, nobody knows": {"#cloud-config\n" + body, -1, ours},
		"null":                   {key("null"), -1, ours},
		"key, ours":              {key("1"), 1, ours},
		"key, another's":         {key("1"), 0, others},
		"key of 0, another's":    {key("0"), 1, others},
		"key, nobody knows":      {key("0"), -1, unknown},
		"key as text":            {key("' 1 '"), 1, ours},
		"key, no number":         {key("one"), 0, wrong},
		"key, empty text":        {key("''"), 0, wrong},
		"key, below 0":           {key("-1"), 0, wrong},
		"key, a list":            {key("[1]"), 1, wrong},
		"key, a mapping":         {key("{1: 1}"), 1, wrong},
		"header, ours":           {messageOf(partOf{header + "1", body}), 1, ours},
		"header, another's":      {messageOf(partOf{header + "1", body}), 0, others},
		"header, nobody knows":   {messageOf(partOf{header + "1", body}), -1, unknown},
		"header, no number":      {messageOf(partOf{header + "one", body}), 0, wrong},
		"header before key":      {messageOf(partOf{header + "1", key("0")}), 1, ours},
		"key behind header":      {messageOf(partOf{header + "1", key("0")}), 0, others},
		"empty header":           {messageOf(partOf{header, key("1")}), 1, ours},
		"gzip in a part":         {messageOf(partOf{header + "1", string(pack(t, []byte("#cloud-config\n"+body)))}), 1, ours},
		// A part that is a message itself has the header of its own, or else that of the part.
		"message in a part":     {messageOf(partOf{header + "1", "MIME-Version: 1.0\n\n#cloud-config\n" + body}), 0, others},
		"message with a header": {messageOf(partOf{header + "1", "MIME-Version: 1.0\nLaunch-Index: 0\n\n#cloud-config\n" + body}), 0, ours},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			index := &test.index
			if test.index < 0 {
				index = nil
			}
			result, findings := Parse([]byte(test.data), index)
			got := ours
			if len(findings) > 0 {
				switch f := findings[0]; {
				case f.Severity == problem.Warning:
					got = others
				case f.Rule == RuleLaunchIndex:
					got = unknown
				default:
					got = wrong
				}
			}
			if got != test.want || len(findings) > 1 || (got == ours) != (result.Roles.String() == "minions") {
				t.Errorf("%s, want %s: %s, %v", got, test.want, result.Roles, findings)
			}
			// With a number, it is needed whatever this machine's is.
			needed := strings.Contains(strings.ToLower(test.data), "launch-index") && name != "null"
			if needs := NeedsLaunchIndex([]byte(test.data)); test.want != wrong && needs != needed {
				t.Errorf("needs %v", needs)
			}
		})
	}
}

// TestLaunchIndexNotNeeded: no other finding has a machine look for its index.
func TestLaunchIndexNotNeeded(t *testing.T) {
	for _, data := range []string{"", "#!/bin/sh\n", "#cloud-config\nhostname: x\n", "#cloud-config\nwrite_files: x\n"} {
		if _, findings := Parse([]byte(data), nil); len(findings) == 0 || NeedsLaunchIndex([]byte(data)) {
			t.Errorf("%q: needs one: %v", data, findings)
		}
	}
}

// TestLaunchIndexFindings: a finding names the part, and its header or the line of its key.
func TestLaunchIndexFindings(t *testing.T) {
	data := []byte(messageOf(partOf{"Content-Type: text/cloud-config\nLaunch-Index: 1", roleFile("masters")},
		config("hostname: x\nlaunch-index: 2\n"+roleFile("etcd")), config(roleFile("minions"))))
	for _, index := range []*int{nil, new(0)} {
		_, findings := Parse(data, index)
		var got []string
		for _, f := range findings {
			got = append(got, fmt.Sprintf("%s:%d %s %s", f.File, f.Line, f.Field, f.Rule))
			if f.Text == "" || (f.Severity == problem.Error) != (index == nil) || (f.Hint != "") != (index == nil) {
				t.Errorf("%s: severity, text or hint: %+v", got, f)
			}
		}
		if text := strings.Join(got, ", "); text != "part 1:0 Launch-Index launch-index, part 2:2 launch-index launch-index" {
			t.Error(text)
		}
	}
}
