package template_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/judges"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/terraform"
)

// mirrors are where a mirror of Terraform's providers may be: where scripts/setup --judges puts one, and where Terraform itself and
// people keep theirs.
func mirrors() []string {
	places := []string{os.Getenv("HARDTACK_TERRAFORM_MIRROR"), judges.Path("terraform"), filepath.Join(judges.DataHome(), "terraform", "plugins"),
		filepath.Join(os.Getenv("HOME"), ".terraform.d", "plugins"), "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins"}
	optional, _ := filepath.Glob("/opt/*") // the pattern is well formed
	return append(places, optional...)
}

// useProvider has Terraform take its providers from a mirror on this computer, or else as the user's configuration says. Without either the
// test is skipped, if the registry cannot be reached.
func useProvider(t *testing.T) {
	t.Helper()
	needTerraform(t)
	for _, dir := range mirrors() {
		found, err := filepath.Glob(filepath.Join(dir, "registry.terraform.io", "hashicorp", "aws", "*", runtime.GOOS+"_"+runtime.GOARCH))
		if dir == "" || err != nil || len(found) == 0 {
			continue
		}
		config := filepath.Join(t.TempDir(), "terraform.rc")
		assert.NilError(t, os.WriteFile(config, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", dir), 0o600))
		t.Setenv("TF_CLI_CONFIG_FILE", config)
		return
	}
	t.Log("no mirror of Terraform's AWS provider is on this computer")
}

// initModule installs the provider for a module.
func initModule(t *testing.T, dir string) {
	t.Helper()
	out, err := run(t, dir, "terraform", "init", "-backend=false", "-input=false")
	if err != nil && (strings.Contains(out, "could not connect to registry.terraform.io") || strings.Contains(out, "failed to request discovery document")) {
		t.Skip("the registry that has Terraform's AWS provider is out of reach, and no mirror of it is on this computer (scripts/setup --judges makes one)")
	}
	assert.NilError(t, err, out)
}

// provider points AWS's provider at moto.
const provider = `provider "aws" {
  region                      = "us-west-2"
  access_key                  = "AKIDEXAMPLE"
  secret_key                  = "secret"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  s3_use_path_style           = true
}
`

// applied is a module in an account of moto.
type applied struct {
	t   *testing.T
	dir string
	// VPC, Subnets, Image and Group, a security group, are what the account has already.
	VPC, Image, Group string
	Subnets           []string
}

// inMoto writes a document's module, with moto as its account.
func inMoto(t *testing.T, name string) *applied {
	t.Helper()
	useProvider(t)
	if !deployable() {
		t.Skip("python3 has no moto or boto3: run scripts/setup --judges")
	}
	mended, err := filepath.Abs(filepath.Join("testdata", "moto"))
	assert.NilError(t, err)
	t.Setenv("AWS_ENDPOINT_URL", moto.Start(t, "MOTO_IAM_LOAD_MANAGED_POLICIES=true", "PYTHONPATH="+mended, "PYTHONDONTWRITEBYTECODE=1"))
	for key, value := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": region, "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(key, value)
	}
	a := &applied{t: t}
	a.python(a, "prepare")
	a.dir = writeModule(t, name)
	data := filepath.Join(a.dir, template.ModuleData)
	text, err := os.ReadFile(data)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(data, []byte(strings.ReplaceAll(string(text), "sg-0123456789abcdef0", a.Group)), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(a.dir, "provider.tf"), []byte(provider), 0o600))
	subnets, err := json.Marshal(a.Subnets)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(a.dir, "terraform.tfvars"), fmt.Appendf(nil, "vpc_id = %q\nsubnet_ids = %[2]s\nload_balancer_subnet_ids = %[2]s\n", a.VPC, subnets), 0o600))
	initModule(t, a.dir)
	return a
}

// edit changes the first place in the module's data that has a text.
func (a *applied) edit(from, to string) {
	a.t.Helper()
	data := filepath.Join(a.dir, template.ModuleData)
	text, err := os.ReadFile(data)
	assert.NilError(a.t, err)
	assert.Assert(a.t, strings.Contains(string(text), from), "%s is not in %s", from, text)
	assert.NilError(a.t, os.WriteFile(data, []byte(strings.Replace(string(text), from, to, 1)), 0o600))
}

