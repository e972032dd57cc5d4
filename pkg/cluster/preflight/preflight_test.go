package preflight_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/preflight"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

func plan() preflight.Plan {
	return preflight.Plan{Partition: "aws", Region: "us-west-2", Account: "123456789012", Stack: "hardtack-demo", Groups: []string{"demo-masters", "demo-minions"},
		Types: []string{"AWS::EC2::Volume", "AWS::ElasticLoadBalancingV2::TargetGroup"}, Store: "/hardtack/demo", Channel: "/hardtack/stable/image-id", Backups: "hardtack-demo-backups", PodRoles: "demo-us-west-2-", SecretsKey: "alias/hardtack-demo"}
}

// The policy that is printed allows every call that is asked for, and every one of them needs it: without its statement it is refused.
func TestPolicyAllowsTheNeeds(t *testing.T) {
	needs := plan().Needs()
	text, err := preflight.Policy(needs)
	assert.NilError(t, err)
	policy, err := awsfake.ParsePolicy(text)
	assert.NilError(t, err)
	used := map[int]bool{}
	for _, n := range needs {
		for _, action := range n.Actions {
			assert.Equal(t, awsfake.Decision([]awsfake.Policy{policy}, action, n.Resource, n.Context), "allowed", "%s on %s", action, n.Resource)
			for i := range policy {
				if without := slices.Delete(slices.Clone(policy), i, i+1); awsfake.Decision([]awsfake.Policy{without}, action, n.Resource, n.Context) != "allowed" {
					used[i] = true
				}
			}
		}
	}
	var document struct{ Statement []struct{ Action []string } }
	assert.NilError(t, json.Unmarshal(text, &document))
	for i := range policy {
		if !used[i] && !slices.Contains(document.Statement[i].Action, "iam:SimulatePrincipalPolicy") {
			t.Errorf("statement %d allows nothing that is needed: %v", i+1, document.Statement[i].Action)
		}
	}
	if got := awsfake.Decision([]awsfake.Policy{policy}, "iam:PassRole", "arn:aws:iam::123456789012:role/hardtack-demo-x", map[string][]string{"iam:PassedToService": {"lambda.amazonaws.com"}}); got != "implicitDeny" {
		t.Errorf("passing a role to another service is %s", got)
	}
}

// TestPolicyOfChina: there EC2 has two names, and roles are handed to both.
func TestPolicyOfChina(t *testing.T) {
	for partition, china := range map[string]string{"aws": "implicitDeny", "aws-cn": "allowed"} {
		p := plan()
		p.Partition = partition
		text, err := preflight.Policy(p.Needs())
		assert.NilError(t, err)
		policy, err := awsfake.ParsePolicy(text)
		assert.NilError(t, err)
		for service, want := range map[string]string{"ec2.amazonaws.com": "allowed", "ec2.amazonaws.com.cn": china} {
			got := awsfake.Decision([]awsfake.Policy{policy}, "iam:PassRole", "arn:"+partition+":iam::123456789012:role/hardtack-demo-x", map[string][]string{"iam:PassedToService": {service}})
			assert.Equal(t, got, want, "%s %s", partition, service)
		}
	}
}

// find returns the checks of a name.
func find(l doctor.List, name string) (out []doctor.Check) {
	for _, c := range l {
		if c.Name == name {
			out = append(out, c)
		}
	}
	return out
}

