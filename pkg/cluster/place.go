package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/account"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// placing decides where etcd's members are.
type placing struct {
	*Cluster
	template *template.Template
	// stack is nil if there is none; have are its parameters, and given those of the deployment, which are added to.
	stack       *cloudformation.Stack
	have, given map[string]string
}

// place adds to the parameters of a deployment those that follow from the account: the subnet of the only member, and the
// availability zone of each member's subnet, in which its volume is. It refuses volumes that could not be what the document
// says, with a *VolumesError.
func (c *Cluster) place(ctx context.Context, t *template.Template, now *cloudformation.Stack, given map[string]string) (map[string]string, error) {
	p := placing{Cluster: c, template: t, given: maps.Clone(given), have: map[string]string{}}
	if p.given == nil {
		p.given = map[string]string{}
	}
	if now.Made() {
		p.stack, p.have = now, now.Parameters
	}
	if err := p.subnet(ctx); err != nil {
		return nil, err
	}
	if !p.takes(template.ParameterSubnets) {
		delete(p.given, template.ParameterSubnets) // each machine has a subnet of its own
	}
	if !p.takes(template.ParameterZones) {
		return p.given, nil
	}
	return p.given, p.zones(ctx)
}

// takes reports whether the template has a parameter, and value is what it will be, empty if nobody has said.
func (p placing) takes(parameter string) bool {
	_, ok := p.template.Parameters[parameter]
	return ok
}

func (p placing) value(parameter string) string {
	if value, ok := p.given[parameter]; ok {
		return value
	}
	return p.have[parameter]
}

// subnet pins the only member of a cluster that names none to the subnet of its machine, or to the first one. Later it stays
// there, since AutoScaling ends a machine in a zone that its group loses.
func (p placing) subnet(ctx context.Context) error {
	if !p.takes(template.ParameterMembers) || p.value(template.ParameterMembers) != "" {
		return nil
	}
	members := p.pinned()
	if len(members) != 1 || len(members[0].Members) > 0 {
		return nil // names are of different places, which people choose
	}
	subnet, _, _ := strings.Cut(p.value(template.ParameterSubnets), ",")
	machines, err := p.running(ctx)
	if err != nil {
		return err
	}
	for _, m := range machines[p.config.Document.AutoScaling(members[0])] {
		subnet = cmp.Or(aws.ToString(m.SubnetId), subnet)
	}
	if subnet != "" {
		p.given[template.ParameterMembers] = subnet
	}
	return nil
}

// running are the cluster's running machines, by the names of their groups.
func (p placing) running(ctx context.Context) (map[string][]types.Instance, error) {
	machines, err := account.Machines(ctx, ec2.NewFromConfig(p.config.AWS), p.name)
	if err != nil {
		return nil, awserr.Explain(err, "ec2:DescribeInstances")
	}
	of := map[string][]types.Instance{}
	for _, m := range machines {
		if group := account.Tag(m.Tags, role.TagGroup); account.Running(m) {
			of[group] = append(of[group], m)
		}
	}
	return of, nil
}

// zones fills in the zones of the members' subnets, and compares them with the volumes that there are.
func (p placing) zones(ctx context.Context) error {
	ids := strings.Split(p.value(template.ParameterMembers), ",")
	if ids[0] == "" {
		return nil // the next check asks for them
	}
	of, err := p.subnetZones(ctx, ids)
	if err != nil {
		return err
	}
	var zones []string
	for _, id := range ids {
		zones = append(zones, of[id])
	}
	if members := p.pinned(); len(zones) != len(members) {
		return &VolumesError{Cluster: p.name, Problems: []string{fmt.Sprintf("there are %d subnets for %d members: each has one", len(zones), len(members))}}
	}
	said, told := p.given[template.ParameterZones]
	if told {
		zones = strings.Split(said, ",")
	}
	kept, err := p.compare(ctx, ids, zones)
	if !told {
		p.given[template.ParameterZones] = strings.Join(kept, ",")
	}
	return err
}

