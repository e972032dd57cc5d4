package spec_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func TestComplete(t *testing.T) {
	for name, text := range examples(t) {
		t.Run(name, func(t *testing.T) {
			c := complete(t, text)
			once, err := c.YAML()
			assert.NilError(t, err)
			golden.Assert(t, string(once), filepath.Join(name, "complete.yaml"))
			sameAgain(t, c, once)
		})
	}
}

// pinned is a complete document after another completion: its version is the document's from then on.
func pinned(once []byte) string { return versionLine.ReplaceAllString(string(once), "$1 # user") }

var versionLine = regexp.MustCompile(`(?m)^(version: \S+) # .*$`)

// sameAgain completes a complete document: text, origins and user data stay as they are. The version alone is the document's
// from then on, since it is pinned.
func sameAgain(t *testing.T, c *spec.Complete, once []byte) {
	t.Helper()
	again := complete(t, string(once))
	twice, err := again.YAML()
	assert.NilError(t, err)
	assert.Equal(t, pinned(once), string(twice))
	for _, g := range c.Groups {
		a, err := c.UserData(g.Name, []byte(testCA))
		assert.NilError(t, err)
		b, err := again.UserData(g.Name, []byte(testCA))
		assert.NilError(t, err)
		assert.Equal(t, string(a), string(b))
	}
}