func TestPermissions(t *testing.T) {
	need := preflight.Need{Name: "permissions.groups", What: "making the groups", Resource: "arn:group", Actions: []string{"a:B"}}
	judge := func(who preflight.Caller, err error, decisions ...preflight.Decision) doctor.List {
		return preflight.Judge(preflight.Facts{Caller: who, Decisions: doctor.Known[[]preflight.Decision]{Value: decisions, Err: err}}, preflight.Wanted{PolicyCommand: "POLICY"})
	}
	anna := preflight.Caller{ARN: "arn:aws:iam::123456789012:user/anna", Principal: "arn:aws:iam::123456789012:user/anna"}
	once, elsewhere := need, need
	once.Once, elsewhere.Elsewhere = true, true
	for name, tt := range map[string]struct {
		list  doctor.List
		check string
		state doctor.State
		text  string
		next  string
	}{
		"allowed":            {judge(anna, nil, preflight.Decision{Need: need, Action: "a:B", Decision: "allowed"}), need.Name, doctor.OK, "allowed: making the groups", ""},
		"no policy":          {judge(anna, nil, preflight.Decision{Need: need, Action: "a:B", Decision: "implicitDeny"}), need.Name, doctor.Error, "making the groups: a:B on arn:group: no policy allows it", "POLICY prints"},
		"denied":             {judge(anna, nil, preflight.Decision{Need: need, Action: "a:B", Decision: "explicitDeny"}), need.Name, doctor.Error, "an explicit denial", "have it taken away"},
		"organization":       {judge(anna, nil, preflight.Decision{Need: need, Action: "a:B", Decision: "implicitDeny", Organization: true}), need.Name, doctor.Error, "an organization's policy", "have it taken away"},
		"boundary":           {judge(anna, nil, preflight.Decision{Need: need, Action: "a:B", Decision: "implicitDeny", Boundary: true}), need.Name, doctor.Error, "a permissions boundary", "have it taken away"},
		"a condition":        {judge(anna, nil, preflight.Decision{Need: need, Action: "a:B", Decision: "implicitDeny", Missing: []string{"aws:SourceIp"}}), need.Name, doctor.Warning, "it depends on aws:SourceIp", "POLICY"},
		"once":               {judge(anna, nil, preflight.Decision{Need: once, Action: "a:B", Decision: "implicitDeny"}), need.Name, doctor.Warning, "needed where the account has none yet", "POLICY"},
		"own policy":         {judge(anna, nil, preflight.Decision{Need: elsewhere, Action: "a:B", Decision: "implicitDeny"}), need.Name, doctor.Warning, "no policy allows it; the resource's own policy may, which is not known here", "POLICY"},
		"own policy, denied": {judge(anna, nil, preflight.Decision{Need: elsewhere, Action: "a:B", Decision: "explicitDeny"}), need.Name, doctor.Error, "an explicit denial", "have it taken away"},
		"not simulated":      {judge(anna, &doctor.Refused{Permission: "iam:SimulatePrincipalPolicy", Err: errors.New("no")}), "permissions", doctor.Warning, "not known: no", "allow iam:SimulatePrincipalPolicy"},
		"unreachable":        {judge(anna, errors.New("no route")), "permissions", doctor.Error, "not known: no route", "reached"},
		"root":               {judge(preflight.Caller{ARN: "arn:aws:iam::123456789012:root"}, nil), "permissions", doctor.OK, "root", ""},
		"federated":          {judge(preflight.Caller{ARN: "arn:aws:sts::123456789012:federated-user/anna"}, nil), "permissions", doctor.Warning, "is neither", "POLICY"},
	} {
		t.Run(name, func(t *testing.T) {
			got := find(tt.list, tt.check)
			assert.Equal(t, len(got), 1, "%+v", tt.list)
			assert.Equal(t, got[0].State, tt.state, "%+v", got[0])
			assert.Assert(t, strings.Contains(got[0].Text, tt.text) && strings.Contains(got[0].Next, tt.next), "%+v", got[0])
		})
	}
}