// pinned are the groups of members, in the order of their subnets.
func (p placing) pinned() []spec.Group {
	return slices.DeleteFunc(slices.Clone(p.config.Document.Groups), func(g spec.Group) bool { return g.Member == "" })
}

// subnetZones are the zones of subnets.
func (p placing) subnetZones(ctx context.Context, ids []string) (map[string]string, error) {
	unique := slices.Compact(slices.Sorted(slices.Values(ids)))
	out, err := ec2.NewFromConfig(p.config.AWS).DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: unique})
	if err != nil {
		return nil, fmt.Errorf("reading the availability zones of etcd's subnets %s: %w", strings.Join(unique, ", "), awserr.Explain(err, "ec2:DescribeSubnets"))
	}
	zones := map[string]string{}
	for _, s := range out.Subnets {
		zones[aws.ToString(s.SubnetId)] = aws.ToString(s.AvailabilityZone)
	}
	return zones, nil
}

// compare refuses what CloudFormation would fail at half way, and what would stop a member or end its machine: a volume does
// not change its zone or its key and never shrinks, a member with two volumes takes neither, and AutoScaling ends machines in
// a zone that their group loses. kept are the zones of the volumes that the stack makes: that of a member which has left for another
// zone stays where it is.
func (p placing) compare(ctx context.Context, subnets, zones []string) (kept []string, err error) {
	kept = slices.Clone(zones)
	volumes, err := account.EtcdVolumes(ctx, ec2.NewFromConfig(p.config.AWS), p.name)
	if err != nil {
		return nil, awserr.Explain(err, "ec2:DescribeVolumes")
	}
	var made map[string]cloudformation.Resource
	if p.stack != nil {
		if made, err = p.stacks.Resources(ctx, p.stack.ID); err != nil {
			return nil, err
		}
	}
	machines, err := p.running(ctx)
	if err != nil {
		return nil, err
	}
	e := VolumesError{Cluster: p.name}
	for i, g := range p.pinned() {
		add := func(format string, args ...any) {
			e.Problems = append(e.Problems, fmt.Sprintf("member %s: ", g.Member)+fmt.Sprintf(format, args...))
		}
		own, has := made[template.VolumeID(g.Member)]
		has = has && own.Status != cloudformation.Deleted
		left := has && moved(g.Member, own.ID, zones[i], volumes)
		if left {
			if kept[i], err = p.stays(ctx, own.ID, zones[i]); err != nil {
				return nil, err
			}
		}
		for _, m := range machines[p.config.Document.AutoScaling(g)] {
			if left {
				break // it ends in the zone that the member has left, with nothing that it needs
			}
			if at := m.Placement; at != nil && aws.ToString(at.AvailabilityZone) != zones[i] {
				add("its machine %s is in %s, and its subnet %s in %s: AutoScaling would end it", aws.ToString(m.InstanceId), aws.ToString(at.AvailabilityZone), subnets[i], zones[i])
			}
		}
		for _, v := range volumes {
			switch id := aws.ToString(v.VolumeId); {
			case account.Tag(v.Tags, role.TagEtcdMember) != g.Member:
			case !has:
				add("volume %s has its tags (%s) and is not the stack's, which would make a second one, and a machine takes neither of two: delete it, or keep its data aside by removing its tag %s",
					id, volumeFacts(v, p.clock.Now()), role.TagEtcdMember)
			case own.ID == id:
				p.unchangeable(v, zones[i], add, subnets[i])
			case aws.ToString(v.AvailabilityZone) != zones[i]:
				add("its volume %s is in %s, and its subnet %s in %s: a volume stays in its zone", id, aws.ToString(v.AvailabilityZone), subnets[i], zones[i])
			}
		}
	}
	if len(e.Problems) == 0 {
		return kept, nil
	}
	return nil, &e
}

