package spec

import (
	"bytes"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// Everything that the image runs for the cluster is in the table of components, and upstream is known for each. Without any
// one of its lines the table would be found to be incomplete.
func TestComponents(t *testing.T) {
	assert.DeepEqual(t, missing(t, components), []string(nil))
	for i, c := range components {
		assert.Assert(t, c.name != "" && c.executable != "" && c.release != "", "%+v", c)
		rest := slices.Delete(slices.Clone(components), i, i+1)
		assert.Assert(t, len(missing(t, rest)) > 0, "nothing shows that %s is missing", c.name)
	}
}

// missing lists what the image and the files about upstream have and the table has not, and the reverse.
func missing(t *testing.T, table []component) (found []string) {
	t.Helper()
	has := func(is func(component) bool, what string) {
		if !slices.ContainsFunc(table, is) {
			found = append(found, what)
		}
	}
	services, err := fs.Glob(units.FS, "*.service")
	assert.NilError(t, err)
	for _, name := range services {
		if !strings.HasPrefix(name, "hardtack-") {
			has(func(c component) bool { return c.unit() == name }, name)
		}
	}
	manifests, err := fs.Glob(images.FS, "rootfs"+imageAddons+"/*.yaml")
	assert.NilError(t, err)
	for _, name := range manifests {
		data, err := fs.ReadFile(images.FS, name)
		assert.NilError(t, err)
		if bytes.Contains(data, []byte("kind: Deployment")) {
			has(func(c component) bool { return "rootfs"+c.documentPath == name }, name)
		}
	}
	for _, version := range Versions() {
		u, err := readUpstream(version)
		assert.NilError(t, err)
		for name := range u.Flags {
			has(func(c component) bool { return c.name == name }, version+": flags of "+name)
		}
		for name := range u.Documents {
			has(func(c component) bool { return c.name == name }, version+": document of "+name)
		}
		for _, c := range table {
			if u.Versions[c.release] == "" || c.unit() != "" && u.Flags[c.name] == nil && u.Documents[c.name].Defaults == nil {
				found = append(found, version+": nothing is known of "+c.name)
			}
		}
	}
	return found
}

// What is derived from the cluster goes to a component of the table.
func TestDerivations(t *testing.T) {
	f := completer{out: &Complete{Cluster: &Cluster{Name: "demo"}, Groups: []Group{{Members: []string{"a"}}}}}
	for _, d := range append(f.derivedFlags(), f.derivedFields()...) {
		assert.Assert(t, slices.ContainsFunc(components, func(c component) bool { return c.name == d.component }), "there is no component %s", d.component)
	}
}
