package spec_test

import (
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestRegistries: what containerd reads at a pull, with the mirrors in the order of the document.
func TestRegistries(t *testing.T) {
	ca := anchor(t)
	files := groupFiles(t, `registries:
- {name: docker.io, mirrors: ["https://mirror.example.org:5000/v2/hub", "http://cache"]}
- {name: quay.io, mirrors: ["https://other.example.org", "https://mirror.example.org:5000"], mirrorsOnly: true}
- {name: "*", mirrors: ["https://other.example.org"]}
- {name: "mirror.example.org:5000", ca: `+ca+`}
`, "minions")
	const dir = "/etc/containerd/certs.d/"
	const own = dir + "mirror.example.org:5000/ca.crt"
	for name, want := range map[string]string{
		"docker.io": "[host.'https://mirror.example.org:5000/v2/hub']\ncapabilities = ['pull', 'resolve']\nca = '" + own + "'\noverride_path = true\n" +
			"[host.'http://cache']\ncapabilities = ['pull', 'resolve']\n",
		"_default": "[host.'https://other.example.org']\ncapabilities = ['pull', 'resolve']\n",
		"quay.io": "server = 'https://mirror.example.org:5000'\ncapabilities = ['pull', 'resolve']\nca = '" + own + "'\n" +
			"[host.'https://other.example.org']\ncapabilities = ['pull', 'resolve']\n",
		"mirror.example.org:5000": "ca = '" + own + "'\n",
	} {
		text := files[dir+name+"/hosts.toml"]
		var read map[string]any
		assert.NilError(t, toml.Unmarshal([]byte(text), &read), text)
		assert.Equal(t, strings.TrimSpace(text), strings.TrimSpace(want), name)
	}
	assert.Assert(t, strings.HasPrefix(files[own], "-----BEGIN CERTIFICATE-----\n"), files[own])
	for name := range groupFiles(t, "registries: [{name: a.example.org, mirrors: ['https://b']}]\n", "masters") {
		assert.Assert(t, !strings.HasPrefix(name, dir), name)
	}
}

// TestRegistryFaults: a registry that containerd would not find, or would ask in vain, is refused.
func TestRegistryFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{mirrors: ['https://m']}":                                    `4: registries[0].name: is missing`,
		"{name: 'https://docker.io', mirrors: ['https://m']}":         `4: registries[0].name: "https://docker.io" is not the host of a registry (write the host alone`,
		"{name: docker.io/library, mirrors: ['https://m']}":           `4: registries[0].name: "docker.io/library" is not the host of a registry`,
		"{name: docker.io}":                                           `4: registries[0]: says nothing of the registry (give it mirrors, a ca or credentials: true)`,
		"{name: docker.io, mirrors: [mirror.example.org]}":            `4: registries[0].mirrors[0]: "mirror.example.org" is not the URL of a mirror`,
		"{name: docker.io, mirrors: ['https://m/hub']}":               `4: registries[0].mirrors[0]: the path of "https://m/hub" does not begin with /v2`,
		"{name: docker.io, mirrors: ['https://u:pass@m']}":            `4: registries[0].mirrors[0]: has a user, and user data is no place for a secret`,
		"{name: docker.io, mirrors: ['https://m', 'https://m']}":      `4: registries[0].mirrors[1]: https://m is there twice`,
		"{name: docker.io, mirrors: ['http://m']}":                    `4: registries[0].mirrors[0]: warning: http://m: whoever is on the way can change images`,
		"{name: docker.io, mirrorsOnly: true, ca: " + anchor(t) + "}": `4: registries[0].mirrorsOnly: there is no mirror, and so no image`,
		"{name: '*', ca: " + anchor(t) + "}":                          `4: registries[0].ca: an authority for every registry is one that machines trust (write it to machines.trustAnchors)`,
		"{name: a.org, ca: nothing}":                                  `4: registries[0].ca: has text that is no certificate`,
	} {
		oneFault(t, "registries: ["+text+"]\n", want)
	}
	oneFault(t, "registries: [{name: a.org, mirrors: ['https://m']}, {name: a.org, mirrors: ['https://n']}]\n", "4: registries[1].name: registry a.org is already at registries[0]")
}

