package terraform_test

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/terraform"
)

const value = `{"version":1,"cluster":"demo","region":"us-west-2","zone_id":"Z1","owns_zone":true,"groups":["demo-masters","demo-minions"],` +
	`"roles":{"demo-masters":"terraform-1","demo-minions":"terraform-2"},"machines":true,"load_balancer":null}`

// Terraform gives an output in four forms, and each is read.
func TestParse(t *testing.T) {
	for name, text := range map[string]string{
		"output -json":          `{"group_names":{"sensitive":false,"type":"string","value":"a"},"hardtack":{"sensitive":false,"type":["object",{}],"value":` + value + `}}`,
		"output -json hardtack": value,
		"show -json":            `{"format_version":"1.0","terraform_version":"1.11.4","values":{"outputs":{"hardtack":{"sensitive":false,"value":` + value + `}},"root_module":{}}}`,
		"state":                 `{"version":4,"terraform_version":"1.11.4","serial":3,"lineage":"x","outputs":{"hardtack":{"value":` + value + `,"type":["object",{}]}},"resources":[]}`,
	} {
		got, err := terraform.Parse([]byte(text))
		assert.NilError(t, err, name)
		assert.DeepEqual(t, got, &terraform.Outputs{Cluster: "demo", Region: "us-west-2", Zone: "Z1", OwnsZone: true, Machines: true,
			Groups: []string{"demo-masters", "demo-minions"}, Roles: map[string]string{"demo-masters": "terraform-1", "demo-minions": "terraform-2"}})
	}
}

// What is not the module's is refused with what is wrong with it: an empty list of groups would look like a cluster without any.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`hardtack = {`: "this is not JSON: give it the state's file, or what terraform output -json prints",
		`{"version":4`: "unexpected end of JSON input",
		`{}`:           `there is no output "hardtack" (it has none at all: has it been applied?)`,
		`{"version":4,"terraform_version":"1.11.4","serial":1,"resources":[]}`: "it has none at all",
		`{"group_names":{"value":"a"},"zone_id":{"value":"Z1"}}`:               `there is no output "hardtack" (it has group_names, zone_id)`,
		`{"format_version":"1.0","values":{"outputs":{}}}`:                     "has it been applied?",
		strings.Replace(value, `"version":1`, `"version":2`, 1):                "its form is 2, and this program knows 1",
		strings.Replace(value, `"demo-masters","demo-minions"`, ``, 1):         "groups is empty",
		strings.Replace(value, `"demo-minions"]`, `"demo-masters"]`, 1):        `groups[1]: "demo-masters" is empty or there twice`,
		strings.Replace(value, `"Z1"`, `""`, 1):                                "zone_id is empty",
		strings.Replace(value, `"groups":[`, `"groups":[7,`, 1):                "cannot unmarshal number",
	} {
		_, err := terraform.Parse([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
	_, err := terraform.Parse([]byte(`{}`))
	assert.Assert(t, errors.Is(err, terraform.ErrNoOutput))
}
