package template

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// The template's parameters. They are all that is needed to deploy it.
const (
	ParameterVPC      = "VpcId"
	ParameterSubnets  = "SubnetIds"
	ParameterMembers  = "EtcdSubnetIds"
	ParameterZones    = "EtcdZones"
	ParameterImage    = "ImageId"
	ParameterZone     = "ZoneId"
	ParameterMachines = "Machines"
	ParameterClients  = "ApiCidr"
	ParameterBoundary = "PermissionsBoundaryArn"
	// ParameterSubnets only exists if a group has machines without a subnet of their own, ParameterMembers and ParameterZones if
	// one has, the latter for volumes, and ParameterBalancer if aws.loadBalancer is not none.
	ParameterBalancer = "LoadBalancerSubnetIds"
)

// The values of ParameterMachines.
const (
	MachinesYes = "yes"
	MachinesNo  = "no"
)

// The template's outputs.
const (
	OutputZone   = "ZoneId"
	OutputGroups = "GroupNames"
	OutputAPI    = "LoadBalancerName"
	// OutputSecretsKey is the key that the instance roles may use; there is none without aws.secretsKey.
	OutputSecretsKey = "SecretsKey"
)

// ImageParameter is the name of the parameter in Parameter Store, of the data type aws:ec2:image, with a channel's image.
func ImageParameter(channel string) string { return ami.Parameter(channel) }

// The names of the template's conditions.
const (
	makesZone   = "MakesZone"
	hasMachines = "HasMachines"
	hasClients  = "HasClients"
	hasBoundary = "HasBoundary"
)

// builder builds one template.
type builder struct {
	cluster *spec.Complete
	ca      []byte
	secrets store.Location
	// launchTimeout is the launch hook's, in seconds.
	launchTimeout int
	// openings are the ports that units of the image open.
	openings []role.Opening
	// ids are the logical names of the groups, by name.
	ids map[string]string
	out *Template
}

// Option changes the template that Render makes, or the module that Module makes.
type Option func(*builder)

// LaunchTimeout replaces the launch hook's heartbeat timeout, for a lab whose emulated machines boot more slowly than
// EC2's. AutoScaling allows at most two hours.
func LaunchTimeout(d time.Duration) Option {
	return func(b *builder) { b.launchTimeout = int(d / time.Second) }
}

// Openings opens the ports that units of the image name (unit.Table.Ports) to the roles and addresses that they name. Without it only
// the ports of Hardtack's own units are open.
func Openings(list []role.Opening) Option {
	return func(b *builder) { b.openings = list }
}

// Render renders the template of a complete configuration. ca is the cluster's public CA in PEM, as for `hardtack
// userdata`; it may be empty if machines find it in the store.
func Render(c *spec.Complete, ca []byte, options ...Option) (*Template, error) {
	b, err := newBuilder(c, ca, options...)
	if err != nil {
		return nil, err
	}
	b.parameters()
	b.zone()
	b.securityGroups()
	b.balancer()
	b.bucket()
	b.podRoles()
	for _, g := range c.Groups {
		if err := b.group(g); err != nil {
			return nil, fmt.Errorf("group %s: %w", g.Name, err)
		}
	}
	b.nameGroups()
	if key := b.cluster.SecretsKey(); key != "" {
		b.out.Outputs[OutputSecretsKey] = Output{Description: "The key of the secrets, which the instance roles may use.", Value: key}
	}
	return b.out, nil
}

func newBuilder(c *spec.Complete, ca []byte, options ...Option) (*builder, error) {
	at, err := store.ParseLocation(c.Cluster.Store)
	if err != nil {
		return nil, err
	}
	b := &builder{cluster: c, ca: ca, secrets: at, launchTimeout: launchTimeout, ids: map[string]string{}, out: &Template{
		Version:     "2010-09-09",
		Description: "Hardtack: the cluster " + c.Cluster.Name + ": its zone, groups, roles and security groups.",
		Parameters:  map[string]Parameter{}, Conditions: map[string]object{}, Resources: map[string]Resource{}, Outputs: map[string]Output{},
	}}
	var errs []error
	if at.Kind != store.KindSSM {
		errs = append(errs, fmt.Errorf("store %s: machines on AWS have their secrets in Parameter Store: write store: ssm:/hardtack/%s", at, c.Cluster.Name))
	}
	taken := map[string]string{}
	for _, g := range c.Groups {
		id := logical(g.Name)
		if first, ok := taken[id]; ok {
			errs = append(errs, fmt.Errorf("groups %s and %s are both %s in a template: rename one", first, g.Name, id))
		}
		taken[id], b.ids[g.Name] = g.Name, id
	}
	for _, o := range options {
		o(b)
	}
	return b, errors.Join(errs...)
}

// logical converts a group's name to a part of a logical name, which has only letters and digits: "etcd-a" is EtcdA.
func logical(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// members are the names of the etcd members; none for a single member beside its API server.
func (b *builder) members() []string { return b.cluster.Groups[0].Members }

// has reports whether a group has the role.
func (b *builder) has(r role.Role) bool {
	for _, g := range b.cluster.Groups {
		if g.Roles.Has(r) {
			return true
		}
	}
	return false
}

func (b *builder) parameters() {
	text := func(s string) *string { return &s }
	p := b.out.Parameters
	p[ParameterVPC] = Parameter{Type: "AWS::EC2::VPC::Id", Description: "Where everything is. It has DNS support and DNS host names on."}
	if len(b.pinned()) < len(b.cluster.Groups) {
		p[ParameterSubnets] = Parameter{Type: "List<AWS::EC2::Subnet::Id>", Description: "The machines' subnets, in as many availability zones as the cluster is to survive the loss of one. They reach Parameter Store, AutoScaling and EC2."}
	}
	p[ParameterImage] = Parameter{Type: "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", Default: text(ImageParameter(b.cluster.Cluster.AWS.Channel)),
		Description: "The parameter of Parameter Store that names the image; it is read at every update of the stack."}
	p[ParameterZone] = Parameter{Type: "String", Default: text(""), AllowedPattern: "(Z[A-Z0-9]{1,31})?",
		Description: "The private zone k8s of the VPC, where another cluster has made it; empty makes it."}
	p[ParameterMachines] = Parameter{Type: "String", Default: text(MachinesNo), AllowedValues: []string{MachinesYes, MachinesNo},
		Description: "no keeps every group empty: until the zone is prepared and the function that keeps it is there, and before the stack is deleted."}
	p[ParameterBoundary] = Parameter{Type: "String", Default: text(""), AllowedPattern: "(arn:aws[a-z-]*:iam::.*)?",
		Description: "The ARN of a permissions boundary for the instance roles; empty is none."}
	b.memberParameters()
	c := b.out.Conditions
	if b.has(role.Masters) {
		p[ParameterClients] = Parameter{Type: "String", Default: text(""), AllowedPattern: `([0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2})?`,
			Description: "Who else may reach the API servers, as a range of addresses (CIDR); empty is nobody."}
		c[hasClients] = not(equals(ParameterClients, ""))
	}
	c[makesZone] = equals(ParameterZone, "")
	c[hasMachines] = equals(ParameterMachines, MachinesYes)
	c[hasBoundary] = not(equals(ParameterBoundary, ""))
}

// tags are the tags of what belongs to the whole cluster.
func (b *builder) tags(name string) []any {
	return named(b.cluster.Cluster.Name, name, b.cluster.Cluster.AWS.Tags)
}
