package template_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// writeModule writes the module to a temporary directory.
func writeModule(t *testing.T, name string) string {
	t.Helper()
	var c *spec.Complete
	switch name {
	case "pods":
		c = complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+podRoles)
	case "addons":
		c = complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+cloudAddons)
	case "keyed":
		c = complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\naws: {secretsKey: alias/mine, loadBalancer: internal}\n")
	default:
		c = document(t, name)
	}
	files, err := template.Module(c, []byte(ca), template.Openings(openings(c)))
	assert.NilError(t, err)
	dir := t.TempDir()
	for name, data := range files {
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

// The module and the template say the same about each group.
func TestModuleIsTheTemplate(t *testing.T) {
	for _, name := range documents {
		files, err := template.Module(document(t, name), []byte(ca), template.Openings(openings(document(t, name))))
		assert.NilError(t, err)
		var data struct {
			Groups map[string]struct {
				ConfigHash   string `json:"config_hash"`
				InstanceType string `json:"instance_type"`
				UserData     string `json:"user_data"`
				Tags         []template.Tag
				OwnTags      map[string]string `json:"own_tags"`
				Statements   []template.Statement
			}
			Ingress []struct{ To, From string }
		}
		assert.NilError(t, json.Unmarshal(files[template.ModuleData], &data))
		c := document(t, name)
		resources := render(t, c).Resources
		for _, g := range c.Groups {
			id, group := groupID(g.Name), data.Groups[c.AutoScaling(g)]
			template := resources["LaunchTemplate"+id].Properties
			launch := template["LaunchTemplateData"].(map[string]any)
			assert.Equal(t, group.UserData, launch["UserData"])
			assert.Equal(t, group.InstanceType, launch["InstanceType"])
			assert.Equal(t, group.ConfigHash, template["VersionDescription"])
			// The module's own text has the tag with the role's name.
			assert.Equal(t, len(group.Tags)+len(group.OwnTags)+1, len(resources["Group"+id].Properties["Tags"].([]any)))
			policy := resources["Role"+id].Properties["Policies"].([]any)[0].(map[string]any)["PolicyDocument"].(map[string]any)
			assert.Equal(t, len(group.Statements), len(policy["Statement"].([]any)))
		}
		rules := 0
		for id, r := range resources {
			source, ok := r.Properties["SourceSecurityGroupId"]
			if r.Type == "AWS::EC2::SecurityGroupIngress" && (ok && !strings.Contains(flat(source), "LoadBalancer") || strings.HasPrefix(id, "Opening")) {
				rules++
			}
		}
		assert.Equal(t, len(data.Ingress), rules)
	}
}

func flat(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

// Every name that the module uses is declared in it, and every declared name is used.
func TestModuleRefersToWhatItHas(t *testing.T) {
	dir := writeModule(t, "large")
	files, err := filepath.Glob(filepath.Join(dir, "*.tf"))
	assert.NilError(t, err)
	parser := hclparse.NewParser()
	declared, used := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		f, diags := parser.ParseHCLFile(file)
		assert.Assert(t, !diags.HasErrors(), "%v", diags)
		body := f.Body.(*hclsyntax.Body)
		for _, block := range body.Blocks {
			declare(declared, block)
		}
		assert.Assert(t, !hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
			if e, ok := n.(*hclsyntax.ScopeTraversalExpr); ok {
				if name := reference(e.Traversal); name != "" {
					used[name] = true
				}
			}
			return nil
		}).HasErrors())
	}
	for name := range used {
		assert.Assert(t, declared[name], "%s is used, and not declared", name)
	}
	for name := range declared {
		if kind, _, _ := strings.Cut(name, "."); kind == "var" || kind == "local" || kind == "data" {
			assert.Assert(t, used[name], "%s is declared, and not used", name)
		}
	}
}

// declare records the names by which a block is referred to.
func declare(names map[string]bool, b *hclsyntax.Block) {
	switch b.Type {
	case "variable":
		names["var."+b.Labels[0]] = true
	case "resource":
		names[strings.Join(b.Labels, ".")] = true
	case "data":
		names["data."+strings.Join(b.Labels, ".")] = true
	case "locals":
		for name := range b.Body.Attributes {
			names["local."+name] = true
		}
	}
}

// reference is the declared name at the beginning of a traversal, empty for a variable of a loop.
func reference(t hcl.Traversal) string {
	words := 0
	switch root := t.RootName(); {
	case root == "var", root == "local", strings.HasPrefix(root, "aws_"):
		words = 2
	case root == "data":
		words = 3
	}
	if len(t) < words {
		return ""
	}
	var name []string
	for _, step := range t[:words] {
		switch s := step.(type) {
		case hcl.TraverseRoot:
			name = append(name, s.Name)
		case hcl.TraverseAttr:
			name = append(name, s.Name)
		}
	}
	return strings.Join(name, ".")
}

func run(t *testing.T, dir string, command ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_CLI_ARGS=-no-color")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// needTerraform skips what Terraform judges where it is not installed.
func needTerraform(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("terraform is not installed")
	}
}

