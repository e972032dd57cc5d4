package pki_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestKubeconfigs reads what an administrator gets, as client-go does: an address, an authority, and a certificate with its key.
func TestKubeconfigs(t *testing.T) {
	a := newAuthority(t, "demo", now)
	data, err := pki.AdminKubeconfig(a, "https://masters.demo.k8s", pki.AdminLife, now)
	if err != nil {
		t.Fatal(err)
	}
	cluster, user := readKubeconfig(t, data)
	if cluster.Server != "https://masters.demo.k8s" || cluster.Name != "" {
		t.Errorf("the server is %s, with the name %q", cluster.Server, cluster.Name)
	}
	pair, err := tls.X509KeyPair(fromBase64(t, user.Certificate), fromBase64(t, user.Key))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(fromBase64(t, cluster.CA))
	for at, good := range map[time.Duration]bool{0: true, pki.AdminLife - time.Second: true, pki.AdminLife + time.Second: false} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(at), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (err == nil) != good {
			t.Errorf("after %v: %v", at, err)
		}
	}
	if !slices.Equal(pair.Leaf.Subject.Organization, []string{pki.GroupAdmins}) || slices.Contains(pair.Leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		t.Errorf("the groups are %v, the usages %v", pair.Leaf.Subject.Organization, pair.Leaf.ExtKeyUsage)
	}
	if _, err := pki.AdminKubeconfig(a, "https://masters.demo.k8s", pki.AdminLife, now.Add(-time.Hour)); !errors.Is(err, pki.ErrClock) {
		t.Errorf("before its authority: %v", err)
	}
	metrics, err := pki.MetricsClient(a, time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.ParseCertificate(metrics.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Subject.Organization, []string{pki.GroupMetrics}) || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) ||
		!c.NotAfter.Equal(now.Add(time.Hour)) {
		t.Errorf("%v, %v, until %v", c.Subject, c.ExtKeyUsage, c.NotAfter)
	}
}

func fromBase64(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestMetricsServer: API servers reach it by the name of its Service, and it knows kubelets by their own authority.
func TestMetricsServer(t *testing.T) {
	a := mastersAuthorities(t)
	files, err := pki.MetricsServerBundle(a).Mint(now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsePair(t, files, "ca.crt"))
	if _, err := parsePair(t, files, "metrics-server.crt").Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: "metrics-server.kube-system.svc"}); err != nil {
		t.Error(err)
	}
	if !pki.Same(parsePair(t, files, "kubelet-ca.crt"), a.KubeletServing.Certificate) || !pki.Same(parsePair(t, files, "ca.crt"), a.Kubernetes.Certificate) {
		t.Error("it knows kubelets or API servers by another authority")
	}
}

// TestAPIServersNames: clients in pods, on the machine and elsewhere reach an API server by these, each once; a cluster
// without a Service's address or domain has no empty name.
func TestAPIServersNames(t *testing.T) {
	a := mastersAuthorities(t)
	serving := func(m pki.Machine, api pki.API) *x509.Certificate {
		t.Helper()
		bundles, err := pki.MastersBundles(a, m, api)
		if err != nil {
			t.Fatal(err)
		}
		files, err := bundles[0].Mint(now)
		if err != nil {
			t.Fatal(err)
		}
		return parsePair(t, files, "server.crt")
	}
	c := serving(pki.Machine{Cluster: "demo", Hostname: "localhost", Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}, api())
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "masters.demo.k8s", "kubernetes.default.svc.cluster.local", "10.96.0.1", "api.example.com", "203.0.113.7"} {
		if err := c.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	var all []string
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	all = append(all, c.DNSNames...)
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
		t.Errorf("names are there twice: %v", all)
	}
	c = serving(pki.Machine{Cluster: "demo"}, pki.API{Port: 443})
	if slices.Contains(c.DNSNames, "") || slices.ContainsFunc(c.DNSNames, func(name string) bool { return strings.HasSuffix(name, ".") }) || len(c.IPAddresses) != 2 {
		t.Errorf("names %q, addresses %v", c.DNSNames, c.IPAddresses)
	}
}

// TestWithoutKeys says what is missing instead of writing half of the control plane's files.
func TestWithoutKeys(t *testing.T) {
	for name, remove := range map[string]func(a *pki.MastersAuthorities){
		"the service accounts' key": func(a *pki.MastersAuthorities) { a.ServiceAccount.Key = &ecdsa.PrivateKey{} },
		"their public key":          func(a *pki.MastersAuthorities) { a.ServiceAccount.Public = []*ecdsa.PublicKey{{}} },
		"the encryption key":        func(a *pki.MastersAuthorities) { a.Encryption = pki.EncryptionKeys{} },
		"the kubelets' authority":   func(a *pki.MastersAuthorities) { a.KubeletServing.Key = &ecdsa.PrivateKey{} },
	} {
		a := mastersAuthorities(t)
		remove(&a)
		if bundles, err := pki.MastersBundles(a, self(), api()); err == nil || bundles != nil {
			t.Errorf("without %s there are %d bundles, %v", name, len(bundles), err)
		}
	}
}