// moved reports whether a member has another volume than the stack's, and it is where the member's machines are to be: a person has
// taken the member out of the zone of the stack's (hardtack etcd move), which has lost its tag.
func moved(member, stack, zone string, tagged []types.Volume) bool {
	n := 0
	for _, v := range tagged {
		if account.Tag(v.Tags, role.TagEtcdMember) != member {
			continue
		}
		if n++; aws.ToString(v.VolumeId) == stack || aws.ToString(v.AvailabilityZone) != zone {
			return false
		}
	}
	return stack != "" && n == 1
}

// stays returns the zone of a volume, or else another one: CloudFormation never changes the zone of a volume that it made.
func (p placing) stays(ctx context.Context, volume, zone string) (string, error) {
	out, err := ec2.NewFromConfig(p.config.AWS).DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{volume}})
	if awserr.Code(err) == "InvalidVolume.NotFound" {
		return zone, nil
	}
	if err != nil {
		return "", awserr.Explain(err, "ec2:DescribeVolumes")
	}
	for _, v := range out.Volumes {
		zone = aws.ToString(v.AvailabilityZone)
	}
	return zone, nil
}

// MemberSubnets returns the subnets of etcd's members, as the stack has them, with that of one member changed; empty if there is
// no stack.
func (c *Cluster) MemberSubnets(ctx context.Context, member, subnet string) ([]string, error) {
	now, err := c.describe(ctx)
	if err != nil || !now.Made() {
		return nil, err
	}
	subnets := strings.Split(now.Parameters[template.ParameterMembers], ",")
	members := placing{Cluster: c}.pinned()
	if len(subnets) != len(members) {
		return nil, fmt.Errorf("stack %s has %d subnets for %d members of the document: apply the document first", c.stack, len(subnets), len(members))
	}
	for i, g := range members {
		if g.Member == member {
			subnets[i] = subnet
		}
	}
	return subnets, nil
}

// keepsVolumes refuses to leave the volume of a member that stays: the volume would be kept, and the member's next machine
// would look for its data on its own disk.
func (c *Cluster) keepsVolumes(changes []cloudformation.Change) error {
	e := VolumesError{Cluster: c.name}
	for _, g := range c.config.Document.Groups {
		for _, change := range changes {
			if g.Member != "" && change.Action == cloudformation.Remove && change.Resource == template.VolumeID(g.Member) {
				e.Problems = append(e.Problems, fmt.Sprintf("member %s: its data are on volume %s, and with etcd.storage: %s its next machine would not have them", g.Member, change.ID, c.config.Document.Cluster.Etcd.Storage))
			}
		}
	}
	if len(e.Problems) == 0 {
		return nil
	}
	return &e
}

