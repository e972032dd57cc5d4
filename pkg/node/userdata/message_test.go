package userdata

import (
	"encoding/base64"
	"fmt"
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
