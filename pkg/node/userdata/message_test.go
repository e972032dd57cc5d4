package userdata

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// partOf is one part of a message: header lines without the last line end, and a body.
type partOf struct{ header, body string }

// messageOf makes a multi-part message.
func messageOf(parts ...partOf) string {
	text := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=bound\n\n"
	for _, p := range parts {
		text += "--bound\n" + p.header + "\n\n" + p.body + "\n"
	}
	return text + "--bound--\n"
}

// config is a part with a cloud-config without its mark.
func config(body string) partOf { return partOf{"Content-Type: text/cloud-config", body} }

// roleFile is a cloud-config with the role file of one role, to which other parts add.
func roleFile(name string) string {
	return fmt.Sprintf("merge_how: list(append)+dict(recurse_array)\nwrite_files: [{path: /etc/sysconfig/kubernetes-%s}]\n", name)
}

// TestCutMessage cuts a message at each byte: a machine gets all of its roles or none, and knows why not as soon as one part
// was there. The last line may lack its line end.
func TestCutMessage(t *testing.T) {
	etcd := base64.StdEncoding.EncodeToString([]byte(roleFile("etcd")))
	whole := messageOf(config(roleFile("masters")),
		partOf{"Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64", string(wrap(etcd))}, config(roleFile("minions")))
	first := strings.Index(whole, "--bound")
	complete := strings.LastIndex(whole, "--bound--") + len("--bound--")
	for n := range len(whole) + 1 {
		result, findings := Parse([]byte(whole[:n]), nil)
		switch err := findings.Err(); {
		case n >= complete && (err != nil || result.Roles.String() != "masters+minions+etcd" || len(result.Files) != 3):
			t.Errorf("whole: %v, %v", result, findings)
		case n < complete && err == nil && (n >= first || len(result.Files) > 0):
			t.Errorf("cut after %q: %v, %v", whole[max(0, n-30):n], result, findings)
		}
	}
}

// TestIsMessage: a message begins with header lines, of which one is MIME-Version.
func TestIsMessage(t *testing.T) {
	const version = "MIME-Version: 1.0\n"
	lines := func(n int) string { return strings.Repeat("A: b\n", n) }
	for data, want := range map[string]bool{
		version:                                    true,
		"MIME-Version: 1.0":                        true,
		"mime-version:1.0\r\n\r\n":                 true,
		"A: b\n" + version:                         true,
		"A: b\r\nC: d\r\n" + version:               true,
		"A: b\n folded\n" + version:                true,
		"A: b\n\tfolded: with a colon\n" + version: true,
		"\r\n\n" + version:                         true,
		"From x Mon Jan  1\n" + version:            true,
		lines(63) + version:                        true,
		lines(64) + version:                        false,
		lines(1000):                                false,
		"":                                         false,
		"\n\n":                                     false,
		"A: b":                                     false,
		"MIME-Version 1.0\n":                       false,
		"MIME-Version":                             false,
		"A: b\n\n" + version:                       false,
		"A: b\r\n\r\n" + version:                   false,
		"word\n" + version:                         false,
		"A: b\nword\n" + version:                   false,
		"#cloud-config: x\n" + version:             false,
		"two words: x\n" + version:                 false,
		"a\ttab: x\n" + version:                    false,
		"A: b\n MIME-Version: 1.0\n\n":             false,
		"A: b, MIME-Version: 1.0\n":                false,
	} {
		if got := isMessage([]byte(data)); got != want {
			t.Errorf("%.60q: %v", data, got)
		}
	}
}

// TestMessageParts: the findings about a part have its number, that of the part that it is in, and its file's name.
func TestMessageParts(t *testing.T) {
	named := func(name string) partOf {
		return partOf{"Content-Type: text/plain\nContent-Disposition: attachment; filename=\"" + name + "\"", "#!/bin/sh"}
	}
	inner := partOf{"Content-Type: multipart/mixed; boundary=in",
		"--in\nContent-Type: multipart/mixed; boundary=deep\n\n--deep\n\n#!/bin/sh\n--deep--\n--in\n" +
			named("b.sh").header + "\n\n#!/bin/sh\n--in--"}
	tests := map[string]struct {
		parts []partOf
		want  []string // "part: rule"
	}{
		"numbers":    {[]partOf{named("a.sh"), {"", "#!/bin/sh"}}, []string{"part 1 (a.sh): not-run", "part 2: not-run"}},
		"within":     {[]partOf{named("a.sh"), inner}, []string{"part 1 (a.sh): not-run", "part 2.1.1: not-run", "part 2.2 (b.sh): not-run"}},
		"none":       {nil, []string{"user-data: ignored-key"}},
		"none in it": {[]partOf{{"Content-Type: multipart/mixed; boundary=in", "--in--"}}, []string{"part 1: ignored-key"}},
		"an index for all of it": {
			[]partOf{{inner.header + "\nLaunch-Index: 7", inner.body}},
			[]string{"part 1: ignored-key", "part 1.1.1: not-run", "part 1.2 (b.sh): not-run"},
		},
		"a message in a part with a name": {
			[]partOf{{named("a.eml").header, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=in\n\n--in\n\n#!/bin/sh\n--in--"}},
			[]string{"part 1.1: not-run"},
		},
	}
	for name, test := range tests {
		_, findings := Parse([]byte(messageOf(append(test.parts, config("hostname: x"))...)), nil)
		if name == "none" {
			_, findings = Parse([]byte(messageOf()), nil)
		} else {
			findings = findings[:len(findings)-1] // the config's
		}
		var got []string
		for _, f := range findings {
			got = append(got, f.File+": "+f.Rule)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestMergeHeaders: Merge-Type counts, and X-Merge-Type without it, as with cloud-init (cloudinit/handlers/cloud_config.py).
func TestMergeHeaders(t *testing.T) {
	const appends, prepends = "Merge-Type: list(append)+dict(recurse_list)", "Merge-Type: list(prepend)+dict(recurse_list)"
	for header, want := range map[string]string{
		"":                                 "/b",
		"\n" + appends:                     "/a /b",
		"\nX-" + prepends:                  "/b /a",
		"\nX-" + prepends + "\n" + appends: "/a /b",
		"\nMerge-Type:\nX-" + prepends:     "/b /a",
	} {
		data := messageOf(config("write_files: [{path: /a}]"), partOf{"Content-Type: text/cloud-config" + header, "write_files: [{path: /b}]"})
		result, findings := Parse([]byte(data), nil)
		var paths []string
		for _, f := range result.Files {
			paths = append(paths, f.Path)
		}
		if got := strings.Join(paths, " "); got != want || findings.Err() != nil {
			t.Errorf("%q: %s, want %s: %v", header, got, want, findings)
		}
	}
}
