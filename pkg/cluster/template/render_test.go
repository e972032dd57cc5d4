package template_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// ca has the form of a certificate; its content does not matter here.
const ca = "-----BEGIN CERTIFICATE-----\nMIIBAA==\n-----END CERTIFICATE-----\n"

// documents are the clusters of the tests, by the names of their golden templates.
var documents = []string{"default", "three", "large", "rich", "ingress"}

func complete(t *testing.T, text string) *spec.Complete {
	t.Helper()
	image, err := spec.ReadImage(units.FS, images.FS)
	assert.NilError(t, err)
	c, problems := spec.Parse("cluster.yaml", []byte(text))
	assert.NilError(t, problems.Err())
	done, problems := c.Complete(image)
	assert.NilError(t, problems.Err())
	return done
}

func document(t *testing.T, name string) *spec.Complete {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".cluster.yaml"))
	assert.NilError(t, err)
	return complete(t, string(text))
}

// openings are what the units of an image with the role ingress open, for the documents that have a group of it.
func openings(c *spec.Complete) []role.Opening {
	const ingress = role.Role("ingress")
	if !slices.ContainsFunc(c.Groups, func(g spec.Group) bool { return g.Roles.Has(ingress) }) {
		return nil
	}
	return []role.Opening{
		{Role: ingress, Protocol: "tcp", First: 80, Last: 80, From: role.Set{role.Minions}, Ranges: []string{"10.0.0.0/8", "2001:db8::/32"}},
		{Role: role.Minions, Protocol: "tcp", First: 30000, Last: 32767, From: role.Set{ingress, "nobody"}},
		{Role: role.Minions, Protocol: "tcp", First: role.KubeletPort, Last: role.KubeletPort, From: role.Set{role.Minions}}, // as it is anyway
		{Protocol: "udp", First: 9100, Last: 9100, From: role.Set{role.Minions}},
	}
}

func render(t *testing.T, c *spec.Complete) *template.Template {
	t.Helper()
	template, err := template.Render(c, []byte(ca), template.Openings(openings(c)))
	assert.NilError(t, err)
	return template
}

func TestRender(t *testing.T) {
	for _, name := range documents {
		t.Run(name, func(t *testing.T) {
			c := document(t, name)
			data, err := render(t, c).YAML()
			assert.NilError(t, err)
			golden.Assert(t, string(data), name+".template.yaml")
			again, err := render(t, c).YAML()
			assert.NilError(t, err)
			assert.Equal(t, string(again), string(data), "the same cluster gives another template")
		})
	}
}

// podRoles has both ways in which a role for pods may do something.
const podRoles = `serviceAccounts: {issuer: "https://demo-tokens.s3.us-west-2.amazonaws.com/a"}
aws:
  podRoles:
  - {name: uploader, allow: [{actions: [s3:GetObject, s3:PutObject], resources: ["arn:aws:s3:::demo-data/*"]}]}
  - {name: dns-writer, namespace: kube-system, serviceAccount: external-dns, policies: ["arn:aws:iam::aws:policy/AmazonRoute53FullAccess"]}
`

func TestTemplateIsLintClean(t *testing.T) {
	if _, err := exec.LookPath("cfn-lint"); err != nil {
		t.Skip("cfn-lint is not installed: run scripts/setup --judges")
	}
	var files []string
	for _, name := range documents {
		files = append(files, filepath.Join("testdata", name+".template.yaml"))
	}
	for i, document := range []string{
		"launchHook: none", "aws: {secretsKey: alias/mine}", "aws: {loadBalancer: internet-facing}", "groups: [{name: all, roles: [masters, minions, etcd]}]",
		"groups: [{name: minions, roles: [minions]}]\naws: {loadBalancer: internal}",
		"groups: [{name: masters, roles: [masters, etcd], members: [a, b, c]}, {name: minions, roles: [minions], size: 0}]",
		podRoles, cloudAddons,
	} {
		data, err := render(t, complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+document+"\n")).YAML()
		assert.NilError(t, err)
		files = append(files, filepath.Join(t.TempDir(), fmt.Sprintf("%d.yaml", i)))
		assert.NilError(t, os.WriteFile(files[len(files)-1], data, 0o600))
	}
	key, err := template.Key(document(t, "three")).YAML()
	assert.NilError(t, err)
	files = append(files, filepath.Join(t.TempDir(), "key.yaml"))
	assert.NilError(t, os.WriteFile(files[len(files)-1], key, 0o600))
	if out, err := exec.CommandContext(t.Context(), "cfn-lint", files...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("cfn-lint: %v\n%s", err, out)
	}
}

// The user data is the output of `hardtack userdata`.
func TestUserDataIsUnchanged(t *testing.T) {
	for _, name := range documents {
		c := document(t, name)
		resources := render(t, c).Resources
		seen := 0
		for _, g := range c.Groups {
			want, err := c.UserData(g.Name, []byte(ca))
			assert.NilError(t, err)
			for _, r := range resources {
				if r.Type != "AWS::EC2::LaunchTemplate" || r.Properties["LaunchTemplateName"] != c.AutoScaling(g) {
					continue
				}
				seen++
				got, err := base64.StdEncoding.DecodeString(r.Properties["LaunchTemplateData"].(map[string]any)["UserData"].(string))
				assert.NilError(t, err)
				assert.Equal(t, string(got), string(want), "%s of %s", g.Name, name)
			}
		}
		assert.Equal(t, seen, len(c.Groups), "launch templates of %s", name)
	}
}

// doc.go lists all that a stand-in for CloudFormation needs to support.
func TestDocListsResourceTypes(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	assert.NilError(t, err)
	for _, name := range documents {
		for id, r := range render(t, document(t, name)).Resources {
			kind := r.Type
			if rest, ok := strings.CutPrefix(kind, "AWS::ElasticLoadBalancingV2"); ok {
				kind = rest
			}
			if !strings.Contains(string(text), kind) {
				t.Errorf("doc.go does not list %s, of which %s is", r.Type, id)
			}
		}
	}
}
