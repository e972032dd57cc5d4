package pki_test

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestRegistryObjects: every host has an object of its own, by a name that Parameter Store takes.
func TestRegistryObjects(t *testing.T) {
	for host, want := range map[string]string{
		"docker.io":                 "minions/registries/docker.io",
		"registry.example.org:5000": "minions/registries/registry.example.org_5000",
		"10.0.0.3:5000":             "minions/registries/10.0.0.3_5000",
	} {
		object := pki.RegistryObject(host)
		if object != want || pki.RegistryOf(object) != host {
			t.Errorf("%s is at %s, which is of %s", host, object, pki.RegistryOf(object))
		}
	}
}

// TestRegistryCredentials: what is written is read, and no error has the password.
func TestRegistryCredentials(t *testing.T) {
	for _, want := range []pki.RegistryCredentials{{"robot", "p<&>\"ß"}, {"_json_key", "{\n  \"private_key\": \"x\\n\"\n}"}} {
		data, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := pki.ParseRegistryCredentials(data); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v", data, got, err)
		}
	}
	for _, wrong := range []pki.RegistryCredentials{
		{"", "Secret"}, {"a:b", "Secret"}, {"a\n", "Secret"}, {"a\x7f", "Secret"}, {"a", ""}, {"a", "Secret\x00"}, {"a", "Secret\x7f"},
		{"a\xff", "Secret"}, {"a", "Secret\xe4"},
		{"a", strings.Repeat("Secret", 700)},
	} {
		if data, err := wrong.Encode(); err == nil || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%q: %v", data, err)
		}
	}
	for _, text := range []string{"", "Secret", `{"username":"a"}`, `{"password":"Secret"}`, `{"username":"a","password":["Secret"]}`} {
		if c, err := pki.ParseRegistryCredentials([]byte(text)); err == nil || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s is read as %v, %v", text, c, err)
		}
	}
}

// TestLengthOfCredentials: a standard parameter of Parameter Store takes 4096 characters, and none of them is wasted on escaping what
// only HTML would need escaped.
func TestLengthOfCredentials(t *testing.T) {
	const rest = len(`{"username":"a","password":""}` + "\n")
	for length, want := range map[int]bool{4096 - rest: true, 4096 - rest + 1: false} {
		data, err := pki.RegistryCredentials{Username: "a", Password: strings.Repeat("&", length)}.Encode()
		if (err == nil) != want || want && len(data) != 4096 {
			t.Errorf("a password of %d characters: %d bytes, %v", length, len(data), err)
		}
	}
}

// TestRegistrySources: an argument is read as it was written, and nothing else is.
func TestRegistrySources(t *testing.T) {
	sources, err := pki.ParseRegistrySources([]string{pki.RegistrySource("docker.io", "mirror.example.org:5000"), pki.RegistrySource("quay.io", "quay.io")})
	if err != nil || len(sources) != 2 || sources["docker.io"] != "mirror.example.org:5000" || sources["quay.io"] != "quay.io" {
		t.Errorf("read as %v, %v", sources, err)
	}
	if arg := pki.RegistrySource("quay.io", "quay.io"); arg != "quay.io" {
		t.Errorf("a registry with credentials of its own is %s", arg)
	}
	for _, args := range [][]string{{""}, {"=a"}, {"a="}, {"a/b"}, {"a=../b"}, {"a", "a=b"}} {
		if sources, err := pki.ParseRegistrySources(args); err == nil {
			t.Errorf("%q is read as %v", args, sources)
		}
	}
}
