package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// The API server's limits follow from how large the groups may become, with a reason and its source; a document has the
// last word.
func TestBySize(t *testing.T) {
	const wide = "network: {podCIDR: 10.0.0.0/10}\n"
	for _, test := range []struct {
		text, groups            string
		goaway, reads, mutating any
	}{
		{"", "", "0", 400, 200},
		{wide, "- {name: minions, roles: [minions], aws: {max: 500}}\n", "0", 400, 200},
		{wide, "- {name: minions, roles: [minions], aws: {max: 501}}\n", "0", 1500, 500},
		{wide, "- {name: one, roles: [minions], aws: {max: 2000}}\n- {name: two, roles: [minions], size: 1001}\n", "0", 3000, 1000},
		{"", "- {name: more, roles: [masters], size: 1}\n", "0.001", 400, 200},
		{"kubeAPIServer: {flags: {goaway-chance: 0.01, max-requests-inflight: 700}}\n", "- {name: more, roles: [masters], size: 1}\n", "0.01", 700, 200},
	} {
		c := complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+test.text+"groups:\n- {name: masters, roles: [masters, etcd], members: [a]}\n"+test.groups)
		flags := c.Cluster.KubeAPIServer.Flags
		assert.DeepEqual(t, []any{flags["goaway-chance"], flags["max-requests-inflight"], flags["max-mutating-requests-inflight"]}, []any{test.goaway, test.reads, test.mutating})
	}
	c := complete(t, document(wide, 1001))
	for _, flag := range []string{"max-requests-inflight", "max-mutating-requests-inflight"} {
		e, err := c.Explain("kubeAPIServer.flags." + flag)
		assert.NilError(t, err)
		assert.Equal(t, e.Origin.String(), "derived (groups)")
		assert.Assert(t, strings.Contains(e.Why, "Source: "), "%q", e.Why)
		assert.Assert(t, strings.HasPrefix(e.Becomes[0], fmt.Sprintf("--%s=%v in KUBE_APISERVER_ARGS of /etc/sysconfig/kubernetes-masters", flag, e.Value)), "%q", e.Becomes)
	}
}

// Above 500 nodes the controllers may ask more often, above 3000 etcd's database may be larger and has a volume for it. A document
// has the last word here too.
func TestClientsBySize(t *testing.T) {
	const wide = "network: {podCIDR: 10.0.0.0/10}\n"
	type want struct {
		qps, burst, schedulerQPS, quota any
		volume                          int
	}
	for _, test := range []struct {
		text string
		most int
		want want
	}{
		{wide, 500, want{"20", 30, 50, "4294967296", 20}},
		{wide, 501, want{"100", 100, 100, "4294967296", 20}},
		{wide, 3000, want{"100", 100, 100, "4294967296", 20}},
		{wide, 3001, want{"100", 100, 100, "8589934592", 25}},
		{wide + "kubeControllerManager: {flags: {kube-api-qps: 300}}\nkubeScheduler: {config: {clientConnection: {qps: 7}}}\netcd: {size: 40, flags: {quota-backend-bytes: 6442450944}}\n", 3001,
			want{"300", 100, 7, "6442450944", 40}},
	} {
		c := complete(t, document(test.text, test.most)).Cluster
		connection := c.KubeScheduler.Config["clientConnection"].(map[string]any)
		flags := c.KubeControllerManager.Flags
		got := want{flags["kube-api-qps"], flags["kube-api-burst"], connection["qps"], c.Etcd.Flags["quota-backend-bytes"], c.Etcd.Size}
		assert.Equal(t, got, test.want, "%d nodes", test.most)
	}
	c := complete(t, document(wide, 3001))
	for path, becomes := range map[string]string{
		"kubeControllerManager.flags.kube-api-qps":   "--kube-api-qps=100 in KUBE_CONTROLLER_MANAGER_ARGS",
		"kubeScheduler.config.clientConnection.qps":  "clientConnection.qps in /etc/kubernetes/kube-scheduler.yaml, by the user data",
		"etcd.flags.quota-backend-bytes":             "ETCD_QUOTA_BACKEND_BYTES=8589934592 in /etc/sysconfig/kubernetes-etcd",
		"kubeAPIServer.flags.watch-cache-sizes":      "not given",
		"kubeAPIServer.flags.max-requests-inflight":  "--max-requests-inflight=3000",
		"kubeControllerManager.flags.kube-api-burst": "--kube-api-burst=100",
	} {
		e, err := c.Explain(path)
		assert.NilError(t, err)
		assert.Assert(t, strings.Contains(e.Why, "Source: "), "%s: %q", path, e.Why)
		assert.Assert(t, strings.Contains(strings.Join(e.Becomes, "\n"), becomes), "%s becomes %q", path, e.Becomes)
	}
}

// One pod of CoreDNS is for 16 nodes that the groups begin with, and never are there fewer than two. What a group may be scaled out to
// does not count: pods without a node would have its machines started. A document has the last word.
func TestDNSBySize(t *testing.T) {
	const replicas = "coreDNS.config.Deployment.spec.replicas"
	for _, test := range []struct {
		text, groups string
		want         any
		origin       string
	}{
		{"", "- {name: minions, roles: [minions], size: 32}\n", 2, "default (/usr/lib/hardtack/addons/20-dns.yaml)"},
		{"", "- {name: minions, roles: [minions], size: 3, aws: {max: 500}}\n", 2, "default (/usr/lib/hardtack/addons/20-dns.yaml)"},
		{"", "- {name: one, roles: [minions], size: 32}\n- {name: two, roles: [minions], size: 1}\n", 3, "derived (groups)"},
		{"coreDNS: {config: {Deployment: {spec: {replicas: 9}}}}\n", "- {name: minions, roles: [minions], size: 33}\n", 9, "user"},
		{"coreDNS: {config: {Deployment: {spec: {replicas: null}}}}\n", "- {name: minions, roles: [minions], size: 33}\n", nil, "user"},
	} {
		c := complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"+test.text+"groups:\n- {name: masters, roles: [masters, etcd]}\n"+test.groups)
		e, err := c.Explain(replicas)
		assert.NilError(t, err)
		assert.Equal(t, e.Value, test.want)
		assert.Equal(t, e.Origin.String(), test.origin)
		if test.origin == "derived (groups)" {
			assert.Assert(t, strings.Contains(e.Why, "Source: "), "%q", e.Why)
			assert.Assert(t, strings.Contains(e.Becomes[0], "Deployment.spec.replicas in /etc/hardtack/addons/20-dns.yaml, by the user data"), "%q", e.Becomes)
		}
		if test.want == nil {
			assert.Assert(t, strings.Contains(e.Becomes[0], "not given"), "%q", e.Becomes)
		}
	}
}

// The API server reaches a node by its address: no DNS need have its name.
func TestNodesByAddress(t *testing.T) {
	c := complete(t, document("", 3))
	text := fmt.Sprint(c.Cluster.KubeAPIServer.Flags["kubelet-preferred-address-types"])
	first, _, _ := strings.Cut(text, ",")
	assert.Equal(t, first, "InternalIP")
}
