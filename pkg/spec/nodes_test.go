package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// document is a document with that text, and groups with so many minions at most.
func document(text string, most int) string {
	return fmt.Sprintf("apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n%s"+
		"groups:\n- {name: masters, roles: [masters, etcd]}\n- {name: minions, roles: [minions], size: 3, aws: {max: %d}}\n", text, most)
}

// Every node that the groups may have gets a share of the pods' range.
func TestNodesFit(t *testing.T) {
	const keeps = "; a cluster that has machines keeps its range: lower size or aws.max of its groups)"
	for _, test := range []struct {
		name, text string
		most       int
		want       string // "" is no finding
	}{
		{"the default holds a thousand", "", 1000, ""},
		{"and no more than its shares", "", 1024, ""},
		{"more than the default", "", 1025, "cluster.yaml: network.podCIDR: 10.244.0.0/14 holds 1024 nodes with a /24 each, and the groups with the role minions may have 1025 (write podCIDR: 10.240.0.0/13" + keeps},
		{"an old default", "network: {podCIDR: 10.244.0.0/16}\n", 1000,
			"cluster.yaml:4: network.podCIDR: 10.244.0.0/16 holds 256 nodes with a /24 each, and the groups with the role minions may have 1000 (write podCIDR: 10.244.0.0/14" + keeps},
		{"one share", "network: {podCIDR: 10.0.0.0/24}\n", 5, "cluster.yaml:4: network.podCIDR: 10.0.0.0/24 holds 1 nodes with a /24 each, and the groups with the role minions may have 5 (write podCIDR: 10.0.0.0/21" + keeps},
		{"beside the Services", "network: {podCIDR: 10.97.0.0/24}\n", 257,
			"cluster.yaml:4: network.podCIDR: 10.97.0.0/24 holds 1 nodes with a /24 each, and the groups with the role minions may have 257 (write podCIDR: 10.244.0.0/15" + keeps},
		{"smaller shares", "network: {podCIDR: 10.244.0.0/16}\nkubeControllerManager: {flags: {node-cidr-mask-size: 26}}\n", 1000, ""},
		{"smaller shares by the other flag", "network: {podCIDR: 10.244.0.0/16}\nkubeControllerManager: {flags: {node-cidr-mask-size-ipv4: 26}}\n", 1025,
			"cluster.yaml:4: network.podCIDR: 10.244.0.0/16 holds 1024 nodes with a /26 each, and the groups with the role minions may have 1025 (write podCIDR: 10.244.0.0/15" + keeps},
		{"both flags", "kubeControllerManager: {flags: {node-cidr-mask-size: 26, node-cidr-mask-size-ipv4: 26}}\n", 3,
			"cluster.yaml:4: kubeControllerManager.flags.node-cidr-mask-size-ipv4: the controller manager does not start with --node-cidr-mask-size and --node-cidr-mask-size-ipv4 (leave one of them out)"},
		{"a share larger than the range", "kubeControllerManager: {flags: {node-cidr-mask-size: 13}}\n", 3,
			"cluster.yaml:4: kubeControllerManager.flags.node-cidr-mask-size: a node's share of the pods' range 10.244.0.0/14 cannot be a /13 (write one between 14 and 30)"},
		{"others give the shares", "network: {podCIDR: 10.244.0.0/24}\nkubeControllerManager: {flags: {allocate-node-cidrs: false}}\n", 1000, ""},
		{"a bill", "", 5001, "cluster.yaml:6: groups[1].aws.max: 5001 is not between 0 and 5000"},
		{"more pods than addresses, for a node", "kubelet: {config: {maxPods: 254}}\n", 3,
			"cluster.yaml:4: kubelet.config.maxPods: 254 pods on a node, whose /24 has addresses for 253 (write at most 253, or give nodes larger shares: kubeControllerManager.flags.node-cidr-mask-size)"},
		{"as many", "kubelet: {config: {maxPods: 253}}\n", 3, ""},
		{"and with larger shares", "kubelet: {config: {maxPods: 500}}\nkubeControllerManager: {flags: {node-cidr-mask-size: 23}}\n", 3, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			found := findings(t, document(test.text, test.most))
			var lines []string
			for _, p := range found {
				lines = append(lines, p.String())
			}
			assert.Equal(t, strings.Join(lines, "\n"), test.want)
		})
	}
	// What a refresh would add gives way.
	for _, test := range []struct {
		groups string
		want   []int // of the groups with minions
	}{
		{"- {name: minions, roles: [minions], size: 1000}\n", []int{1024}},
		{"- {name: minions, roles: [minions], size: 900}\n", []int{990}},
		{"- {name: one, roles: [minions], size: 800}\n- {name: two, roles: [minions], size: 200}\n", []int{819, 204}},
		{"- {name: one, roles: [minions], size: 800, aws: {max: 820}}\n- {name: two, roles: [minions], size: 200}\n", []int{820, 204}},
	} {
		c := complete(t, strings.Split(document("", 3), "- {name: minions")[0]+test.groups)
		var got []int
		for _, g := range c.Groups[1:] {
			got = append(got, g.AWS.Max)
		}
		assert.DeepEqual(t, got, test.want)
	}
	assert.ErrorContains(t, findings(t, strings.Split(document("", 3), "- {name: minions")[0]+"- {name: minions, roles: [minions], size: 1024}\n").Err(), "may have 1127")
	group := "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\ngroups:\n- {name: all, roles: [masters, etcd, minions], node: {maxPods: 500}}\n"
	assert.ErrorContains(t, findings(t, group).Err(), "groups[0].node.maxPods: 500 pods on a node, whose /24 has addresses for 253")
}

// What the error says to write is right.
func TestNodesHint(t *testing.T) {
	for most := 4; most <= 5000; most = most*3 + 1 {
		for _, cidr := range []string{"10.244.0.0/24", "10.97.0.0/24", "192.168.0.0/24", "100.64.0.0/24", "10.0.0.0/24"} {
			text := "network: {podCIDR: %s}\n"
			_, hint, ok := strings.Cut(fmt.Sprint(findings(t, document(fmt.Sprintf(text, cidr), most)).Err()), "write podCIDR: ")
			assert.Assert(t, ok, "%s for %d", cidr, most)
			wider, _, _ := strings.Cut(hint, ";")
			assert.NilError(t, findings(t, document(fmt.Sprintf(text, wider), most)).Err(), "%s for %d", cidr, most)
		}
	}
}

// A machine whose share is smaller than the agent takes it to be is told how many pods it has addresses for.
func TestSmallShares(t *testing.T) {
	c := complete(t, document("kubeControllerManager: {flags: {node-cidr-mask-size: 26}}\n", 3))
	assert.Equal(t, c.Machine(c.Groups[1]).Node.MaxPods, 61)
	assert.Equal(t, c.Origins["groups[1].node.maxPods"], spec.Origin{Kind: spec.Derived, From: "kubeControllerManager.flags.node-cidr-mask-size"})
	once, err := c.YAML()
	assert.NilError(t, err)
	again := complete(t, string(once))
	twice, err := again.YAML()
	assert.NilError(t, err)
	assert.Equal(t, string(twice), pinned(once))
}
