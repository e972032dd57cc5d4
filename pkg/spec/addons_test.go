package spec_test

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

const (
	publicIssuer = "serviceAccounts: {issuer: https://id.example.org}\n"
	roomy        = "groups: [{name: masters, roles: [masters, etcd]}, {name: minions, roles: [minions], size: 2, aws: {max: 6}}, {name: fixed, roles: [minions], size: 2}]\n"
	allAddons    = "addons: [metrics-server, aws-ebs-csi-driver, aws-cloud-controller-manager, cluster-autoscaler]\n"
	anyDigest    = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// TestCloudAddons: what the add-ons that call AWS make of a document.
func TestCloudAddons(t *testing.T) {
	c := complete(t, issuerDocument+publicIssuer+roomy+allAddons)
	assert.Equal(t, len(c.Cluster.AddonImages), 8)
	assert.Equal(t, c.Cluster.AddonImages["cluster-autoscaler"], "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.1")
	assert.Equal(t, c.Origins["addonImages.csi-resizer"].String(), "derived (addons)")
	var scaled []string
	for _, g := range c.Groups {
		if c.Scales(g) {
			scaled = append(scaled, g.Name)
		}
	}
	// The group without a max of its own may grow for a refresh, and for nothing else.
	assert.DeepEqual(t, scaled, []string{"minions"})

	masters, err := c.Group("masters")
	assert.NilError(t, err)
	assert.DeepEqual(t, c.Machine(masters).AddonImages, c.Cluster.AddonImages)
	minions, err := c.Group("minions")
	assert.NilError(t, err)
	assert.Equal(t, len(c.Machine(minions).AddonImages), 0)

	// With the cloud's controllers, and only with them, kubelets wait for what these say of their nodes.
	const external = "--cloud-provider=external"
	for text, want := range map[string]bool{allAddons: true, "addons: [cluster-autoscaler]\n": false} {
		c := complete(t, issuerDocument+publicIssuer+roomy+text)
		for program, group := range map[string]string{"kubelet": "minions", "kube-controller-manager": "masters"} {
			g, err := c.Group(group)
			assert.NilError(t, err)
			arguments := newGuest(t, c, g).arguments(t, program+".service", program)
			assert.Equal(t, slices.Contains(arguments, external), want, "%s: %v", program, arguments)
		}
	}

	// Every release of Kubernetes that there is has its own.
	for version, want := range map[string]string{"1.34": "v1.34.3", "1.35": "v1.35.2", "1.36": "v1.36.1"} {
		c := complete(t, issuerDocument+publicIssuer+"version: "+`"`+version+`"`+"\naddons: [aws-cloud-controller-manager]\n")
		assert.DeepEqual(t, c.Cluster.AddonImages, map[string]string{"cloud-controller-manager": "registry.k8s.io/provider-aws/cloud-controller-manager:" + want})
	}
}

// TestAddonImages: a tag is warned of, a digest is not, and a complete document says the same again.
func TestAddonImages(t *testing.T) {
	warned := func(text string) (spec.Complete, problem.List) {
		c, problems := spec.Parse("cluster.yaml", []byte(issuerDocument+publicIssuer+roomy+"addons: [cluster-autoscaler]\n"+text))
		assert.NilError(t, problems.Err())
		done, problems := c.Complete(readImage(t))
		assert.NilError(t, problems.Err())
		return *done, problems
	}
	_, problems := warned("")
	assert.Equal(t, len(problems), 1)
	assert.Assert(t, strings.Contains(problems[0].String(), "a tag may be another image tomorrow: registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.1 (give"), problems[0].String())
	const mine = "registry.example.org:5000/mirror/cluster-autoscaler:v1.36.1" + anyDigest
	done, problems := warned("addonImages: {cluster-autoscaler: " + `"` + mine + `"` + "}\n")
	assert.Equal(t, len(problems), 0)
	assert.Equal(t, done.Cluster.AddonImages["cluster-autoscaler"], mine)
	assert.Equal(t, done.Origins["addonImages.cluster-autoscaler"].String(), "user")
}

// TestMaxOfARefresh: a max that a refresh has anyway makes no group scale, and the document's author is told.
func TestMaxOfARefresh(t *testing.T) {
	c, problems := spec.Parse("cluster.yaml", []byte(issuerDocument+publicIssuer+`addons: [cluster-autoscaler]
addonImages: {cluster-autoscaler: "registry.example.org/cluster-autoscaler:v1.36.1`+anyDigest+`"}
groups:
- {name: masters, roles: [masters, etcd]}
- {name: a, roles: [minions], size: 1, aws: {max: 2}}
- {name: b, roles: [minions], size: 1, aws: {max: 3}}
- {name: c, roles: [minions], size: 1}
`))
	assert.NilError(t, problems.Err())
	done, problems := c.Complete(readImage(t))
	assert.NilError(t, problems.Err())
	assert.Equal(t, len(problems), 1, "%v", problems)
	assert.Assert(t, strings.Contains(problems[0].String(), "groups[1].aws.max: warning: is what a refresh may add to the size in any case, so that cluster-autoscaler leaves the group as it is: 2 (for a group that scales give a larger one)"), problems[0].String())
	for i, want := range []bool{false, false, true, false} {
		assert.Equal(t, done.Scales(done.Groups[i]), want, done.Groups[i].Name)
	}
}

// TestCloudAddonsRefused: what an add-on needs and the document does not have.
func TestCloudAddonsRefused(t *testing.T) {
	scaled := publicIssuer + roomy + "addons: [cluster-autoscaler]\n"
	images := func(text string) string { return scaled + "addonImages: {cluster-autoscaler: \"" + text + "\"}\n" }
	for _, tt := range []struct{ name, text, want string }{
		{"a misspelled name", publicIssuer + "addons: [aws-ebs-csi]\n", `did you mean "aws-ebs-csi-driver"?`},
		{"no issuer", roomy + "addons: [cluster-autoscaler]\n", "addons[0]: its pods take a role at AWS with their tokens, which name the issuer https://masters.demo.k8s: only the cluster knows it"},
		{"a port", strings.Replace(scaled, "id.example.org", "id.example.org:8443", 1), "IAM takes no issuer with a port"},
		{"no cloud", scaled + "store: dir:/srv/store\n", "cluster-autoscaler calls AWS, and a cluster with the store dir:/srv/store has no machines there"},
		{"no node", publicIssuer + "groups: [{name: masters, roles: [masters, etcd]}]\naddons: [aws-ebs-csi-driver]\n", "there is no node for the pods of aws-ebs-csi-driver"},
		{"nothing to scale", publicIssuer + "addons: [cluster-autoscaler]\n", "no group says how large it may become"},
		{"masters do not scale", publicIssuer + "groups: [{name: all, roles: [masters, etcd, minions], aws: {max: 3}}]\naddons: [cluster-autoscaler]\n", "no group says how large it may become"},
		{"another's image", scaled + "addonImages: {csi-resizer: \"example.org/x:1\"}\n", `the document's add-ons have no image "csi-resizer": there are cluster-autoscaler`},
		{"an image for nothing", "addonImages: {csi-resizer: \"example.org/x:1\"}\n", "no add-on of the document has images"},
		{"no registry", images("cluster-autoscaler:v1.36.1"), "is not an image's reference with its registry"},
		{"neither tag nor digest", images("registry.k8s.io/autoscaling/cluster-autoscaler"), "is not an image's reference with its registry"},
		{"a port is no tag", images("localhost:5000/cluster-autoscaler"), "is not an image's reference with its registry"},
		{"a short digest", images("registry.k8s.io/autoscaling/cluster-autoscaler@sha256:abc"), "a digest of 64 hex digits"},
		{"another role of that name", strings.Replace(uploaderRole, "name: uploader", "name: addon-aws-ebs-csi-driver", 1) + "addons: [aws-ebs-csi-driver]\n", "is the name of the role of aws-ebs-csi-driver"},
		{"a kubelet that does not wait", publicIssuer + "addons: [aws-cloud-controller-manager]\nkubelet: {flags: {cloud-provider: \"\"}}\n", "aws-cloud-controller-manager has nothing to do"},
	} {
		text := refused(t, issuerDocument+tt.text)
		assert.Assert(t, strings.Contains(text, tt.want), "%s: %s", tt.name, text)
	}
}

// TestPodRolePrefix: with the longest names the roles of add-ons have names that IAM takes, and two clusters have two.
func TestPodRolePrefix(t *testing.T) {
	long := strings.Repeat("a", 62)
	seen := map[string]bool{}
	for _, cluster := range []string{"demo", "a2345678901234567890", long + "a", long + "b", "a-cluster-aa-with-a-hyphen"} {
		for _, addon := range machine.CloudAddons() {
			name := machine.PodRolePrefix(cluster, "ap-southeast-1") + addon
			assert.Assert(t, len(name) <= 64 && !seen[name] && !strings.Contains(name, "--"), name)
			seen[name] = true
		}
	}
	assert.Equal(t, machine.PodRolePrefix("demo", "eu-central-1"), "demo-eu-central-1-")
}
