package userdata

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// TestKinds: each form of user data that cloud-init knows by its beginning is known here as well, by the type that its
// documentation gives it. It is not run, which is a warning, and none of them is taken for base64 or a plain text.
func TestKinds(t *testing.T) {
	for begin, kind := range map[string]string{
		"## template: jinja":       "text/jinja2",
		"#cloud-config-archive":    "text/cloud-config-archive",
		"#cloud-config-jsonp":      "text/cloud-config-jsonp",
		"#cloud-boothook":          "text/cloud-boothook",
		"#include":                 "text/x-include-url",
		"#include-once":            "text/x-include-once-url",
		"#part-handler":            "text/part-handler",
		"#upstart-job":             "text/upstart-job",
		" \n#PART-Handler":         "text/part-handler",
		"#!/bin/sh":                "a script",
		"#!/usr/bin/env python3\n": "a script",
	} {
		for name, data := range map[string]string{
			topName:  begin + "\nwrite_files: [{path: /a}]\n",
			"part 1": messageOf(partOf{"Content-Type: text/plain", begin + "\nwrite_files: [{path: /a}]\n"}),
		} {
			result, findings := Parse([]byte(data), nil)
			if len(findings) != 1 || findings[0].File != name || findings[0].Severity != problem.Warning ||
				findings[0].Rule != RuleNotRun || !strings.Contains(findings[0].Text, kind+",") || len(result.Files) > 0 {
				t.Errorf("%s in %s: %d files, %v", begin, name, len(result.Files), findings)
			}
		}
	}
}

// TestHeaderType: a part that its header calls a cloud-config is one whatever it begins with, as with cloud-init, which looks at the
// beginning of text/plain and text/x-shellscript only (cloudinit/user_data.py). The header speaks of packed bytes if they are.
func TestHeaderType(t *testing.T) {
	body := "write_files: [{path: /etc/sysconfig/kubernetes-minions}]\n"
	packed := func(text string) string { return string(pack(t, []byte(text))) }
	for name, test := range map[string]struct {
		part partOf
		rule string // of the only finding, "" for none and the role
	}{
		"without a mark":         {config(body), ""},
		"with the mark":          {config("#cloud-config\n" + body), ""},
		"a script's mark":        {config("#!config\n" + body), ""},
		"an include's mark":      {config("#include\n" + body), ""},
		"a script's type":        {partOf{"Content-Type: text/x-shellscript", "#cloud-config\n" + body}, ""},
		"a script's type alone":  {partOf{"Content-Type: text/x-shellscript", body}, RuleNotRun},
		"another type alone":     {partOf{"Content-Type: text/x-include-url", body}, RuleNotRun},
		"no type alone":          {partOf{"", body}, RuleNotRun},
		"empty":                  {config(" \n"), RuleIgnored},
		"empty plain text":       {partOf{"Content-Type: text/plain", ""}, RuleIgnored},
		"packed, with the mark":  {config(packed("#cloud-config\n" + body)), ""},
		"packed, without a mark": {config(packed(body)), RuleNotRun},
	} {
		result, findings := Parse([]byte(messageOf(test.part)), nil)
		got := ""
		for _, f := range findings {
			got += f.Rule
		}
		if got != test.rule || findings.Err() != nil || (got == "") != (result.Roles.String() == "minions") {
			t.Errorf("%s: roles %s, %v", name, result.Roles, findings)
		}
	}
}

// TestNoLayer: what only looks like a layer is not unpacked, and the error shows what stands there.
func TestNoLayer(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("#cloud-config\nwrite_files: [{path: /etc/sysconfig/kubernetes-minions}]\n"))
	forty := strings.Repeat("x y ", 10)[:39] + "z"
	for data, want := range map[string]string{
		"hello123":               `begins with "hello123"`,
		encoded + "\n%":          `begins with "` + encoded[:40] + `…"`,
		encoded[:41] + "%":       `begins with "` + encoded[:40] + `…"`,
		forty:                    `begins with "` + forty + `"`,
		forty + "!":              `begins with "` + forty + `…"`,
		forty[:38] + "ä" + "x y": `begins with "` + forty[:38] + `ä…"`,
		forty[:39] + "ä" + "x y": `begins with "` + forty[:39] + `?…"`,
		"\n one line\nthe rest":  `begins with "one line"`,
		"\x1f\x8bno gzip":        "unpacking gzip",
	} {
		result, findings := Parse([]byte(data), nil)
		if err := findings.Err(); err == nil || !strings.Contains(err.Error(), want) || len(findings) != 1 || len(result.Files) > 0 {
			t.Errorf("%q: %v, want %s", data, findings, want)
		}
	}
}

// TestDepth: MaxDepth layers are undone and no more, of whatever kind.
func TestDepth(t *testing.T) {
	gzipped := func(data []byte) []byte { return pack(t, data) }
	encoded := func(data []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(pack(t, data))) }
	within := func(data []byte) []byte {
		head := fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%d\n\n", len(data))
		return fmt.Appendf(nil, "%s--b%d\n%s\n--b%d--\n", head, len(data), data, len(data))
	}
	config := "#cloud-config\n" + roleFile("minions")
	for name, test := range map[string]struct {
		inner, head string
		layer       func([]byte) []byte
		levels      int // of one layer
		first       int // of what is inside
	}{
		"gzip":           {config, "", gzipped, 1, 0},
		"gzip in base64": {config, "", encoded, 2, 0},
		"messages":       {"\n" + config, "MIME-Version: 1.0\n", within, 1, 1}, // a part is a level as well
	} {
		data := []byte(test.inner)
		for levels := test.first + test.levels; levels <= MaxDepth+2; levels += test.levels {
			data = test.layer(data)
			result, findings := Parse([]byte(test.head+string(data)), nil)
			err := findings.Err()
			deep := err != nil && strings.Contains(err.Error(), fmt.Sprintf("nested more than %d", MaxDepth))
			if deep != (levels > MaxDepth) || (err == nil) != (result.Roles.String() == "minions") {
				t.Errorf("%d levels of %s: %s, %v", levels, name, result.Roles, findings)
			}
		}
	}
}