// Processors are counted by family, for on-demand and spot instances apart, at the largest of a group's types; others' machines count where
// the cluster wants some of the same.
func TestProcessors(t *testing.T) {
	cpus := map[string]int{"m7i.large": 2, "m7i.2xlarge": 8, "c7i.large": 2, "g5.xlarge": 4, "im4gn.large": 2, "u-6tb1.metal": 448, "q9.large": 2}
	got := preflight.Processors(
		[]preflight.Machines{{Types: []string{"m7i.large"}, Count: 3}, {Types: []string{"m7i.large", "m7i.2xlarge", "g5.xlarge"}, Count: 2}, {Types: []string{"c7i.large"}, Count: 5, Spot: true}, {Types: []string{"q9.large"}, Count: 4}},
		[]preflight.Machines{{Types: []string{"im4gn.large"}, Count: 1}, {Types: []string{"c7i.large"}, Count: 1, Spot: true}, {Types: []string{"u-6tb1.metal"}, Count: 1}}, cpus)
	type row struct {
		name, code   string
		wanted, used int
	}
	var rows []row
	for _, q := range got {
		rows = append(rows, row{q.Name, q.Code, q.Wanted, q.Used})
	}
	assert.DeepEqual(t, rows, []row{{"quotas.spot.standard", "L-34B43A08", 10, 2}, {"quotas.vcpus.g", "L-DB2E81BA", 8, 0}, {"quotas.vcpus.standard", "L-1216C47A", 22, 2}}, cmp.AllowUnexported(row{}))

	for _, tt := range []struct {
		quota preflight.Quota
		state doctor.State
		want  string
	}{
		{preflight.Quota{Limit: 24, Used: 2, Wanted: 22}, doctor.OK, "2 of 24 are used, and the cluster has up to 22"},
		{preflight.Quota{Limit: 23, Used: 2, Wanted: 22, Service: "ec2", Code: "L-1"}, doctor.Error, "1 too few aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-1 --desired-value 24"},
		{preflight.Quota{Err: errors.New("no route")}, doctor.Error, "not known: no route"},
	} {
		tt.quota.Name = "quotas.x"
		c := find(preflight.Judge(preflight.Facts{Quotas: []preflight.Quota{tt.quota}}, preflight.Wanted{}), "quotas.x")[0]
		assert.Equal(t, c.State, tt.state)
		assert.Assert(t, strings.Contains(c.Text+" "+c.Next, tt.want), "%+v", c)
	}
}

