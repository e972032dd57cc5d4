package kube_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// An API server that is not ready says which of its checks fails.
func TestReady(t *testing.T) {
	ready := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/readyz":
			http.NotFound(w, r)
		case !ready:
			http.Error(w, "[-]etcd failed: reason withheld\nreadyz check failed", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	c, err := kube.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "[-]etcd failed") || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("%v", err)
	}
	ready = true
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
