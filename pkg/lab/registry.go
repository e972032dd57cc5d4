package lab

import (
	"context"
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
	"github.com/google/go-containerregistry/pkg/v1/tarball"
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

// Load puts the images of an archive, as docker save and crane pull write them, into the lab's registry, and returns their names.
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
	open := func() (io.ReadCloser, error) { return os.Open(archive) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		return nil, fmt.Errorf("reading the images of %s: %w; next: give an archive as docker save or crane pull write it", archive, err)
	}
	var loaded []string
	for _, d := range manifest {
		for _, tagged := range d.RepoTags {
			tag, err := name.NewTag(tagged)
			if err != nil {
				return loaded, fmt.Errorf("%s: %w", archive, err)
			}
			image, err := tarball.Image(open, &tag)
			if err != nil {
				return loaded, fmt.Errorf("reading %s of %s: %w", tagged, archive, err)
			}
			to, err := name.NewTag(host+"/"+tag.RepositoryStr()+":"+tag.TagStr(), name.Insecure)
			if err != nil {
				return loaded, fmt.Errorf("%s: %w", archive, err)
			}
			if err := remote.Write(to, image, append(options, remote.WithContext(ctx))...); err != nil {
				return loaded, fmt.Errorf("putting %s there: %w", tagged, err)
			}
			loaded = append(loaded, tagged)
		}
	}
	if len(loaded) == 0 {
		return nil, fmt.Errorf("%s has no image with a name; next: save it with its tag", archive)
	}
	return loaded, nil
}

// RegistryMirror is the hosts.toml by which containerd pulls from the lab's registry what names any other: for
// /etc/containerd/certs.d/_default.
func RegistryMirror() string {
	endpoint := fmt.Sprintf("http://%s:%d", subnet.Addr().Next().Next().Next(), registryPort)
	return fmt.Sprintf("server = %q\n\n[host.%[1]q]\ncapabilities = [\"pull\", \"resolve\"]\n", endpoint)
}
