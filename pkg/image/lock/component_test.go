package lock

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
)

func parseGood(t *testing.T) *Lock {
	t.Helper()
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, problems := Parse("good.yaml", data)
	if l == nil || len(problems) != 0 {
		t.Fatalf("good.yaml has problems: %v", problems.Err())
	}
	return l
}

// Every finding is listed, with its line and its field.
func TestParseProblems(t *testing.T) {
	for _, name := range []string{"unknown-fields", "duplicate-keys", "syntax", "empty", "two-documents", "wrong", "aliases"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			l, problems := Parse(name+".yaml", data)
			if l != nil {
				t.Error("a lock with errors was returned")
			}
			var b strings.Builder
			for _, p := range problems {
				b.WriteString(p.String() + "\n")
			}
			golden.Assert(t, b.String(), name+".golden")
		})
	}
}

func TestParseGood(t *testing.T) {
	l := parseGood(t)
	if got := l.Kubernetes(); got != "v1.36.3" {
		t.Errorf("Kubernetes() = %q", got)
	}
	pause, ok := l.Component("pause")
	if !ok || pause.Files[0].Mode != 0o644 {
		t.Errorf("pause = %+v, %v: a bare 0644 is octal too", pause, ok)
	}
	if _, ok := l.Component("none"); ok {
		t.Error("a component that is not there was found")
	}
	if got := l.Components[1].Release["amd64"][0].Members["bridge"]; got != "./bridge" {
		t.Errorf("member = %q", got)
	}
}

func TestModeText(t *testing.T) {
	for text, want := range map[string]string{
		"0755": "", "0644": "", "00755": "",
		"755": "not octal", "0o755": "not octal", "0855": "not octal", "": "not octal", "0": "not octal",
		"04755": "nine permission bits", "-0755": "not octal",
	} {
		var m Mode
		err := m.UnmarshalText([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("UnmarshalText(%q) = %v, want %q", text, err, want)
		}
	}
	data, err := json.Marshal(File{Name: "a", Path: "/a", Mode: 0o755})
	if err != nil || string(data) != `{"name":"a","path":"/a","mode":"0755"}` {
		t.Errorf("JSON is %s, %v", data, err)
	}
}

// The fingerprint is of what the lock says, not of how it is written.
func TestFingerprint(t *testing.T) {
	l := parseGood(t)
	print := l.Fingerprint()
	if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(print) {
		t.Fatalf("fingerprint %q is not 12 hex digits", print)
	}
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rewritten := strings.ReplaceAll(string(data), "# A lock", "# Another comment") + "\n# the end\n"
	rewritten = strings.Replace(rewritten, `mode: "0755"`, "mode: 0755", 1)
	if same, problems := Parse("rewritten", []byte(rewritten)); same == nil || same.Fingerprint() != print {
		t.Errorf("comments and quotes changed the fingerprint: %v", problems.Err())
	}
	for _, change := range [][2]string{{"v1.9.1", "v1.9.2"}, {"sha256:46707", "sha256:46708"}, {"mode: 0644", "mode: 0640"}} {
		other, problems := Parse("changed", []byte(strings.Replace(string(data), change[0], change[1], 1)))
		if other == nil || other.Fingerprint() == print {
			t.Errorf("changing %q to %q left the fingerprint: %v", change[0], change[1], problems.Err())
		}
	}
}

func TestPlacements(t *testing.T) {
	const lib, cni, pause = "/usr/lib/hardtack/bin/kubernetes", "/usr/lib/cni/bridge", "/usr/lib/hardtack/images/pause.tar"
	rest := []Placement{{"cni-plugins", cni, 0o755, ""}, {"pause", pause, 0o644, ""}}
	separate := append([]Placement{
		{"kubernetes", "/usr/bin/kubelet", 0o755, ""}, {"kubernetes", "/usr/bin/kubectl", 0o755, ""},
	}, rest...)
	linked := append([]Placement{
		{"kubernetes", lib, 0o755, ""},
		{"kubernetes", "/usr/bin/kubelet", 0o777, "../lib/hardtack/bin/kubernetes"},
		{"kubernetes", "/usr/bin/kubectl", 0o777, "../lib/hardtack/bin/kubernetes"},
	}, rest...)
	l := parseGood(t)
	for source, want := range map[string][]Placement{"release": separate, "auto": separate, "modules": linked} {
		if diff := cmp.Diff(want, l.Placements(source)); diff != "" {
			t.Errorf("Placements(%q) (-want +got):\n%s", source, diff)
		}
	}
	// What has no release can only be placed as modules place it.
	l.Components[0].Release = nil
	if diff := cmp.Diff(linked, l.Placements("release")); diff != "" {
		t.Errorf("without a release (-want +got):\n%s", diff)
	}
}

// A component within another one's program is links to it where that one is compiled, and else has its own program.
func TestPlacementsWithin(t *testing.T) {
	guest := Component{Name: "tunnel", Files: []File{{"agent", "/usr/bin/agent", 0o755, "/usr/lib/hardtack/bin/kubernetes"}, {"server", "/usr/bin/server", 0o755, "/usr/lib/hardtack/bin/kubernetes"}},
		Modules: &Modules{Programs: []Program{{Names: []string{"agent", "server"}, Path: "/usr/bin/tunnel"}}}}
	own := []Placement{{"tunnel", "/usr/bin/tunnel", 0o755, ""}, {"tunnel", "/usr/bin/agent", 0o777, "tunnel"}, {"tunnel", "/usr/bin/server", 0o777, "tunnel"}}
	within := []Placement{{"tunnel", "/usr/bin/agent", 0o777, "../lib/hardtack/bin/kubernetes"}, {"tunnel", "/usr/bin/server", 0o777, "../lib/hardtack/bin/kubernetes"}}
	elsewhere := guest
	elsewhere.Files = slices.Clone(guest.Files)
	elsewhere.Files[1].Within = "/usr/lib/hardtack/bin/other"
	for name, test := range map[string]struct {
		guest  Component
		source string
		want   []Placement
	}{
		"the host is compiled":     {guest, FromModules, within},
		"the host is released":     {guest, FromRelease, own},
		"one of two hosts is none": {elsewhere, FromModules, own},
	} {
		l := parseGood(t)
		l.Components = append(l.Components, test.guest)
		got := slices.DeleteFunc(l.Placements(test.source), func(p Placement) bool { return p.Component != "tunnel" })
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, problems := Parse("fuzz", data)
		if (l == nil) != (problems.Err() != nil) {
			t.Fatalf("lock %v with problems %v", l, problems)
		}
		if l != nil && len(l.Placements(FromRelease)) == 0 {
			t.Fatal("an accepted lock places nothing")
		}
	})
}
