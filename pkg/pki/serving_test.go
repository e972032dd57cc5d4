package pki_test

import (
	"crypto/x509"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestNobodyTrustsKubelets signs the worst certificate that a node could get from the signer of kubelets' serving
// certificates, one with the API server's own names, and holds it against every file that a daemon trusts.
func TestNobodyTrustsKubelets(t *testing.T) {
	a := mastersAuthorities(t)
	bundles, err := pki.MastersBundles(a, self(), api())
	if err != nil {
		t.Fatal(err)
	}
	var signer pki.Authority
	files := map[string][]byte{}
	for _, b := range slices.Concat(bundles, etcdBundles(t, "a")) {
		for _, f := range b.Files {
			if strings.HasSuffix(f.Name, pki.Crt) {
				files[b.Dir+"/"+f.Name] = f.Content
			}
			if b.Dir == pki.DirControllerManager && f.Name == "kubelet-serving-ca.key" {
				if signer, err = pki.ParseAuthority(files[b.Dir+"/kubelet-serving-ca.crt"], f.Content); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	evil, err := signer.Issue(pki.Profile{Name: "system:node:evil", Groups: []string{"system:nodes"}, Usage: pki.Server, Life: pki.LeafLife,
		Names: []string{"masters.demo.k8s"}, Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}, now)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCertificate(evil.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	var trust []string
	for name, content := range files {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(content) {
			t.Fatalf("%s has no certificate", name)
		}
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: "masters.demo.k8s", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err == nil {
			trust = append(trust, name)
		}
	}
	slices.Sort(trust)
	if want := []string{"kube-apiserver/kubelet-ca.crt", "kube-controller-manager/kubelet-serving-ca.crt"}; !slices.Equal(trust, want) {
		t.Errorf("it is trusted by %v, want %v: the first is for kubelets, and by the second nobody verifies", trust, want)
	}
	opensslVerify(t, evil.Certificate, files["kube-apiserver/ca.crt"], false)
	opensslVerify(t, evil.Certificate, files["kube-apiserver/kubelet-ca.crt"], true)
}

// opensslVerify asks another implementation.
func opensslVerify(t *testing.T, cert, ca []byte, want bool) {
	t.Helper()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("there is no openssl here")
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"cert": cert, "ca": ca} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), openssl, "verify", "-attime", "1767323045", "-verify_hostname", "masters.demo.k8s",
		"-CAfile", filepath.Join(dir, "ca"), filepath.Join(dir, "cert")).CombinedOutput()
	if (err == nil) != want {
		t.Errorf("openssl verify: %v, want that it succeeds: %v\n%s", err, want, out)
	}
}
