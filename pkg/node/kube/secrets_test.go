package kube_test

import (
	"strings"
	"testing"
)

// TestRewriteSecrets: every page is read, every Secret is written as it is, and one that somebody else has just written is
// no error. That the API server then encrypts it anew is shown in pkg/e2e.
func TestRewriteSecrets(t *testing.T) {
	s, c := start(t)
	const path = "/api/v1/namespaces/default/secrets/a"
	list := `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[
		{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":"3"},"data":{"word":"eA=="}},
		{"kind":"Secret","apiVersion":"v1","metadata":{"name":"b","namespace":"kube-system","resourceVersion":"4"}}]}`
	s.objects["/api/v1/secrets"] = list
	n, err := c.RewriteSecrets(t.Context())
	if err != nil || n != 2 {
		t.Errorf("%d written, %v", n, err)
	}
	for _, want := range []string{`"word":"eA=="`, `"resourceVersion":"3"`} {
		if !strings.Contains(s.bodies[path], want) {
			t.Errorf("%s was written without %s: %s", path, want, s.bodies[path])
		}
	}
	s.conflict = true
	if n, err := c.RewriteSecrets(t.Context()); err != nil || n != 0 {
		t.Errorf("others are faster: %d written, %v", n, err)
	}
	delete(s.objects, "/api/v1/secrets")
	if _, err := c.RewriteSecrets(t.Context()); err == nil {
		t.Error("Secrets that cannot be listed are no error")
	}
}
