package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"regexp"
	"strings"
	"unicode/utf8"
)

var typeForm = regexp.MustCompile(`^[a-z]+/[a-z0-9][a-z0-9.+-]*$`)

// ownPart is the file name of Hardtack's own part.
const ownPart = "hardtack.yaml"

func (f *completer) userDataParts() {
	out := []UserDataPart{}
	for i, p := range f.in.AdditionalUserData {
		field := at("additionalUserData", i)
		for _, name := range []string{".name", ".type", ".content"} {
			f.out.Origins[field+name] = Origin{Kind: User}
		}
		switch {
		case p.Name == "":
			f.errorf(field+".name", "is missing")
		case p.Name == ownPart || strings.ContainsAny(p.Name, "\"\\\r\n/"):
			f.errorf(field+".name", "%q is not a name for a part", p.Name)
		}
		if !typeForm.MatchString(p.Type) {
			f.hint(field+".type", "a script's is text/x-shellscript", "%q is not a MIME type", p.Type)
		}
		f.noSecret(field+".content", []byte(p.Content))
		p.Roles = f.targetRoles(field+".roles", p.Roles)
		out = append(out, p)
	}
	f.out.Cluster.AdditionalUserData = out
	if len(out) == 0 {
		f.out.Origins["additionalUserData"] = byHardtack
	}
}

// parts are the operator's parts for a group's machines.
func (c *Complete) userDataParts(g Group) []UserDataPart {
	var parts []UserDataPart
	for _, p := range c.Cluster.AdditionalUserData {
		if appliesTo(p.Roles, g.Roles) {
			parts = append(parts, p)
		}
	}
	return parts
}

// message puts Hardtack's own part and the operator's into one MIME message. The same parts give the same
// bytes: the boundary follows from them.
func message(own []byte, parts []UserDataPart) ([]byte, error) {
	all := append([]UserDataPart{{Name: ownPart, Type: "text/cloud-config", Content: string(own)}}, parts...)
	sum := sha256.New()
	for _, p := range all {
		fmt.Fprintf(sum, "%q %q %d\n%s", p.Name, p.Type, len(p.Content), p.Content)
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(fmt.Sprintf("hardtack-%x", sum.Sum(nil)[:12])); err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "MIME-Version: 1.0\r\nContent-Type: %s\r\n\r\n",
		mime.FormatMediaType("multipart/mixed", map[string]string{"boundary": w.Boundary()}))
	for _, p := range all {
		if err := addPart(w, p); err != nil {
			return nil, fmt.Errorf("writing the part %s: %w", p.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// longestLine is how long a line of a MIME message may be, without its end (RFC 5322, 2.1.1).
const longestLine = 998

func addPart(w *multipart.Writer, p UserDataPart) error {
	h := textproto.MIMEHeader{}
	h.Set("Content-Type", mime.FormatMediaType(p.Type, map[string]string{"charset": "utf-8"}))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": p.Name}))
	text, encoding := p.Content, "8bit"
	plain := utf8.ValidString(text) && !strings.ContainsAny(text, "\x00\r")
	for line := range strings.Lines(text) {
		plain = plain && len(line) <= longestLine
	}
	if !plain {
		encoding, text = "base64", wrap(base64.StdEncoding.EncodeToString([]byte(text)))
	}
	h.Set("Content-Transfer-Encoding", encoding)
	out, err := w.CreatePart(h)
	if err != nil {
		return err
	}
	_, err = out.Write([]byte(text))
	return err
}

// wrap breaks base64 into lines of 76.
func wrap(text string) string {
	var b strings.Builder
	for len(text) > 76 {
		b.WriteString(text[:76] + "\r\n")
		text = text[76:]
	}
	return b.String() + text
}
