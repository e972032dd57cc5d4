package pki_test

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// stages are those of replacing an authority: the old one, both, both with the new one signing, the new one. Both have the
// same name, as two authorities of a cluster do.
func stages(t *testing.T) []pki.Authority {
	t.Helper()
	name := pki.AuthorityName("demo", pki.KubernetesCA)
	a, b := newAuthority(t, name, now), newAuthority(t, name, now)
	both := pki.EncodeCertificates([]*x509.Certificate{a.Certificate, b.Certificate})
	parse := func(certs []byte, signer pki.Authority) pki.Authority {
		key, err := pki.EncodeKey(signer.Key)
		if err != nil {
			t.Fatal(err)
		}
		out, err := pki.ParseAuthority(certs, key)
		if err != nil {
			t.Fatal(err)
		}
		if !pki.Same(out.Certificate, signer.Certificate) {
			t.Fatal("the certificate is not the key's")
		}
		return out
	}
	return []pki.Authority{parse(pki.EncodeCertificate(a.Certificate), a), parse(both, a), parse(both, b), parse(pki.EncodeCertificate(b.Certificate), b)}
}

// TestReplacedAuthority holds the files of a master at each stage against the certificates of masters one stage away, for
// every file that a daemon trusts, by Go and by openssl.
func TestReplacedAuthority(t *testing.T) {
	all := stages(t)
	verify := func(cert []byte, roots []byte) error {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(roots)
		c, err := pki.ParseCertificate(cert)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}
	// trusted are the files that daemons trust, and signed one certificate by the same authority, at each stage.
	var trusted []map[string][]byte
	var signed [][]byte
	for _, stage := range all {
		a := mastersAuthorities(t)
		a.Kubernetes, a.KubeletServing, a.FrontProxy, a.EtcdClient = stage, stage, stage, stage
		bundles, err := pki.MastersBundles(a, self(), api())
		if err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{}
		for _, b := range append(bundles, pki.EtcdBundles(pki.EtcdAuthorities{Client: stage, Peer: stage}, self(), "a")...) {
			for _, f := range b.Files {
				signer := b.Dir == pki.DirControllerManager && f.Name != "ca.crt"
				if strings.HasSuffix(f.Name, pki.Crt) && !signer {
					files[b.Dir+"/"+f.Name] = f.Content
				}
				// kube-controller-manager's signers take exactly one certificate.
				if strings.HasSuffix(f.Name, pki.Crt) && signer && bytes.Count(f.Content, []byte("BEGIN")) != 1 {
					t.Errorf("%s/%s has not one certificate", b.Dir, f.Name)
				}
			}
		}
		trusted = append(trusted, files)
		pair, err := stage.Issue(pki.Profile{Name: "x", Usage: pki.Server | pki.Client, Names: []string{"masters.demo.k8s"}, Life: pki.LeafLife}, now)
		if err != nil {
			t.Fatal(err)
		}
		signed = append(signed, pair.Certificate)
	}
	for i := range all {
		for _, j := range []int{i - 1, i, i + 1} {
			if j < 0 || j == len(all) {
				continue
			}
			for name, roots := range trusted[i] {
				if err := verify(signed[j], roots); err != nil {
					t.Errorf("%s at stage %d does not take a certificate of stage %d: %v", name, i, j, err)
				}
			}
			opensslVerify(t, signed[j], trusted[i]["kube-apiserver/ca.crt"], true)
		}
	}
	// What the stages are for: without them it breaks.
	if err := verify(signed[3], trusted[0]["kube-apiserver/ca.crt"]); err == nil {
		t.Error("the old authority alone takes a certificate of the new one")
	}
	// The certificates of the old authority are minted again when the new one signs, and not before.
	for i, want := range []bool{false, false, true, true} {
		leaf := pki.Leaf{Name: "x", Issuer: all[i], Profile: pki.Profile{Name: "x", Usage: pki.Server, Life: pki.LeafLife}}
		pair, err := all[0].Issue(leaf.Profile, now)
		if err != nil {
			t.Fatal(err)
		}
		if due := leaf.Due(pair.Certificate, pair.Key, now); (due != "") != want {
			t.Errorf("stage %d: due %q, want that it is: %v", i, due, want)
		}
	}
}

func TestParseTrusted(t *testing.T) {
	a, b, c := newAuthority(t, "a", now), newAuthority(t, "b", now), newAuthority(t, "c", now)
	text := func(list ...pki.Authority) []byte {
		var out []byte
		for _, one := range list {
			out = append(out, pki.EncodeCertificate(one.Certificate)...)
		}
		return out
	}
	leaf, err := a.Issue(pki.Profile{Name: "x", Usage: pki.Server, Life: pki.LeafLife}, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		data []byte
		want int
	}{
		"one": {text(a), 1}, "two": {text(a, b), 2}, "three": {text(a, b, c), 0}, "twice": {text(a, a), 0}, "none": {nil, 0},
		"blanks between": {append(append(text(a), "\n \n"...), text(b)...), 2}, "rubbish after": {append(text(a), 'x'), 0},
		"no authority": {append(text(a), leaf.Certificate...), 0}, "not for other certificates": {made(t, true, x509.KeyUsageCRLSign), 0},
		"a signing key's, but no authority": {made(t, false, x509.KeyUsageCertSign), 0},
		"just enough":                       {made(t, true, x509.KeyUsageCertSign), 1}, "a key": {append(text(a), leaf.Key...), 0},
	} {
		certs, err := pki.ParseTrusted(tt.data)
		if len(certs) != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%s: %d certificates, %v, want %d", name, len(certs), err, tt.want)
		}
	}
	key, err := pki.EncodeKey(c.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.ParseAuthority(text(a, b), key); err == nil {
		t.Error("another authority's key was taken")
	}
}
