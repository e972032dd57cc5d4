package autoscaling_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// A machine is published once DNS has one of its addresses under each of its names: its roles', in one set or in the shards of one, and its
// member's of etcd where the cluster names its members.
func TestPublished(t *testing.T) {
	t.Parallel()
	set := func(name, kind string, values ...string) record.Set {
		return record.Set{Name: name + ".demo.k8s.", Type: kind, Values: values}
	}
	const v4, v6, other = "10.0.0.1", "2001:db8::1", "10.0.0.2"
	both := []record.Set{set("masters", record.A, v4), set("etcd", record.A, v4)}
	for name, tt := range map[string]struct {
		group string
		sets  []record.Set
		tags  map[string]string // of the group
		want  bool
	}{
		"a role's":                          {"minions", []record.Set{set("minions", record.A, other, v4)}, nil, true},
		"by its other address":              {"minions", []record.Set{set("minions", record.A, other), set("minions", record.AAAA, v6)}, nil, true},
		"others only":                       {"minions", []record.Set{set("minions", record.A, other)}, nil, false},
		"nobody":                            {"minions", nil, nil, false},
		"another role's":                    {"minions", []record.Set{set("masters", record.A, v4)}, nil, false},
		"a text":                            {"minions", []record.Set{set("minions", record.TXT, v4)}, nil, false},
		"the first shard":                   {"minions", []record.Set{set("minions-0", record.A, v4)}, nil, true},
		"the last shard":                    {"minions", []record.Set{set("minions", record.A, other), set("minions-0", record.A, other), set("minions-1", record.A, v4)}, nil, true},
		"no shard":                          {"minions", []record.Set{set("minions-0", record.A, other), set("minions-1", record.A, other)}, nil, false},
		"each of two roles'":                {"masters", both, nil, true},
		"one of two roles'":                 {"masters", both[:1], nil, false},
		"the other one of two roles'":       {"masters", both[1:], nil, false},
		"without its member's":              {"masters", both, map[string]string{role.TagEtcdMember: "a", role.TagEtcdMembers: "a b c"}, false},
		"with another member's":             {"masters", append([]record.Set{set("etcd-b", record.A, v4)}, both...), map[string]string{role.TagEtcdMember: "a", role.TagEtcdMembers: "a b c"}, false},
		"with its member's":                 {"masters", append([]record.Set{set("etcd-a", record.A, v4)}, both...), map[string]string{role.TagEtcdMember: "a", role.TagEtcdMembers: "a b c"}, true},
		"the only member":                   {"masters", both, map[string]string{role.TagEtcdMember: "a", role.TagEtcdMembers: ""}, true},
		"no member":                         {"masters", both, map[string]string{role.TagEtcdMember: "", role.TagEtcdMembers: "a b c"}, true},
		"no role of etcd, whatever is said": {"minions", []record.Set{set("minions", record.A, v4)}, map[string]string{role.TagEtcdMember: "a", role.TagEtcdMembers: "a b c"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "default")
			for key, value := range tt.tags {
				assert.NilError(t, w.account.AutoScaling().SetTag("demo-"+tt.group, key, &value))
			}
			w.cluster.Records = records{sets: tt.sets}
			w.answers(func(out any) {
				if out, ok := out.(*ec2.DescribeInstancesOutput); ok {
					for _, r := range out.Reservations {
						for i := range r.Instances {
							r.Instances[i].PrivateIpAddress, r.Instances[i].Ipv6Address = aws.String(v4), aws.String(v6)
						}
					}
				}
			})
			assert.Equal(t, w.read(tt.group).Machines[0].Published, tt.want)
		})
	}
}

// Without DNS every machine that EC2 shows counts as published; one that EC2 does not show has neither image nor name.
func TestPublishedWithoutDNS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.cluster.Records = nil
	m := w.read("minions").Machines[0]
	assert.Assert(t, m.Published && m.Running && m.Image == imageA, "%+v", m)
	w.answers(func(out any) {
		if out, ok := out.(*ec2.DescribeInstancesOutput); ok {
			out.Reservations = nil
		}
	})
	m = w.read("minions").Machines[0]
	assert.Assert(t, !m.Published && !m.Running && m.Image == "", "%+v", m)
}