// A network in which machines come up, and what keeps them from it.
func TestNetwork(t *testing.T) {
	type facts = preflight.Network
	subnet := func(f func(*preflight.Subnet)) func(*facts) {
		return func(n *facts) {
			s := n.Subnets.Value["subnet-a"]
			f(&s)
			n.Subnets.Value["subnet-a"] = s
		}
	}
	alone := func(s *preflight.Subnet) { s.Way = "" }
	endpoints := func(change func([]preflight.Endpoint)) func(*facts) {
		return func(n *facts) {
			subnet(alone)(n)
			n.Endpoints.Value = []preflight.Endpoint{{ID: "vpce-1", Service: "ssm", Available: true, PrivateNames: true}, {ID: "vpce-2", Service: "ec2", Available: true, PrivateNames: true}, {ID: "vpce-3", Service: "s3", Available: true, Gateway: true, RouteTables: []string{"rtb-1"}}}
			change(n.Endpoints.Value)
		}
	}
	zone := func(zones ...preflight.Zone) func(*facts) { return func(n *facts) { n.Zones.Value = zones } }
	own := preflight.Zone{ID: "Z1", Name: "k8s.", Owner: "123456789012"}
	for name, tt := range map[string]struct {
		change func(*facts)
		wanted func(*preflight.Wanted)
		check  string
		state  doctor.State
		want   string
	}{
		"NAT":             {func(*facts) {}, nil, "network.reach.subnet-a", doctor.OK, "by nat-1"},
		"both attributes": {func(*facts) {}, nil, "network.dns", doctor.OK, ""},
		"no host names":   {func(n *facts) { n.DNS.Value.Hostnames = false }, nil, "network.dns", doctor.Error, "--enable-dns-hostnames Value=true"},
		"no names at all": {func(n *facts) { n.DNS.Value.Support = false }, nil, "network.dns", doctor.Error, "--enable-dns-support Value=true"},
		"not allowed": {func(n *facts) {
			n.DNS.Err = &doctor.Refused{Permission: "ec2:DescribeVpcAttribute", Err: errors.New("no")}
		}, nil, "network.dns", doctor.Warning, "allow ec2:DescribeVpcAttribute"},
		"no VPC":                    {func(n *facts) { n.VPC = "" }, nil, "network", doctor.Warning, "--vpc"},
		"no zone yet":               {func(*facts) {}, nil, "network.zone", doctor.OK, "the stack makes it"},
		"a zone of another":         {zone(own), nil, "network.zone", doctor.Error, "give --zone-id Z1"},
		"its own zone":              {zone(own), func(w *preflight.Wanted) { w.Made = true }, "network.zone", doctor.OK, "Z1"},
		"its own zone is gone":      {func(*facts) {}, func(w *preflight.Wanted) { w.Made = true }, "network.zone", doctor.Error, "which the stack made"},
		"a shared zone":             {zone(own), func(w *preflight.Wanted) { w.ZoneID = "Z1" }, "network.zone", doctor.OK, "from zone Z1"},
		"a shared zone not here":    {func(*facts) {}, func(w *preflight.Wanted) { w.ZoneID = "Z1" }, "network.zone", doctor.Error, "associate-vpc-with-hosted-zone --hosted-zone-id Z1"},
		"a shared zone, another":    {zone(own), func(w *preflight.Wanted) { w.ZoneID = "Z2" }, "network.zone", doctor.Error, "from zone Z1, and not from Z2"},
		"public addresses":          {subnet(func(s *preflight.Subnet) { s.Way, s.PublicAddresses = "igw-1", true }), nil, "network.reach.subnet-a", doctor.OK, "igw-1"},
		"no public addresses":       {subnet(func(s *preflight.Subnet) { s.Way = "igw-1" }), nil, "network.reach.subnet-a", doctor.Error, "its machines get no public address, and there is no way to ec2 (no endpoint), s3 (no endpoint), ssm (no endpoint)"},
		"a lost NAT":                {subnet(func(s *preflight.Subnet) { s.Lost = true }), nil, "network.reach.subnet-a", doctor.Error, "nat-1, which is gone"},
		"no route":                  {subnet(alone), nil, "network.reach.subnet-a", doctor.Error, "it has no route to everywhere"},
		"endpoints":                 {endpoints(func([]preflight.Endpoint) {}), nil, "network.reach.subnet-a", doctor.OK, "by endpoints"},
		"an endpoint not available": {endpoints(func(e []preflight.Endpoint) { e[0].Available = false }), nil, "network.reach.subnet-a", doctor.Error, "ssm (vpce-1 is not available)"},
		"no private names":          {endpoints(func(e []preflight.Endpoint) { e[1].PrivateNames = false }), nil, "network.reach.subnet-a", doctor.Error, "ec2 (vpce-2 has private DNS names off)"},
		"another route table":       {endpoints(func(e []preflight.Endpoint) { e[2].RouteTables = []string{"rtb-9"} }), nil, "network.reach.subnet-a", doctor.Error, "s3 (vpce-3 is not in route table rtb-1)"},
		"a policy": {endpoints(func(e []preflight.Endpoint) {
			e[0].Policy = `{"Statement": {"Effect": "Allow", "Principal": "*", "Action": ["ssm:Get*"], "Resource": "*"}}`
		}), nil, "network.endpoint.vpce-1", doctor.OK, "of ssm"},
		"a policy without an action": {endpoints(func(e []preflight.Endpoint) {
			e[0].Policy = `{"Statement": [{"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": "SSM:GetParameter", "Resource": ["*"]}]}`
		}), nil, "network.endpoint.vpce-1", doctor.Error, "lets no call of ssm:GetParameters through"},
		"a policy that denies": {endpoints(func(e []preflight.Endpoint) {
			e[0].Policy = `{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Principal": "*", "NotAction": "ssm:GetParameters", "Resource": "*"}]}`
		}), nil, "network.endpoint.vpce-1", doctor.Error, "lets no call of ssm:GetParameter through"},
		"a policy for a path": {endpoints(func(e []preflight.Endpoint) {
			e[0].Policy = `{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "arn:aws:ssm:us-west-2:123456789012:parameter/hardtack/*"}]}`
		}), nil, "network.endpoint.vpce-1", doctor.Warning, "lets ssm:GetParameter, ssm:GetParameters through depends on the resource"},
		"a policy for an organization": {endpoints(func(e []preflight.Endpoint) {
			e[0].Policy = `{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}}, {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "*", "Resource": "*"}]}`
		}), nil, "network.endpoint.vpce-1", doctor.Warning, "depends on aws:PrincipalOrgID, the caller"},
		"a narrow denial": {endpoints(func(e []preflight.Endpoint) {
			e[0].Policy = `{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Principal": "*", "Action": "ssm:GetParameters", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}]}`
		}), nil, "network.endpoint.vpce-1", doctor.Warning, "lets ssm:GetParameters through depends on aws:SecureTransport"},
		"a policy of a gateway": {endpoints(func(e []preflight.Endpoint) { e[2].Policy = `{"Statement": []}` }), nil, "network.endpoint.vpce-3", doctor.Error, "no call of s3:GetObject"},
		"a policy beside a NAT": {func(n *facts) {
			n.Endpoints.Value = []preflight.Endpoint{{ID: "vpce-1", Service: "ssm", Available: true, PrivateNames: true, Policy: `{"Statement": []}`}}
		}, nil, "network.endpoint.vpce-1", doctor.Error, "aws ec2 modify-vpc-endpoint --reset-policy --vpc-endpoint-id vpce-1"},
		"a policy that is not understood": {endpoints(func(e []preflight.Endpoint) { e[0].Policy = `{"Statement": 1}` }), nil, "network.endpoint.vpce-1", doctor.Warning, "is not understood here"},
		"a subnet of another VPC":         {subnet(func(s *preflight.Subnet) { s.VPC = "vpc-2" }), nil, "network.subnets", doctor.Error, "is of vpc-2, and not of vpc-1"},
		"a subnet that is not there":      {func(n *facts) { delete(n.Subnets.Value, "subnet-a") }, nil, "network.subnets", doctor.Error, "no subnet subnet-a"},
		"ranges apart":                    {func(*facts) {}, nil, "network.ranges", doctor.OK, "no addresses of vpc-1 (10.0.0.0/16)"},
		"pods within the VPC": {func(n *facts) { n.Ranges = []string{"10.0.0.0/16", "10.244.0.0/20"} }, nil, "network.ranges", doctor.Error,
			"network.podCIDR 10.244.0.0/14 overlaps 10.244.0.0/20 of vpc-1: what machines send to each other there would go to pods or Services write another network.podCIDR"},
		"Services around the VPC": {func(*facts) {}, func(w *preflight.Wanted) { w.Ranges["network.serviceCIDR"] = "10.0.0.0/12" }, "network.ranges", doctor.Error,
			"network.serviceCIDR 10.0.0.0/12 overlaps 10.0.0.0/16 of vpc-1"},
		"room":    {func(*facts) {}, func(w *preflight.Wanted) { w.Machines = 8 }, "network.addresses", doctor.OK, ""},
		"no room": {func(*facts) {}, func(w *preflight.Wanted) { w.Machines = 9 }, "network.addresses", doctor.Error, "8 free addresses, and the cluster has up to 9 machines"},
	} {
		t.Run(name, func(t *testing.T) {
			n := preflight.Network{VPC: "vpc-1", Ranges: []string{"10.0.0.0/16"}, DNS: doctor.Known[preflight.DNS]{Value: preflight.DNS{Support: true, Hostnames: true}},
				Subnets: doctor.Known[map[string]preflight.Subnet]{Value: map[string]preflight.Subnet{"subnet-a": {VPC: "vpc-1", Free: 8, RouteTable: "rtb-1", Way: "nat-1"}}}}
			w := preflight.Wanted{Subnets: []string{"subnet-a", "subnet-a"}, Calls: []string{"ec2:DescribeInstances", "s3:GetObject", "ssm:GetParameter", "ssm:GetParameters"}, Zone: "k8s",
				Ranges: map[string]string{"network.podCIDR": "10.244.0.0/14", "network.serviceCIDR": "10.96.0.0/16"}}
			tt.change(&n)
			if tt.wanted != nil {
				tt.wanted(&w)
			}
			list := preflight.Judge(preflight.Facts{Network: n}, w)
			got := find(list, tt.check)
			assert.Equal(t, len(got), 1, "%+v", list)
			assert.Equal(t, got[0].State, tt.state, "%+v", got[0])
			assert.Assert(t, strings.Contains(got[0].Text+" "+got[0].Next, tt.want), "%+v", got[0])
			if got[0].State != doctor.OK {
				assert.Assert(t, got[0].Next != "", "%+v has no next step", got[0])
			}
		})
	}
}
