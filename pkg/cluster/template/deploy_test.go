package template_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// deployment is the output of testdata/deploy.py for one stack.
type deployment struct {
	Status, Image, VPC string
	Subnets            []string
	Outputs            map[string]string
	Groups             map[string]deployedGroup
	// Ingress are the rules by security group name, and SecurityGroups the names by id.
	Ingress        map[string][]string
	SecurityGroups map[string]string
	// Verdicts say for each "group action resource" whether moto finds that the group's policy allows it.
	Verdicts map[string]bool
	Records  map[string][]string
	// Volumes have their zones and sizes, by their names in the template.
	Volumes map[string][2]any
}

type deployedGroup struct {
	Min, Max, Desired, Instances int
	Subnets                      []string
	// Tags are the values, and whether machines get them.
	Tags         map[string][2]any
	TemplateName string
	Boundary     string
	Attached     []any
	Policies     []json.RawMessage
	Trust        struct {
		Statement []struct{ Principal struct{ Service string } }
	}
	Template struct {
		UserData, ImageId, InstanceType string
		SecurityGroupIds                []string
		MetadataOptions                 struct {
			HttpTokens, HttpEndpoint string
			HttpPutResponseHopLimit  int
		}
		BlockDeviceMappings []struct {
			DeviceName string
			Ebs        struct {
				Encrypted, DeleteOnTermination bool
				VolumeSize                     int
				VolumeType, KmsKeyId           string
			}
		}
	}
}

// deployments are the stacks that are deployed to moto, once: documents, and the parameter Machines.
var deployments = []string{"default=no", "three=yes", "large=yes", "ingress=yes"}

var deployable = sync.OnceValue(func() bool {
	return exec.Command("python3", "-c", "import moto.autoscaling, boto3, yaml").Run() == nil
})

