package template_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// noise is text that cannot be compressed: random bytes in base64, from a fixed seed.
func noise(n int) string {
	r, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return base64.StdEncoding.EncodeToString(b)
}

// Values that EC2 and CloudFormation would refuse are refused here, with the next step.
func TestWhatDoesNotFit(t *testing.T) {
	head := "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"
	c := complete(t, head+"fileAssets: [{path: /etc/large, content: "+noise(spec.MaxUserData)+"}]\n")
	_, err := template.Render(c, []byte(ca))
	assert.ErrorContains(t, err, "group masters: the user data of group masters is")
	assert.ErrorContains(t, err, "bake them into the image")

	groups := "groups:\n- {name: masters, roles: [masters, etcd]}\n"
	for i := range 90 {
		groups += fmt.Sprintf("- {name: m%d, roles: [minions]}\n", i)
	}
	large := render(t, complete(t, head+groups+"fileAssets: [{path: /etc/large, content: "+noise(spec.MaxUserData/2)+"}]\n"))
	for _, write := range []func() ([]byte, error){large.YAML, large.JSON} {
		_, err = write()
		assert.ErrorContains(t, err, fmt.Sprintf("CloudFormation takes %d: make two clusters of it", template.MaxObject))
	}
}

// A request carries YAML as long as that fits, and then the same in less space.
func TestRequest(t *testing.T) {
	for name, first := range map[string]string{"default": "A", "three": "{"} {
		template := render(t, document(t, name))
		body, err := template.Request()
		assert.NilError(t, err)
		assert.Assert(t, strings.HasPrefix(string(body), first) && len(body) <= 51_200, "%s is %d bytes: %.10s", name, len(body), body)
		text, err := template.YAML()
		assert.NilError(t, err)
		var a, b any
		assert.NilError(t, yaml.Unmarshal(text, &a))
		assert.NilError(t, yaml.Unmarshal(body, &b))
		assert.DeepEqual(t, a, b)
	}
}

// YAML and JSON have the same template, and both only use the forms that doc.go lists: no tags, no short forms.
func TestYAMLAndJSONAreTheSame(t *testing.T) {
	for _, name := range documents {
		template := render(t, document(t, name))
		text, err := template.YAML()
		assert.NilError(t, err)
		assert.Assert(t, !strings.Contains(string(text), "!"), "%s has a tag", name)
		again, err := template.JSON()
		assert.NilError(t, err)
		var a, b any
		assert.NilError(t, yaml.Unmarshal(text, &a))
		assert.NilError(t, yaml.Unmarshal(again, &b))
		assert.DeepEqual(t, a, b)
	}
}

// The outputs are the inputs of the function's stack.
func TestOutputsAreTheFunctionsParameters(t *testing.T) {
	text, err := os.ReadFile("../../../lambda/template.yaml")
	assert.NilError(t, err)
	var function struct {
		Parameters map[string]any `yaml:"Parameters"`
	}
	assert.NilError(t, yaml.Unmarshal(text, &function))
	outputs := render(t, document(t, "default")).Outputs
	for _, name := range []string{template.OutputZone, template.OutputGroups} {
		_, made := outputs[name]
		_, taken := function.Parameters[name]
		assert.Assert(t, made && taken, name)
	}
}

// No policy of the stack allows changing records: only the function does that.
func TestNobodyWritesRecords(t *testing.T) {
	for _, name := range documents {
		text, err := render(t, document(t, name)).YAML()
		assert.NilError(t, err)
		assert.Assert(t, !strings.Contains(string(text), "route53:"), name)
	}
}
