package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// part is one piece of user data: the whole, or a part of a MIME message.
type part struct {
	// name is what findings call it: "user-data", "part 2 (roles.yaml)".
	name string
	// kind is the MIME type that its header gives; empty for the whole.
	kind string
	// merge is its Merge-Type header.
	merge string
	// launchIndex is its Launch-Index header.
	launchIndex string
	data        []byte
	depth       int
}

// kinds maps what user data may begin with to the MIME type that cloud-init's documentation gives it.
// Longer beginnings stand before those that they begin with.
var kinds = []struct{ begin, kind string }{
	{"## template: jinja", "text/jinja2"},
	{"#cloud-config-archive", "text/cloud-config-archive"},
	{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
	{"#cloud-config", cloudConfig},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"#include-once", "text/x-include-once-url"},
	{"#include", "text/x-include-url"},
	{"#part-handler", "text/part-handler"},
	{"#upstart-job", "text/upstart-job"},
	{"#!", shellScript},
}

const (
	cloudConfig = "text/cloud-config"
	shellScript = "text/x-shellscript"
)

// sniff returns the MIME type of what data begins with, or "".
func sniff(data []byte) string {
	head := bytes.TrimLeftFunc(data, unicode.IsSpace)
	head = bytes.ToLower(head[:min(len(head), 64)])
	for _, k := range kinds {
		if bytes.HasPrefix(head, []byte(k.begin)) {
			return k.kind
		}
	}
	return ""
}

// part unpacks one piece of user data and reads its content.
func (p *parser) part(t part) {
	for ; t.depth <= MaxDepth; t.depth++ {
		t.data = bytes.TrimPrefix(t.data, []byte("\xef\xbb\xbf"))
		switch found := sniff(t.data); {
		case isGzip(t.data):
			data, err := p.gunzip(t.data)
			if err != nil {
				p.problems.Errorf(t.name, "", "unpacking gzip: %v", err)
				return
			}
			// The header spoke of the packed bytes.
			t.data, t.kind = data, ""
		case isMessage(t.data):
			p.message(t)
			return
		case found != "":
			p.readKind(t, found)
			return
		default:
			data, ok := unbase64(t.data)
			if !ok {
				p.readKind(t, t.kind)
				return
			}
			if !p.reserve(len(data)) {
				p.problems.Errorf(t.name, "", "decodes to more than %d bytes", MaxDecoded)
				return
			}
			t.data = data
		}
	}
	p.problems.Errorf(t.name, "", "nested more than %d deep", MaxDepth)
}

// readKind handles a piece without layers. found is what it begins with, or its header's type.
func (p *parser) readKind(t part, found string) {
	// A header's type counts where the beginning says nothing, and for what has no beginning of its
	// own; cloud-init looks at the beginning of text/plain and text/x-shellscript only.
	kind := found
	if t.kind == cloudConfig {
		kind = cloudConfig
	}
	switch {
	case kind == cloudConfig:
		p.cloudConfig(t)
	case len(bytes.TrimSpace(t.data)) == 0:
		p.warn(t, RuleIgnored, "is empty", "")
	case kind == shellScript:
		p.warn(t, RuleNotRun, "is a script, which Hardtack does not run",
			"give the files that it writes as write_files of a #cloud-config")
	case kind == "" || kind == "text/plain":
		found := problem.Problem{File: t.name, Rule: RuleNotRun,
			Text: fmt.Sprintf("begins with %q, which is no form of user data that Hardtack knows", firstLine(t.data)),
			Hint: "begin it with #cloud-config and give the role file under write_files"}
		if t.name != topName {
			found.Severity = problem.Warning // cloud-init passes over such a part as well
		}
		p.problems.Add(found)
	default:
		p.warn(t, RuleNotRun, "is of type "+kind+", which Hardtack does not act on",
			"give the files that it makes as write_files of a #cloud-config")
	}
}

func (p *parser) warn(t part, rule, text, hint string) {
	p.problems.Add(problem.Problem{File: t.name, Severity: problem.Warning, Rule: rule, Text: text, Hint: hint})
}

// firstLine is the first line of data, as far as a message can show it.
func firstLine(data []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte("\n"))
	if len(line) > 40 {
		return strings.ToValidUTF8(string(line[:40]), "?") + "…"
	}
	return strings.ToValidUTF8(string(line), "?")
}

func isGzip(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b}) }

// gunzip unpacks data within the bound.
func (p *parser) gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return p.readAll(r)
}

// readAll reads r to its end within the bound, and counts what it read.
func (p *parser) readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(p.left)+1))
	if err != nil {
		return nil, err
	}
	if !p.reserve(len(data)) {
		return nil, fmt.Errorf("more than %d bytes when unpacked", MaxDecoded)
	}
	return data, nil
}

// unbase64 decodes data that is base64 as a whole: what comes out must be a form of user data, since
// many a plain word is base64 as well.
func unbase64(data []byte) ([]byte, bool) {
	out, err := decodeBase64(data)
	if err != nil {
		return nil, false
	}
	return out, isGzip(out) || sniff(out) != "" || isMessage(out)
}

// decodeBase64 takes base64 with or without line ends and padding.
func decodeBase64(data []byte) ([]byte, error) {
	text := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, string(data))
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
}
