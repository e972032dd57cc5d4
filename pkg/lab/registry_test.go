package lab

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	logins "github.com/hardtack/packer-plugin-hardtack/pkg/pki/registry"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// someRegistry is the registry of a lab that is not started.
func someRegistry(t *testing.T) (Home, http.Handler) {
	t.Helper()
	home, err := NewHome(t.TempDir(), "lab")
	if err == nil {
		err = home.make()
	}
	if err != nil {
		t.Fatal(err)
	}
	images, err := newRegistry(home)
	if err != nil {
		t.Fatal(err)
	}
	return home, images
}

// TestRegistry: what Load has put there, machines pull and cannot replace; another lab has none of it.
func TestRegistry(t *testing.T) {
	home, images := someRegistry(t)
	d := &daemon{Config: Config{Home: home}, registry: images}
	api, err := d.serve()
	if err != nil {
		t.Fatal(err)
	}
	defer api.close()
	image, err := random.Image(1<<10, 2)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.example.org/some/thing:1")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "thing.tar")
	if err := tarball.WriteToFile(archive, tag, image); err != nil {
		t.Fatal(err)
	}
	c := NewClient(home)
	loaded, err := c.Load(t.Context(), archive)
	if err != nil || !slices.Equal(loaded, []string{tag.String()}) {
		t.Fatalf("loaded %v, %v", loaded, err)
	}
	machines := httptest.NewServer(readOnly(images))
	defer machines.Close()
	ref, err := name.NewTag(strings.TrimPrefix(machines.URL, "http://")+"/some/thing:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	have, err := pulled.Digest()
	if want, wrong := image.Digest(); err != nil || wrong != nil || have != want {
		t.Errorf("pulled %v, want %v: %v %v", have, want, err, wrong)
	}
	other, err := random.Image(1<<10, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, other); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusMethodNotAllowed)) {
		t.Errorf("a machine replaced an image: %v", err)
	}
	if _, err := newRegistry(home); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(home.path(registryDir), "*")); err != nil || len(left) > 0 {
		t.Errorf("the last lab's images are left: %v %v", left, err)
	}
}

// TestPrivateRegistry: machines pull with the credentials that the store has at that moment, and with no others; what they pull came from an
// archive of OCI's form.
func TestPrivateRegistry(t *testing.T) {
	_, images := someRegistry(t)
	secrets := store.NewDir(t.TempDir())
	machines := httptest.NewServer(readOnly(private(images, secrets)))
	defer machines.Close()
	host := strings.TrimPrefix(machines.URL, "http://")
	pull := func(user, password string) error {
		ref, err := name.NewTag(host+"/private/thing:1", name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		auth := authn.Anonymous
		if user != "" {
			auth = authn.FromConfig(authn.AuthConfig{Username: user, Password: password})
		}
		_, err = remote.Image(ref, remote.WithAuth(auth))
		return err
	}
	refused := func(err error, why string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "UNAUTHORIZED") || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
	login := func(password string) {
		t.Helper()
		if _, err := logins.Login(t.Context(), secrets, RegistryHost(), pki.RegistryCredentials{Username: "robot", Password: password}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := secrets.Put(t.Context(), pki.PublicInfo, []byte("a store")); err != nil {
		t.Fatal(err)
	}
	refused(pull("robot", "first"), "next: hardtack lab aws hardtack registry login")
	image, err := random.Image(1<<10, 2)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "oci.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(oci.Write(f, image, "registry.example.org/private/thing:1", "1"), f.Close()); err != nil {
		t.Fatal(err)
	}
	local := httptest.NewServer(images)
	defer local.Close()
	loaded, err := Push(t.Context(), archive, strings.TrimPrefix(local.URL, "http://"))
	if err != nil || !slices.Equal(loaded, []string{"registry.example.org/private/thing:1"}) {
		t.Fatalf("loaded %v, %v", loaded, err)
	}
	login("first")
	if err := pull("robot", "first"); err != nil {
		t.Error(err)
	}
	refused(pull("", ""), "not the credentials in the store")
	refused(pull("robot", "second"), "not the credentials in the store")
	login("second")
	refused(pull("robot", "first"), "not the credentials in the store")
	if err := pull("robot", "second"); err != nil {
		t.Error(err)
	}
}

func TestLoadRefuses(t *testing.T) {
	home, err := NewHome(t.TempDir(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	var damaged bytes.Buffer
	if err := oci.WriteProgram(&damaged, oci.Program{Name: "web", Content: []byte("program"), Image: "registry.example.org/web", Tag: "1", Arch: "amd64"}); err != nil {
		t.Fatal(err)
	}
	layout := filepath.Join(t.TempDir(), "damaged.tar")
	if err := os.WriteFile(layout, bytes.Replace(damaged.Bytes(), []byte("rootfs"), []byte("roOtfs"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing.tar")
	for archive, why := range map[string]string{file: file, missing: missing, layout: "has another content than its name says"} {
		if _, err := NewClient(home).Load(context.Background(), archive); err == nil || !strings.Contains(err.Error(), archive) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", archive, err)
		}
	}
}

// TestRegistryMirror: what people copy from the README is the lab's address.
func TestRegistryMirror(t *testing.T) {
	text, err := os.ReadFile("../../cmd/hardtack/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(RegistryMirror()) {
		if !strings.Contains(string(text), strings.TrimSpace(line)) {
			t.Errorf("the README lacks %s", line)
		}
	}
}