// python runs testdata/terraform.py and reads its answer.
func (a *applied) python(into any, args ...string) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "python3", append([]string{"-W", "ignore", "testdata/terraform.py"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	assert.NilError(a.t, err)
	assert.NilError(a.t, json.Unmarshal(out, into))
}

// terraform runs Terraform and returns what it says.
func (a *applied) terraform(args ...string) string {
	a.t.Helper()
	out, err := run(a.t, a.dir, append([]string{"terraform"}, args...)...)
	assert.NilError(a.t, err, out)
	return out
}

// values are the values of a module's resources, by their addresses.
type values map[string]map[string]any

// planned are the values that Terraform plans; those that are known only once they are made are left out.
func (a *applied) planned(vars ...string) values {
	a.t.Helper()
	a.terraform(append([]string{"plan", "-input=false", "-out=plan"}, vars...)...)
	return a.show("planned_values", "plan")
}

// show are the values of the state, or of a plan.
func (a *applied) show(key string, args ...string) values {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), "terraform", append([]string{"show", "-json"}, args...)...)
	cmd.Dir = a.dir
	out, err := cmd.Output()
	assert.NilError(a.t, err)
	var shown map[string]json.RawMessage
	assert.NilError(a.t, json.Unmarshal(out, &shown))
	var all struct {
		Root struct {
			Resources []struct {
				Address string
				Values  map[string]any
			}
		} `json:"root_module"`
	}
	assert.NilError(a.t, json.Unmarshal(shown[key], &all))
	of := values{}
	for _, r := range all.Root.Resources {
		of[r.Address] = r.Values
	}
	return of
}

// motoForgets are attributes that moto, or the provider by what moto answers, has otherwise than they were set, so that Terraform would change
// them at each apply.
var motoForgets = map[string]string{
	"aws_autoscaling_group.capacity_reservation_specification": "the provider reads an empty one, and plans one with an empty text in it",
	"aws_autoscaling_group.max_instance_lifetime":              "moto does not have it",
	"aws_autoscaling_group.mixed_instances_policy":             "moto takes it away at an update that leaves it as it is",
	"aws_autoscaling_lifecycle_hook.notification_target_arn":   "moto answers a queue of its own for each hook",
	"aws_autoscaling_lifecycle_hook.role_arn":                  "moto answers a role of its own for each hook",
	"aws_launch_template.tag_specifications":                   "moto answers the template's own tags as those of its machines",
	"aws_launch_template.latest_version":                       "a change of tag_specifications makes a version",
	"aws_launch_template.default_version":                      "as latest_version",
	"aws_autoscaling_group.launch_template":                    "a new version of the template",
	"aws_vpc_security_group_ingress_rule.description":          "moto has no descriptions of rules from other groups",
}

