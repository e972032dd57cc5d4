package template_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

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
	assert.Equal(t, flat(terraformWaysOut(plan)), flat(formationWaysOut(resources)))
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

// formationWaysOut are where machines may go, by the security group of each role: without rules of the template's, EC2 gives a group those for
// everything, of IPv6 too where the VPC has it (AWS::EC2::SecurityGroup, "SecurityGroupEgress"). terraformWaysOut are those of the plan:
// Terraform takes EC2's away.
func formationWaysOut(resources map[string]template.Resource) map[string][]string {
	out := map[string][]string{}
	for id, r := range resources {
		name, ofRole := strings.CutPrefix(id, "SecurityGroup")
		ofRole = ofRole && name != "LoadBalancer" // which speaks to the masters alone
		if _, own := r.Properties["SecurityGroupEgress"]; r.Type == "AWS::EC2::SecurityGroup" && ofRole && !own {
			out[strings.ToLower(name)] = []string{"-1 to 0.0.0.0/0", "-1 to ::/0"}
		}
	}
	return out
}

func terraformWaysOut(plan values) map[string][]string {
	out := map[string][]string{}
	for address, r := range plan {
		rule, name, _ := strings.Cut(strings.TrimSuffix(address, `"]`), `["`)
		if !strings.HasPrefix(rule, "aws_vpc_security_group_egress_rule.out") {
			continue
		}
		for _, key := range []string{"cidr_ipv4", "cidr_ipv6"} {
			if cidr, ok := r[key].(string); ok {
				out[name] = append(out[name], fmt.Sprint(r["ip_protocol"], " to ", cidr))
			}
		}
		slices.Sort(out[name])
	}
	return out
}
