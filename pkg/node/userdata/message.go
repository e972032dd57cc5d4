package userdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
)

// isMessage reports whether data is a MIME message: it begins with header lines, one of which is
// MIME-Version. (cloud-init looks for that word in the first 4096 bytes, wherever it stands.)
func isMessage(data []byte) bool {
	head := skipEnvelope(data)
	for range 64 {
		line, rest, _ := bytes.Cut(head, []byte("\n"))
		name, _, ok := bytes.Cut(line, []byte(":"))
		folded := bytes.HasPrefix(line, []byte(" ")) || bytes.HasPrefix(line, []byte("\t"))
		switch {
		case ok && strings.EqualFold(string(name), "MIME-Version"):
			return true
		case !folded && (!ok || bytes.ContainsAny(name, " \t#")):
			return false
		}
		head = rest
	}
	return false
}

// skipEnvelope drops blank lines and the "From " line that mail tools put before the header.
func skipEnvelope(data []byte) []byte {
	data = bytes.TrimLeft(data, "\r\n")
	if bytes.HasPrefix(data, []byte("From ")) {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return data
}

// message reads a MIME message and its parts.
func (p *parser) message(t part) {
	m, err := mail.ReadMessage(bytes.NewReader(skipEnvelope(t.data)))
	if err != nil {
		p.problems.Errorf(t.name, "", "reading the MIME header: %v", err)
		return
	}
	p.entity(t, textproto.MIMEHeader(m.Header), m.Body)
}

// entity reads one MIME entity: a container of parts, or a part. t has the place of it.
func (p *parser) entity(t part, h textproto.MIMEHeader, body io.Reader) {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil && h.Get("Content-Type") != "" {
		p.problems.Errorf(t.name, "", "reading Content-Type %q: %v", h.Get("Content-Type"), err)
		return
	}
	if t.depth++; t.depth > MaxDepth {
		p.problems.Errorf(t.name, "", "nested more than %d deep", MaxDepth)
		return
	}
	if strings.HasPrefix(kind, "multipart/") {
		if params["boundary"] == "" {
			p.problems.Errorf(t.name, "", "%s without a boundary", kind)
			return
		}
		if h.Get(launchIndexHeader) != "" {
			p.warn(t, RuleIgnored, "has a header "+launchIndexHeader+", which counts at its parts only", "")
		}
		data, err := p.readAll(body)
		if err != nil {
			p.problems.Errorf(t.name, "", "reading the parts: %v", err)
			return
		}
		p.multipart(t, data, params["boundary"])
		return
	}
	data, err := p.transfer(h.Get("Content-Transfer-Encoding"), body)
	if err != nil {
		p.problems.Errorf(t.name, "", "reading the part: %v", err)
		return
	}
	if index := h.Get(launchIndexHeader); index != "" {
		t.launchIndex = index
	}
	t.kind, t.data, t.merge = kind, data, h.Get("Merge-Type")
	if t.merge == "" {
		t.merge = h.Get("X-Merge-Type")
	}
	p.part(t)
}

// multipart reads the parts of a container.
func (p *parser) multipart(t part, data []byte, boundary string) {
	if !hasEnd(data, boundary) {
		p.problems.Errorf(t.name, "", "the message ends inside: the last line, --%s--, is missing, so that the rest may be as well", boundary)
		return
	}
	r := multipart.NewReader(bytes.NewReader(data), boundary)
	for n := 1; ; n++ {
		raw, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			if n == 1 {
				p.warn(t, RuleIgnored, "is a multi-part message without parts", "")
			}
			return
		}
		child := part{name: partName(t.name, n), depth: t.depth}
		if err != nil {
			p.problems.Errorf(child.name, "", "reading the MIME part: %v", err)
			return
		}
		if file := raw.FileName(); file != "" {
			child.name += fmt.Sprintf(" (%s)", strings.ToValidUTF8(file, "?"))
		}
		if p.parts++; p.parts > MaxParts {
			p.problems.Errorf(child.name, "", "more than %d parts", MaxParts)
			return
		}
		p.entity(child, raw.Header, raw)
	}
}

// hasEnd reports whether the parts have their last line. Without one cloud-init takes what is there: but user data that was cut
// short on its way ends so as well, and half of it may be another role. The reader of parts does not tell everywhere: it takes
// an end inside the header of a part for the end of them all.
func hasEnd(data []byte, boundary string) bool {
	for line := range bytes.Lines(data) {
		if string(bytes.TrimRight(line, " \t\r\n")) == "--"+boundary+"--" {
			return true
		}
	}
	return false
}

// partName is "part 2", and for parts of parts "part 2.1".
func partName(parent string, n int) string {
	number, nested := strings.CutPrefix(parent, "part ")
	if !nested {
		return fmt.Sprintf("part %d", n)
	}
	number, _, _ = strings.Cut(number, " ")
	return fmt.Sprintf("part %s.%d", number, n)
}

// transfer undoes a Content-Transfer-Encoding.
func (p *parser) transfer(encoding string, body io.Reader) ([]byte, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "7bit", "8bit", "binary":
		return p.readAll(body)
	case "quoted-printable":
		data, err := p.readAll(quotedprintable.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("decoding quoted-printable: %w", err)
		}
		return data, nil
	case "base64":
		raw, err := p.readAll(body)
		if err != nil {
			return nil, err
		}
		data, err := decodeBase64(raw)
		if err != nil {
			return nil, fmt.Errorf("decoding base64: %w", err)
		}
		return data, nil
	default:
		return nil, fmt.Errorf("content transfer encoding %q is not known: 7bit, 8bit, binary, base64 and quoted-printable are", encoding)
	}
}