// pending is what Terraform would change: each attribute with its values, as "address.attribute: before, after", and each resource that it would
// make or end. What moto forgets is left out, and so is what is known only once it is done.
func (a *applied) pending(vars ...string) []string {
	a.t.Helper()
	a.terraform(append([]string{"plan", "-input=false", "-out=plan"}, vars...)...)
	cmd := exec.CommandContext(a.t.Context(), "terraform", "show", "-json", "plan")
	cmd.Dir = a.dir
	text, err := cmd.Output()
	assert.NilError(a.t, err)
	var plan struct {
		Changes []struct {
			Address, Type string
			Change        struct {
				Actions       []string
				Before, After map[string]any
			}
		} `json:"resource_changes"`
	}
	assert.NilError(a.t, json.Unmarshal(text, &plan))
	out := []string{}
	for _, r := range plan.Changes {
		if slices.Contains(r.Change.Actions, "create") || slices.Contains(r.Change.Actions, "delete") {
			out = append(out, r.Address+": "+strings.Join(r.Change.Actions, ", "))
			continue
		}
		for name, after := range r.Change.After {
			_, forgotten := motoForgets[r.Type+"."+name]
			if before := r.Change.Before[name]; !forgotten && flat(after) != flat(before) {
				out = append(out, r.Address+"."+name+": "+flat(before)+", "+flat(after))
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestModuleInMoto makes a cluster by Terraform: first without machines, then with them, again with a later change of a hook, and destroys
// it after the function has written a record of its own.
func TestModuleInMoto(t *testing.T) {
	if os.Getenv("HARDTACK_E2E") != "1" {
		t.Skip("it takes Terraform minutes: run make e2e, or set HARDTACK_E2E=1")
	}
	a := inMoto(t, "rich")
	apply := func(more ...string) {
		a.terraform(append([]string{"apply", "-auto-approve", "-input=false"}, more...)...)
	}
	// Of machines on demand and spot instances moto rounds both numbers down, and one would be missing for ever.
	a.edit(`"size": 4`, `"size": 6`)
	a.edit(`"max": 5`, `"max": 8`)
	apply()
	// Nothing else is pending: the sizes alone make machines.
	var sizes []string
	for _, group := range []string{"edge: 0, 1", "masters: 0, 1", "minions: 0, 6", "steady: 0, 1"} {
		name, change, _ := strings.Cut(group, ": ")
		for _, field := range []string{"desired_capacity", "min_size"} {
			sizes = append(sizes, fmt.Sprintf(`aws_autoscaling_group.group["demo-%s"].%s: %s`, name, field, change))
		}
	}
	assert.DeepEqual(t, a.pending("-var=machines=true"), sizes)
	apply("-var=machines=true")
	made := a.outputs()
	assert.DeepEqual(t, made.Groups, []string{"demo-masters", "demo-minions", "demo-steady", "demo-edge"})
	assert.Assert(t, made.OwnsZone && made.Machines && made.Zone != "" && made.LoadBalancer != "", "%+v", made)
	assert.Equal(t, len(made.Roles), 4)
	// Which target groups a group has is known only now.
	state := a.show("values")
	for name, targets := range map[string]int{"demo-edge": 0, "demo-masters": 1, "demo-minions": 0, "demo-steady": 0} {
		assert.Equal(t, len(state[`aws_autoscaling_group.group["`+name+`"]`]["target_group_arns"].([]any)), targets, name)
	}
	var machines map[string][3]int
	a.python(&machines, "machines")
	assert.DeepEqual(t, machines, map[string][3]int{"demo-edge": {1, 1, 1}, "demo-masters": {1, 1, 1}, "demo-minions": {6, 6, 6}, "demo-steady": {1, 1, 1}})

	a.edit(`"timeout": 300`, `"timeout": 420`)
	apply("-var=machines=true")
	var hooks map[string]map[string][3]any
	a.python(&hooks, "hooks")
	// The first group of the data by name is that of the role of one's own.
	assert.DeepEqual(t, hooks["demo-edge"][template.DrainHook], [3]any{"autoscaling:EC2_INSTANCE_TERMINATING", "CONTINUE", float64(420)})
	assert.DeepEqual(t, hooks["demo-minions"][template.DrainHook], [3]any{"autoscaling:EC2_INSTANCE_TERMINATING", "CONTINUE", float64(300)})
	assert.Equal(t, len(hooks["demo-minions"]), 3)

	a.python(new(any), "record", made.Zone, "minions-0.demo.k8s", "10.9.0.7")
	a.terraform("state", "rm", "aws_ebs_volume.member", "aws_s3_bucket.backups")
	out, err := run(t, a.dir, "terraform", "destroy", "-auto-approve", "-input=false", "-target=aws_route53_zone.this")
	assert.Assert(t, err != nil && strings.Contains(out, "HostedZoneNotEmpty"), "%v\n%s", err, out)
	apply("-target=aws_route53_zone.this", "-var=destroy_records=true")
	a.terraform("destroy", "-auto-approve", "-input=false", "-var=destroy_records=true")
	assert.Equal(t, a.terraform("state", "list"), "")
}

// outputs is the module's output as hardtack's commands read it, from the state and from what Terraform prints of it.
func (a *applied) outputs() *terraform.Outputs {
	a.t.Helper()
	state, err := os.ReadFile(filepath.Join(a.dir, "terraform.tfstate"))
	assert.NilError(a.t, err)
	out, err := terraform.Parse(state)
	assert.NilError(a.t, err)
	for _, args := range [][]string{{"output", "-json"}, {"output", "-json", terraform.Output}, {"show", "-json"}} {
		cmd := exec.CommandContext(a.t.Context(), "terraform", args...)
		cmd.Dir = a.dir
		text, err := cmd.Output()
		assert.NilError(a.t, err)
		again, err := terraform.Parse(text)
		assert.NilError(a.t, err)
		assert.DeepEqual(a.t, again, out)
	}
	return out
}
