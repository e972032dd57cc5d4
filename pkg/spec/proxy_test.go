package spec_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpproxy"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// certificate returns a certificate in PEM, as a YAML scalar.
func certificate(tb testing.TB, authority bool) string {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NilError(tb, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "corporate"}, NotAfter: time.Now().Add(time.Hour), IsCA: authority, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	assert.NilError(tb, err)
	text, err := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	assert.NilError(tb, err)
	return string(text)
}

func anchor(tb testing.TB) string {
	tb.Helper()
	return certificate(tb, true)
}

// TestProxy: the programs that reach the outside get the variables, and Go's own reader of them sends nothing of the cluster's to the proxy.
func TestProxy(t *testing.T) {
	files := groupFiles(t, "api: {names: [api.example.org]}\nproxy: {http: 'http://proxy.example.org:3128', noProxy: [.corp, '10.1.0.0/16']}\n", "minions")
	drop := files["/etc/systemd/system/hardtack-.service.d/60-hardtack-proxy.conf"]
	for _, unit := range []string{"containerd.service", "kubelet.service"} {
		assert.Equal(t, files["/etc/systemd/system/"+unit+".d/60-hardtack-proxy.conf"], drop)
	}
	vars := map[string]string{}
	for line := range strings.Lines(drop) {
		if setting, ok := strings.CutPrefix(strings.TrimSpace(line), "Environment="); ok {
			name, value, _ := strings.Cut(setting, "=")
			vars[name] = value
		}
	}
	config := httpproxy.Config{HTTPProxy: vars["HTTP_PROXY"], HTTPSProxy: vars["HTTPS_PROXY"], NoProxy: vars["NO_PROXY"]}
	for target, by := range map[string]bool{
		"https://registry.k8s.io/v2/":             true,
		"http://archive.example.org/":             true,
		"https://sts.eu-central-1.amazonaws.com/": true,
		"https://masters.demo.k8s/readyz":         false,
		"https://etcd-a.demo.k8s:2379/":           false,
		"http://169.254.169.254/latest/":          false,
		"http://[fd00:ec2::254]/latest/":          false,
		"https://10.96.0.1/":                      false,
		"http://10.244.3.4:8080/healthz":          false,
		"https://hook.default.svc/":               false,
		"https://x.svc.cluster.local/":            false,
		"http://127.0.0.1:10248/healthz":          false,
		"https://api.example.org/":                false,
		"https://git.corp/":                       false,
		"https://10.1.2.3/":                       false,
	} {
		u, err := url.Parse(target)
		assert.NilError(t, err)
		got, err := config.ProxyFunc()(u)
		assert.NilError(t, err)
		assert.Equal(t, got != nil, by, target)
	}
	control := groupFiles(t, "proxy: {http: 'http://proxy:1', https: ''}\n", "masters")
	assert.Equal(t, control["/etc/systemd/system/containerd.service.d/60-hardtack-proxy.conf"], "", "it runs on minions alone")
	assert.Assert(t, !strings.Contains(control["/etc/systemd/system/hardtack-.service.d/60-hardtack-proxy.conf"], "HTTPS_PROXY"))
}

// TestProxyIsCompleted: a completed document completes to itself, with what the operator has added at its end.
func TestProxyIsCompleted(t *testing.T) {
	c := complete(t, machinesHead+"version: 1.36\nproxy: {http: 'http://proxy:1', noProxy: [.corp]}\n")
	assert.Equal(t, c.Cluster.Proxy.NoProxy[len(c.Cluster.Proxy.NoProxy)-1], ".corp")
	assert.Equal(t, c.Cluster.Proxy.HTTPS, "http://proxy:1")
	text, err := c.YAML()
	assert.NilError(t, err)
	again, err := complete(t, string(text)).YAML()
	assert.NilError(t, err)
	assert.Equal(t, string(again), string(text))
	assert.Equal(t, complete(t, machinesHead+"proxy: {http: 'http://proxy:1'}\n").Origins["proxy.noProxy"], spec.Origin{Kind: spec.Derived, From: "network"})
}

// TestProxyFaults: a proxy that programs could not use, or that everybody could read the password of, is refused.
func TestProxyFaults(t *testing.T) {
	for text, want := range map[string]string{
		"proxy: {http: 'proxy:3128'}":                      `4: proxy.http: "proxy:3128" is not the URL of a proxy (write it as in http://proxy.example.org:3128)`,
		"proxy: {https: 'ftp://proxy'}":                    `4: proxy.https: "ftp://proxy" is not the URL of a proxy`,
		"proxy: {http: 'http://jane:secret@proxy:3128'}":   `4: proxy.http: has a user, and user data is no place for a secret`,
		"proxy: {http: 'http://proxy:3128/path'}":          `4: proxy.http: "http://proxy:3128/path" has more than a host and a port`,
		"proxy: {noProxy: [.corp]}":                        `4: proxy.noProxy: there is no proxy to leave out (write proxy.http)`,
		"proxy: {http: 'http://p:1', noProxy: ['*']}":      `4: proxy.noProxy[0]: * is everything, and there would be no proxy (leave proxy out)`,
		"proxy: {http: 'http://p:1', noProxy: ['*.corp']}": `4: proxy.noProxy[0]: "*.corp" has a *, which programs do not know: a domain begins with a dot (write .corp)`,
		"proxy: {http: 'http://p:1', noProxy: ['a b']}":    `4: proxy.noProxy[0]: "a b" is neither a name, a domain, an address nor a range`,
		"proxy: {http: 'http://p:1', noProxy: ['a:0']}":    `4: proxy.noProxy[0]: "0" is not a port`,
	} {
		oneFault(t, text+"\n", want)
	}
}

// TestTrustAnchors: each certificate becomes a file of its own, which Debian's program adds to those of the system.
func TestTrustAnchors(t *testing.T) {
	one, two := anchor(t), anchor(t)
	files := groupFiles(t, "machines: {trustAnchors: ["+strings.TrimSuffix(one, `"`)+strings.TrimPrefix(two, `"`)+", "+two+"]}\n", "minions")
	for _, name := range []string{"1-1", "1-2", "2-1"} {
		text := files["/etc/hardtack/trust-anchors/hardtack-spec-"+name+".crt"]
		block, rest := pem.Decode([]byte(text))
		assert.Assert(t, block != nil && len(rest) == 0, "%s: %q", name, text)
	}
	const command = "ExecStart=/usr/sbin/update-ca-certificates --localcertsdir /etc/hardtack/trust-anchors\n"
	assert.Assert(t, strings.Contains(files[optionsUnit], command), files[optionsUnit])
	for text, want := range map[string]string{
		`hello`:               `5: machines.trustAnchors[0]: has text that is no certificate (write the authority's certificate in PEM: -----BEGIN CERTIFICATE-----)`,
		`""`:                  `5: machines.trustAnchors[0]: is empty`,
		certificate(t, false): `5: machines.trustAnchors[0]: certificate 1, of CN=corporate, is not an authority's (write that of the authority which signed it)`,
		`"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"`: `5: machines.trustAnchors[0]: has a PUBLIC KEY, and not only certificates`,
	} {
		oneFault(t, "machines:\n  trustAnchors: ["+text+"]\n", want)
	}
}
