package fetch

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// A digest that the lock is to trust comes over https, or from this machine.
func TestNoPlainHTTP(t *testing.T) {
	for mirror, refused := range map[string]bool{
		"http://mirror.example/files": true, "http://10.0.0.1": true, "http://localhost.example": true, "HTTP://user:pass@mirror.example": true,
		"https://mirror.example": false, "http://127.0.0.1:8080": false, "http://[::1]:1": false, "http://localhost": false, t.TempDir(): false, "": false,
	} {
		_, err := New(Options{Mirror: mirror, Cache: t.TempDir() + "/cache", NoPlainHTTP: true})
		if refused != (err != nil) || refused && (!strings.Contains(err.Error(), "--insecure-mirror") || strings.Contains(err.Error(), "pass@")) {
			t.Errorf("%s: %v", mirror, err)
		}
		if _, err := New(Options{Mirror: mirror, Cache: t.TempDir() + "/cache"}); err != nil {
			t.Errorf("%s: files with a digest need no https: %v", mirror, err)
		}
	}
}

// Neither does a server that is vouched for lead to one that is not.
func TestAttackRedirectToPlainHTTP(t *testing.T) {
	asked := 0
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		asked++
		resp := answer(r, http.StatusFound)
		resp.Header.Set("Location", "http://evil.example"+r.URL.Path)
		return resp, nil
	})
	c := tool("kubelet", "https://dl.k8s.io/release/v1.0.0/bin/linux/amd64/kubelet", []byte("x"))
	for _, mirror := range []string{"", "https://mirror.example"} {
		f := newFetcher(t, Options{Transport: transport, NoPlainHTTP: true, Mirror: mirror})
		asked = 0
		updates, err := f.Updates(t.Context(), &lock.Lock{Components: []lock.Component{c}})
		if err != nil || len(updates) != 1 || !strings.Contains(updates[0].Problem, "http://evil.example") || len(updates[0].Values) > 0 || asked != 1 {
			t.Errorf("mirror %q: %+v, %v after %d requests", mirror, updates, err, asked)
		}
	}
}
