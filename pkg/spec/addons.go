package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// addonImages are the images of add-ons as their projects release them, by the add-on and by the image's name in a document. The
// autoscaler and the cloud's controllers have a release for each minor version of Kubernetes (${RELEASE}). No digest is here: none of
// these registries was asked, and a digest that nobody has seen is worse than none.
var addonImages = map[string]map[string]string{
	machine.ClusterAutoscaler: {"cluster-autoscaler": "registry.k8s.io/autoscaling/cluster-autoscaler:" + releaseMark},
	machine.CloudController:   {"cloud-controller-manager": "registry.k8s.io/provider-aws/cloud-controller-manager:" + releaseMark},
	// deploy/kubernetes/base of the driver's release v1.64.0.
	machine.EBSDriver: {
		"aws-ebs-csi-driver":        "public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver:v1.64.0",
		"csi-provisioner":           "public.ecr.aws/csi-components/csi-provisioner:v6.3.0-eksbuild.4",
		"csi-attacher":              "public.ecr.aws/csi-components/csi-attacher:v4.12.0-eksbuild.5",
		"csi-resizer":               "public.ecr.aws/csi-components/csi-resizer:v2.2.1-eksbuild.3",
		"csi-node-driver-registrar": "public.ecr.aws/csi-components/csi-node-driver-registrar:v2.17.0-eksbuild.5",
		"livenessprobe":             "public.ecr.aws/csi-components/livenessprobe:v2.19.0-eksbuild.5",
	},
}

const releaseMark = "${RELEASE}"

// addonReleases are the newest releases of each minor version, by their projects' tags.
var addonReleases = map[string]map[string]string{
	machine.ClusterAutoscaler: {"1.34": "v1.34.5", "1.35": "v1.35.2", "1.36": "v1.36.1"},
	machine.CloudController:   {"1.34": "v1.34.3", "1.35": "v1.35.2", "1.36": "v1.36.1"},
}

// addons checks that the image has a manifest for each add-on.
func (f *completer) addons() {
	known := f.image.addons()
	for i, name := range f.in.Addons {
		switch {
		case !slices.Contains(known, name):
			f.hint(at("addons", i), near.DidYouMean(name, known), "%q is not an add-on of the image, which has %s", name, strings.Join(known, ", "))
		case slices.Index(f.in.Addons, name) < i:
			f.errorf(at("addons", i), "%q is named twice", name)
		}
	}
}

// addonImages completes the images of the add-ons, and warns of those that may be others tomorrow.
func (f *completer) addonImages() {
	out := map[string]string{}
	var loose []string
	for _, addon := range f.out.Cluster.Addons {
		for _, name := range slices.Sorted(maps.Keys(addonImages[addon])) {
			def := strings.ReplaceAll(addonImages[addon][name], releaseMark, addonReleases[addon][f.out.Cluster.Version])
			out[name] = orDefault(f, join("addonImages", name), f.in.AddonImages[name], def, Origin{Derived, "addons"})
			if !machine.IsPinned(out[name]) {
				loose = append(loose, out[name])
			}
		}
	}
	if f.out.Cluster.AddonImages = out; len(out) == 0 {
		f.out.Origins["addonImages"] = byHardtack
	}
	known := slices.Sorted(maps.Keys(out))
	for _, name := range slices.Sorted(maps.Keys(f.in.AddonImages)) {
		field := join("addonImages", name)
		switch image := f.in.AddonImages[name]; {
		case !slices.Contains(known, name) && len(known) == 0:
			f.errorf(field, "no add-on of the document has images")
		case !slices.Contains(known, name):
			f.hint(field, near.DidYouMean(name, known), "the document's add-ons have no image %q: there are %s", name, strings.Join(known, ", "))
		case !machine.IsImage(image):
			f.hint(field, "write REGISTRY/NAME:TAG@sha256:DIGEST", "%q is not an image's reference with its registry, and a tag or a digest of 64 hex digits", image)
		}
	}
	if len(loose) > 0 {
		f.warn("addonImages", "give their references with @ and what crane digest prints", "a tag may be another image tomorrow: %s", strings.Join(loose, ", "))
	}
}

