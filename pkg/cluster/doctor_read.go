package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	balancertypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	route53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/preflight"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// simulate has IAM decide about one need.
func simulate(ctx context.Context, client *iam.Client, principal string, n preflight.Need) (out []preflight.Decision, err error) {
	in := iam.SimulatePrincipalPolicyInput{PolicySourceArn: &principal, ActionNames: n.Actions, ResourceArns: []string{n.Resource}}
	for _, key := range slices.Sorted(maps.Keys(n.Context)) {
		kind := iamtypes.ContextKeyTypeEnumString
		if preflight.Several(key) {
			kind = iamtypes.ContextKeyTypeEnumStringList
		}
		in.ContextEntries = append(in.ContextEntries, iamtypes.ContextEntry{ContextKeyName: aws.String(key), ContextKeyType: kind, ContextKeyValues: n.Context[key]})
	}
	pages := iam.NewSimulatePrincipalPolicyPaginator(client, &in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.EvaluationResults {
			d := preflight.Decision{Need: n, Action: aws.ToString(e.EvalActionName), Decision: string(e.EvalDecision), Missing: e.MissingContextValues}
			boundary := e.PermissionsBoundaryDecisionDetail
			// IAM's reference: a result by resource takes precedence.
			if r := e.ResourceSpecificResults; len(r) == 1 {
				d.Decision, d.Missing, boundary = string(r[0].EvalResourceDecision), r[0].MissingContextValues, r[0].PermissionsBoundaryDecisionDetail
			}
			d.Organization = e.OrganizationsDecisionDetail != nil && !e.OrganizationsDecisionDetail.AllowedByOrganizations
			d.Boundary = boundary != nil && !boundary.AllowedByPermissionsBoundary
			out = append(out, d)
		}
	}
	return out, nil
}

// quotas reads what the account's quotas leave for the cluster, whose stack is nil if there is none.
func (c *Cluster) quotas(ctx context.Context, tmpl *template.Template, stack doctor.Known[*cloudformation.Stack], given map[string]string) []preflight.Quota {
	out := append(c.processors(ctx), c.groupQuota(ctx), c.templateQuota(ctx))
	out = append(out, c.ruleQuotas(ctx, tmpl)...)
	made, err := c.madeTypes(ctx, stack)
	err = known(err, "cloudformation:ListStackResources")
	out = append(out, c.roleQuotas(ctx, tmpl, made, err)...)
	return append(append(out, c.balancerQuotas(ctx, tmpl, made, err)...), c.zoneQuota(ctx, stack, given)...)
}

// processors are the quotas of virtual processors.
func (c *Cluster) processors(ctx context.Context) []preflight.Quota {
	failed := func(err error, permission string) []preflight.Quota {
		return []preflight.Quota{{Name: "quotas.vcpus", Err: known(err, permission)}}
	}
	client := ec2.NewFromConfig(c.config.AWS)
	kinds, err := c.typesOf(ctx, client)
	if err != nil {
		return failed(err, "ec2:DescribeInstanceTypes")
	}
	cpus := map[string]int{}
	for name, kind := range kinds {
		if kind.VCpuInfo != nil {
			cpus[name] = int(aws.ToInt32(kind.VCpuInfo.DefaultVCpus))
		}
	}
	var wanted []preflight.Machines
	for _, g := range c.config.Document.Groups {
		// "Max" is what a group may have while it is refreshed, too. Spot instances are beyond the first ones, which are on demand.
		spot := max(0, g.AWS.Max-g.AWS.Spot.OnDemandBase) * g.AWS.Spot.Percent / 100
		wanted = append(wanted, preflight.Machines{Types: g.AWS.AllTypes(), Count: g.AWS.Max - spot}, preflight.Machines{Types: g.AWS.AllTypes(), Count: spot, Spot: true})
	}
	others, err := c.otherMachines(ctx, client, cpus)
	if err != nil {
		return failed(err, "ec2:DescribeInstances")
	}
	quotas := preflight.Processors(wanted, others, cpus)
	for i := range quotas {
		quotas[i].Limit, quotas[i].Err = c.quota(ctx, quotas[i].Service, quotas[i].Code)
	}
	return quotas
}