// keepsVoters refuses to end the group of a member of etcd that is still one of its voters: with each the quorum comes nearer to
// its end, and the others would wait for it for ever. A member that a person removed has a record of that. The error is a
// *VotersError.
func (c *Cluster) keepsVoters(ctx context.Context, now rollout.State, changes []cloudformation.Change) error {
	var ended []string
	for _, g := range now.Groups {
		ends := slices.ContainsFunc(changes, func(c cloudformation.Change) bool {
			return c.Type == cloudformation.TypeGroup && c.Action == cloudformation.Remove && c.ID == g.Name
		})
		if ends && g.Member != "" && !slices.ContainsFunc(c.config.Document.Groups, func(d spec.Group) bool { return d.Member == g.Member }) {
			ended = append(ended, g.Member)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	m, err := c.members()
	if err != nil || m == nil {
		return err
	}
	said, err := m.Reports(ctx, ended)
	if err != nil {
		return err
	}
	e := VotersError{Cluster: c.name, Unread: said.Unread}
	for _, member := range ended {
		s, reported := said.Members[member]
		if !reported || s.Epoch != said.Epoch || s.MemberID == 0 {
			continue
		}
		_, err := m.store.Get(ctx, etcd.RemovedObject(cmp.Or(s.Volume, s.Instance)))
		switch {
		case errors.Is(err, pki.ErrNotFound):
			e.Members = append(e.Members, member)
		case err != nil:
			return fmt.Errorf("looking whether etcd's member %s was removed: %w", member, err)
		}
	}
	if len(e.Members) == 0 && e.Unread == "" {
		return nil
	}
	return &e
}

// changesVolumes refuses to change a member's volume that the stack has made and that is gone, since hardtack etcd replace has
// made another: CloudFormation would fail half way, or make a second one, and a machine takes neither of two. And it refuses another
// key, also one that the volume has as the account's default: CloudFormation takes no change of it ("AWS::EC2::Volume", KmsKeyId).
func (c *Cluster) changesVolumes(ctx context.Context, changes []cloudformation.Change) error {
	var touched []cloudformation.Change
	for _, change := range changes {
		if change.Type == cloudformation.TypeVolume && change.Action == cloudformation.Modify {
			touched = append(touched, change)
		}
	}
	if len(touched) == 0 {
		return nil
	}
	volumes, err := account.EtcdVolumes(ctx, ec2.NewFromConfig(c.config.AWS), c.name)
	if err != nil {
		return awserr.Explain(err, "ec2:DescribeVolumes")
	}
	e := VolumesError{Cluster: c.name}
	for _, change := range touched {
		if slices.ContainsFunc(change.Properties, func(p cloudformation.Property) bool { return p.Name == "KmsKeyId" }) {
			e.Problems = append(e.Problems, fmt.Sprintf("%s: the stack made the volume %s by another etcd.key, or by none, and keeps it so: write etcd.key as it was", change.Resource, change.ID))
		}
		for _, v := range volumes {
			member, id := account.Tag(v.Tags, role.TagEtcdMember), aws.ToString(v.VolumeId)
			gone := !slices.ContainsFunc(volumes, func(v types.Volume) bool { return aws.ToString(v.VolumeId) == change.ID })
			if gone && template.VolumeID(member) == change.Resource {
				e.Problems = append(e.Problems, fmt.Sprintf("member %s: the stack's volume %s is gone, and %s was made in its place, which CloudFormation does not know: leave etcd.size, iops, throughput and the member's subnet as they are in the stack,"+
					" and change the volume itself with aws ec2 modify-volume", member, change.ID, id))
			}
		}
	}
	if len(e.Problems) == 0 {
		return nil
	}
	return &e
}

// unchangeable adds what of a volume would have to change and cannot.
func (p placing) unchangeable(v types.Volume, zone string, add func(string, ...any), subnet string) {
	etcd, id := p.config.Document.Cluster.Etcd, aws.ToString(v.VolumeId)
	if have := aws.ToString(v.AvailabilityZone); have != zone {
		add("its volume %s is in %s, and its subnet %s in %s: a volume stays in its zone", id, have, subnet, zone)
	}
	if have := int(aws.ToInt32(v.Size)); have > etcd.Size {
		add("its volume %s has %d GiB, and etcd.size is %d: a volume does not shrink", id, have, etcd.Size)
	}
	if have := aws.ToString(v.KmsKeyId); etcd.Key != "" && have != etcd.Key {
		add("its volume %s is encrypted with %s, and etcd.key is %s: a volume keeps its key", id, have, etcd.Key)
	}
}

// volumeFacts describes a volume to somebody who may delete it: its size, its zone and its age.
func volumeFacts(v types.Volume, now time.Time) string {
	return fmt.Sprintf("%d GiB in %s, made %s ago", aws.ToInt32(v.Size), aws.ToString(v.AvailabilityZone), age(now.Sub(aws.ToTime(v.CreateTime))))
}

// age is a duration in its largest whole unit.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d.Hours()))
	}
	return fmt.Sprintf("%d minutes", int(d.Minutes()))
}
