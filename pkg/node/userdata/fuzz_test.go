package userdata

import (
	"bytes"
	"encoding/base64"
	"path"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// FuzzParse holds what every result of Parse promises, whatever the input: no crash, the bounds, clean
// absolute paths each once, no role but the known ones, and findings that have a text.
func FuzzParse(f *testing.F) {
	inputs, err := filepath.Glob("testdata/*.in")
	if err != nil {
		f.Fatal(err)
	}
	for _, input := range inputs {
		data := read(f, input)
		f.Add(data)
		f.Add(pack(f, data))
		f.Add([]byte(base64.StdEncoding.EncodeToString(data)))
		f.Add(mimeOf("text/cloud-config", "quoted-printable", data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		result, findings := Parse(bytes.Clone(data), nil)
		for _, p := range findings {
			if p.Text == "" || p.File == "" {
				t.Errorf("a finding without text or file: %#v", p)
			}
		}
		if findings.Err() != nil {
			return
		}
		var total int
		seen := map[string]bool{}
		for _, file := range result.Files {
			total += len(file.Content)
			if !path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path || seen[file.Path] {
				t.Errorf("path %q: not absolute, not clean, or there twice", file.Path)
			}
			seen[file.Path] = true
			if file.Mode > 0o7777 {
				t.Errorf("%s: mode %o", file.Path, file.Mode)
			}
			r, named, err := role.OfFile(file.Path)
			if err != nil || named && (file.Append || !result.Roles.Has(r)) {
				t.Errorf("%s: append %v, roles %v, %v", file.Path, file.Append, result.Roles, err)
			}
		}
		if total > MaxDecoded {
			t.Errorf("%d bytes of files", total)
		}
	})
}