// otherMachines are the machines of the account that run beside the cluster's, each by itself. The processors of types that are not in cpus
// are added there.
func (c *Cluster) otherMachines(ctx context.Context, client *ec2.Client, cpus map[string]int) (out []preflight.Machines, err error) {
	states := []string{string(types.InstanceStateNamePending), string(types.InstanceStateNameRunning)}
	pages := ec2.NewDescribeInstancesPaginator(client, &ec2.DescribeInstancesInput{Filters: []types.Filter{{Name: aws.String("instance-state-name"), Values: states}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if account.Tag(i.Tags, role.TagCluster) == c.name && slices.Contains(c.Groups(), account.Tag(i.Tags, role.TagGroup)) {
					continue
				}
				name := string(i.InstanceType)
				if o := i.CpuOptions; o != nil {
					cpus[name] = max(cpus[name], int(aws.ToInt32(o.CoreCount)*aws.ToInt32(o.ThreadsPerCore)))
				}
				out = append(out, preflight.Machines{Types: []string{name}, Count: 1, Spot: i.InstanceLifecycle == types.InstanceLifecycleTypeSpot})
			}
		}
	}
	return out, nil
}

// quota is the account's value of a quota, or AWS's where the account has none of its own: "If no quota value was changed, NoSuchResource"
// (API reference, GetServiceQuota).
func (c *Cluster) quota(ctx context.Context, service, code string) (int, error) {
	client := servicequotas.NewFromConfig(c.config.AWS)
	own, err := client.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: &service, QuotaCode: &code})
	if err == nil && own.Quota != nil {
		return int(aws.ToFloat64(own.Quota.Value)), nil
	}
	if err != nil && awserr.Code(err) != "NoSuchResourceException" {
		return 0, known(err, "servicequotas:GetServiceQuota")
	}
	theirs, err := client.GetAWSDefaultServiceQuota(ctx, &servicequotas.GetAWSDefaultServiceQuotaInput{ServiceCode: &service, QuotaCode: &code})
	if err != nil || theirs.Quota == nil {
		return 0, known(err, "servicequotas:GetAWSDefaultServiceQuota")
	}
	return int(aws.ToFloat64(theirs.Quota.Value)), nil
}

// groupQuota is that of AutoScaling groups ("Quotas for Auto Scaling resources and groups", Amazon EC2 Auto Scaling User Guide).
func (c *Cluster) groupQuota(ctx context.Context) preflight.Quota {
	q := preflight.Quota{Name: "quotas.groups", What: "AutoScaling groups of the region", Service: "autoscaling", Code: "L-CDE20ADC", Wanted: len(c.Groups())}
	client := autoscaling.NewFromConfig(c.config.AWS)
	out, err := client.DescribeAccountLimits(ctx, &autoscaling.DescribeAccountLimitsInput{})
	if err != nil {
		q.Err = known(err, "autoscaling:DescribeAccountLimits")
		return q
	}
	own, err := account.GroupsByName(ctx, client, c.Groups())
	q.Err = known(err, "autoscaling:DescribeAutoScalingGroups")
	q.Limit, q.Used = int(aws.ToInt32(out.MaxNumberOfAutoScalingGroups)), int(aws.ToInt32(out.NumberOfAutoScalingGroups))-len(own)
	return q
}

// templateQuota is that of launch templates ("Launch template restrictions", EC2 User Guide).
func (c *Cluster) templateQuota(ctx context.Context) preflight.Quota {
	q := preflight.Quota{Name: "quotas.templates", What: "launch templates of the region", Service: "ec2", Code: "L-FB451C26", Wanted: len(c.Groups())}
	pages := ec2.NewDescribeLaunchTemplatesPaginator(ec2.NewFromConfig(c.config.AWS), &ec2.DescribeLaunchTemplatesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			q.Err = known(err, "ec2:DescribeLaunchTemplates")
			return q
		}
		for _, t := range page.LaunchTemplates {
			if !slices.Contains(c.Groups(), aws.ToString(t.LaunchTemplateName)) {
				q.Used++
			}
		}
	}
	q.Limit, q.Err = c.quota(ctx, q.Service, q.Code)
	return q
}

