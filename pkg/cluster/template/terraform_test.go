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
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/terraform"
)

// mirrors are where a mirror of Terraform's providers may be: where scripts/setup --judges puts one, and where Terraform itself and
// people keep theirs.
func mirrors() []string {
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(os.Getenv("HOME"), ".local", "share")
	}
	places := []string{os.Getenv("HARDTACK_TERRAFORM_MIRROR"), filepath.Join(data, "hardtack", "judges", "terraform"), filepath.Join(data, "terraform", "plugins"),
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

// TestModuleIsTheTemplateField compares what Terraform plans with the template, group by group and field by field.
func TestModuleIsTheTemplateField(t *testing.T) {
	a := inMoto(t, "rich")
	c := document(t, "rich")
	plan, resources := a.planned("-var=machines=true"), render(t, c).Resources
	for _, g := range c.Groups {
		name := c.AutoScaling(g)
		want, got := formationFacts(t, resources, groupID(g.Name)), terraformFacts(t, plan, name)
		for key, value := range want {
			assert.Equal(t, strings.ReplaceAll(flat(got[key]), a.Group, "sg-0123456789abcdef0"), flat(value), "%s: %s", name, key)
		}
		assert.Equal(t, len(got), len(want))
	}
	assert.Equal(t, flat(terraformRules(plan)), flat(formationRules(resources)))
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
	for _, group := range []string{"masters: 0, 1", "minions: 0, 6", "steady: 0, 1"} {
		name, change, _ := strings.Cut(group, ": ")
		for _, field := range []string{"desired_capacity", "min_size"} {
			sizes = append(sizes, fmt.Sprintf(`aws_autoscaling_group.group["demo-%s"].%s: %s`, name, field, change))
		}
	}
	assert.DeepEqual(t, a.pending("-var=machines=true"), sizes)
	apply("-var=machines=true")
	made := a.outputs()
	assert.DeepEqual(t, made.Groups, []string{"demo-masters", "demo-minions", "demo-steady"})
	assert.Assert(t, made.OwnsZone && made.Machines && made.Zone != "" && made.LoadBalancer != "", "%+v", made)
	assert.Equal(t, len(made.Roles), 3)
	// Which target groups a group has is known only now.
	state := a.show("values")
	for name, targets := range map[string]int{"demo-masters": 1, "demo-minions": 0, "demo-steady": 0} {
		assert.Equal(t, len(state[`aws_autoscaling_group.group["`+name+`"]`]["target_group_arns"].([]any)), targets, name)
	}
	var machines map[string][3]int
	a.python(&machines, "machines")
	assert.DeepEqual(t, machines, map[string][3]int{"demo-masters": {1, 1, 1}, "demo-minions": {6, 6, 6}, "demo-steady": {1, 1, 1}})

	a.edit(`"timeout": 300`, `"timeout": 420`)
	apply("-var=machines=true")
	var hooks map[string]map[string][3]any
	a.python(&hooks, "hooks")
	assert.DeepEqual(t, hooks["demo-masters"][template.DrainHook], [3]any{"autoscaling:EC2_INSTANCE_TERMINATING", "CONTINUE", float64(420)})
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

// facts are what a group is, by names of their own: a field that only one rendering has is a difference.
type facts map[string]any

// formationFacts are those of the template.
func formationFacts(t *testing.T, resources map[string]template.Resource, id string) facts {
	t.Helper()
	group, launch, role := resources["Group"+id].Properties, resources["LaunchTemplate"+id].Properties, resources["Role"+id].Properties
	f := facts{"health": group["HealthCheckType"], "max": group["MaxSize"], "min": group["MinSize"].(map[string]any)["Fn::If"].([]any)[1],
		"rebalance": group["CapacityRebalance"] == true, "lifetime": orZero(group["MaxInstanceLifetime"]),
		"mixed": nil, "metrics": []any{}, "description": launch["VersionDescription"], "text": role["Description"]}
	f["hooks"], f["tags"] = formationHooks(group), formationTags(group["Tags"], "PropagateAtLaunch")
	if list, ok := group["MetricsCollection"].([]any); ok {
		f["metrics"] = list[0].(map[string]any)["Metrics"]
	}
	if m, ok := group["MixedInstancesPolicy"].(map[string]any); ok {
		d := m["InstancesDistribution"].(map[string]any)
		var types []any
		for _, o := range m["LaunchTemplate"].(map[string]any)["Overrides"].([]any) {
			types = append(types, o.(map[string]any)["InstanceType"])
		}
		f["mixed"] = []any{d["OnDemandAllocationStrategy"], d["OnDemandBaseCapacity"], d["OnDemandPercentageAboveBaseCapacity"], d["SpotAllocationStrategy"], types}
	}
	data := launch["LaunchTemplateData"].(map[string]any)
	disk := data["BlockDeviceMappings"].([]any)[0].(map[string]any)
	ebs := disk["Ebs"].(map[string]any)
	meta := data["MetadataOptions"].(map[string]any)
	f["type"], f["user data"] = data["InstanceType"], data["UserData"]
	f["disk"] = []any{disk["DeviceName"], ebs["VolumeSize"], ebs["VolumeType"], orZero(ebs["Iops"]), orZero(ebs["Throughput"]), ebs["Encrypted"], ebs["DeleteOnTermination"]}
	f["metadata"] = []any{meta["HttpEndpoint"], meta["HttpTokens"], meta["HttpPutResponseHopLimit"], meta["InstanceMetadataTags"]}
	for _, spec := range data["TagSpecifications"].([]any) {
		of := spec.(map[string]any)
		f["tags of "+of["ResourceType"].(string)] = formationTags(of["Tags"], "")
	}
	f["policies"] = sorted(role["ManagedPolicyArns"])
	f["role tags"] = formationTags(role["Tags"], "")
	for _, p := range role["Policies"].([]any) {
		of := p.(map[string]any)
		f["policy "+of["PolicyName"].(string)] = localised(of["PolicyDocument"])
	}
	return f
}

// localised are a policy's functions evaluated for moto's account.
func localised(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := v["Fn::Sub"].(string); ok {
			return strings.NewReplacer("${AWS::Partition}", "aws", "${AWS::Region}", region, "${AWS::AccountId}", accountID).Replace(text)
		}
		out := map[string]any{}
		for key, value := range v {
			out[key] = localised(value)
		}
		return out
	case []any:
		out := []any{}
		for _, value := range v {
			out = append(out, localised(value))
		}
		return out
	}
	return v
}

func orZero(v any) any {
	if v == nil {
		return 0
	}
	return v
}

// sorted are the texts of a list, in order; none for no list.
func sorted(v any) []string {
	out := []string{}
	switch list := v.(type) {
	case []string:
		out = append(out, list...)
	case []any:
		for _, one := range list {
			out = append(out, fmt.Sprint(one))
		}
	}
	slices.Sort(out)
	return out
}

func formationHooks(group map[string]any) (out []string) {
	for _, h := range group["LifecycleHookSpecificationList"].([]any) {
		hook := h.(map[string]any)
		out = append(out, fmt.Sprint(hook["LifecycleHookName"], hook["LifecycleTransition"], hook["DefaultResult"], hook["HeartbeatTimeout"]))
	}
	slices.Sort(out)
	return out
}

// formationTags are tags, in order, with what a further key says of each. The name of the role is known only once it is made.
func formationTags(v any, more string) (out []string) {
	for _, one := range v.([]any) {
		tag := one.(map[string]any)
		value := fmt.Sprint(tag["Value"])
		if tag["Key"] == "InstanceRole" {
			value = ""
		}
		text := fmt.Sprintf("%v=%s", tag["Key"], value)
		if more != "" {
			text += fmt.Sprint(" ", tag[more])
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// terraformFacts are those of the plan.
func terraformFacts(t *testing.T, plan values, name string) facts {
	t.Helper()
	at := func(kind string) map[string]any { return plan[kind+`["`+name+`"]`] }
	group, launch, role := at("aws_autoscaling_group.group"), at("aws_launch_template.group"), at("aws_iam_role.machine")
	f := facts{"health": group["health_check_type"], "max": fmt.Sprint(group["max_size"]), "min": fmt.Sprint(group["min_size"]), "rebalance": group["capacity_rebalance"],
		"lifetime": orZero(group["max_instance_lifetime"]), "mixed": nil, "metrics": sorted(group["enabled_metrics"]), "description": launch["description"], "text": role["description"]}
	f["hooks"], f["tags"] = terraformHooks(plan, name), terraformTags(group["tag"])
	if list, _ := group["mixed_instances_policy"].([]any); len(list) > 0 {
		m := list[0].(map[string]any)
		d := m["instances_distribution"].([]any)[0].(map[string]any)
		var types []any
		for _, o := range m["launch_template"].([]any)[0].(map[string]any)["override"].([]any) {
			types = append(types, o.(map[string]any)["instance_type"])
		}
		f["mixed"] = []any{d["on_demand_allocation_strategy"], d["on_demand_base_capacity"], d["on_demand_percentage_above_base_capacity"], d["spot_allocation_strategy"], types}
	}
	disk := launch["block_device_mappings"].([]any)[0].(map[string]any)
	ebs := disk["ebs"].([]any)[0].(map[string]any)
	meta := launch["metadata_options"].([]any)[0].(map[string]any)
	f["type"], f["user data"] = launch["instance_type"], launch["user_data"]
	f["disk"] = []any{disk["device_name"], ebs["volume_size"], ebs["volume_type"], orZero(ebs["iops"]), orZero(ebs["throughput"]), ebs["encrypted"] == "true", ebs["delete_on_termination"] == "true"}
	f["metadata"] = []any{meta["http_endpoint"], meta["http_tokens"], meta["http_put_response_hop_limit"], meta["instance_metadata_tags"]}
	for _, spec := range launch["tag_specifications"].([]any) {
		of := spec.(map[string]any)
		f["tags of "+of["resource_type"].(string)] = pairs(of["tags"])
	}
	policies := []string{}
	for address, r := range plan {
		if strings.HasPrefix(address, `aws_iam_role_policy_attachment.machine["`+name+" ") {
			policies = append(policies, r["policy_arn"].(string))
		}
	}
	f["policies"], f["role tags"] = sorted(policies), pairs(role["tags"])
	for _, policy := range []string{"machine", "own"} {
		r := at("aws_iam_role_policy." + policy)
		if r == nil {
			continue
		}
		var document any
		assert.NilError(t, json.Unmarshal([]byte(r["policy"].(string)), &document))
		f["policy "+policy] = document
	}
	return f
}

// terraformHooks are the hooks with which a group begins; those that it has later are the same.
func terraformHooks(plan values, name string) []string {
	first, later := []string{}, []string{}
	for _, h := range plan[`aws_autoscaling_group.group["`+name+`"]`]["initial_lifecycle_hook"].([]any) {
		hook := h.(map[string]any)
		first = append(first, fmt.Sprint(hook["name"], hook["lifecycle_transition"], hook["default_result"], hook["heartbeat_timeout"]))
	}
	for address, hook := range plan {
		if strings.HasPrefix(address, `aws_autoscaling_lifecycle_hook.group["`+name+" ") {
			later = append(later, fmt.Sprint(hook["name"], hook["lifecycle_transition"], hook["default_result"], hook["heartbeat_timeout"]))
		}
	}
	slices.Sort(first)
	slices.Sort(later)
	if !slices.Equal(first, later) {
		return append(first, "and later: "+strings.Join(later, ", "))
	}
	return first
}

func terraformTags(v any) (out []string) {
	for _, one := range v.([]any) {
		tag := one.(map[string]any)
		value, _ := tag["value"].(string)
		out = append(out, fmt.Sprintf("%v=%s %v", tag["key"], value, tag["propagate_at_launch"]))
	}
	slices.Sort(out)
	return out
}

func pairs(v any) []string {
	out := []string{}
	tags, _ := v.(map[string]any)
	for key, value := range tags {
		out = append(out, fmt.Sprintf("%s=%v", key, value))
	}
	slices.Sort(out)
	return out
}

// formationRules are the rules of the template for ranges of addresses that the document names, terraformRules those of the plan.
func formationRules(resources map[string]template.Resource) (out []string) {
	for _, r := range resources {
		if r.Type != "AWS::EC2::SecurityGroupIngress" {
			continue
		}
		for _, key := range []string{"CidrIp", "CidrIpv6"} {
			if cidr, ok := r.Properties[key].(string); ok {
				out = append(out, fmt.Sprint(r.Properties["IpProtocol"], r.Properties["FromPort"], r.Properties["ToPort"], " from ", cidr))
			}
		}
	}
	slices.Sort(out)
	return out
}

func terraformRules(plan values) (out []string) {
	for address, r := range plan {
		if !strings.HasPrefix(address, "aws_vpc_security_group_ingress_rule.") {
			continue
		}
		for _, key := range []string{"cidr_ipv4", "cidr_ipv6"} {
			if cidr, ok := r[key].(string); ok {
				out = append(out, fmt.Sprint(r["ip_protocol"], r["from_port"], r["to_port"], " from ", cidr))
			}
		}
	}
	slices.Sort(out)
	return out
}
