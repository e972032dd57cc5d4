package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	registrycredentials "github.com/hardtack/packer-plugin-hardtack/pkg/pki/registry"
)

// registryPort is the port of the lab's registry, at the address of the AWS APIs. It speaks HTTP: nothing leaves this computer.
const registryPort = 5000

// newRegistry makes the registry from which a lab's machines can pull container images, since nothing outside can be reached. It
// is empty until Client.Load; what it has is gone with the lab.
func newRegistry(h Home) (http.Handler, error) {
	dir := h.path(registryDir)
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("removing the container images of the last lab: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for container images: %w", err)
	}
	return registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)), registry.Logger(log.New(io.Discard, "", 0))), nil
}

// readOnly is the registry for machines: a pod must not give the others their images.
func readOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "the lab's registry is for reading", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Load puts the images of an archive, as docker save, crane pull and OCI's tools write them, into the lab's registry, and returns their names.
// Machines find them there whatever registry the name begins with, where containerd takes the lab's as its mirror.
func (c *Client) Load(ctx context.Context, archive string) ([]string, error) {
	// The host is no name of a machine: the client's connections all go to the lab's socket.
	loaded, err := Push(ctx, archive, "lab.invalid", remote.WithTransport(c.http.Transport))
	if unreached, ok := errors.AsType[*url.Error](err); ok {
		return loaded, fmt.Errorf("putting images into the registry of the lab %s: %w", c.home.Name, notRunning(unreached))
	}
	return loaded, err
}

// Push puts the images of an archive into the registry of a host, each below the name that it has below its own, and returns
// their names: those that are there, where there is an error.
func Push(ctx context.Context, archive, host string, options ...remote.Option) ([]string, error) {
	images, done, err := readArchive(archive)
	if err != nil {
		return nil, err
	}
	defer done()
	var loaded []string
	for _, i := range images {
		to, err := name.NewTag(host+"/"+i.tag.RepositoryStr()+":"+i.tag.TagStr(), name.Insecure)
		if err != nil {
			return loaded, fmt.Errorf("%s: %w", archive, err)
		}
		if err := remote.Push(to, i.content, append(options, remote.WithContext(ctx))...); err != nil {
			return loaded, fmt.Errorf("putting %s there: %w", i.tag, err)
		}
		loaded = append(loaded, i.tag.String())
	}
	if len(loaded) == 0 {
		return nil, fmt.Errorf("%s has no image with a name; next: save it with its tag", archive)
	}
	return loaded, nil
}

// RegistryHost is the lab's registry as machines reach it.
func RegistryHost() string {
	return fmt.Sprintf("%s:%d", subnet.Addr().Next().Next().Next(), registryPort)
}

// private has a registry ask for the credentials that the cluster's store has of it, by HTTP's basic authentication, as registries at home do.
func private(h http.Handler, secrets registrycredentials.Reader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := secrets.Get(r.Context(), pki.RegistryObject(RegistryHost()))
		want := pki.RegistryCredentials{}
		if err == nil {
			want, err = pki.ParseRegistryCredentials(content)
		}
		why := "these are not the credentials in the store " + secrets.String()
		if err != nil {
			why = fmt.Sprintf("%v; next: hardtack lab aws hardtack registry login %s", err, RegistryHost())
		}
		if user, password, _ := r.BasicAuth(); err != nil || user != want.Username || password != want.Password {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": "UNAUTHORIZED", "message": why}}}) // the client is gone
			return
		}
		h.ServeHTTP(w, r)
	})
}

// RegistryMirror is the hosts.toml by which containerd pulls from the lab's registry what names any other: for
// /etc/containerd/certs.d/_default.
func RegistryMirror() string {
	endpoint := "http://" + RegistryHost()
	return fmt.Sprintf("server = %q\n\n[host.%[1]q]\ncapabilities = [\"pull\", \"resolve\"]\n", endpoint)
}