var deployAll = sync.OnceValues(func() (map[string]deployment, error) {
	asked := [][3]string{}
	for _, c := range slices.Concat(calls, backups) {
		asked = append(asked, [3]string{c.group, c.action, c.resource()})
	}
	list, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	args := []string{"-W", "ignore", "testdata/deploy.py", string(list)}
	for _, d := range deployments {
		name, machines, _ := strings.Cut(d, "=")
		args = append(args, filepath.Join("testdata", name+".template.yaml")+"="+machines)
	}
	cmd := exec.Command("python3", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all map[string]deployment
	return all, json.Unmarshal(out, &all)
})

func deployed(t *testing.T, name string) deployment {
	t.Helper()
	if !deployable() {
		t.Skip("python3 has no moto, boto3 or yaml: run scripts/setup --judges")
	}
	all, err := deployAll()
	assert.NilError(t, err, "deploying to moto")
	file, machines, _ := strings.Cut(name, "=")
	d, ok := all[filepath.Join("testdata", file+".template.yaml")+"="+machines]
	assert.Assert(t, ok, "%s was not deployed", name)
	assert.Equal(t, d.Status, "CREATE_COMPLETE")
	return d
}

func TestDeployedGroups(t *testing.T) {
	for _, name := range deployments {
		t.Run(name, func(t *testing.T) {
			file, machines, _ := strings.Cut(name, "=")
			c, d := document(t, file), deployed(t, name)
			var names []string
			for _, g := range c.Groups {
				names = append(names, c.AutoScaling(g))
				got := d.Groups[c.AutoScaling(g)]
				size := g.Size
				if machines == template.MachinesNo {
					size = 0
				}
				assert.DeepEqual(t, []int{got.Min, got.Max, got.Desired, got.Instances}, []int{size, g.AWS.Max, size, size})
				want := map[string][2]any{"KubernetesCluster": {c.Cluster.Name, true}, "Role": {g.Roles.String(), true}, "Name": {c.AutoScaling(g), true}}
				subnets := d.Subnets
				if len(g.Members) > 0 && g.Roles.Has(role.Etcd) {
					want["EtcdMembers"] = [2]any{strings.Join(g.Members, " "), false}
				}
				if g.Member != "" {
					want["EtcdMember"] = [2]any{g.Member, true}
					subnets = subnets[max(0, slices.Index(g.Members, g.Member)):][:1]
				}
				// CloudFormation makes the role's name.
				of := got.Tags[role.TagInstanceRole]
				instanceRole, _ := of[0].(string)
				assert.Assert(t, strings.Contains(instanceRole, "-Role"+groupID(g.Name)+"-"), instanceRole)
				want[role.TagInstanceRole] = [2]any{instanceRole, false}
				assert.DeepEqual(t, got.Tags, want)
				assert.DeepEqual(t, got.Subnets, subnets)
				assert.Equal(t, got.TemplateName, c.AutoScaling(g))
			}
			assert.Equal(t, len(d.Groups), len(c.Groups))
			assert.Equal(t, d.Outputs[template.OutputGroups], strings.Join(names, ","))
		})
	}
}

func TestDeployedLaunchTemplates(t *testing.T) {
	for _, name := range deployments {
		t.Run(name, func(t *testing.T) {
			file, _, _ := strings.Cut(name, "=")
			c, d := document(t, file), deployed(t, name)
			for _, g := range c.Groups {
				checkLaunchTemplate(t, c, g, d)
			}
		})
	}
}

func checkLaunchTemplate(t *testing.T, c *spec.Complete, g spec.Group, d deployment) {
	t.Helper()
	got := d.Groups[c.AutoScaling(g)]
	assert.Equal(t, got.Template.ImageId, d.Image, "the image of the channel's parameter")
	assert.Equal(t, got.Template.InstanceType, g.AWS.InstanceType)
	assert.Equal(t, got.Template.MetadataOptions.HttpTokens, "required")
	assert.Equal(t, got.Template.MetadataOptions.HttpEndpoint, "enabled")
	assert.Equal(t, got.Template.MetadataOptions.HttpPutResponseHopLimit, 1)
	assert.Equal(t, len(got.Template.BlockDeviceMappings), 1)
	disk := got.Template.BlockDeviceMappings[0]
	assert.Equal(t, disk.DeviceName, ami.RootDevice)
	assert.Assert(t, disk.Ebs.Encrypted && disk.Ebs.DeleteOnTermination && disk.Ebs.VolumeType == "gp3")
	assert.Equal(t, disk.Ebs.VolumeSize, g.AWS.Volume)
	assert.Equal(t, disk.Ebs.KmsKeyId, c.Cluster.AWS.Key)
	var groups, want []string
	for _, id := range got.Template.SecurityGroupIds {
		groups = append(groups, d.SecurityGroups[id])
	}
	for _, r := range g.Roles {
		if r != role.Etcd || len(g.Members) > 0 {
			want = append(want, c.Cluster.Name+"-"+string(r))
		}
	}
	assert.DeepEqual(t, groups, want)
	for _, s := range got.Trust.Statement {
		assert.Equal(t, s.Principal.Service, "ec2.amazonaws.com")
	}
	assert.Equal(t, got.Boundary, "arn:aws:iam::aws:policy/PowerUserAccess")
	assert.Equal(t, len(got.Attached), 0)
	assert.Equal(t, len(got.Policies), 1)
}

func TestDeployedRecords(t *testing.T) {
	want := map[string][]string{"_hardtack.demo.k8s. TXT": {`"owner=hardtack"`}}
	for _, r := range role.All() {
		want[string(r)+".demo.k8s. A"] = []string{"192.0.2.1"}
	}
	assert.DeepEqual(t, deployed(t, "default=no").Records, want)
}

// The parts that moto's CloudFormation omits are tested in the rendered template.
func TestRenderedHooks(t *testing.T) {
	for _, name := range documents {
		c := document(t, name)
		resources := render(t, c).Resources
		for _, g := range c.Groups {
			launch := 900
			if g.Roles.LaunchedByMasters() {
				launch = 1200
			}
			want := []any{
				map[string]any{"LifecycleHookName": template.DrainHook, "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "DefaultResult": "CONTINUE", "HeartbeatTimeout": 300},
				map[string]any{"LifecycleHookName": c.Cluster.LaunchHook, "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "DefaultResult": "ABANDON", "HeartbeatTimeout": launch},
			}
			if g.Roles.Has(role.Minions) {
				want = slices.Insert(want, 1, any(map[string]any{"LifecycleHookName": role.EvictionHook, "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "DefaultResult": "CONTINUE", "HeartbeatTimeout": 900}))
			}
			r := resources["Group"+groupID(g.Name)]
			assert.DeepEqual(t, r.Properties["LifecycleHookSpecificationList"], want)
			of, alike := r.Properties["LaunchTemplate"].(map[string]any)
			if !alike {
				of = r.Properties["MixedInstancesPolicy"].(map[string]any)["LaunchTemplate"].(map[string]any)["LaunchTemplateSpecification"].(map[string]any)
			}
			assert.Assert(t, of["Version"] != nil, g.Name)
		}
	}
	alone := complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\nlaunchHook: none\n")
	hooks := render(t, alone).Resources["GroupMasters"].Properties["LifecycleHookSpecificationList"].([]any)
	assert.Equal(t, len(hooks), 1)
	assert.Equal(t, hooks[0].(map[string]any)["LifecycleHookName"], template.DrainHook)
	const minions = "groups:\n- {name: masters, roles: [masters, etcd]}\n- {name: slow, roles: [minions], aws: {drainTimeout: 120}}\n"
	hooks = render(t, complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+minions)).Resources["GroupSlow"].Properties["LifecycleHookSpecificationList"].([]any)
	assert.Equal(t, hooks[1].(map[string]any)["HeartbeatTimeout"], 7200)
	// Nobody would answer the hook of minions whose masters are in no group.
	const apart = "groups:\n- {name: minions, roles: [minions]}\n"
	hooks = render(t, complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+apart)).Resources["GroupMinions"].Properties["LifecycleHookSpecificationList"].([]any)
	assert.Equal(t, len(hooks), 2)
	assert.Equal(t, hooks[1].(map[string]any)["HeartbeatTimeout"], 900)
}

// What is done about notices is a tag of the group alone, where it is not the usual.
func TestRenderedNotices(t *testing.T) {
	const document = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\ngroups:\n- {name: masters, roles: [masters, etcd]}\n" +
		"- {name: usual, roles: [minions], aws: {notices: {spot: drain}}}\n- {name: spot, roles: [minions], aws: {notices: {rebalance: cordon, scheduled: ignore}}}\n"
	resources := render(t, complete(t, document)).Resources
	for group, want := range map[string]string{"Masters": "", "Usual": "", "Spot": "spot=drain scheduled=ignore rebalance=cordon"} {
		got := ""
		for _, tag := range resources["Group"+group].Properties["Tags"].([]any) {
			if tag := tag.(map[string]any); tag["Key"] == role.TagNotices {
				got = tag["Value"].(string)
				assert.Equal(t, tag["PropagateAtLaunch"], false)
			}
		}
		assert.Equal(t, got, want, group)
	}
}

func TestRenderedBalancer(t *testing.T) {
	const prefix = "AWS::ElasticLoadBalancingV2::"
	for _, name := range documents {
		c := document(t, name)
		template := render(t, c)
		found := map[string]map[string]any{}
		for _, r := range template.Resources {
			if kind, ok := strings.CutPrefix(r.Type, prefix); ok {
				found[kind] = r.Properties
			}
		}
		if c.Cluster.AWS.LoadBalancer == spec.LoadBalancerNone {
			assert.Equal(t, len(found), 0, name)
			continue
		}
		assert.Equal(t, found["LoadBalancer"]["Type"], "network")
		assert.Equal(t, found["LoadBalancer"]["Scheme"], c.Cluster.AWS.LoadBalancer)
		assert.Equal(t, found["TargetGroup"]["Port"], c.Cluster.API.Port)
		assert.Equal(t, found["TargetGroup"]["HealthCheckProtocol"], "HTTPS")
		assert.Equal(t, found["Listener"]["Port"], c.Cluster.API.Port)
		for _, g := range c.Groups {
			_, behind := template.Resources["Group"+groupID(g.Name)].Properties["TargetGroupARNs"]
			assert.Equal(t, behind, g.Roles.Has(role.Masters), g.Name)
		}
	}
}

// groupID is the part of logical names that stands for a group.
func groupID(name string) string {
	out := ""
	for part := range strings.SplitSeq(name, "-") {
		out += strings.ToUpper(part[:1]) + part[1:]
	}
	return out
}

// TestDeployedVolumes: moto makes a volume for each member, in its zone.
func TestDeployedVolumes(t *testing.T) {
	for _, name := range deployments {
		file, _, _ := strings.Cut(name, "=")
		c, want := document(t, file), map[string][2]any{}
		for _, g := range c.Groups {
			if g.Member != "" {
				want[template.VolumeID(g.Member)] = [2]any{region + string('a'+rune(len(want))), float64(c.Cluster.Etcd.Size)}
			}
		}
		assert.DeepEqual(t, deployed(t, name).Volumes, want)
	}
}
