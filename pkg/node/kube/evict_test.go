package kube_test

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// TestEvictorOfNodes reads what a node has of an eviction, and writes all of it back in one change.
func TestEvictorOfNodes(t *testing.T) {
	const label = `"node.kubernetes.io/exclude-from-external-load-balancers"`
	s, _ := start(t)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.objects["/api/v1/nodes"] = `{"items":[{"metadata":{"name":"a","uid":"1","resourceVersion":"7","labels":{"x":"y",` + label + `:""},
		"annotations":{"hardtack.dev/evicting":"m"}},"spec":{"unschedulable":true}},{"metadata":{"name":"b"}}]}`
	s.objects["/api/v1/nodes/a"] = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}`
	name := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, name, h.URL, "x")
	e := &kube.Evictor{File: kube.NewFile(name)}
	nodes, err := e.Nodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0].Exclude == nil || *nodes[0].Exclude != "" || nodes[0].Mark != "m" || nodes[1].Exclude != nil {
		t.Fatalf("%+v, %v", nodes, err)
	}
	for want, change := range map[string]func(*evict.Node){
		`{"metadata":{"annotations":{"hardtack.dev/evicting":"m"},"labels":{` + label + `:""},"resourceVersion":"7","uid":"1"},"spec":{"unschedulable":true}}`: func(*evict.Node) {},
		`{"metadata":{"annotations":{"hardtack.dev/evicting":null},"labels":{` + label + `:null},"resourceVersion":"7","uid":"1"},"spec":{"unschedulable":false}}`: func(n *evict.Node) {
			n.Mark, n.Exclude, n.Unschedulable = "", nil, false
		},
	} {
		n := nodes[0]
		change(&n)
		if err := e.Change(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if got := s.bodies["/api/v1/nodes/a"]; got != want {
			t.Errorf("written %s, want %s", got, want)
		}
	}
}
