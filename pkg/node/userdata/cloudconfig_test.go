package userdata

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// TestNoKeys: a cloud-config of nothing is one without keys, in each spelling of nothing.
func TestNoKeys(t *testing.T) {
	for _, body := range []string{"", "# comment\n", "---\n", "---\n...\n", "null\n", "~\n", "--- ~\n"} {
		result, findings := Parse([]byte("#cloud-config\n"+body), nil)
		if len(result.Files) > 0 || len(findings) != 1 || findings[0].Severity != problem.Warning || findings[0].Rule != RuleIgnored {
			t.Errorf("%q: %v", body, findings)
		}
	}
}

// TestConfigRefused: a cloud-config that is no mapping of texts is an error, with the line where it has one.
func TestConfigRefused(t *testing.T) {
	for body, want := range map[string]string{
		"{a: b}\n]\n":               "<document start>",
		"a: b\n---\nc: d\n":         "more than one document",
		"a: b\n---\n":               "more than one document",
		"[a]\n":                     "user-data:2: ",
		"!!map a\n":                 "user-data:2: ",
		"? !!str [a]\n: b\n":        "user-data:2: a key must be text",
		"? {a: b}\n: c\n":           "user-data:2: a key must be text",
		"a: *b\n":                   "reading the cloud-config",
		"write_files:\n":            "user-data:2: write_files: must be a list",
		"write_files: {path: /a}\n": "user-data:2: write_files: must be a list",
		"write_files: !!seq x\n":    "user-data:2: write_files: must be a list",
		"write_files: [{path: /a, ? !!str [a] : b}]": "user-data:2: write_files[0]: a key must be text",
	} {
		_, findings := Parse([]byte("#cloud-config\n"+body), nil)
		if err := findings.Err(); err == nil || !strings.Contains(err.Error(), want) || len(findings) != 1 {
			t.Errorf("%q: %v, want %s", body, findings, want)
		}
	}
}

// TestIgnoredKeys: the names of keys that nothing is done with are in one warning, up to twenty of them.
func TestIgnoredKeys(t *testing.T) {
	for n, want := range map[int]string{1: "k0", 20: "k18, k19", 21: "k18, k19 and 1 more"} {
		text := "#cloud-config\nwrite_files: [{path: /a}]\nmerge_how: dict()\nmerge_type: dict()\nlaunch-index: null\n"
		for i := range n {
			text += fmt.Sprintf("k%d: x\n", i)
		}
		result, findings := Parse([]byte(text), nil)
		if len(findings) != 1 || findings.Err() != nil || !strings.HasSuffix(findings[0].Text, want) || len(result.Files) != 1 ||
			strings.ContainsAny(findings[0].Text, "_-") {
			t.Errorf("%d: %v", n, findings)
		}
	}
}
