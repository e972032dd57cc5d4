package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// archDocument has two groups of minions with these settings, and more at the top.
func archDocument(top, first, second string) []byte {
	return fmt.Appendf(spec.Minimal("demo"), "%sgroups:\n- {name: masters, roles: [masters, etcd]}\n- {name: a, roles: [minions], aws: {%s}}\n- {name: b, roles: [minions], aws: {%s}}\n", top, first, second)
}

// TestArchOfTypes: a document that names an instance type with AWS's processor is of arm64, for types of the families that AWS has ("Amazon
// EC2 instance types").
func TestArchOfTypes(t *testing.T) {
	image := readImage(t)
	for arch, names := range map[string]string{
		spec.ARM64: "a1.large t4g.small m6g.large m6gd.metal c6gn.large m8g.48xlarge r8gb.large x2gd.large im4gn.large is4gen.large i4g.large i8ge.large g5g.xlarge hpc7g.4xlarge",
		spec.AMD64: "t3a.small m7i.large m7i-flex.large m5zn.metal c5n.large r5dn.large g4dn.xlarge g5.xlarge gr6.4xlarge p4d.24xlarge i7ie.large x2iedn.large u-6tb1.metal u7i-6tb.112xlarge hpc7a.12xlarge inf2.xlarge trn1n.32xlarge dl2q.24xlarge",
	} {
		for name := range strings.FieldsSeq(names) {
			got, _, err := spec.Load(image, "cluster.yaml", archDocument("", "", "instanceType: "+name))
			if arch == spec.ARM64 {
				// The first group's default follows.
				name = "m7g.large"
			} else {
				name = "m7i.large"
			}
			if err != nil || got.Cluster.Arch != arch || got.Cluster.Groups[1].AWS.InstanceType != name {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestArch completes the architecture, and with it the instance types.
func TestArch(t *testing.T) {
	image := readImage(t)
	for _, test := range []struct {
		top, first, second string
		want               []string // arch, its origin, the types of the two groups and the first one's origin
	}{
		{"", "", "", []string{"amd64", "default (hardtack)", "m7i.large", "m7i.large", "derived (arch)"}},
		{"arch: arm64\n", "", "", []string{"arm64", "user", "m7g.large", "m7g.large", "derived (arch)"}},
		{"arch: arm64\n", "instanceType: c7g.large", "", []string{"arm64", "derived (groups)", "c7g.large", "m7g.large", "user"}},
		{"", "", "instanceType: c7g.large, types: [c6g.large]", []string{"arm64", "derived (groups)", "m7g.large", "c7g.large", "derived (arch)"}},
	} {
		got, _, err := spec.Load(image, "cluster.yaml", archDocument(test.top, test.first, test.second))
		if err != nil {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		groups := got.Cluster.Groups
		have := []string{got.Cluster.Arch, got.Origins["arch"].String(), groups[1].AWS.InstanceType, groups[2].AWS.InstanceType, got.Origins["groups[1].aws.instanceType"].String()}
		if diff := cmp.Diff(test.want, have); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test, diff)
		}
	}
}

// TestArchFaults: what no image starts on is refused, each with its path.
func TestArchFaults(t *testing.T) {
	image := readImage(t)
	for document, want := range map[string][]string{
		string(archDocument("arch: x86_64\n", "", "")):                                  {`arch: "x86_64" is not one of amd64, arm64`},
		string(archDocument("arch: arm46\n", "", "")):                                   {`arch: "arm46" is not one of amd64, arm64 (did you mean "arm64"?)`},
		string(archDocument("", "instanceType: m7g.large", "instanceType: m7i.xlarge")): {"groups[2].aws.instanceType: m7i.xlarge is of amd64, and the cluster's arch is arm64 (all machines of a cluster have one image)"},
		string(archDocument("arch: amd64\n", "instanceType: m7g.large", "types: [m7a.large, c7g.large]")): {
			"groups[1].aws.instanceType: m7g.large is of arm64, and the cluster's arch is amd64", "groups[2].aws.types[1]: c7g.large is of arm64",
		},
	} {
		_, _, err := spec.Load(image, "cluster.yaml", []byte(document))
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v; want %s", err, w)
			}
		}
	}
}