// ruleQuotas are those of rules in a security group, and of security groups of a network interface ("Amazon VPC quotas", VPC User Guide).
func (c *Cluster) ruleQuotas(ctx context.Context, tmpl *template.Template) []preflight.Quota {
	rules := preflight.Quota{Name: "quotas.rules", What: "rules of one security group", Service: "vpc", Code: "L-0EA8095F"}
	of := map[string]int{}
	for _, r := range tmpl.Resources {
		if r.Type == "AWS::EC2::SecurityGroupIngress" {
			group := fmt.Sprint(r.Properties["GroupId"])
			of[group]++
			rules.Wanted = max(rules.Wanted, of[group])
		}
	}
	groups := preflight.Quota{Name: "quotas.securitygroups", What: "security groups of one machine", Service: "vpc", Code: "L-2AFB9258"}
	for _, g := range c.config.Document.Groups {
		groups.Wanted = max(groups.Wanted, len(g.Roles)+len(g.AWS.SecurityGroups))
	}
	out := []preflight.Quota{rules, groups}
	for i := range out {
		out[i].Limit, out[i].Err = c.quota(ctx, out[i].Service, out[i].Code)
	}
	return out
}

// roleQuotas are those of IAM, which has its own count of them ("IAM and AWS STS quotas", IAM User Guide). made is what the stack has, by
// type, and unread why that is not known.
func (c *Cluster) roleQuotas(ctx context.Context, tmpl *template.Template, made map[string]int, unread error) []preflight.Quota {
	out := []preflight.Quota{
		{Name: "quotas.roles", What: "roles of the account", Service: "iam", Code: "L-FE177D64"},
		{Name: "quotas.profiles", What: "instance profiles of the account", Service: "iam", Code: "L-6E65F664"},
	}
	summary, err := iam.NewFromConfig(c.config.AWS).GetAccountSummary(ctx, &iam.GetAccountSummaryInput{})
	if err != nil {
		return []preflight.Quota{{Name: out[0].Name, Err: known(err, "iam:GetAccountSummary")}}
	}
	for i, kind := range []string{"AWS::IAM::Role", "AWS::IAM::InstanceProfile"} {
		key := iamtypes.SummaryKeyType([]string{"Roles", "InstanceProfiles"}[i])
		out[i].Err = unread
		out[i].Limit, out[i].Used = int(summary.SummaryMap[string(key+"Quota")]), int(summary.SummaryMap[string(key)])-made[kind]
		out[i].Wanted = tmpl.Count(kind)
	}
	return out
}

// balancerQuotas are those of load balancers and their targets, where the stack has any ("Quotas for your Network Load Balancers", Elastic
// Load Balancing guide). made and unread are as roleQuotas has them.
func (c *Cluster) balancerQuotas(ctx context.Context, tmpl *template.Template, made map[string]int, unread error) (out []preflight.Quota) {
	const balancer, targets = "AWS::ElasticLoadBalancingV2::LoadBalancer", "AWS::ElasticLoadBalancingV2::TargetGroup"
	client := elasticloadbalancingv2.NewFromConfig(c.config.AWS)
	if n := tmpl.Count(balancer); n > 0 {
		q := preflight.Quota{Name: "quotas.balancers", What: "network load balancers of the region", Service: "elasticloadbalancing", Code: "L-69A177A2", Wanted: n}
		pages := elasticloadbalancingv2.NewDescribeLoadBalancersPaginator(client, &elasticloadbalancingv2.DescribeLoadBalancersInput{})
		for pages.HasMorePages() && q.Err == nil {
			page, err := pages.NextPage(ctx)
			if q.Err = known(err, "elasticloadbalancing:DescribeLoadBalancers"); err != nil {
				break
			}
			for _, b := range page.LoadBalancers {
				if b.Type == balancertypes.LoadBalancerTypeEnumNetwork {
					q.Used++
				}
			}
		}
		out = append(out, c.less(ctx, q, made[balancer], unread))
	}
	if n := tmpl.Count(targets); n > 0 {
		q := preflight.Quota{Name: "quotas.targets", What: "target groups of the region", Service: "elasticloadbalancing", Code: "L-B22855CB", Wanted: n}
		pages := elasticloadbalancingv2.NewDescribeTargetGroupsPaginator(client, &elasticloadbalancingv2.DescribeTargetGroupsInput{})
		for pages.HasMorePages() && q.Err == nil {
			page, err := pages.NextPage(ctx)
			if q.Err = known(err, "elasticloadbalancing:DescribeTargetGroups"); err != nil {
				break
			}
			q.Used += len(page.TargetGroups)
		}
		out = append(out, c.less(ctx, q, made[targets], unread))
	}
	return out
}

