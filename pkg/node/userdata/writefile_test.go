package userdata

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestEntry: what an entry says besides its path, in all forms in which it may be said. What YAML calls null is not given, as
// with cloud-init.
func TestEntry(t *testing.T) {
	for entry, want := range map[string]string{
		"":                                        `0644 "" "" ""`,
		"permissions: '7777'":                     `7777 "" "" ""`,
		"permissions: '0000'":                     `0000 "" "" ""`,
		"permissions: 0O640":                      `0640 "" "" ""`,
		"permissions: ~":                          `0644 "" "" ""`,
		"owner: 'a:b'":                            `0644 "a" "b" ""`,
		"owner: ~":                                `0644 "" "" ""`,
		"content: ~":                              `0644 "" "" ""`,
		"content: null, encoding: gz+b64":         "", // nothing is no gzip
		"content: null, encoding: b64":            `0644 "" "" ""`,
		"content: a, encoding: ~":                 `0644 "" "" "a"`,
		"content: a, encoding: ' Text/Plain '":    `0644 "" "" "a"`,
		"content: !!binary YQ==":                  `0644 "" "" "a"`,
		"content: !!binary WVE9PQ, encoding: b64": `0644 "" "" "a"`,
		"append: ~":                               `0644 "" "" ""`,
		"append: false":                           `0644 "" "" ""`,
		"append: No":                              `0644 "" "" ""`,
		"append: OFF":                             `0644 "" "" ""`,
		"append: on, content: a":                  `0644 "" "" "a" append`,
		"append: Yes, defer: false":               `0644 "" "" "" append`,
	} {
		result, findings := Parse([]byte("#cloud-config\nwrite_files: [{path: /a, "+entry+"}]\n"), nil)
		got := ""
		for _, f := range result.Files {
			got += fmt.Sprintf("%04o %q %q %q", f.Mode, f.User, f.Group, f.Content)
			if f.Append {
				got += " append"
			}
		}
		if got != want || (findings.Err() == nil) != (want != "") {
			t.Errorf("%s: %s, want %s: %v", entry, got, want, findings)
		}
	}
}

// TestEntryRefused: an entry with a fault is left out, and has one error at the key of the fault: not what follows from it.
func TestEntryRefused(t *testing.T) {
	long := strings.Repeat("/a", MaxPath/2)
	for entry, field := range map[string]string{
		"path: " + long + "/bc":                                "path",
		"path: ~":                                              "path",
		"path: /.":                                             "path",
		"path: /a/..":                                          "path",
		"path: //":                                             "path",
		`path: "/a\0b"`:                                        "path",
		"path: [/a]":                                           "path",
		"path: !!str [/a]":                                     "path",
		"path: /a, permissions: '10000'":                       "permissions",
		"path: /a, permissions: {}":                            "permissions",
		"path: /a, owner: ':'":                                 "owner",
		"path: /a, owner: ' root'":                             "owner",
		`path: /a, owner: "root\r"`:                            "owner",
		"path: /a, owner: [root]":                              "owner",
		"path: /a, append: {on: on}":                           "append",
		"path: /a, append: 'no'":                               "append",
		"path: /a, defer: 0":                                   "defer",
		"path: /a, encoding: [b64], content: x":                "encoding",
		"path: /a, encoding: rot13, content: '%'":              "encoding",
		"path: /a, content: [x], encoding: gz+b64":             "content",
		"path: /a, content: [x], encoding: rot13":              "content",
		"path: /a, content: !!null [x]":                        "content",
		"path: /a, content: !!binary [x]":                      "content",
		"path: /a, content: !!binary 'YWJj%'":                  "content",
		"path: /a, content: !!binary 'WVdKag%', encoding: b64": "content",
		"path: /a, content: 'YWJj%', encoding: b64":            "content",
		"path: /a, source: {uri: 'file:///etc/hosts'}":         "source",
	} {
		result, findings := Parse([]byte("#cloud-config\nwrite_files:\n- {path: /before}\n- {"+entry+"}\n- {path: /after}\n"), nil)
		if len(findings) != 1 || findings.Err() == nil || findings[0].Line != 4 || findings[0].Field != "write_files[1]."+field {
			t.Errorf("%s: %v, want one error of %s", entry, findings, field)
		}
		if len(result.Files) != 2 {
			t.Errorf("%s: %v", entry, result.Files)
		}
	}
	// As long as the kernel takes.
	result, findings := Parse([]byte("#cloud-config\nwrite_files: [{path: "+long+"b}]\n"), nil)
	if len(findings) > 0 || len(result.Files) != 1 || len(result.Files[0].Path) != MaxPath {
		t.Errorf("the longest path: %v", findings)
	}
}

// TestRoleOfFile: only the role file of a role gives it to a machine, and only that is no unknown role's.
func TestRoleOfFile(t *testing.T) {
	for file, want := range map[string]role.Role{
		"/etc/sysconfig/kubernetes-minions":     "minions",
		"/etc/sysconfig/kubernetes-ingress":     "ingress",
		"/etc/sysconfig/kubernetes-":            "",
		"/etc/sysconfig/kubernetes-workers_old": "",
		"/etc/sysconfig/minions":                "",
		"/etc/kubernetes-minions":               "",
	} {
		if got, ok := (File{Path: file}).Role(); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", file, got, ok)
		}
	}
}
