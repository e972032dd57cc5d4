package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// TestPKIWithKey makes a store under a key of its own, which all commands that write go on to use, and moves a store that
// is under AWS's.
func TestPKIWithKey(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm": 0, "ssm:PutParameter": 0}})
	operator := account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	for name, value := range map[string]string{"AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": operator.AccessKey, "AWS_SECRET_ACCESS_KEY": operator.Secret,
		"AWS_EC2_METADATA_DISABLED": "true", "HOME": t.TempDir()} {
		t.Setenv(name, value)
	}
	file := func(name, aws string) string {
		path := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(path, []byte("apiVersion: hardtack.dev/v1\nkind: Cluster\nname: "+name+"\n"+aws), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pki := func(args ...string) (out, story string) {
		t.Helper()
		var o, s bytes.Buffer
		if err := newApp(&o, &s).RunContext(t.Context(), append(append([]string{"hardtack", "pki"}, args...), "--endpoint-url", server.URL)); err != nil {
			t.Errorf("pki %v: %v\n%s", args, err, s.String())
		}
		return o.String(), s.String()
	}
	under := func(cluster, want string) {
		t.Helper()
		n := 0
		for _, name := range account.SSM().Names("/hardtack/" + cluster) {
			if p, _ := account.SSM().Parameter(name); p.Type == awsfake.ParameterSecure {
				if n++; p.Key != want {
					t.Errorf("%s is under %s", name, p.Key)
				}
			}
		}
		if n < 10 {
			t.Errorf("%d secrets", n)
		}
	}
	const stack = "aws: {secretsKey: stack}\n"
	// A key that does not exist is the error, and no more than that: the next try has the right one.
	var none bytes.Buffer
	err := newApp(&none, &none).RunContext(t.Context(), []string{"hardtack", "pki", "create", "-f", file("fresh", "aws: {secretsKey: alias/none}\n"), "--endpoint-url", server.URL})
	if err == nil || !strings.Contains(err.Error(), "alias/none") {
		t.Errorf("an unknown key: %v", err)
	}
	if _, story := pki("create", "-f", file("fresh", stack)); !strings.Contains(story, "alias/hardtack-fresh, arn:aws:kms:") || strings.Contains(story, "next:") {
		t.Errorf("told\n%s", story)
	}
	under("fresh", "alias/hardtack-fresh")
	pki("rotate", "encryption", "--yes", "--cluster", "fresh") // which knows no document
	pki("rotate", "front-proxy-ca", "--yes", "--cluster", "fresh")
	pki("create", "--cluster", "fresh")
	under("fresh", "alias/hardtack-fresh")

	pki("create", "-f", file("older", ""))
	under("older", "alias/aws/ssm")
	account.SSM().AddKey("alias/mine")
	if _, story := pki("create", "-f", file("older", "aws: {secretsKey: alias/mine}\n")); !strings.Contains(story, "next: hardtack stack apply") {
		t.Errorf("told\n%s", story)
	}
	under("older", "alias/aws/ssm")
	if _, story := pki("create", "--rekey", "-f", file("older", "aws: {secretsKey: alias/mine}\n")); !strings.Contains(story, "writes\n") {
		t.Errorf("told\n%s", story)
	}
	under("older", "alias/mine")
	if _, story := pki("create", "-f", file("older", "aws: {secretsKey: alias/mine}\n")); strings.Contains(story, "next:") {
		t.Errorf("told\n%s", story)
	}
	if _, story := pki("create", "-f", file("older", "")); !strings.Contains(story, " --rekey, and then hardtack stack apply -f ") {
		t.Errorf("told\n%s", story)
	}
	for _, want := range []string{`"kms:ResourceAliases"`, `"alias/mine"`, `parameter/hardtack/older/masters/*`} {
		var out bytes.Buffer
		if err := newApp(&out, &out).Run([]string{"hardtack", "pki", "policy", "--cluster", "older", "--role", "masters", "--secrets-key", "alias/mine"}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("the policy is without %s: %v\n%s", want, err, out.String())
		}
	}
}
