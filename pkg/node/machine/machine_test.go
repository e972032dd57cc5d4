package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// whole sets every field.
func whole() Config {
	return Config{
		APIVersion: APIVersion, Kind: Kind, Cluster: "demo", Group: "demo-masters", ConfigHash: strings.Repeat("0a", 32),
		Store: "ssm:/hardtack/demo", API: API{Port: 443, Names: []string{"api.example.com", "10.1.0.9"}},
		Etcd:    Etcd{Members: []string{"a", "b", "c"}, Member: "b"},
		Network: Network{ServiceCIDR: "10.96.0.0/16", PodCIDR: "10.244.0.0/16", DNSAddress: "10.96.0.10", DNSDomain: "cluster.local", MTU: 1400},
		Node: Node{Naming: NamingIPName, Labels: map[string]string{"example.com/disk": "nvme", "node.kubernetes.io/pool": "a"},
			Taints: []string{"dedicated=batch:NoExecute"}, MaxPods: 40},
		LaunchHook: "hardtack-ready", CAFile: "/etc/pki/ca.crt",
	}
}

// TestRoundTrip reads what Marshal writes, with every field and with only those that must be.
func TestRoundTrip(t *testing.T) {
	least := Config{APIVersion: APIVersion, Kind: Kind}
	for name, want := range map[string]Config{"whole": whole(), "least": least} {
		data, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, problems := Parse(Path, data)
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		if name == "least" && string(data) != "apiVersion: hardtack.dev/v1\nkind: Machine\n" {
			t.Errorf("what says nothing is written as\n%s", data)
		}
	}
}

const broken = `apiVersion: hardtack.dev/v2
kind: Machine
cluster: Demo
group: a:b
configHash: "x y"
store: s3:/bucket
colour: red
api:
  port: 70000
  names: ["no name"]
etcd:
  members: [a, a, B]
  member: d
  storage: nfs
  disk: /dev/sdb
network:
  serviceCIDR: 10.96.0.1/16
  podCIDR: pods
  dnsAddress: dns
  dnsDomain: cluster.local.
  mtu: 100
node:
  naming: dice
  labels:
    node-role.kubernetes.io/control-plane: ""
    node-restriction.kubernetes.io/x: "1"
    "/": a
    ok: "no value"
  taints: [a=b, "a b:NoSchedule", "a=b c:NoSchedule"]
  maxPods: -1
launchHook: a hook
`

