package spec_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// schemaOf compiles the schema of a version, which also checks it against the schema of schemas.
func schemaOf(t *testing.T, version string) *jsonschema.Schema {
	t.Helper()
	data, err := spec.JSONSchema(version)
	assert.NilError(t, err)
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	assert.NilError(t, err)
	c := jsonschema.NewCompiler()
	assert.NilError(t, c.AddResource("cluster.json", text))
	out, err := c.Compile("cluster.json")
	assert.NilError(t, err)
	return out
}

// valid is what a schema says of a document in YAML, as an editor reads it.
func valid(t *testing.T, s *jsonschema.Schema, document string) error {
	t.Helper()
	var v any
	assert.NilError(t, yaml.Unmarshal([]byte(document), &v))
	data, err := json.Marshal(v)
	assert.NilError(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	assert.NilError(t, err)
	return s.Validate(value)
}

// load is what the program itself says of a document.
func load(t *testing.T, document string) error {
	t.Helper()
	image, err := spec.ReadImage(units.FS, images.FS)
	assert.NilError(t, err)
	_, _, err = spec.Load(image, "cluster.yaml", []byte(document))
	return err
}

const head = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"

// What the program takes, the schema takes: every document that is shipped, completed or not.
func TestJSONSchemaTakes(t *testing.T) {
	s := schemaOf(t, spec.DefaultVersion)
	example, err := spec.Example()
	assert.NilError(t, err)
	documents := map[string]string{"example": string(example), "minimal": string(spec.Minimal("demo"))}
	for _, pattern := range []string{"testdata/*/cluster.yaml", "testdata/*/complete.yaml"} {
		files, err := filepath.Glob(pattern)
		assert.NilError(t, err)
		assert.Assert(t, len(files) > 2)
		for _, file := range files {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			documents[file] = string(text)
		}
	}
	for name, text := range map[string]string{
		"null":    "groups: null\nkubelet: {config: {maxPods: null}}\nkubeAPIServer: {flags: {profiling: null}}\n",
		"version": "version: \"1.36\"\n",
		"number":  "version: 1.36\n",
	} {
		documents[name] = head + text
	}
	for name, text := range documents {
		t.Run(name, func(t *testing.T) {
			assert.NilError(t, load(t, text))
			assert.NilError(t, valid(t, s, text))
		})
	}
}

// What the schema refuses, the program refuses; and nothing of a document's form escapes the schema.
func TestJSONSchemaRefuses(t *testing.T) {
	s := schemaOf(t, spec.DefaultVersion)
	group := func(more string) string {
		return "groups:\n- {name: all, roles: [masters, etcd, minions]" + more + "}\n"
	}
	for name, text := range map[string]string{
		"no name":                 strings.Replace(head, "name: demo\n", "", 1),
		"no kind":                 strings.Replace(head, "kind: Cluster\n", "", 1),
		"another format":          strings.Replace(head, "hardtack.dev/v1", "hardtack.dev/v2", 1),
		"another kind":            strings.Replace(head, "Cluster", "Machine", 1),
		"an unknown field":        head + "size: 3\n",
		"an unknown field below":  head + "network: {podCidr: 10.0.0.0/14}\n",
		"an unknown version":      head + "version: \"1.12\"\n",
		"a patch":                 head + "version: 1.36.3\n",
		"text for a number":       head + "api: {port: https}\n",
		"half a number":           head + "etcd: {size: 2.5}\n",
		"a list for text":         head + "store: [a]\n",
		"text for a list":         head + "groups: masters\n",
		"a group without roles":   head + "groups:\n- {name: masters}\n",
		"a group without a name":  head + "groups:\n- {roles: [masters, etcd, minions]}\n",
		"a boolean":               head + group(", node: {podsReachMetadata: perhaps}"),
		"a naming":                head + group(", node: {naming: by-hand}"),
		"a notice":                head + group(", aws: {notices: {spot: panic}}"),
		"a balancer":              head + "aws: {loadBalancer: public}\n",
		"a standard":              head + "podSecurity: strict\n",
		"a storage":               head + "etcd: {storage: cloud}\n",
		"an unknown flag":         head + "kubeAPIServer: {flags: {secure-prot: 443}}\n",
		"an unknown flag of etcd": head + "etcd: {flags: {quota: 1}}\n",
		"an unknown field's name": head + "kubelet: {config: {maxPod: 60}}\n",
		"a field deep below":      head + "kubelet: {config: {authentication: {webhook: {enable: true}}}}\n",
		"a field's type":          head + "kubelet: {config: {maxPods: many}}\n",
		"no such document":        head + "kubeAPIServer: {config: {port: 443}}\n",
		"a hook without a name":   head + "hooks:\n- {manifest: ExecStart=/bin/true}\n",
		"a hook without a unit":   head + "hooks:\n- {name: tune}\n",
		"a file without a path":   head + "fileAssets:\n- {content: x}\n",
		"a part without a name":   head + "additionalUserData:\n- {content: x, type: text/x-shellscript}\n",
		"a role without a name":   head + "aws: {podRoles: [{serviceAccount: x, policies: [\"arn:aws:iam::aws:policy/X\"]}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			assert.Assert(t, load(t, text) != nil, "the program takes it")
			assert.Assert(t, valid(t, s, text) != nil, "the schema takes it")
		})
	}
}

// Each version has its flags, and its documents name it.
func TestJSONSchemaVersions(t *testing.T) {
	for _, version := range spec.Versions() {
		s := schemaOf(t, version)
		assert.NilError(t, valid(t, s, head+"version: \""+version+"\"\n"))
		assert.Equal(t, valid(t, s, head) == nil, version == spec.DefaultVersion)
		assert.Assert(t, valid(t, s, head+"version: \"1.0\"\n") != nil)
	}
	_, err := spec.JSONSchema("1.12")
	assert.ErrorContains(t, err, `"1.12" is none of the versions that this program knows`)
}

// The example has every field of Hardtack's own and every component, and each has its meaning before it.
func TestExample(t *testing.T) {
	text, err := spec.Example()
	assert.NilError(t, err)
	_, problems := spec.Parse("example.yaml", text)
	assert.NilError(t, problems.Err())
	var root yaml.Node
	assert.NilError(t, yaml.Unmarshal(text, &root))
	commented := map[string]bool{}
	readFields(root.Content[0], "", commented)
	var fields map[string]string
	data, err := os.ReadFile("fields.json")
	assert.NilError(t, err)
	assert.NilError(t, json.Unmarshal(data, &fields))
	assert.Assert(t, len(fields) > 90)
	for field := range fields {
		explained, has := commented[field]
		assert.Assert(t, has, "the example has no %s", field)
		assert.Assert(t, explained, "the example does not explain %s", field)
	}
	for _, c := range spec.ComponentNames() {
		assert.Assert(t, commented[c], "the example has no %s, or does not explain it", c)
	}
	for line := range strings.Lines(string(text)) {
		assert.Assert(t, len(line) <= 120, "%s", line)
	}
}

// readFields records the fields of a document, and of which any occurrence has a comment before it.
func readFields(n *yaml.Node, path string, into map[string]bool) {
	for i, item := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			readFields(item, path+"[]", into)
		case i%2 == 1:
			key := n.Content[i-1]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			into[at] = into[at] || key.HeadComment != ""
			readFields(item, at, into)
		}
	}
}
