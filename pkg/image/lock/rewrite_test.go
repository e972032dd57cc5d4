package lock

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRewriteKeepsEverythingElse(t *testing.T) {
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), "version: v1.36.3", "version: \"v1.36.3\"  # the newest\n\n    # and why", 1)
	digest := "sha256:" + strings.Repeat("ab", 32)
	got, err := Rewrite("good.yaml", []byte(text), map[string]string{
		"components[0].version":                         "v1.36.10",
		"components[0].release.amd64[0].digest":         digest,
		"components[1].release.amd64[0].size":           "7",
		"components[1].files[0].path":                   "/usr/lib/cni/bridge2",
		"components[2].version":                         "3.10.2",
		"components[2].release.arm64[0].url":            "oci://registry.k8s.io/pause:3.10.2",
		"components[1].release.amd64[0].members.bridge": "./bridge2",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		`version: "v1.36.3"`, `version: "v1.36.10"`,
		"sha256:46707a53209f826ad0f0d62371ac69cd00e78fd9a8176cf5f6f87f18f7f8b718", digest,
		"size: 50000000", "size: 7",
		"/usr/lib/cni/bridge,", "/usr/lib/cni/bridge2,",
		"version: 3.10.1", "version: 3.10.2",
		"oci://registry.k8s.io/pause:3.10.1", "oci://registry.k8s.io/pause:3.10.2",
		"{bridge: ./bridge}", "{bridge: ./bridge2}",
	).Replace(text)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("rewritten (-want +got):\n%s", diff)
	}
}

func TestRewriteRefuses(t *testing.T) {
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	folded := strings.Replace(string(data), "version: v1.36.3", "version: >-\n      v1.36.3", 1)
	commented := func(between string) string {
		return "# from" + between + strings.Repeat("# somewhere"+between, 200) + "\n" + string(data)
	}
	for name, test := range map[string]struct{ text, field, value, want string }{
		"no such field":     {string(data), "components[0].release.amd64[0].size", "1", "it has no scalar components[0].release.amd64[0].size"},
		"not a scalar":      {string(data), "components", "1", "it has no scalar components"},
		"folded":            {folded, "components[0].version", "v2", "not written plainly"},
		"makes a bad lock":  {string(data), "components[0].release.amd64[0].digest", "sha256:1", "what came out is no lock"},
		"is no YAML at all": {"a: [", "a", "1", "rewriting"},
		"line separators":   {"\n" + commented("\u2028"), "components[0].version", "v2", `x.yaml:2: '\u2028' ends a line`},
		"next lines":        {commented("\u0085"), "components[0].version", "v2", `x.yaml:1: '\u0085' ends a line`},
		"paragraphs":        {commented("\u2029"), "components[0].version", "v2", `x.yaml:1: '\u2029' ends a line`},
		"carriage returns":  {commented("\r"), "components[0].version", "v2", `x.yaml:1: '\r' ends a line`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Rewrite("x.yaml", []byte(test.text), map[string]string{test.field: test.value}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}