// TestProblems has every problem of one file at once, each with its line.
func TestProblems(t *testing.T) {
	want := `m.yaml:1: apiVersion: apiVersion "hardtack.dev/v2" and kind "Machine": this program reads "hardtack.dev/v1" and "Machine"
m.yaml:3: cluster: "Demo" is not a DNS label
m.yaml:4: group: "a:b" is not the name of an AutoScaling group
m.yaml:5: configHash: "x y" is not a digest
m.yaml:6: store: "s3:/bucket" is neither "ssm:/path" nor "dir:/path"
m.yaml:7: field "colour" is not known (there are apiVersion, kind, cluster, group, configHash, store, caFile, api, etcd, network, node, addons, addonImages, launchHook)
m.yaml:9: api.port: 70000 is not a port
m.yaml:10: api.names[0]: "no name" is neither a DNS name nor an address
m.yaml:12: etcd.members[1]: "a" is already at etcd.members[0]
m.yaml:12: etcd.members[2]: "B" is not a DNS label
m.yaml:13: etcd.member: "d" is not among etcd.members
m.yaml:14: etcd.storage: "nfs" is not one of volume, disk, machine
m.yaml:15: etcd.disk: "/dev/sdb" is not a path below /dev/disk/by-id
m.yaml:17: network.serviceCIDR: 10.96.0.1/16 has bits set beyond its prefix (write 10.96.0.0/16)
m.yaml:18: network.podCIDR: "pods" is not a range of addresses in CIDR notation
m.yaml:19: network.dnsAddress: "dns" is not an address
m.yaml:20: network.dnsDomain: "cluster.local." is not a DNS name without a dot at its end
m.yaml:21: network.mtu: 100 is not between 576 and 65535 bytes (0 or nothing: the interface's less VXLAN's 50)
m.yaml:23: node.naming: "dice" is not ip-name, instance-id or hostname
m.yaml:25: node.labels.node-role.kubernetes.io/control-plane: a node may not give itself this label (NodeRestriction) (choose a domain of your own, or label the node with kubectl once it is there)
m.yaml:26: node.labels.node-restriction.kubernetes.io/x: a node may not give itself this label (NodeRestriction) (choose a domain of your own, or label the node with kubectl once it is there)
m.yaml:27: node.labels./: key "/" is not of the form [domain/]name
m.yaml:28: node.labels.ok: value "no value": at most 63 letters, digits and -_. that begin and end with a letter or a digit
m.yaml:29: node.taints[0]: "a=b" is not of the form key=value:Effect, where the effects are NoSchedule, PreferNoSchedule, NoExecute
m.yaml:29: node.taints[1]: key "a b" is not of the form [domain/]name
m.yaml:29: node.taints[2]: value "b c" of taint a is not a label's value
m.yaml:30: node.maxPods: -1 is less than none
m.yaml:31: launchHook: "a hook" is not the name of a lifecycle hook`
	got, problems := Parse("m.yaml", []byte(broken))
	if diff := cmp.Diff(Config{}, got); diff != "" {
		t.Errorf("half a configuration: %s", diff)
	}
	if problems.Err() == nil {
		t.Fatal("no problem")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(problems.Err().Error(), "\n")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestForms meets files that are no machine file at all.
func TestForms(t *testing.T) {
	tests := []struct{ name, data, want string }{
		{"empty", "", "m.yaml: the machine file is empty"},
		{"comment", "# nothing\n", "m.yaml: the machine file is empty"},
		{"not yaml", "a: [", "m.yaml:2: did not find"},
		{"twice", "cluster: a\ncluster: b\n", `m.yaml:2: mapping key "cluster" already defined at line 1`},
		{"two documents", "cluster: a\n---\ncluster: b\n", "there is a second YAML document"},
		{"a list", "- a\n", "m.yaml:1: is a list, a mapping is expected"},
		{"overlap", "network: {serviceCIDR: 10.0.0.0/8, podCIDR: 10.244.0.0/16, dnsAddress: 11.0.0.1}", "10.244.0.0/16 overlaps network.serviceCIDR 10.0.0.0/8"},
		{"dns outside", "network: {serviceCIDR: 10.0.0.0/8, podCIDR: 11.244.0.0/16, dnsAddress: 11.0.0.1}", "11.0.0.1 is not in network.serviceCIDR 10.0.0.0/8"},
		{"no version", "kind: Machine\n", `m.yaml:1: apiVersion: apiVersion "" and kind "Machine"`},
		{"a field that is nearly one", "storr: ssm:/x\n", `field "storr" is not known (did you mean "store"?)`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, problems := Parse("m.yaml", []byte(test.data))
			if err := problems.Err(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// TestCheckLabel follows the list of the kubelet's --node-labels.
func TestCheckLabel(t *testing.T) {
	for key, ok := range map[string]bool{
		"disk": true, "example.com/disk": true, "kubelet.kubernetes.io/a": true, "x.node.kubernetes.io/a": true,
		"topology.kubernetes.io/zone": true, "kubernetes.io/hostname": true, "notkubernetes.io/a": true,
		"kubernetes.io/role": false, "node-role.kubernetes.io/masters": false, "x.k8s.io/a": false, "k8s.io/a": false,
		"topology.kubernetes.io/rack": false, "a/b/c": false, "": false, "-a": false, "EXAMPLE.com/a": false,
	} {
		if _, err := CheckLabel(key, "v"); (err == nil) != ok {
			t.Errorf("%q: %v, want ok %v", key, err, ok)
		}
	}
}

func TestAPIServer(t *testing.T) {
	c := Config{Cluster: "demo", API: API{Port: 6443}}
	for want, roles := range map[string]role.Set{
		"https://masters.demo.k8s:6443": role.NewSet(role.Minions),
		"https://127.0.0.1:6443":        role.NewSet(role.Masters, role.Minions),
	} {
		if got := c.APIServer(roles); got != want {
			t.Errorf("with roles %v: %s, want %s", roles, got, want)
		}
	}
}
