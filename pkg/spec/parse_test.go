package spec_test

import (
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// findings are all findings of a document, of both stages.
func findings(tb testing.TB, text string) problem.List {
	tb.Helper()
	c, found := spec.Parse("cluster.yaml", []byte(text))
	if found.Err() != nil {
		assert.Assert(tb, c == nil)
		return found
	}
	done, more := c.Complete(readImage(tb))
	assert.Equal(tb, done == nil, more.Err() != nil)
	return append(found, more...)
}

// Every wrong document has all its findings at once, each with its line.
func TestFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	assert.NilError(t, err)
	assert.Assert(t, len(files) > 2)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			found := findings(t, string(golden.Get(t, strings.TrimPrefix(file, "testdata/"))))
			assert.Assert(t, found.Err() != nil, "nothing is found")
			var lines []string
			for _, p := range found {
				lines = append(lines, p.String())
			}
			golden.Assert(t, strings.Join(lines, "\n")+"\n", strings.TrimPrefix(strings.TrimSuffix(file, ".yaml"), "testdata/")+".txt")
		})
	}
}

// A document that is short of something says so.
func TestFormFindings(t *testing.T) {
	head := "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"
	tests := map[string]string{
		"":                                "empty",
		"a: b: c":                         "mapping values",
		"- a":                             "is a list, a mapping is expected",
		head + "name: again\n":            "already defined",
		head + "---\n" + head:             "second YAML document",
		head + "network: 3\n":             `network: is "3", a mapping is expected`,
		"apiVersion: v1\nkind: Pod\n":     "hardtack.dev/v1",
		head + "version: 1.99\n":          "1.34, 1.35, 1.36",
		head + "version: 1.36.2\n":        "the patch is that of the image's lock",
		head + "version: v1.36\n":         "write 1.36",
		head + "groups: []\n":             "is empty",
		strings.Repeat("#", 1<<20) + "\n": "larger than",
	}
	for text, want := range tests {
		err := findings(t, text).Err()
		assert.Assert(t, err != nil && strings.Contains(err.Error(), want), "%.60q gives %v, want %q", text, err, want)
	}
}

// What is not an error is said all the same.
func TestWarnings(t *testing.T) {
	found := findings(t, `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
kubeAPIServer:
  flags:
    feature-gates: {kube:AllAlfa: true, AllBeta: false}
kubelet:
  flags:
    cgroup-driver: systemd
  config:
    featureGates:
      AllBetta: true
fileAssets:
- path: /etc/program.env
  content: DB_PASSWORD=not-in-user-data
`)
	assert.NilError(t, found.Err())
	var lines []string
	for _, p := range found {
		lines = append(lines, p.String())
	}
	assert.DeepEqual(t, lines, []string{
		`cluster.yaml:6: kubeAPIServer.flags.feature-gates: warning: kube-apiserver v1.36.3 lists no feature gate AllAlfa (did you mean "AllAlpha"?)`,
		`cluster.yaml:9: kubelet.flags.cgroup-driver: warning: --cgroup-driver is deprecated (set the field of kubelet.config)`,
		`cluster.yaml:12: kubelet.config.featureGates.AllBetta: warning: kubelet v1.36.3 lists no feature gate AllBetta (did you mean "AllBeta"?)`,
		`cluster.yaml:14: fileAssets[0]: warning: seems to hold a password, and every process of the machine can read user data (bring it to the machine by the cluster's store, which its role can read and others cannot)`,
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range examples(f) {
		f.Add([]byte(text))
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("apiVersion: hardtack.dev/v1\nkind: Cluster\nname: a\ngroups:\n- {name: a, roles: [etcd, masters], members: [a]}\nhooks: [{name: a, manifest: '['}]\n"))
	image := readImage(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, found := spec.Parse("f", data)
		if found.Err() != nil {
			return
		}
		done, found := c.Complete(image)
		if found.Err() != nil {
			return
		}
		once, err := done.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, found := spec.Parse("f", once)
		if err := found.Err(); err != nil {
			t.Fatalf("a complete document is refused: %v\n%s", err, once)
		}
		twice, found := again.Complete(image)
		if err := found.Err(); err != nil {
			t.Fatalf("a complete document does not complete: %v", err)
		}
		text, err := twice.YAML()
		if err != nil || string(text) != pinned(once) {
			t.Fatalf("completing twice is not completing once: %v", err)
		}
		for _, g := range done.Groups {
			a, err1 := done.UserData(g.Name, nil)
			b, err2 := twice.UserData(g.Name, nil)
			if string(a) != string(b) || (err1 == nil) != (err2 == nil) || len(a) > spec.MaxUserData {
				t.Fatalf("user data differs or is too long: %v, %v", err1, err2)
			}
		}
	})
}

func BenchmarkComplete(b *testing.B) {
	text := []byte(examples(b)["everything"])
	image := readImage(b)
	for b.Loop() {
		c, _ := spec.Parse("cluster.yaml", text)
		if _, found := c.Complete(image); found.Err() != nil {
			b.Fatal(found.Err())
		}
	}
}

func BenchmarkUserData(b *testing.B) {
	c := complete(b, examples(b)["everything"])
	for b.Loop() {
		if _, err := c.UserData("workers", []byte(testCA)); err != nil {
			b.Fatal(err)
		}
	}
}
