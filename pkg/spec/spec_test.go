package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/images/imagestest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// testCA stands for the public CA; what it says is nobody's matter here.
const testCA = "-----BEGIN CERTIFICATE-----\nMIIBAA==\n-----END CERTIFICATE-----\n"

func TestMain(m *testing.M) {
	golden.NormalizeCRLFToLF = false // the lines of a MIME message end with CRLF
	m.Run()
}

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
	data, err := c.UserData(g.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > spec.MaxUserData {
		t.Errorf("is %d bytes, more than the %d that fit", len(data), spec.MaxUserData)
	}
	golden.Assert(t, string(data), file)
	result, problems := userdata.Parse(data, nil)
	for _, p := range problems {
		if p.Rule != userdata.RuleNotRun {
			t.Errorf("the machine's own reader finds %v", p)
		}
	}
	if result.Roles.String() != g.Roles.String() {
		t.Errorf("a machine becomes %s, and the group is %s", result.Roles, g.Roles)
	}
	hash, err := c.Hash(g.Name, nil)
	if err != nil || hash != machine.Hash(data) {
		t.Errorf("hash %s, %v", hash, err)
	}
	sameOnMachine(t, c, g, data, result.Files)
}

// sameOnMachine reads the user data as a machine of the group does, and compares what that makes of it with the document:
// what user data leaves out has to follow from the image, the instance and the cluster's own facts.
func sameOnMachine(t *testing.T, c *spec.Complete, g spec.Group, data []byte, files []userdata.File) {
	t.Helper()
	written := map[string]string{}
	for _, f := range files {
		written[f.Path] = string(f.Content)
	}
	root := imagestest.Root(t, written)
	cloud := strings.HasPrefix(c.Cluster.Store, "ssm:")
	conf, err := config.Read(root, config.Hardware{Metadata: cloud, Why: "this is a test", UserData: strings.TrimPrefix(machine.Hash(data), machine.HashPrefix)})
	if err != nil {
		t.Fatal(err)
	}
	if err := conf.Agree(c.Info(), "the store"); err != nil {
		t.Error(err)
	}
	want := c.Machine(g)
	if g.Roles.Has(role.Etcd) {
		tag := ""
		if cloud {
			tag = g.Member
		}
		if err := conf.Member(tag, "there is no tag"); err != nil {
			t.Error(err)
		}
	}
	got := conf.Config
	// The group is the instance's to know, and members are nobody's business but etcd's and its clients'.
	want.Group, want.APIVersion, want.Kind, want.ConfigHash = "", "", "", machine.Hash(data)
	want.LaunchHook = c.LaunchHook()
	want.Etcd.Members, got.Etcd.Members = nil, nil
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-document +machine\n%s", diff)
	}
}

// TestUserDataIsTheRoleFile: a machine of a default group of a default cluster is told its role and its cluster's name.
func TestUserDataIsTheRoleFile(t *testing.T) {
	c := complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: cncfdemo\n")
	data, err := c.UserData("minions", nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "#cloud-config\nwrite_files:\n- path: /etc/sysconfig/kubernetes-minions\n  content: |\n    CLUSTER_NAME=cncfdemo\n"
	if string(data) != want {
		t.Errorf("%s\nwant\n%s", data, want)
	}
	for _, g := range c.Groups {
		data, err := c.UserData(g.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if limit := 120 * len(g.Roles); len(data) > limit {
			t.Errorf("group %s: %d bytes for %d role files, over %d", g.Name, len(data), len(g.Roles), limit)
		}
	}
	// A file of one machine comes before the role file, which makes the machine what it is.
	one, err := c.UserData("minions", nil, spec.File{Path: "/etc/hardtack/x", Content: []byte("x\n"), Mode: "0600"})
	mine := strings.Replace(want, "- path", "- path: /etc/hardtack/x\n  permissions: \"0600\"\n  content: |\n    x\n- path", 1)
	if err != nil || string(one) != mine {
		t.Errorf("%v\n%s\nwant\n%s", err, one, mine)
	}
	// A CA is in it where it is given, and then the hash is another.
	with, err := c.UserData("minions", []byte(testCA))
	if err != nil || !strings.Contains(string(with), machine.CAPath) {
		t.Errorf("%s, %v", with, err)
	}
}
