package stack

import (
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// securityGroup is the logical name of a role's security group; a machine has that of each of its roles.
func securityGroup(r role.Role) string { return "SecurityGroup" + logical(string(r)) }

// balancerGroup is the load balancer's security group.
const balancerGroup = "SecurityGroupLoadBalancer"

// reached reports whether machines of the role are asked by others: a lone member of etcd listens for the API server
// beside it alone.
func (b *builder) reached(r role.Role) bool {
	return b.has(r) && (r != role.Etcd || len(b.members()) > 0)
}

// securityGroupsOf are the roles whose security groups a machine of the group has.
func (b *builder) securityGroupsOf(g spec.Group) []role.Role {
	var roles []role.Role
	for _, r := range g.Roles {
		if b.reached(r) {
			roles = append(roles, r)
		}
	}
	return roles
}

// ports are those on which a role's machines are reached from others in this cluster.
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

// securityGroups adds a group for each role, and what is let into it. Everything may go out: masters and minions
// speak to the AWS APIs, and pods to whatever they are for.
func (b *builder) securityGroups() {
	for _, r := range role.All() {
		if !b.reached(r) {
			continue
		}
		id := securityGroup(r)
		b.out.Resources[id] = Resource{Type: "AWS::EC2::SecurityGroup", Properties: object{
			"GroupDescription": fmt.Sprintf("%s of the Hardtack cluster %s", r, b.cluster.Cluster.Name),
			"VpcId":            ref(ParameterVPC),
			"Tags":             b.tags(b.cluster.Cluster.Name + "-" + string(r)),
		}}
		for _, p := range b.ports(r) {
			for _, from := range p.From {
				if b.reached(from) {
					b.ingress(fmt.Sprintf("Ingress%s%dFrom%s", logical(string(r)), p.Number, logical(string(from))), id, p,
						object{"SourceSecurityGroupId": groupID(securityGroup(from))}, "")
				}
			}
		}
		b.out.Outputs[id] = Output{Description: fmt.Sprintf("The security group of machines with the role %s", r), Value: groupID(id)}
	}
	if b.cluster.Cluster.AWS.LoadBalancer == spec.LoadBalancerNone && b.has(role.Masters) {
		b.ingress("IngressMastersFromClients", securityGroup(role.Masters), b.apiPort(), object{"CidrIp": ref(ParameterClients)}, hasClients)
	}
}

func groupID(id string) object { return attribute(id, "GroupId") }

func (b *builder) apiPort() role.Port {
	return role.Port{Protocol: "tcp", Number: b.cluster.Cluster.API.Port, Program: "kube-apiserver"}
}

// ingress adds one rule. It is a resource of its own, since two security groups name each other.
func (b *builder) ingress(id, group string, p role.Port, source object, condition string) {
	properties := object{"GroupId": groupID(group), "IpProtocol": p.Protocol, "FromPort": p.Number, "ToPort": p.Number, "Description": p.What()}
	for key, value := range source {
		properties[key] = value
	}
	b.out.Resources[id] = Resource{Type: "AWS::EC2::SecurityGroupIngress", Condition: condition, Properties: properties}
}
