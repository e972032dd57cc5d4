package unit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

func TestIsUnit(t *testing.T) {
	for name, want := range map[string]bool{
		"x.service": true, "x@.service": true, "x.slice": true, "x.target": true, "x.socket": true, "x.timer": true, "x.path": true,
		"var-lib-x.mount": true, "x.automount": true, "x.swap": true,
		"x.conf": false, "x": false, "service": false, "x.service.d": false, "README.md": false, "": false,
	} {
		if got := unit.IsUnit(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

// Drop-ins are read after their unit, by the order of their names; a unit's name may have a backslash (systemd.unit(5), "String
// Escaping for Inclusion in Unit Names"). A directory is no unit, whatever its name.
func TestLoadDropIns(t *testing.T) {
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for _, name := range []string{"x.service", `var-lib-a\x2db.mount`, "x@[y].service"} {
		fsys := fstest.MapFS{
			name:                      text("[Unit]\nDescription=a\n"),
			name + ".d/20-c.conf":     text("[Unit]\nDescription=c\n"),
			name + ".d/10-b.conf":     text("[Unit]\nDescription=b\n"),
			name + ".d/30-d.txt":      text("[Unit]\nDescription=d\n"),
			"other.service.d/10.conf": text("[Unit]\nDescription=o\n"),
			"dir.service/10.conf":     text("[Unit]\nDescription=x\n"),
		}
		us, found := unit.Load(fsys)
		if len(found) > 0 || len(us) != 1 || us[0].Name != name {
			t.Errorf("%s: %v, %v", name, us, found)
			continue
		}
		var values, files []string
		for _, o := range us[0].Values("Unit", "Description") {
			values, files = append(values, o.Value), append(files, o.File)
		}
		if !slices.Equal(values, []string{"a", "b", "c"}) || !slices.Equal(files, []string{name, name + ".d/10-b.conf", name + ".d/20-c.conf"}) {
			t.Errorf("%s: %v of %v", name, values, files)
		}
		if got := unit.DropIns(fsys, name); !slices.Equal(got, files[1:]) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := unit.DropIns(fstest.MapFS{}, "x.service"); len(got) != 0 {
		t.Errorf("of a unit that has none: %v", got)
	}
}

// What cannot be read is a finding, and no unit.
func TestLoadWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, "x.service")); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		fsys fs.FS
		file string
	}{
		"no directory":          {os.DirFS(filepath.Join(dir, "nowhere")), ""},
		"a link that is broken": {os.DirFS(dir), "x.service"},
	} {
		us, found := unit.Load(tt.fsys)
		if len(us) != 0 || len(found) != 1 {
			t.Errorf("%s: %v, %v", name, us, found)
			continue
		}
		p := found[0]
		if p.Severity != problem.Error || p.Rule != unit.RuleSyntax || p.File != tt.file || !strings.Contains(p.Text, "no such file") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Where readers of a file disagree it is refused, at the first line about which they do.
func TestParseRefusesWhatReadersDisagreeAbout(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		line int
	}{
		"a name":    {"[U]\n#c\\\nA=a\nA=a\nB=a\n", 4},
		"a value":   {"[U]\n#c\\\nA=a\nA=b\nA=c\n", 3},
		"a section": {"[U\\\n]\nA=a\n", 3},
		"more options for others than for systemd, which reads a section over two lines": {"[U]\n#c\\\n[U]\\\r\nB=[[U]\n", 0},
		"fewer options for others": {"[U]\nA=a\n#c\\\nB=b\n", 4},
	} {
		options, found := unit.Parse("x", []byte(tt.text))
		if len(options) > 0 || len(found) != 1 || found[0].Line != tt.line || found[0].Severity != problem.Error || found[0].File != "x" {
			t.Errorf("%s: %v, %+v", name, options, found)
		}
	}
}

// An empty assignment takes back those before it, and one of another section or name says nothing.
func TestValues(t *testing.T) {
	u := parse(t, "[Unit]\nAfter=a\nAfter=\nAfter=b\nAfter=c\nBefore=d\n[Service]\nAfter=e\n[Install]\nAlias=x\nAlias=\n")
	for name, tt := range map[string]struct {
		section, name string
		want          []string
		last          string
	}{
		"taken back":           {"Unit", "After", []string{"b", "c"}, "c"},
		"one":                  {"Unit", "Before", []string{"d"}, "d"},
		"of another section":   {"Service", "After", []string{"e"}, "e"},
		"all taken back":       {"Install", "Alias", nil, ""},
		"none":                 {"Unit", "Wants", nil, ""},
		"none of this section": {"Service", "Before", nil, ""},
	} {
		var got []string
		for _, o := range u.Values(tt.section, tt.name) {
			got = append(got, o.Value)
		}
		if last := u.Value(tt.section, tt.name).Value; !slices.Equal(got, tt.want) || last != tt.last {
			t.Errorf("%s: %q, the last is %q", name, got, last)
		}
	}
	// A condition counts in [Unit] only.
	if u := parse(t, "[Service]\nConditionPathExists=/etc/sysconfig/kubernetes-masters\n"); !u.Starts(nil) {
		t.Error("a condition in [Service] keeps a unit from starting")
	}
}

// What an image has of Debian, beside its own files: links to /usr, and the programs of packages that every image has.
func TestOnDebian(t *testing.T) {
	tree := paths{"/usr/bin/own", "/sbin/mine", "/etc/own", "/opt/own"}
	for file, want := range map[string][2]bool{ // with these packages, and with more
		"/usr/bin/own":         {true, true},
		"/bin/own":             {true, true},
		"/sbin/mine":           {true, true},
		"/usr//bin/../bin/own": {true, true},
		"/usr/sbin/mine":       {false, true},
		"/bin/sh":              {true, true},
		"/usr/bin/sh":          {true, true},
		"/sbin/modprobe":       {true, true},
		"/bin/modprobe":        {false, true},
		"/lib/x":               {false, true},
		"/usr/libexec/x":       {false, true},
		"/usr/share/x":         {false, true},
		"/etc/own":             {true, true},
		"/etc/x":               {false, true},
		"/opt/own":             {true, true},
		"/opt/x":               {false, false},
		"/usr/x":               {false, false},
		"/etc/../opt/x":        {false, false},
		"/usr/local/bin/x":     {false, false},
	} {
		if got := [2]bool{unit.OnDebian(tree).Has(file), unit.OnDebianWithMore(tree).Has(file)}; got != want {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
}
