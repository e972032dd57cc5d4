package spec

import (
	"fmt"
	"net/url"
	"path"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	// providersDocument says whom the kubelet asks for the credentials of images.
	providersDocument = "/etc/kubernetes/credential-providers.yaml"
	// providersFlag is the kubelet's flag with its path.
	providersFlag = "image-credential-provider-config"
	// provider is the image's program that the kubelet runs for the credentials in the store.
	provider = "hardtack-credentials"
)

// RegistriesWithCredentials are the hosts of the registries whose credentials the store has.
func (c *Complete) RegistriesWithCredentials() (hosts []string) {
	for _, r := range c.Cluster.Registries {
		if r.Credentials {
			hosts = append(hosts, r.Name)
		}
	}
	return hosts
}

// registryCredentials checks whom machines would give the credentials of registries, and completes the kubelet's document. containerd gets one
// user and password for an image, and gives them to every host that it asks for the image and that wants any, mirrors too: so an image has
// credentials for one host alone.
func (f *completer) registryCredentials() {
	has := map[string]bool{}
	for _, host := range f.out.RegistriesWithCredentials() {
		has[host] = true
	}
	var images, args []any
	for i, r := range f.out.Cluster.Registries {
		field := at("registries", i)
		if has[r.Name] && r.Name == anyRegistry {
			f.hint(field+".credentials", "write an entry for each registry", "nobody has the credentials of every registry")
			continue
		}
		host := f.whose(field, r, has)
		if host == "" {
			continue
		}
		if r.Name == anyRegistry {
			f.hint(field+".mirrors", "give each registry its mirrors by its name", "the kubelet asks for credentials by the names of registries, and %s has some", host)
			continue
		}
		images, args = append(images, r.Name), append(args, pki.RegistrySource(r.Name, host))
	}
	if len(images) > 0 {
		f.credentialProviders(images, append([]any{"credentials"}, args...))
	}
}

// whose is the host whose credentials a pull from the registry needs, "" for none.
func (f *completer) whose(field string, r Registry, has map[string]bool) (host string) {
	var mirrors []string
	for _, m := range r.Mirrors {
		u, err := url.Parse(m)
		if err != nil {
			return "" // it is refused already
		}
		mirrors = append(mirrors, u.Host)
		if has[u.Host] && host == "" {
			host = u.Host
		}
		if has[u.Host] && u.Scheme == "http" {
			f.warn(field+".credentials", "give the mirror a certificate: registries takes its authority", "%s: whoever is on the way can read the password", m)
		}
	}
	switch {
	case host != "":
		for j, m := range mirrors {
			if m != host {
				f.hint(at(field+".mirrors", j), "keep the mirrors of one host", "%s would get the credentials of %s", m, host)
			}
		}
		if !r.MirrorsOnly && r.Name != host {
			f.hint(field+".mirrorsOnly", "set it to true", "%s itself would get the credentials of its mirror %s, and refuse the pull", r.Name, host)
		}
		return host
	case has[r.Name] && !r.MirrorsOnly:
		for j, m := range mirrors {
			f.warn(at(field+".mirrors", j), "", "%s gets the credentials of %s if it asks for any", m, r.Name)
		}
		return r.Name
	}
	return ""
}

// credentialProviders adds Hardtack's to the image's document of the kubelet's credential providers.
func (f *completer) credentialProviders(images, args []any) {
	const field = "registries"
	document, err := f.image.document(providersDocument)
	if err != nil {
		f.errorf(field, "reading the image's %s: %v", providersDocument, err)
		return
	}
	providers, ok := document["providers"].([]any)
	if !ok {
		f.errorf(field, "the image's %s has no list of providers", providersDocument)
		return
	}
	document["providers"] = append(providers, map[string]any{
		"name": provider, "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": images, "args": args,
		"defaultCacheDuration": "0s", // the program says for how long
	})
	f.out.providers = document
	if given, ok := f.in.Kubelet.Flags[providersFlag]; ok && given != providersDocument {
		f.hint("kubelet.flags."+providersFlag, "leave the flag or credentials out", "the kubelet would not read %s, which registries[].credentials writes", providersDocument)
	}
	for i, a := range f.in.FileAssets {
		if path.Clean(a.Path) == providersDocument {
			f.hint(at("fileAssets", i)+".path", "leave credentials of registries out, and name the providers in the file", "%s is written by registries[].credentials", providersDocument)
		}
	}
	if !inCloud(f.out.Cluster.Store) {
		f.warn(field, "mount it there", "machines of role %s read the credentials of registries in their store %s", role.Minions, f.out.Cluster.Store)
	}
}

// credentialProviders is the kubelet's document of credential providers on a group's machines, where it is not the image's.
func (c *Complete) credentialProviders() ([]File, error) {
	if c.providers == nil {
		return nil, nil
	}
	data, err := encodeDocument(providersDocument, c.providers)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", providersDocument, err)
	}
	return []File{{Path: providersDocument, Content: data}}, nil
}
