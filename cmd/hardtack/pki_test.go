package main

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// TestPKIInParameterStore makes a cluster's authorities at three writes a second, AWS's quota, and then tries as
// another user.
func TestPKIInParameterStore(t *testing.T) {
	account := awsfake.New(awsfake.Options{})
	operator, nobody := account.AddUser("operator", awsfake.Administrator()), account.AddUser("nobody")
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	pki := func(c awsfake.Credentials, args ...string) (string, error) {
		t.Setenv("AWS_REGION", "us-west-2")
		t.Setenv("AWS_ACCESS_KEY_ID", c.AccessKey)
		t.Setenv("AWS_SECRET_ACCESS_KEY", c.Secret)
		t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		t.Setenv("HOME", t.TempDir())
		var out, story bytes.Buffer
		app := newApp(&out, &story)
		command := []string{"hardtack", "pki", args[0]}
		if rest := args[1:]; args[0] == "rotate" {
			command, args = append(command, rest[0]), rest
		}
		err := app.RunContext(t.Context(), append(append(command, "--cluster", "demo", "--endpoint-url", server.URL), args[1:]...))
		return out.String(), err
	}
	out, err := pki(operator, "create")
	if err != nil || strings.Count(out, "created") != 16 {
		t.Fatalf("create: %v\n%s", err, out)
	}
	if names := account.SSM().Names("/hardtack/demo"); len(names) != 16 {
		t.Errorf("parameters %v", names)
	}
	if out, err := pki(operator, "verify"); err != nil || out != "" {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := pki(operator, "show"); err != nil || strings.Contains(out, "PRIVATE") || !strings.Contains(out, "ssm:/hardtack/demo") {
		t.Errorf("show: %v\n%s", err, out)
	}
	// A key is replaced in Parameter Store, which has no conditional write.
	rotate := func(what string, args ...string) (string, error) {
		return pki(operator, append([]string{"rotate", what, "--yes"}, args...)...)
	}
	for _, step := range []string{"added", "used", "none"} {
		if out, err := rotate("front-proxy-ca", "--taken"); err != nil || !strings.Contains(out, "step "+step) {
			t.Errorf("rotate: %v, want step %s\n%s", err, step, out)
		}
	}
	if out, err := rotate("encryption"); err != nil || !strings.Contains(out, "step added") {
		t.Errorf("rotate: %v\n%s", err, out)
	}
	if out, err := pki(operator, "verify"); err != nil || out != "" {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := pki(nobody, "create"); err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("somebody else: %v\n%s", err, out)
	}
}
