package template

import (
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// pinned are the groups whose machine has a subnet of its own: each named member's, and that of a member with a volume,
// which machines of other zones cannot attach. The order is that of ParameterMembers and ParameterZones.
func (b *builder) pinned() []spec.Group {
	return slices.DeleteFunc(slices.Clone(b.cluster.Groups), func(g spec.Group) bool {
		return g.Member == "" || len(g.Members) == 0 && !b.cluster.Volume(g)
	})
}

// place is the group's index in ParameterMembers and ParameterZones, -1 for a group that is not pinned.
func (b *builder) place(g spec.Group) int {
	return slices.IndexFunc(b.pinned(), func(p spec.Group) bool { return p.Name == g.Name })
}

// VolumeID is the logical name of a member's volume. It is the member's and not its group's: a member that gets another
// group keeps its data.
func VolumeID(member string) string { return "EtcdVolume" + logical(member) }

// volume adds the volume of the group's member. It stays when the stack is deleted, and when CloudFormation makes another in
// its place. Only a volume of a creation that fails is deleted again: nobody has written to it, and a second one with the same
// tags is one too many, which stops its member.
func (b *builder) volume(g spec.Group) {
	if !b.cluster.Volume(g) {
		return
	}
	e := b.cluster.Cluster.Etcd
	properties := object{
		"AvailabilityZone": nth(b.place(g), ParameterZones),
		"VolumeType":       "gp3", "Size": e.Size, "Iops": e.IOPS, "Throughput": e.Throughput, "Encrypted": true,
		"Tags": append(b.tags(b.volumeName(g)), object{"Key": role.TagEtcdMember, "Value": g.Member}),
	}
	if e.Key != "" {
		properties["KmsKeyId"] = e.Key
	}
	b.out.Resources[VolumeID(g.Member)] = Resource{
		Type: "AWS::EC2::Volume", DeletionPolicy: "RetainExceptOnCreate", UpdateReplacePolicy: "Retain", Properties: properties,
	}
}

// volumeName is the tag Name of the volume of the group's member.
func (b *builder) volumeName(g spec.Group) string {
	return b.cluster.Cluster.Name + "-" + role.MemberPrefix + g.Member
}

// attachPolicy allows a member's machine to attach its member's volume to itself. The tags stand on both sides: another
// member's volume is not attached, nor this one to another machine. There is no permission to detach, to make or to delete a
// volume, or to change a tag.
func (b *builder) attachPolicy(g spec.Group) []Statement {
	if !b.cluster.Volume(g) {
		return nil
	}
	own := map[string]map[string][]string{"StringEquals": {
		"aws:ResourceTag/" + role.TagCluster: {b.cluster.Cluster.Name}, "aws:ResourceTag/" + role.TagEtcdMember: {g.Member},
	}}
	statements := []Statement{{Sid: "AttachItsVolume", Effect: "Allow", Action: []string{"ec2:AttachVolume"},
		Resource: []string{here("ec2") + "volume/*", here("ec2") + "instance/*"}, Condition: own}}
	if key := b.cluster.Cluster.Etcd.Key; key != "" {
		// Who attaches lets EBS use the key ("Requirements for Amazon EBS encryption", EBS user guide).
		statements = append(statements, Statement{Sid: "LetEBSUseTheKey", Effect: "Allow", Action: []string{"kms:CreateGrant"},
			Resource: []string{key}, Condition: map[string]map[string][]string{"Bool": {"kms:GrantIsForAWSResource": {"true"}}}},
			Statement{Sid: "UseTheKeyByEBS", Effect: "Allow", Action: []string{"kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncrypt*"},
				Resource: []string{key}, Condition: map[string]map[string][]string{"StringLike": {"kms:ViaService": {"ec2.*"}}}})
	}
	return statements
}

// memberParameters adds the parameters of where members are. Those that have no name in the document need no decision: the
// only one is where its machine is.
func (b *builder) memberParameters() {
	pinned := b.pinned()
	if len(pinned) == 0 {
		return
	}
	var names []string
	for _, g := range pinned {
		names = append(names, g.Member)
	}
	members := Parameter{Type: "List<AWS::EC2::Subnet::Id>",
		Description: "A subnet for each member of etcd, in the order " + strings.Join(names, ", ") + "; one may be named more than once."}
	if len(b.members()) == 0 {
		members.Description, members.follows = "The subnet of etcd's only member: its volume is in the zone of this subnet, and so it stays there.", ParameterSubnets
	}
	b.out.Parameters[ParameterMembers] = members
	if slices.ContainsFunc(pinned, b.cluster.Volume) {
		b.out.Parameters[ParameterZones] = Parameter{Type: "List<AWS::EC2::AvailabilityZone::Name>", follows: ParameterMembers,
			Description: "The availability zone of each subnet of " + ParameterMembers + ", in the same order: a member's volume is in it."}
	}
}
