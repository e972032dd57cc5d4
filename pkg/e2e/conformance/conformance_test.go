package conformance

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"gotest.tools/v3/assert"
)

// TestRead reads a report that ginkgo has written: of four specs one was not asked for.
func TestRead(t *testing.T) {
	data, err := os.ReadFile("testdata/report.json")
	assert.NilError(t, err)
	got, err := Read(data)
	assert.NilError(t, err)
	for i := range got {
		assert.Assert(t, got[i].Seconds > 0)
		got[i].Seconds = 0
	}
	assert.DeepEqual(t, got, []Result{
		{Name: "[sig-x] Ships should float [Conformance]", Outcome: Passed},
		{Name: "[sig-x] Ships should not sink [Conformance]", Outcome: "failed", Failure: "it sank"},
		{Name: "[sig-x] Ships should wait for the tide [Conformance]", Outcome: "skipped", Failure: "no tide"},
	})
}

// TestPictures: every name is one that a registry takes, once, and every program is one that is compiled, or a file of the module.
func TestPictures(t *testing.T) {
	var names []string
	for _, p := range pictures {
		names = append(names, p.names...)
		for to, program := range p.programs {
			known := program == "etcd" || slices.ContainsFunc(slices.Concat(imagePrograms, imageFiles), func(of string) bool { return path.Base(of) == program })
			assert.Assert(t, known, "%s of %s is neither compiled nor copied", to, p.names[0])
		}
	}
	for i, n := range names {
		_, err := name.NewTag(n, name.StrictValidation)
		assert.NilError(t, err)
		assert.Assert(t, !slices.Contains(names[:i], n), "%s is made twice", n)
	}
}

// TestModules: the suite is of the version that is said.
func TestModules(t *testing.T) {
	assert.Assert(t, strings.Contains(string(modules), "\n\tk8s.io/kubernetes "+Version+"\n"))
}
