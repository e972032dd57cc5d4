package kube_test

import (
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// TestSelfExists: only an API server that answers can say that there is no such node.
func TestSelfExists(t *testing.T) {
	s, _ := start(t)
	s.objects["/api/v1/nodes/a"] = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}`
	h := httptest.NewServer(s)
	name := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, name, h.URL, "x")
	f := kube.NewFile(name)
	for node, want := range map[string]bool{"a": true, "b": false} {
		if got, err := (&kube.Self{File: f, Name: node}).Exists(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", node, got, err, want)
		}
	}
	h.Close()
	if _, err := (&kube.Self{File: f, Name: "b"}).Exists(t.Context()); err == nil {
		t.Error("a server that does not answer says that there is no such node")
	}
}
