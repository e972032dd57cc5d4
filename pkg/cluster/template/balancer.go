package template

import (
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// The load balancer's logical names.
const (
	balancerID = "LoadBalancer"
	targetsID  = "LoadBalancerTargets"
	listenerID = "LoadBalancerListener"
)

// balanced reports whether the group's machines are targets of the load balancer.
func (b *builder) balanced(g spec.Group) bool {
	return g.Roles.Has(role.Masters) && b.cluster.Cluster.AWS.LoadBalancer != spec.LoadBalancerNone
}

// targets is the logical name of the target group, another one for each scheme. AWS has a target group in one load balancer only
// ("Target groups for your Network Load Balancers"), and a new scheme makes a load balancer before the old one is gone.
func (b *builder) targets() string {
	if b.cluster.Cluster.AWS.LoadBalancer == spec.LoadBalancerPublic {
		return targetsID + "Public"
	}
	return targetsID
}

// balancer adds the network load balancer of the API servers, if the document wants one. Machines do not use it: they
// connect to masters.<cluster>.k8s.
func (b *builder) balancer() {
	scheme := b.cluster.Cluster.AWS.LoadBalancer
	if scheme == spec.LoadBalancerNone || !b.has(role.Masters) {
		return
	}
	b.out.Parameters[ParameterBalancer] = Parameter{Type: "List<AWS::EC2::Subnet::Id>",
		Description: "The subnets of the load balancer before the API servers, one in each availability zone of theirs; public ones where it is internet-facing."}
	cluster, port := b.cluster.Cluster.Name, b.apiPort()
	r := b.out.Resources
	r[balancerGroup] = Resource{Type: "AWS::EC2::SecurityGroup", Properties: object{
		"GroupDescription": "the load balancer before the API servers of the Hardtack cluster " + cluster,
		"VpcId":            ref(ParameterVPC), "Tags": b.tags(cluster + "-api"),
	}}
	b.ingress("IngressLoadBalancerFromClients", balancerGroup, port, object{"CidrIp": ref(ParameterClients)}, hasClients)
	b.access("IngressLoadBalancerFrom", balancerGroup)
	b.ingress("IngressMastersFromLoadBalancer", securityGroup(role.Masters), port, object{"SourceSecurityGroupId": groupID(balancerGroup)}, "")
	balancer := object{
		"Type": "network", "Scheme": scheme, "Subnets": ref(ParameterBalancer), "SecurityGroups": []any{groupID(balancerGroup)},
		// There may be fewer masters than zones.
		"LoadBalancerAttributes": []any{object{"Key": "load_balancing.cross_zone.enabled", "Value": "true"}},
		"Tags":                   b.tags(cluster + "-api"),
	}
	if b.dualStack() {
		balancer["IpAddressType"] = "dualstack"
	}
	r[balancerID] = Resource{Type: "AWS::ElasticLoadBalancingV2::LoadBalancer", Properties: balancer}
	r[b.targets()] = Resource{Type: "AWS::ElasticLoadBalancingV2::TargetGroup", Properties: object{
		"Protocol": "TCP", "Port": port.Number, "TargetType": "instance", "VpcId": ref(ParameterVPC),
		// /readyz needs no authentication.
		"HealthCheckProtocol": "HTTPS", "HealthCheckPath": "/readyz", "HealthCheckIntervalSeconds": 10,
		"HealthyThresholdCount": 2, "UnhealthyThresholdCount": 2,
		"Tags": b.tags(cluster + "-api"),
	}}
	r[listenerID] = Resource{Type: "AWS::ElasticLoadBalancingV2::Listener", Properties: object{
		"LoadBalancerArn": ref(balancerID), "Protocol": "TCP", "Port": port.Number,
		"DefaultActions": []any{object{"Type": "forward", "TargetGroupArn": ref(b.targets())}},
	}}
	b.out.Outputs[OutputAPI] = Output{Value: attribute(balancerID, "DNSName"),
		Description: fmt.Sprintf("Where clients reach the API: kubectl --server https://NAME:%d --tls-server-name %s", port.Number, role.Masters.Host(b.cluster.Cluster.Name))}
}
