package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/pkg/userdata"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// testCA stands for the public CA; what it says is nobody's matter here.
const testCA = "-----BEGIN CERTIFICATE-----\nMIIBAA==\n-----END CERTIFICATE-----\n"

func readImage(tb testing.TB) *spec.Image {
	tb.Helper()
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		tb.Fatal(err)
	}
	return image
}

// complete parses and completes a document that must be right.
func complete(tb testing.TB, text string) *spec.Complete {
	tb.Helper()
	c, problems := spec.Parse("cluster.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		tb.Fatal(err)
	}
	done, problems := c.Complete(readImage(tb))
	if err := problems.Err(); err != nil {
		tb.Fatal(err)
	}
	return done
}

// examples are the documents below testdata.
func examples(tb testing.TB) map[string]string {
	tb.Helper()
	files, err := filepath.Glob("testdata/*/cluster.yaml")
	if err != nil || len(files) == 0 {
		tb.Fatalf("finding examples: %v, %v", files, err)
	}
	found := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		found[filepath.Base(filepath.Dir(f))] = string(data)
	}
	return found
}

func TestUserData(t *testing.T) {
	for name, text := range examples(t) {
		c := complete(t, text)
		for _, g := range c.Groups {
			t.Run(name+"/"+g.Name, func(t *testing.T) { checkUserData(t, c, g, filepath.Join(name, g.Name+".userdata")) })
		}
	}
}

func checkUserData(t *testing.T, c *spec.Complete, g spec.Group, file string) {
	t.Helper()
	data, err := c.UserData(g.Name, []byte(testCA))
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > spec.MaxUserData {
		t.Errorf("is %d bytes, more than the %d that fit", len(data), spec.MaxUserData)
	}
	golden.AssertBytes(t, data, file)
	result, problems := userdata.Parse(data)
	for _, p := range problems {
		if p.Rule != userdata.RuleNotRun {
			t.Errorf("the machine's own reader finds %v", p)
		}
	}
	if result.Roles.String() != g.Roles.String() {
		t.Errorf("a machine becomes %s, and the group is %s", result.Roles, g.Roles)
	}
	hash, err := c.Hash(g.Name, []byte(testCA))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Files {
		if f.Path != machine.Path {
			continue
		}
		m, problems := machine.Parse(machine.Path, f.Content)
		if len(problems) > 0 {
			t.Fatalf("the agent finds %v", problems)
		}
		if m.ConfigHash != hash || m.Group != c.AutoScaling(g) {
			t.Errorf("%s says %s of group %s, want %s of %s", f.Path, m.ConfigHash, m.Group, hash, c.AutoScaling(g))
		}
		return
	}
	t.Errorf("there is no %s in the user data:\n%s", machine.Path, strings.TrimSpace(string(data)))
}
