package registry_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/registry"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// asks is a request as a kubelet writes it.
func asks(image string) []byte {
	return []byte(`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"` + image + `"}` + "\n")
}

// newStore is a store that is in use.
func newStore(t *testing.T) *store.Dir {
	t.Helper()
	s := store.NewDir(t.TempDir())
	assert.NilError(t, s.Put(t.Context(), pki.PublicInfo, []byte("here")))
	return s
}

// TestAnswer: an image of a registry gets the credentials of its mirror, which the store has at that moment.
func TestAnswer(t *testing.T) {
	s := newStore(t)
	sources, err := pki.ParseRegistrySources([]string{"docker.io=mirror.example.org:5000", "registry.example.org:443"})
	assert.NilError(t, err)
	for _, password := range []string{"first", "second"} {
		_, err := registry.Login(t.Context(), s, "mirror.example.org:5000", pki.RegistryCredentials{Username: "robot", Password: password}, false)
		assert.NilError(t, err)
		asked, err := registry.ParseRequest(asks("docker.io/library/busybox"), sources)
		assert.NilError(t, err)
		data, err := registry.Answer(t.Context(), s, asked, "demo")
		assert.NilError(t, err)
		// The fields of upstream's type, and no others: the kubelet decodes strictly.
		var got struct {
			APIVersion    string `json:"apiVersion"`
			Kind          string `json:"kind"`
			CacheKeyType  string `json:"cacheKeyType"`
			CacheDuration string `json:"cacheDuration"`
			Auth          map[string]struct {
				Username string `json:"username"`
				Password string `json:"password"`
			} `json:"auth"`
		}
		read := json.NewDecoder(strings.NewReader(string(data)))
		read.DisallowUnknownFields()
		assert.NilError(t, read.Decode(&got))
		assert.Equal(t, got.APIVersion+" "+got.Kind+" "+got.CacheKeyType, "credentialprovider.kubelet.k8s.io/v1 CredentialProviderResponse Registry")
		kept, err := time.ParseDuration(got.CacheDuration)
		assert.NilError(t, err)
		assert.Assert(t, kept > 0 && kept <= 5*time.Minute, "%v", kept)
		assert.Equal(t, len(got.Auth), 1)
		assert.Equal(t, got.Auth["docker.io"].Username+" "+got.Auth["docker.io"].Password, "robot "+password)
	}
}

// TestAnswerFails: why there are no credentials, and what is to be done; never the credentials.
func TestAnswerFails(t *testing.T) {
	sources, err := pki.ParseRegistrySources([]string{"docker.io=mirror.example.org", "quay.io"})
	assert.NilError(t, err)
	for _, text := range []string{"", "{}", `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v2","image":"docker.io/x"}`} {
		_, err := registry.ParseRequest([]byte(text), sources)
		assert.ErrorContains(t, err, "the kubelet's request")
	}
	for _, image := range []string{"mirror.example.org/x", "docker.io.example.org/x", "docker.io:443/x", ""} {
		_, err := registry.ParseRequest(asks(image), sources)
		assert.ErrorContains(t, err, "is of no registry whose credentials this machine may have; next: ")
	}
	s := store.NewDir(t.TempDir())
	asked, err := registry.ParseRequest(asks("docker.io/x"), sources)
	assert.NilError(t, err)
	_, err = registry.Answer(t.Context(), s, asked, "demo")
	assert.ErrorIs(t, err, pki.ErrUnreachable)
	assert.ErrorContains(t, err, "next: the kubelet asks again at the next pull")
	assert.NilError(t, s.Put(t.Context(), pki.PublicInfo, []byte("here")))
	_, err = registry.Answer(t.Context(), s, asked, "demo")
	assert.ErrorIs(t, err, pki.ErrNotFound)
	assert.ErrorContains(t, err, "next: hardtack registry login --cluster demo mirror.example.org")
	assert.NilError(t, s.Put(t.Context(), pki.RegistryObject("mirror.example.org"), []byte("Secret")))
	_, err = registry.Answer(t.Context(), s, asked, "demo")
	assert.ErrorContains(t, err, "next: hardtack registry login --cluster demo mirror.example.org")
	assert.Assert(t, !strings.Contains(err.Error(), "Secret"), "%v", err)
}

// TestList: every registry of the store and of the document is there once, with what is to be done about it.
func TestList(t *testing.T) {
	s := newStore(t)
	for _, host := range []string{"b.example.org:5000", "a.example.org"} {
		_, err := registry.Login(t.Context(), s, host, pki.RegistryCredentials{Username: "of " + host[:1], Password: "x"}, false)
		assert.NilError(t, err)
	}
	assert.NilError(t, s.Put(t.Context(), pki.RegistryObject("d.example.org"), []byte("{}")))
	items, err := registry.List(t.Context(), s, []string{"a.example.org", "c.example.org"}, true)
	assert.NilError(t, err)
	assert.DeepEqual(t, items, []registry.Item{
		{Registry: "a.example.org", Username: "of a", State: registry.Kept},
		{Registry: "b.example.org:5000", Username: "of b", State: registry.Unused},
		{Registry: "c.example.org", State: registry.Missing},
		{Registry: "d.example.org", State: registry.Broken, Problem: "the credentials have no user"},
	})
}
