package kube_test

import (
	"encoding/base64"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

// TestTokens lists the tokens that are for one machine, and uses one: only as it was read. The real API server is pkg/e2e's.
func TestTokens(t *testing.T) {
	s, c := start(t)
	text := func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) }
	token := func(id, groups, expires string) string {
		return `{"metadata":{"name":"bootstrap-token-` + id + `","resourceVersion":"7","annotations":{"hardtack.dev/used-by":"u"}},"data":{"token-secret":"` + text("hidden") +
			`","auth-extra-groups":"` + text(groups) + `","expiration":"` + text(expires) + `"}}`
	}
	const bound = "system:bootstrappers:hardtack:node:a:example"
	s.objects["/api/v1/namespaces/kube-system/secrets"] = `{"items":[` + token("aaaaaa", "system:bootstrappers:hardtack", "2026-01-02T03:04:05Z") + "," +
		token("bbbbbb", "system:bootstrappers:hardtack,"+bound, "2026-01-02T03:04:05Z") + "," + token("cccccc", bound, "never") + "]}"
	got, err := c.Tokens(t.Context())
	want := []controller.MachineToken{
		{ID: "bbbbbb", Groups: []string{bound}, Expires: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), User: "u", Version: "7"},
		{ID: "cccccc", Groups: []string{bound}, User: "u", Version: "7"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\nwant\n%+v", err, got, want)
	}
	if last := s.requests[len(s.requests)-1]; !strings.Contains(last, "fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken") {
		t.Errorf("asked for more than tokens: %s", last)
	}
	const path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-bbbbbb"
	s.objects[path] = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"bootstrap-token-bbbbbb","namespace":"kube-system"}}`
	if err := c.Use(t.Context(), want[0]); err != nil {
		t.Error(err)
	}
	for _, part := range []string{`"resourceVersion":"7"`, `"hardtack.dev/used-by":"u"`, text("2026-01-02T03:04:05Z")} {
		if !strings.Contains(s.bodies[path], part) {
			t.Errorf("written without %s: %s", part, s.bodies[path])
		}
	}
	s.conflict = true
	if err := c.Use(t.Context(), want[0]); !errors.Is(err, controller.ErrChanged) {
		t.Errorf("another is faster: %v", err)
	}
	s.conflict = false
	if err := c.Use(t.Context(), want[1]); !errors.Is(err, controller.ErrChanged) {
		t.Errorf("it is gone: %v", err)
	}
	delete(s.objects, "/api/v1/namespaces/kube-system/secrets")
	if _, err := c.Tokens(t.Context()); err == nil {
		t.Error("tokens that cannot be listed are no error")
	}
}