// less is a quota without those that are the stack's own, and with its limit. The first reason why a part is not known stays.
func (c *Cluster) less(ctx context.Context, q preflight.Quota, own int, unread error) preflight.Quota {
	if q.Err == nil {
		q.Err = unread
	}
	if q.Used -= own; q.Err == nil {
		q.Limit, q.Err = c.quota(ctx, q.Service, q.Code)
	}
	return q
}

// madeTypes counts the resources that the stack has, by type.
func (c *Cluster) madeTypes(ctx context.Context, stack doctor.Known[*cloudformation.Stack]) (map[string]int, error) {
	of := map[string]int{}
	if stack.Err != nil || !stack.Value.Made() {
		return of, stack.Err
	}
	made, err := c.stacks.Resources(ctx, stack.Value.ID)
	for _, r := range made {
		of[r.Type]++
	}
	return of, err
}

// zoneQuota is that of hosted zones, where the stack is to make one (API reference, GetAccountLimit).
func (c *Cluster) zoneQuota(ctx context.Context, stack doctor.Known[*cloudformation.Stack], given map[string]string) []preflight.Quota {
	if given[template.ParameterZone] != "" || stack.Err != nil || stack.Value.Made() {
		return nil // the stack's own check says what is wrong
	}
	q := preflight.Quota{Name: "quotas.zones", What: "hosted zones of the account", Service: "route53", Code: "L-4EA4796A", Wanted: 1}
	out, err := route53.NewFromConfig(c.config.AWS).GetAccountLimit(ctx, &route53.GetAccountLimitInput{Type: route53types.AccountLimitTypeMaxHostedZonesByOwner})
	if err != nil {
		q.Err = known(err, "route53:GetAccountLimit")
	} else {
		q.Limit, q.Used = int(aws.ToInt64(out.Limit.Value)), int(out.Count)
	}
	return []preflight.Quota{q}
}

// network reads the VPC as machines see it.
func (c *Cluster) network(ctx context.Context, given map[string]string) preflight.Network {
	n := preflight.Network{VPC: given[template.ParameterVPC]}
	if n.VPC == "" {
		return n
	}
	client := ec2.NewFromConfig(c.config.AWS)
	n.DNS = of(readDNS(ctx, client, n.VPC))("ec2:DescribeVpcAttribute")
	ids := slices.Compact(slices.Sorted(slices.Values(append(listOf(given[template.ParameterSubnets]), listOf(given[template.ParameterMembers])...))))
	tables, err := readTables(ctx, client, n.VPC)
	n.Ranges = ownRanges(tables)
	subnets, failed := readSubnets(ctx, client, ids, tables)
	n.Subnets = of(subnets, cmp.Or(failed, err))("ec2:DescribeSubnets and ec2:DescribeRouteTables")
	n.Endpoints = of(readEndpoints(ctx, client, n.VPC))("ec2:DescribeVpcEndpoints")
	n.Zones = of(readZones(ctx, route53.NewFromConfig(c.config.AWS), n.VPC, c.Region()))("route53:ListHostedZonesByVPC")
	return n
}

// of makes a known value of a reading and its error, with the permission that it needs.
func of[T any](value T, err error) func(permission string) doctor.Known[T] {
	return func(permission string) doctor.Known[T] {
		return doctor.Known[T]{Value: value, Err: known(err, permission)}
	}
}

func readDNS(ctx context.Context, client *ec2.Client, vpc string) (out preflight.DNS, err error) {
	support, err := client.DescribeVpcAttribute(ctx, &ec2.DescribeVpcAttributeInput{VpcId: &vpc, Attribute: types.VpcAttributeNameEnableDnsSupport})
	if err != nil {
		return out, err
	}
	names, err := client.DescribeVpcAttribute(ctx, &ec2.DescribeVpcAttributeInput{VpcId: &vpc, Attribute: types.VpcAttributeNameEnableDnsHostnames})
	if err != nil {
		return out, err
	}
	out.Support = support.EnableDnsSupport != nil && aws.ToBool(support.EnableDnsSupport.Value)
	out.Hostnames = names.EnableDnsHostnames != nil && aws.ToBool(names.EnableDnsHostnames.Value)
	return out, nil
}

