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

// The API server reaches a node by its address: no DNS need have its name.
func TestNodesByAddress(t *testing.T) {
	c := complete(t, document("", 3))
	text := fmt.Sprint(c.Cluster.KubeAPIServer.Flags["kubelet-preferred-address-types"])
	first, _, _ := strings.Cut(text, ",")
	assert.Equal(t, first, "InternalIP")
}
