package template

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// securityGroup is the logical name of a role's security group. A machine has the security groups of all its roles.
func securityGroup(r role.Role) string { return "SecurityGroup" + logical(string(r)) }

// balancerGroup is the load balancer's security group.
const balancerGroup = "SecurityGroupLoadBalancer"

// reached reports whether other machines connect to machines of the role. A single etcd member without a name only
// listens for the API server on the same machine.
func (b *builder) reached(r role.Role) bool {
	return b.has(r) && (r != role.Etcd || len(b.members()) > 0)
}

// roles are Hardtack's roles, and an operator's own of the document.
func (b *builder) roles() []role.Role {
	var all []role.Role
	for _, g := range b.cluster.Groups {
		all = append(all, g.Roles...)
	}
	return append(role.All(), role.Own(all)...)
}

// securityGroupsOf are the roles whose security groups the group's machines have.
func (b *builder) securityGroupsOf(g spec.Group) []role.Role {
	var roles []role.Role
	for _, r := range g.Roles {
		if b.reached(r) {
			roles = append(roles, r)
		}
	}
	return roles
}

// ports are the ports of a role to which other machines of the cluster connect.
func (b *builder) ports(r role.Role) []role.Port {
	var ports []role.Port
	for _, p := range r.Ports() {
		if r == role.Masters && p.Number == role.DefaultAPIPort {
			p.Number = b.cluster.Cluster.API.Port
		}
		if len(p.From) > 0 {
			ports = append(ports, p)
		}
	}
	return ports
}

// securityGroups adds a security group for each role, with its rules. All outgoing traffic is allowed: masters and
// minions call the AWS APIs, and pods may connect anywhere.
func (b *builder) securityGroups() {
	for _, r := range b.roles() {
		if !b.reached(r) {
			continue
		}
		id, tags := securityGroup(r), b.tags(b.cluster.Cluster.Name+"-"+string(r))
		if b.ownsNodes(r) {
			tags = append(tags, object{"Key": ownedTag(b.cluster.Cluster.Name), "Value": owned})
		}
		b.out.Resources[id] = Resource{Type: "AWS::EC2::SecurityGroup", Properties: object{
			"GroupDescription": fmt.Sprintf("%s of the Hardtack cluster %s", r, b.cluster.Cluster.Name),
			"VpcId":            ref(ParameterVPC),
			"Tags":             tags,
		}}
		b.out.Outputs[id] = Output{Description: fmt.Sprintf("The security group of machines with the role %s", r), Value: groupID(id)}
	}
	for _, r := range b.rules() {
		b.ingress(r.id(), securityGroup(r.To), role.Port{Protocol: r.Protocol, Number: r.Port, Program: r.Program}, r.source(), "")
		b.out.Resources[r.id()].Properties["ToPort"] = r.Last
	}
	if b.cluster.Cluster.AWS.LoadBalancer == spec.LoadBalancerNone && b.has(role.Masters) {
		b.ingress("IngressMastersFromClients", securityGroup(role.Masters), b.apiPort(), object{"CidrIp": ref(ParameterClients)}, hasClients)
		b.access("IngressMastersFrom", securityGroup(role.Masters))
	}
}

// access adds a rule for each range of aws.apiAccess. The range is in the rule's logical name, since a rule is not changed: an added or
// removed range leaves the others alone.
func (b *builder) access(id, group string) {
	for _, r := range b.ranges() {
		b.ingress(id+logicalRange(r.CIDR), group, b.apiPort(), cidr(r.CIDR), "")
	}
}

// accessRange is a range of addresses that may reach the API servers.
type accessRange struct {
	CIDR string `json:"cidr"`
	IPv6 bool   `json:"ipv6"`
}

// ranges are those of aws.apiAccess.
func (b *builder) ranges() []accessRange {
	out := []accessRange{}
	for _, text := range b.cluster.Cluster.AWS.APIAccess {
		out = append(out, accessRange{text, strings.Contains(text, ":")})
	}
	return out
}

// dualStack reports whether the load balancer is to have addresses of IPv6 too: its subnets then need a range of them.
func (b *builder) dualStack() bool {
	return slices.ContainsFunc(b.ranges(), func(r accessRange) bool { return r.IPv6 })
}

func groupID(id string) object { return attribute(id, "GroupId") }

func (b *builder) apiPort() role.Port {
	return role.Port{Protocol: "tcp", Number: b.cluster.Cluster.API.Port, Program: "kube-apiserver"}
}

// ingress adds one rule. It is a separate resource, since two security groups can refer to each other.
func (b *builder) ingress(id, group string, p role.Port, source object, condition string) {
	properties := object{"GroupId": groupID(group), "IpProtocol": p.Protocol, "FromPort": p.Number, "ToPort": p.Number, "Description": p.What()}
	for key, value := range source {
		properties[key] = value
	}
	b.out.Resources[id] = Resource{Type: "AWS::EC2::SecurityGroupIngress", Condition: condition, Properties: properties}
}
