package userdata

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// TestManyParts: MaxParts counts the parts of a message and of the parts in it, whatever they are, and not the whole.
func TestManyParts(t *testing.T) {
	empty := partOf{"Content-Type: multipart/mixed; boundary=in", "--in--"}
	wrong := partOf{"Content-Type: ;;", ""}
	script := partOf{"Content-Type: text/plain", "#!/bin/sh"}
	last := config(roleFile("minions"))
	for name, filler := range map[string]partOf{"scripts": script, "containers without parts": empty, "unreadable headers": wrong} {
		for _, n := range []int{MaxParts, MaxParts + 1, 20 * MaxParts} {
			var parts []partOf
			for range n - 1 {
				parts = append(parts, filler)
			}
			result, findings := Parse([]byte(messageOf(append(parts, last)...)), nil)
			over := strings.Contains(fmt.Sprint(findings), fmt.Sprintf("more than %d parts", MaxParts))
			if over != (n > MaxParts) || len(findings) > MaxParts+1 {
				t.Errorf("%d %s: %d findings, over %v", n, name, len(findings), over)
			}
			if findings.Err() == nil && result.Roles.String() != "minions" {
				t.Errorf("%d %s: %s without an error", n, name, result.Roles)
			}
		}
	}

	// Parts in parts, of which each level is within the bound.
	inner := "Content-Type: multipart/mixed; boundary=in\n\n" + strings.Repeat("--in\n\n#!/bin/sh\n", MaxParts/2) + "--in--"
	_, findings := Parse([]byte(messageOf(partOf{"", ""}, partOf{inner, ""}, partOf{inner, ""}, last)), nil)
	if got := strings.Count(fmt.Sprint(findings.Err()), "more than"); got == 0 || got > 2 {
		t.Errorf("nested: %v", findings.Err())
	}
}

// TestManyFindings: with MaxFindings no more are looked for. That something was not looked at is an error, whatever the findings are,
// since a role may be there.
func TestManyFindings(t *testing.T) {
	wrong := func(n int) string { return "#cloud-config\nwrite_files:\n" + strings.Repeat("- x\n", n) }
	scripts := func(n int) string {
		var parts []partOf
		for range n {
			parts = append(parts, partOf{"Content-Type: text/plain", "#!/bin/sh"})
		}
		return messageOf(append(parts, config(roleFile("minions")))...)
	}
	unknown := func(n int) string {
		return "#cloud-config\nwrite_files:\n" + strings.Repeat("- {path: /a, x: y}\n", n) + "- {path: /etc/sysconfig/kubernetes-minions}\n"
	}
	keys := func(n int) string { return "#cloud-config\n" + strings.Repeat("1: x\n", n) }
	tests := map[string]struct {
		data  string
		count int
		more  bool
	}{
		"wrong entries":                 {wrong(MaxFindings), MaxFindings, false},
		"one wrong entry more":          {wrong(MaxFindings + 1), MaxFindings + 1, true},
		"wrong keys":                    {keys(MaxFindings), MaxFindings, false},
		"one wrong key more":            {keys(MaxFindings + 1), MaxFindings + 1, true},
		"warnings of parts":             {scripts(MaxFindings - 1), MaxFindings - 1, false},
		"one warning of parts more":     {scripts(MaxFindings), MaxFindings + 1, true},
		"warnings of entries":           {unknown(MaxFindings - 1), MaxFindings - 1, false},
		"one warning of entries more":   {unknown(MaxFindings), MaxFindings + 1, true},
		"many warnings of parts":        {scripts(MaxParts - 2), MaxParts - 1, true},
		"many keys that are not looked": {keys(10 * MaxFindings), MaxFindings + 1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			result, findings := Parse([]byte(test.data), nil)
			if more := strings.Contains(fmt.Sprint(findings.Err()), "not looked at"); len(findings) != test.count || more != test.more {
				t.Errorf("%d findings, want %d; more %v, want %v: %v", len(findings), test.count, more, test.more, findings)
			}
			if findings.Err() == nil && result.Roles.String() != "minions" {
				t.Errorf("%s without an error", result.Roles)
			}
		})
	}
}

// TestLargest: user data and a cloud-config of MaxInput bytes are read, and with one byte more they are not.
func TestLargest(t *testing.T) {
	const head = "#cloud-config\nwrite_files: [{path: /etc/sysconfig/kubernetes-minions}]\n"
	for n, fits := range map[int]bool{MaxInput: true, MaxInput + 1: false} {
		data := append([]byte(head), bytes.Repeat([]byte("#"), n-len(head))...)
		for name, data := range map[string][]byte{"as it is": data, "packed": pack(t, data)} {
			result, findings := Parse(data, nil)
			if (findings.Err() == nil) != fits || fits != (result.Roles.String() == "minions") {
				t.Errorf("%d bytes %s: %s, %v", n, name, result.Roles, findings)
			}
		}
	}
}

// parseWithin parses with another bound than MaxDecoded.
func parseWithin(left int, data string) ([]File, problem.List) {
	p := &parser{left: left, origins: map[*yaml.Node]origin{}}
	p.part(part{name: topName, data: []byte(data)})
	p.readFiles()
	files := p.plan()
	return files, p.problems
}

// TestDecodedBound: what is decoded counts against the bound, each layer and each file, as far as it goes.
func TestDecodedBound(t *testing.T) {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	files := func(entries string) string { return "#cloud-config\nwrite_files: [" + entries + "]\n" }
	empty := files("{path: /a}")
	inner := "\n" + empty
	tests := map[string]struct {
		data string
		need int
		at   string // where the finding is
	}{
		"base64":            {encode(empty), len(empty), topName},
		"gzip":              {string(pack(t, []byte(empty))), len(empty), topName},
		"gzip in base64":    {encode(string(pack(t, []byte(empty)))), len(pack(t, []byte(empty))) + len(empty), topName},
		"text":              {files("{path: /a, content: abc}"), 3, topName + ":2"},
		"base64 in a file":  {files("{path: /a, encoding: b64, content: YWJj}"), 3, topName + ":2"},
		"gzip in a file":    {files("{path: /a, encoding: gz+b64, content: " + encode(string(pack(t, []byte("abc")))) + "}"), 3, topName + ":2"},
		"an alias":          {files("{path: /a, content: &c abc}, {path: /b, content: *c}"), 6, topName + ":2"},
		"a part":            {"MIME-Version: 1.0\n" + inner, len(empty), topName},
		"parts":             {messageOf(partOf{"A: b", empty}), len("--bound\nA: b\n\n\n--bound--\n") + 2*len(empty), "part 1"},
		"a base64 part":     {"MIME-Version: 1.0\nContent-Transfer-Encoding: base64\n\n" + encode(empty), len(encode(empty)), topName},
		"a file that grows": {files("{path: /a, content: abc}, {path: /a, append: true, content: de}"), 3 + 2 + 3, topName},
	}
	for name, test := range tests {
		got, findings := parseWithin(test.need, test.data)
		if len(findings) > 0 || len(got) == 0 {
			t.Errorf("%s: not within %d bytes: %v", name, test.need, findings)
		}
		_, findings = parseWithin(test.need-1, test.data)
		if err := findings.Err(); err == nil || len(findings) != 1 || !strings.HasPrefix(err.Error(), test.at+": ") {
			t.Errorf("%s: within less than %d bytes: %v", name, test.need, findings)
		}
		// However early it is, it is not taken for user data that was cut short.
		if _, findings = parseWithin(0, test.data); !strings.Contains(fmt.Sprint(findings.Err()), " bytes") {
			t.Errorf("%s: within nothing: %v", name, findings)
		}
	}
}