// TestRegistryCredentials: the kubelet asks for what the document says, beside what the image has it ask for, and nothing of it is for containerd.
func TestRegistryCredentials(t *testing.T) {
	const name = "/etc/kubernetes/credential-providers.yaml"
	const text = `registries:
- {name: "registry.example.org:5000", credentials: true}
- {name: docker.io, mirrors: ["https://mirror.example.org/v2/hub", "https://mirror.example.org"], mirrorsOnly: true}
- {name: mirror.example.org, credentials: true}
- {name: quay.io, mirrors: ["https://cache.example.org"]}
`
	files := groupFiles(t, text, "minions")
	var document struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Providers  []struct {
			Name                 string
			APIVersion           string   `yaml:"apiVersion"`
			DefaultCacheDuration string   `yaml:"defaultCacheDuration"`
			MatchImages          []string `yaml:"matchImages"`
			Args                 []string
		}
	}
	read := yaml.NewDecoder(strings.NewReader(files[name]))
	read.KnownFields(true) // the kubelet takes no others
	assert.NilError(t, read.Decode(&document), files[name])
	assert.Equal(t, document.Kind, "CredentialProviderConfig")
	assert.Equal(t, len(document.Providers), 2)
	assert.Equal(t, document.Providers[0].Name, "ecr-credential-provider")
	own := document.Providers[1]
	assert.Equal(t, own.Name, "hardtack-credentials")
	assert.DeepEqual(t, own.MatchImages, []string{"registry.example.org:5000", "docker.io", "mirror.example.org"})
	assert.DeepEqual(t, own.Args, []string{"credentials", "registry.example.org:5000", "docker.io=mirror.example.org", "mirror.example.org"})
	sources, err := pki.ParseRegistrySources(own.Args[1:])
	assert.NilError(t, err)
	assert.Equal(t, sources["docker.io"], "mirror.example.org")
	_, err = images.FS.Open("rootfs/usr/lib/hardtack/credential-providers/" + own.Name)
	assert.NilError(t, err)
	for _, host := range []string{"registry.example.org:5000", "mirror.example.org"} {
		_, there := files["/etc/containerd/certs.d/"+host+"/hosts.toml"]
		assert.Assert(t, !there, host)
	}
	for text, group := range map[string]string{text: "masters", "registries: [{name: a.org, mirrors: ['https://b']}]\n": "minions"} {
		_, there := groupFiles(t, text, group)[name]
		assert.Assert(t, !there, group)
	}
}

// TestRegistryCredentialFaults: no host is given the password of another, and nothing is asked in vain.
func TestRegistryCredentialFaults(t *testing.T) {
	const mirror = "{name: m, credentials: true}"
	for text, want := range map[string]string{
		"registries: [{name: '*', credentials: true}]":                                                       `registries[0].credentials: nobody has the credentials of every registry (write an entry for each`,
		"registries: [{name: docker.io, mirrors: ['https://m']}, " + mirror + "]":                            `registries[0].mirrorsOnly: docker.io itself would get the credentials of its mirror m, and refuse the pull (set it to true)`,
		"registries: [{name: d.io, mirrors: ['https://m', 'https://n'], mirrorsOnly: true}, " + mirror + "]": `registries[0].mirrors[1]: n would get the credentials of m (keep the mirrors of one host)`,
		"registries: [{name: '*', mirrors: ['https://m'], mirrorsOnly: true}, " + mirror + "]":               `registries[0].mirrors: the kubelet asks for credentials by the names of registries, and m has some (give each`,
		"registries: [{name: a.org, credentials: true, mirrors: ['https://m']}]":                             `registries[0].mirrors[0]: warning: m gets the credentials of a.org if it asks for any`,
		"registries: [" + mirror + "]\nstore: dir:/srv":                                                      `registries: warning: machines of role minions read the credentials of registries in their store dir:/srv (mount it there)`,
		"registries: [" + mirror + "]\nfileAssets: [{path: /etc/kubernetes/credential-providers.yaml}]":      `fileAssets[0].path: /etc/kubernetes/credential-providers.yaml is written by registries[].credentials`,
		"registries: [" + mirror + "]\nkubelet: {flags: {image-credential-provider-config: /etc/x}}":         `kubelet.flags.image-credential-provider-config: the kubelet would not read`,
	} {
		found := findings(t, machinesHead+text+"\n")
		assert.Equal(t, len(found), 1, "%s\n%v", text, found)
		assert.Assert(t, strings.Contains(found[0].String(), ": "+want), "%s\nwant %s", found[0], want)
	}
}

// TestNonMasquerade: the rules are loaded on minions, for the ranges that the document names.
func TestNonMasquerade(t *testing.T) {
	const file = "/etc/hardtack/masquerade.nft"
	const text = "network: {podCIDR: 100.64.0.0/14, nonMasqueradeCIDRs: [10.0.0.0/12, 192.168.7.0/24]}\n"
	files := groupFiles(t, text, "minions")
	assert.Assert(t, strings.Contains(files[file], "ip saddr 100.64.0.0/14 ip daddr { 10.0.0.0/12, 192.168.7.0/24 } meta mark & 0x4000 == 0 snat to ip saddr\n"), files[file])
	assert.Assert(t, strings.Contains(files[optionsUnit], "ExecStart=/usr/sbin/nft --file "+file+"\n"), files[optionsUnit])
	assert.Equal(t, groupFiles(t, text, "masters")[file], "")
	for text, want := range map[string]string{
		"[10.0.0.1/8]":               `4: network.nonMasqueradeCIDRs[0]: 10.0.0.1/8 has bits set behind its mask (write 10.0.0.0/8)`,
		"['fd00::/8']":               `4: network.nonMasqueradeCIDRs[0]: "fd00::/8" is a range of IPv6 addresses`,
		"[all]":                      `4: network.nonMasqueradeCIDRs[0]: "all" is not a range of IPv4 addresses`,
		"[10.0.0.0/12, 10.1.0.0/16]": `4: network.nonMasqueradeCIDRs[1]: 10.1.0.0/16 overlaps 10.0.0.0/12 (leave the smaller one out)`,
		"[10.245.0.0/16]":            `4: network.nonMasqueradeCIDRs[0]: 10.245.0.0/16 is of pods`,
		"[0.0.0.0/0]":                `4: network.nonMasqueradeCIDRs[0]: warning: pods go to every address by their own: only where routers know the way back to 10.244.0.0/14`,
	} {
		oneFault(t, "network: {nonMasqueradeCIDRs: "+text+"}\n", want)
	}
}