// readTables reads a VPC's route tables.
func readTables(ctx context.Context, client *ec2.Client, vpc string) (tables []types.RouteTable, err error) {
	pages := ec2.NewDescribeRouteTablesPaginator(client, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{{Name: aws.String("vpc-id"), Values: []string{vpc}}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		tables = append(tables, page.RouteTables...)
	}
	return tables, nil
}

// ownRanges are the VPC's own addresses by its route tables: each has a local route for each of the VPC's blocks (VPC user guide, "Configure
// route tables").
func ownRanges(tables []types.RouteTable) (ranges []string) {
	for _, t := range tables {
		for _, r := range t.Routes {
			if own := aws.ToString(r.DestinationCidrBlock); aws.ToString(r.GatewayId) == "local" && own != "" {
				ranges = append(ranges, own)
			}
		}
	}
	slices.Sort(ranges)
	return slices.Compact(ranges)
}

// readSubnets reads subnets and finds the route table of each: its own, or else the VPC's main one. A subnet that is not there is left out.
func readSubnets(ctx context.Context, client *ec2.Client, ids []string, tables []types.RouteTable) (map[string]preflight.Subnet, error) {
	out := map[string]preflight.Subnet{}
	pages := ec2.NewDescribeSubnetsPaginator(client, &ec2.DescribeSubnetsInput{Filters: []types.Filter{{Name: aws.String("subnet-id"), Values: ids}}})
	for len(ids) > 0 && pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Subnets {
			out[aws.ToString(s.SubnetId)] = preflight.Subnet{VPC: aws.ToString(s.VpcId), Free: int(aws.ToInt32(s.AvailableIpAddressCount)), PublicAddresses: aws.ToBool(s.MapPublicIpOnLaunch)}
		}
	}
	own, main := map[string]types.RouteTable{}, types.RouteTable{}
	for _, t := range tables {
		for _, a := range t.Associations {
			if own[aws.ToString(a.SubnetId)] = t; aws.ToBool(a.Main) {
				main = t
			}
		}
	}
	for id, s := range out {
		t, ok := own[id]
		if !ok {
			t = main
		}
		s.RouteTable = aws.ToString(t.RouteTableId)
		for _, r := range t.Routes {
			if aws.ToString(r.DestinationCidrBlock) == "0.0.0.0/0" {
				s.Way, s.Lost = target(r), r.State == types.RouteStateBlackhole
			}
		}
		out[id] = s
	}
	return out, nil
}

// target is what a route leads to.
func target(r types.Route) string {
	for _, id := range []*string{r.GatewayId, r.NatGatewayId, r.TransitGatewayId, r.VpcPeeringConnectionId, r.NetworkInterfaceId, r.InstanceId, r.LocalGatewayId, r.CarrierGatewayId, r.CoreNetworkArn} {
		if aws.ToString(id) != "" {
			return *id
		}
	}
	return "something that is not known here"
}

func readEndpoints(ctx context.Context, client *ec2.Client, vpc string) (out []preflight.Endpoint, err error) {
	pages := ec2.NewDescribeVpcEndpointsPaginator(client, &ec2.DescribeVpcEndpointsInput{Filters: []types.Filter{{Name: aws.String("vpc-id"), Values: []string{vpc}}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.VpcEndpoints {
			name := aws.ToString(e.ServiceName)
			out = append(out, preflight.Endpoint{
				ID: aws.ToString(e.VpcEndpointId), Service: name[strings.LastIndexByte(name, '.')+1:], Gateway: e.VpcEndpointType == types.VpcEndpointTypeGateway,
				Available: strings.EqualFold(string(e.State), "available"), PrivateNames: aws.ToBool(e.PrivateDnsEnabled), RouteTables: e.RouteTableIds,
				Policy: aws.ToString(e.PolicyDocument),
			})
		}
	}
	return out, nil
}

func readZones(ctx context.Context, client *route53.Client, vpc, region string) (out []preflight.Zone, err error) {
	in := &route53.ListHostedZonesByVPCInput{VPCId: &vpc, VPCRegion: route53types.VPCRegion(region)}
	for {
		page, err := client.ListHostedZonesByVPC(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, z := range page.HostedZoneSummaries {
			zone := preflight.Zone{ID: strings.TrimPrefix(aws.ToString(z.HostedZoneId), "/hostedzone/"), Name: aws.ToString(z.Name)}
			if z.Owner != nil {
				zone.Owner = aws.ToString(z.Owner.OwningAccount) + aws.ToString(z.Owner.OwningService)
			}
			out = append(out, zone)
		}
		if in.NextToken = page.NextToken; aws.ToString(in.NextToken) == "" {
			return out, nil
		}
	}
}