func TestModuleIsFormatted(t *testing.T) {
	needTerraform(t)
	if out, err := run(t, writeModule(t, "keyed"), "terraform", "fmt", "-recursive", "-check", "-diff"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Terraform itself validates the module, with its provider.
func TestModuleIsValid(t *testing.T) {
	useProvider(t)
	dir := writeModule(t, "keyed")
	for _, dir := range []string{dir, filepath.Join(dir, "key")} {
		initModule(t, dir)
		if out, err := run(t, dir, "terraform", "validate"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// Terraform's policies are the same as those that CloudFormation made in moto. Terraform evaluates them itself: that
// needs no provider, as literals replace the data that the provider would return.
func TestModulePolicies(t *testing.T) {
	needTerraform(t)
	d, dir := deployed(t, "three=yes"), writeModule(t, "three")
	text, err := os.ReadFile(filepath.Join(dir, "main.tf"))
	assert.NilError(t, err)
	locals, _, _ := strings.Cut(string(text), "\ndata ")
	locals = strings.NewReplacer("data.aws_partition.here.partition", `"aws"`, "data.aws_region.here.id", `"`+region+`"`,
		"data.aws_caller_identity.here.account_id", `"`+accountID+`"`, "aws_route53_zone.this[0].zone_id", `""`, "var.zone_id", `""`).Replace(locals)
	alone := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(alone, "main.tf"), []byte(locals), 0o600))
	data, err := os.ReadFile(filepath.Join(dir, template.ModuleData))
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(alone, template.ModuleData), data, 0o600))
	for name, g := range d.Groups {
		cmd := exec.CommandContext(t.Context(), "terraform", "console")
		cmd.Dir, cmd.Stdin = alone, strings.NewReader(`base64encode(local.policies["`+name+`"])`)
		cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1")
		out, err := cmd.Output()
		assert.NilError(t, err)
		policy, err := base64.StdEncoding.DecodeString(strings.Trim(string(out), "\"\n"))
		assert.NilError(t, err, "%s", out)
		var terraform, formation any
		assert.NilError(t, json.Unmarshal(policy, &terraform))
		assert.NilError(t, json.Unmarshal(g.Policies[0], &formation))
		assert.DeepEqual(t, terraform, formation)
	}
}

func decodeBase64(t *testing.T, text string) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	assert.NilError(t, err)
	return string(data)
}

// The module's roles for pods are the template's: trust, policies and statements. Terraform itself evaluates what it attaches.
func TestModulePodRoles(t *testing.T) {
	c := complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+podRoles)
	resources := render(t, c).Resources
	assert.Equal(t, resources["PodIssuer"].Properties["Url"], c.Cluster.ServiceAccounts.Issuer)
	files, err := template.Module(c, []byte(ca), template.Openings(openings(c)))
	assert.NilError(t, err)
	var data struct {
		Pods struct {
			Issuer string
			Roles  map[string]struct {
				Conditions map[string]string
				Policies   []string
				Statements []template.Statement
			}
		}
	}
	assert.NilError(t, json.Unmarshal(files[template.ModuleData], &data))
	assert.Equal(t, data.Pods.Issuer, c.Cluster.ServiceAccounts.Issuer)
	for _, r := range c.Cluster.AWS.PodRoles {
		properties, got := resources[template.PodRoleOutput(r.Name)].Properties, data.Pods.Roles[r.Name]
		text := flat(properties)
		for key, value := range got.Conditions {
			assert.Assert(t, strings.Contains(text, flat(key)+":"+flat(value)), "%s: %s", r.Name, text)
		}
		assert.Equal(t, got.Conditions["demo-tokens.s3.us-west-2.amazonaws.com/a:sub"], "system:serviceaccount:"+r.Namespace+":"+r.ServiceAccount)
		assert.Equal(t, len(got.Conditions), 2)
		for _, arn := range got.Policies {
			assert.Assert(t, strings.Contains(text, flat(arn)), "%s: %s", r.Name, text)
		}
		for _, s := range got.Statements {
			assert.Assert(t, strings.Contains(text, flat(s.Action)) && strings.Contains(text, flat(s.Resource)), "%s: %s", r.Name, text)
		}
		assert.Equal(t, len(got.Policies)+len(got.Statements), 1)
	}
	needTerraform(t)
	for name, want := range map[string]string{"pods": "dns-writer arn:aws:iam::aws:policy/AmazonRoute53FullAccess", "default": ""} {
		dir, alone := writeModule(t, name), t.TempDir()
		for _, file := range []string{"pods.tf", template.ModuleData} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			assert.NilError(t, err)
			locals, _, _ := strings.Cut(string(text), "\nresource ")
			if file == "pods.tf" {
				locals += "\nlocals {\n  spec = jsondecode(file(\"" + template.ModuleData + "\"))\n}\n"
			}
			assert.NilError(t, os.WriteFile(filepath.Join(alone, file), []byte(locals), 0o600))
		}
		cmd := exec.CommandContext(t.Context(), "terraform", "console")
		cmd.Dir, cmd.Stdin = alone, strings.NewReader(`join(",", keys(local.pod_policies))`)
		cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1")
		out, err := cmd.Output()
		assert.NilError(t, err)
		assert.Equal(t, strings.Trim(string(out), "\"\n"), want, name)
	}
}
