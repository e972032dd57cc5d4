package spec

import (
	"bytes"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Registry is how machines pull the images of one registry.
type Registry struct {
	// Name is the registry's host as images name it, with its port if it has one: docker.io, registry.example.org:5000. It is also the host of a
	// mirror whose certificate's authority CA is. "*" is every registry that is not named.
	Name string `yaml:"name"`
	// Mirrors are the URLs of the mirrors, which are asked in this order before the registry itself. A path is that of the mirror's API, and begins
	// with /v2.
	Mirrors []string `yaml:"mirrors"`
	// MirrorsOnly is whether the registry itself is not asked, also where no mirror has an image.
	MirrorsOnly bool `yaml:"mirrorsOnly"`
	// CA is the certificate of the authority of the registry's own certificate, in PEM, if it is none that every machine trusts.
	CA string `yaml:"ca"`
	// Credentials are whether the registry has a user and a password, or a token, which hardtack registry login puts into the cluster's store.
	// Kubelets ask for them there when they pull: they are never in the document or in user data.
	Credentials bool `yaml:"credentials"`
}

const (
	// registriesDir is config_path of the image's containerd.
	registriesDir = "/etc/containerd/certs.d"
	// anyRegistry stands for every other registry in a document, and its directory for containerd.
	anyRegistry, anyRegistryDir = "*", "_default"
)

// registries completes and checks how images are pulled.
func (f *completer) registries() {
	out := []Registry{}
	seen := map[string]string{}
	for i, r := range f.in.Registries {
		field := at("registries", i)
		f.out.Origins[field+".name"] = Origin{Kind: User}
		switch {
		case r.Name == "":
			f.errorf(field+".name", "is missing")
		case r.Name != anyRegistry && !IsRegistry(r.Name):
			f.hint(field+".name", "write the host alone, as in registry.example.org:5000", "%q is not the host of a registry", r.Name)
		case seen[r.Name] != "":
			f.errorf(field+".name", "registry %s is already at %s", r.Name, seen[r.Name])
		}
		seen[r.Name] = field
		for j, m := range r.Mirrors {
			f.mirror(at(field+".mirrors", j), m, r.Mirrors[:j])
		}
		r.Mirrors = listOrDefault(f, field+".mirrors", r.Mirrors, nil, byHardtack)
		r.MirrorsOnly = orDefault(f, field+".mirrorsOnly", r.MirrorsOnly, false, byHardtack)
		r.CA = orDefault(f, field+".ca", r.CA, "", byHardtack)
		r.Credentials = orDefault(f, field+".credentials", r.Credentials, false, byHardtack)
		switch {
		case r.CA != "" && r.Name == anyRegistry:
			f.hint(field+".ca", "write it to machines.trustAnchors", "an authority for every registry is one that machines trust")
		case r.CA != "":
			f.certificates(field+".ca", r.CA)
		case len(r.Mirrors) == 0 && !r.Credentials:
			f.hint(field, "give it mirrors, a ca or credentials: true", "says nothing of the registry")
		}
		if r.MirrorsOnly && len(r.Mirrors) == 0 {
			f.errorf(field+".mirrorsOnly", "there is no mirror, and so no image")
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		f.out.Origins["registries"] = byHardtack
	}
	f.out.Cluster.Registries = out
	f.registryCredentials()
}

// IsRegistry reports whether text is the host of a registry as images name it: a name or an IPv4 address, and a port.
func IsRegistry(text string) bool {
	host, port, hasPort := strings.Cut(text, ":")
	if n, err := strconv.Atoi(port); hasPort && (err != nil || n < 1 || n > 65535) {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err == nil || domainForm.MatchString(host)
}

func (f *completer) mirror(field, text string, before []string) {
	const form = "write it as in https://mirror.example.org, or with the root of its API, https://mirror.example.org/v2/docker-hub"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || !IsRegistry(u.Host) || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "":
		f.hint(field, form, "%q is not the URL of a mirror", text)
	case u.User != nil:
		f.hint(field, "give registries an entry with the mirror's host and credentials: true", "has a user, and user data is no place for a secret")
	case u.Path != "" && u.Path != "/" && u.Path != "/v2" && !strings.HasPrefix(u.Path, "/v2/"):
		f.hint(field, form, "the path of %q does not begin with /v2", text)
	case slices.Contains(before, text):
		f.errorf(field, "%s is there twice", text)
	case u.Scheme == "http":
		f.warn(field, "give the mirror a certificate: registries takes its authority", "%s: whoever is on the way can change images that have no digest", text)
	}
}

// hostConfig is containerd's configuration of one host (hosts.toml, docs/hosts.md of containerd).
type hostConfig struct {
	Capabilities []string `toml:"capabilities,omitempty"`
	CA           string   `toml:"ca,omitempty"`
	// OverridePath: the URL's path is the root of the API.
	OverridePath bool `toml:"override_path,omitempty"`
}

// registryFiles are the files of the registries on a group's machines: containerd reads them at every pull.
func (c *Complete) registryFiles(g Group) ([]File, error) {
	if !g.Roles.Has(role.Minions) {
		return nil, nil
	}
	var files []File
	for _, r := range c.Cluster.Registries {
		if len(r.Mirrors) == 0 && r.CA == "" {
			continue // it has credentials alone, which the kubelet gets
		}
		text, err := r.hosts(c.Cluster.Registries)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", path.Join(r.dir(), "hosts.toml"), err)
		}
		files = append(files, File{Path: path.Join(r.dir(), "hosts.toml"), Content: text})
		if r.CA != "" {
			files = append(files, File{Path: r.caFile(), Content: []byte(r.CA)})
		}
	}
	providers, err := c.credentialProviders()
	return append(files, providers...), err
}

func (r Registry) dir() string {
	if r.Name == anyRegistry {
		return path.Join(registriesDir, anyRegistryDir)
	}
	return path.Join(registriesDir, r.Name)
}

// caFile is where the registry's authority is, "" if it has none of its own.
func (r Registry) caFile() string {
	if r.CA == "" {
		return ""
	}
	return path.Join(r.dir(), "ca.crt")
}

// hosts is the registry's hosts.toml. The table without a name is the host that is asked last: the registry itself, or the last mirror. The tables
// of the mirrors are written one by one, since their order in the file is that in which they are asked.
func (r Registry) hosts(all []Registry) ([]byte, error) {
	last := struct {
		Server string `toml:"server,omitempty"`
		hostConfig
	}{hostConfig: hostConfig{CA: r.caFile()}}
	mirrors := r.Mirrors
	if r.MirrorsOnly {
		last.Server = mirrors[len(mirrors)-1]
		last.hostConfig, mirrors = mirrorConfig(last.Server, all), mirrors[:len(mirrors)-1]
	}
	out, err := toml.Marshal(last)
	if err != nil {
		return nil, err
	}
	for _, m := range mirrors {
		table, err := toml.Marshal(map[string]map[string]hostConfig{"host": {m: mirrorConfig(m, all)}})
		if err != nil {
			return nil, err
		}
		out = append(out, bytes.TrimPrefix(table, []byte("[host]\n"))...) // a table is there once
	}
	return out, nil
}

// mirrorConfig is the configuration of a mirror, whose authority is that of the registry with its host.
func mirrorConfig(text string, all []Registry) hostConfig {
	h := hostConfig{Capabilities: []string{"pull", "resolve"}}
	u, err := url.Parse(text)
	if err != nil {
		return h // Complete has refused it
	}
	h.OverridePath = strings.HasPrefix(u.Path, "/v2/")
	for _, r := range all {
		if r.Name == u.Host {
			h.CA = r.caFile()
		}
	}
	return h
}
