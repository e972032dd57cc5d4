package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// space creates a namespace with a Deployment that reads its text from a ConfigMap and a Secret, rolls out another
// version of it, and deletes the namespace with everything in it.
func (c *cluster) space(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, version := range []struct{ key, says string }{
		{"first", "hello from a-configmap on a-secret "},
		{"second", "hello from another-key on a-secret "},
	} {
		c.apply(ctx, t, "space", map[string]string{"KEY": version.key})
		c.rolledOut(ctx, t, "space", "hello")
		c.await(ctx, t, "the pod of the key "+version.key, func() (bool, string) {
			out, err := c.exec(ctx, "asks", "/hello", "fetch", "http://hello.space.svc.cluster.local")
			return err == nil && strings.Contains(out, version.says), fmt.Sprint(firstLine(out), " ", err)
		})
	}
	const path = "/api/v1/namespaces/space"
	if code, body, err := c.do(ctx, c.admin, http.MethodDelete, path, "", ""); err != nil || code != http.StatusOK {
		t.Fatalf("deleting the namespace: %d %s %v", code, body, err)
	}
	// Its finalizer is removed when every object in it is deleted, of every kind that the API has.
	c.await(ctx, t, "the namespace to be gone", func() (bool, string) {
		code, _, err := c.get(ctx, c.admin, path)
		return code == http.StatusNotFound, fmt.Sprint(code, " ", err)
	})
}
