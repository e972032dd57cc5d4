package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// The kubelet's protocol (CredentialProviderRequest and CredentialProviderResponse, k8s.io/kubelet/pkg/apis/credentialprovider/v1): it runs a
// program with a request as its standard input, and reads the response.
const (
	// APIVersion is that of requests and responses.
	APIVersion   = "credentialprovider.kubelet.k8s.io/v1"
	requestKind  = "CredentialProviderRequest"
	responseKind = "CredentialProviderResponse"
	// cacheByRegistry has the kubelet keep a response for all images of the registry.
	cacheByRegistry = "Registry"
)

// CacheDuration is for how long a kubelet does not ask again: new credentials are taken after that at the latest. It is as long as the longest
// time between two pulls of an image that cannot be pulled; and all machines of a cluster share Parameter Store's rate.
const CacheDuration = 5 * time.Minute

type request struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Image      string `json:"image"`
}

type response struct {
	APIVersion    string                             `json:"apiVersion"`
	Kind          string                             `json:"kind"`
	CacheKeyType  string                             `json:"cacheKeyType"`
	CacheDuration string                             `json:"cacheDuration"`
	Auth          map[string]pki.RegistryCredentials `json:"auth"`
}

// Asked is whose credentials a kubelet asks for.
type Asked struct {
	// Registry is that of the image, and Host the one that takes the credentials: the same, or the registry's mirror.
	Registry, Host string
}

// ParseRequest reads a kubelet's request, and finds the registry of its image.
func ParseRequest(data []byte, sources pki.RegistrySources) (Asked, error) {
	var r request
	if err := json.Unmarshal(data, &r); err != nil {
		return Asked{}, fmt.Errorf("reading the kubelet's request: %w", err)
	}
	if r.APIVersion != APIVersion || r.Kind != requestKind {
		return Asked{}, fmt.Errorf("the kubelet's request is %s of %s, and %s of %s is known", r.Kind, r.APIVersion, requestKind, APIVersion)
	}
	registry, _, _ := strings.Cut(r.Image, "/")
	host, ok := sources[registry]
	if !ok {
		return Asked{}, fmt.Errorf("image %q is of no registry whose credentials this machine may have; next: add credentials: true to its registry in the cluster's document", r.Image)
	}
	return Asked{Registry: registry, Host: host}, nil
}

// Answer is the response to a kubelet: the credentials that the store has now. cluster is for the next step of an error, which the kubelet logs.
func Answer(ctx context.Context, s Reader, asked Asked, cluster string) ([]byte, error) {
	content, err := s.Get(ctx, pki.RegistryObject(asked.Host))
	if err != nil {
		return nil, fmt.Errorf("credentials of registry %s: %w; next: %s", asked.Host, err, next(err, cluster, asked.Host))
	}
	c, err := pki.ParseRegistryCredentials(content)
	if err != nil {
		return nil, fmt.Errorf("credentials of registry %s in %s: %w; next: hardtack registry login --cluster %s %s", asked.Host, s, err, cluster, asked.Host)
	}
	return json.Marshal(response{APIVersion: APIVersion, Kind: responseKind, CacheKeyType: cacheByRegistry, CacheDuration: CacheDuration.String(),
		Auth: map[string]pki.RegistryCredentials{asked.Registry: c}})
}

func next(err error, cluster, host string) string {
	switch {
	case errors.Is(err, pki.ErrNotFound):
		return fmt.Sprintf("hardtack registry login --cluster %s %s", cluster, host)
	case errors.Is(err, pki.ErrForbidden):
		return "hardtack stack apply lets the machines of role minions read them"
	}
	return "the kubelet asks again at the next pull"
}
