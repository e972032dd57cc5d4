package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
)

// app runs a command, and returns what it prints.
func app(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, story bytes.Buffer
	err := newApp(&out, &story).RunContext(t.Context(), append([]string{"hardtack"}, args...))
	return out.String(), err
}

func keyNames(t *testing.T, data []byte) []string {
	t.Helper()
	names, err := issuer.ParseKeys(data)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPKIIssuerInABucket publishes to S3, whose URL the issuer is, with an operator's rights and without.
func TestPKIIssuerInABucket(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm": 0, "ssm:PutParameter": 0}})
	operator := account.AddUser("operator", awsfake.Administrator())
	reader, err := awsfake.ParsePolicy([]byte(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["ssm:*", "kms:*"], "Resource": "*"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	nobody := account.AddUser("reader", reader)
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	as := func(c awsfake.Credentials) {
		for name, value := range map[string]string{"AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": c.AccessKey, "AWS_SECRET_ACCESS_KEY": c.Secret,
			"AWS_EC2_METADATA_DISABLED": "true", "HOME": t.TempDir()} {
			t.Setenv(name, value)
		}
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\nserviceAccounts: {issuer: https://demo-tokens.s3.us-west-2.amazonaws.com/a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	as(operator)
	run := func(args ...string) (string, error) {
		return app(t, append(append([]string{"pki"}, args...), "--endpoint-url", server.URL)...)
	}
	if _, err := run("create", "-f", file); err != nil {
		t.Fatal(err)
	}
	if _, err := run("issuer", "publish", "-f", file); err == nil || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("without a bucket: %v", err)
	}
	if err := account.S3().Create(awsfake.Bucket{Name: "demo-tokens"}); err != nil {
		t.Fatal(err)
	}
	as(nobody)
	if _, err := run("issuer", "publish", "-f", file); err == nil || !strings.Contains(err.Error(), "s3:PutObject") {
		t.Errorf("without the permission: %v", err)
	}
	as(operator)
	for _, want := range []string{"wrote openid/v1/jwks and .well-known/openid-configuration", "as it was"} {
		if out, err := run("issuer", "publish", "-f", file); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %s, want %q", err, out, want)
		}
	}
	objects := account.S3().Objects("demo-tokens")
	var configuration struct {
		Issuer string
		URI    string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(objects["a/.well-known/openid-configuration"], &configuration); err != nil || configuration.Issuer != "https://demo-tokens.s3.us-west-2.amazonaws.com/a" ||
		configuration.URI != configuration.Issuer+"/openid/v1/jwks" || len(objects) != 2 {
		t.Errorf("%v: %+v, of %d objects", err, configuration, len(objects))
	}
	// What somebody else has written is replaced.
	account.S3().Set("demo-tokens", "a/openid/v1/jwks", []byte(`{"keys":[]}`))
	if out, err := run("issuer", "publish", "-f", file); err != nil || !strings.Contains(out, "wrote openid/v1/jwks\n") {
		t.Errorf("%v: %s", err, out)
	}
	// The first step of a rotation publishes the new key before it signs anything.
	before := keyNames(t, account.S3().Objects("demo-tokens")["a/openid/v1/jwks"])
	if out, err := run("rotate", "service-account", "--yes", "--cluster", "demo"); err != nil || !strings.Contains(out, "step added") {
		t.Fatalf("%v\n%s", err, out)
	}
	after := keyNames(t, account.S3().Objects("demo-tokens")["a/openid/v1/jwks"])
	if len(before) != 1 || len(after) != 2 || after[0] != before[0] {
		t.Errorf("published before: %v, after: %v", before, after)
	}
}

// TestPKIIssuerOnAWebServer publishes to a directory that a web server has, and takes all steps of a rotation. A step that would sign with
// a key that nobody finds is refused.
func TestPKIIssuerOnAWebServer(t *testing.T) {
	www := t.TempDir()
	served := www
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.FileServer(http.Dir(served)).ServeHTTP(w, r)
	}))
	var err error
	if server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	app := func(t *testing.T, args ...string) (string, error) {
		t.Helper()
		// A process for each, since Go reads once whom it trusts.
		cmd := exec.CommandContext(t.Context(), "hardtack", args...)
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return string(out), err
	}
	file, keys := filepath.Join(dir, "cluster.yaml"), "dir:"+filepath.Join(dir, "store")
	document := func(more string) {
		if err := os.WriteFile(file, []byte("apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\nstore: "+keys+"\n"+more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	document("")
	if _, err := app(t, "pki", "create", "-f", file); err != nil {
		t.Fatal(err)
	}
	if _, err := app(t, "pki", "issuer", "publish", "-f", file); err == nil || !strings.Contains(err.Error(), "nobody outside the cluster") {
		t.Errorf("without an issuer: %v", err)
	}
	document("serviceAccounts: {issuer: " + server.URL + "}\n")
	if _, err := app(t, "pki", "issuer", "publish", "-f", file); err == nil || !strings.Contains(err.Error(), "serviceAccounts.publishTo, or --dir") {
		t.Errorf("without a place: %v", err)
	}
	if _, err := app(t, "pki", "issuer", "check", "-f", file); err == nil || !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("before it is published: %v", err)
	}
	if out, err := app(t, "pki", "issuer", "publish", "-f", file, "--dir", www); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := app(t, "pki", "issuer", "check", "-f", file); err != nil {
		t.Error(err)
	}
	rotate := func(more ...string) (string, error) {
		return app(t, append([]string{"pki", "rotate", "service-account", "--yes", "--cluster", "demo", "--store", keys, "--taken"}, more...)...)
	}
	// The copy of the first step is not brought to the web server: the second is refused, and changes nothing.
	if out, err := rotate(); err != nil || !strings.Contains(out, "step added") {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := rotate(); err == nil || !strings.Contains(err.Error(), "key 2 of 2") || !strings.Contains(err.Error(), "nothing is changed") {
		t.Errorf("a key that is not published: %v", err)
	}
	if out, err := rotate("--status"); err != nil || !strings.Contains(out, "step added") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := app(t, "pki", "issuer", "check", "-f", file); err == nil || !strings.Contains(err.Error(), "is not published") {
		t.Errorf("the check: %v", err)
	}
	// With the place in the document the rotation publishes by itself; but what it writes has to be what is served.
	document("serviceAccounts: {issuer: " + server.URL + ", publishTo: dir:" + www + "}\n")
	if _, err := app(t, "pki", "issuer", "publish", "-f", file); err != nil {
		t.Fatal(err)
	}
	served = t.TempDir()
	if _, err := rotate(); err == nil || !strings.Contains(err.Error(), "404 Not Found") {
		t.Errorf("a server that has something else: %v", err)
	}
	served = www
	for _, step := range []string{"used", "none"} {
		if out, err := rotate(); err != nil || !strings.Contains(out, "step "+step) {
			t.Fatalf("%v\n%s", err, out)
		}
		if _, err := app(t, "pki", "issuer", "check", "-f", file); err != nil {
			t.Errorf("after the step %s: %v", step, err)
		}
	}
	// A server that is gone keeps nobody from the rotation who says so.
	server.Close()
	for _, step := range []string{"added", "used"} {
		if out, err := rotate("--unpublished"); err != nil || !strings.Contains(out, "step "+step) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