// addonNeeds checks that the cluster has what its add-ons need.
func (f *completer) addonNeeds() {
	c := f.out.Cluster
	for i, addon := range c.Addons {
		field := at("addons", i)
		if !machine.NeedsCloud([]string{addon}) {
			continue
		}
		if !inCloud(c.Store) {
			f.hint(field, "leave it out", "%s calls AWS, and a cluster with the store %s has no machines there", addon, c.Store)
			continue
		}
		f.rolesIssuer(field, "its pods take a role at AWS with their tokens")
		if !slices.ContainsFunc(f.out.Groups, func(g Group) bool { return g.Roles.Has(role.Minions) }) {
			f.errorf(field, "no group has the role %s: there is no node for the pods of %s", role.Minions, addon)
		}
		for j, r := range c.AWS.PodRoles {
			if logicalName(r.Name) == logicalName(AddonRole(addon)) {
				f.errorf(at("aws.podRoles", j)+".name", "%q is the name of the role of %s", r.Name, addon)
			}
		}
		if addon == machine.ClusterAutoscaler {
			f.scaledGroups(field)
		}
	}
}

// scaledGroups checks that there is a group to scale, and warns of one whose max says nothing.
func (f *completer) scaledGroups(field string) {
	if !slices.ContainsFunc(f.out.Groups, f.out.Scales) {
		f.hint(field, "give a group that has minions alone an aws.max beyond its size", "no group says how large it may become")
	}
	for i, g := range f.out.Cluster.Groups {
		// A complete document has this max too, so that it cannot mean more here.
		if most := at("groups", i) + ".aws.max"; onlyMinions(g) && f.source.given[most] && g.AWS.Max > *g.Size && f.out.Origins[most].Kind != User {
			f.warn(most, "for a group that scales give a larger one", "is what a refresh may add to the size in any case, so that cluster-autoscaler leaves the group as it is: %d", g.AWS.Max)
		}
	}
}

// rolesIssuer finds an issuer whose tokens IAM does not take, at the field that needs it.
func (f *completer) rolesIssuer(field, what string) {
	switch issuer := f.out.Cluster.ServiceAccounts.Issuer; {
	case issuer == ownIssuer(f.out.Cluster.Name):
		f.hint(field, "give serviceAccounts.issuer a URL that AWS can read", "%s, which name the issuer %s: only the cluster knows it", what, issuer)
	case hasPort(issuer):
		f.errorf(field, "%s, and IAM takes no issuer with a port, as %s", what, issuer)
	}
}

// AddonRole is the name of an add-on's role among those of pods.
func AddonRole(addon string) string { return "addon-" + addon }

// cloudFlags follow from the cloud's controllers: a kubelet with this flag waits with all pods for what they say of its node.
func (f *completer) cloudFlags() []derivation {
	if !slices.Contains(f.out.Cluster.Addons, machine.CloudController) {
		return nil
	}
	return []derivation{{"kubelet", "cloud-provider", "external", "addons", false}, {"kubeControllerManager", "cloud-provider", "external", "addons", false}}
}

// cloudWaits finds kubelets or a controller manager without the flag that the cloud's controllers need.
func (f *completer) cloudWaits() {
	for _, d := range f.cloudFlags() {
		for _, p := range f.out.components {
			if fl, ok := p.flags[d.name]; ok && p.name == d.component && fl.text() != d.value {
				f.hint(join(p.name+".flags", d.name), "leave it out", "is %q, and %s has nothing to do where it is not external", fl.text(), machine.CloudController)
			}
		}
	}
}

// Scales reports whether cluster-autoscaler scales the group: one of minions alone with a max of its own beyond its size. What a
// refresh may add to a group is no reason to scale it.
func (c *Complete) Scales(g Group) bool {
	return slices.Contains(c.Cluster.Addons, machine.ClusterAutoscaler) && slices.Equal(g.Roles, role.NewSet(role.Minions)) && c.Elastic(g)
}

// Elastic reports whether the group has a max of its own beyond its size, so that something else may set how many machines it has:
// its size is then the least. Every other group has exactly its size.
func (c *Complete) Elastic(g Group) bool {
	i := slices.IndexFunc(c.Cluster.Groups, func(s GroupSpec) bool { return s.Name == g.Name })
	return i >= 0 && g.AWS.Max > g.Size && c.Origins[at("groups", i)+".aws.max"].Kind == User
}
