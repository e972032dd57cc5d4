package spec

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
)

// The architectures of images, by Debian's and Go's names.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

var architectures = []string{AMD64, ARM64}

// defaultTypes are the instance types of groups that name none: two processors of a type that is not throttled when its credit is used
// up, and that boots by UEFI from NVMe, as the image does.
var defaultTypes = map[string]string{AMD64: "m7i.large", ARM64: "m7g.large"}

// gravitonForm is of instance types with AWS's own processors: an option of the family, after its generation, is g ("Amazon EC2 instance
// type naming conventions"). The first of them, a1, is older than the convention.
var gravitonForm = regexp.MustCompile(`^(a1|[a-z]+[0-9]+[a-z]*g[a-z]*(-[a-z0-9]+)*)\.`)

// archOf is the architecture of an instance type, by its name.
func archOf(instanceType string) string {
	if gravitonForm.MatchString(instanceType) {
		return ARM64
	}
	return AMD64
}

// arch completes the architecture: without a word of it, it is arm64 where an instance type says so.
func (f *completer) arch() {
	def, origin := AMD64, byHardtack
	for i, g := range f.in.Groups {
		if f.source.given[at("groups", i)+".aws.instanceType"] && archOf(g.AWS.InstanceType) == ARM64 {
			def, origin = ARM64, Origin{Derived, "groups"}
		}
	}
	f.out.Cluster.Arch = orDefault(f, "arch", f.in.Arch, def, origin)
}

// sameArch refuses a group's instance types that the cluster's one image does not start on.
func (f *completer) sameArch(field string, g GroupAWS) {
	refuse := func(field, name string) {
		if is, arch := archOf(name), f.out.Cluster.Arch; is != arch && slices.Contains(architectures, arch) {
			f.hint(field, "all machines of a cluster have one image", "%s is of %s, and the cluster's arch is %s", name, is, arch)
		}
	}
	refuse(field+".instanceType", g.InstanceType)
	for i, name := range g.Types {
		refuse(at(field+".types", i), name)
	}
}

func (v checker) arch(arch string) {
	if v.source.given["arch"] && !slices.Contains(architectures, arch) {
		v.hint("arch", near.DidYouMean(arch, architectures), "%q is not one of %s", arch, strings.Join(architectures, ", "))
	}
}
