package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestMayRead: an object, what begins with its name, and what is below a directory; no neighbour whose name begins alike.
func TestMayRead(t *testing.T) {
	access := pki.Access{Read: []string{"public/", "masters/kubernetes-ca.crt", "token"}}
	for object, want := range map[string]bool{
		"public/": true, "public/a/b": true, "public": true, "masters/kubernetes-ca": true, "masters/kubernetes-ca.crt": true, "token": true,
		"publicity": false, "masters/kubernetes-ca.crt.old": false, "tokens": false, "masters/kubernetes-ca.key": false, "etcd/peer-ca": false,
	} {
		if got := access.MayRead(object); got != want {
			t.Errorf("%s: %v", object, got)
		}
	}
}

// TestOfMember: a member of etcd writes the state of no other member, and the access of the others stays what it is.
func TestOfMember(t *testing.T) {
	all := pki.AccessOf(role.Etcd)
	if !covers(all.Write, role.EtcdStatus+"b") {
		t.Fatal("nobody writes the state of a member, so that this test shows nothing")
	}
	a := all.OfMember("a")
	if !covers(a.Write, role.EtcdStatus+"a") || covers(a.Write, role.EtcdStatus+"b") {
		t.Errorf("the member a writes %v", a.Write)
	}
	if !covers(all.Write, role.EtcdStatus+"b") || !covers(pki.AccessOf(role.Etcd).Write, role.EtcdStatus+"b") {
		t.Error("the access of all members has changed with it")
	}
	if !slices.Equal(all.OfMember("").Write, all.Write) {
		t.Errorf("a machine without a name writes %v", all.OfMember("").Write)
	}
	// A machine of two roles has the access of both.
	both := pki.AccessOfAll(role.NewSet(role.Masters, role.Etcd))
	for _, r := range []role.Role{role.Masters, role.Etcd} {
		for _, lists := range [][2][]string{{pki.AccessOf(r).Read, both.Read}, {pki.AccessOf(r).Write, both.Write}, {pki.AccessOf(r).Create, both.Create}} {
			for _, object := range lists[0] {
				if !slices.Contains(lists[1], object) {
					t.Errorf("%s is missing in %v", object, lists[1])
				}
			}
		}
	}
}

// TestSecrets: nothing that is secret is public, and every key that is made is secret.
func TestSecrets(t *testing.T) {
	secret := pki.Secrets()
	for _, object := range append(pki.Authorities(), pki.ServiceAccount, pki.EncryptionKey, pki.BootstrapToken) {
		if !slices.Contains(secret, object) {
			t.Errorf("%s is not secret", object)
		}
	}
	for _, object := range secret {
		if strings.HasPrefix(object, role.Public) {
			t.Errorf("%s is public", object)
		}
	}
	if got := pki.AuthorityName("demo", pki.EtcdPeerCA) + ", " + pki.AuthorityName("demo", pki.FrontProxyCA); got != "demo etcd-peer-ca, demo front-proxy-ca" {
		t.Errorf("authorities are named %s", got)
	}
}

// TestCurve takes keys of no other curve or algorithm: daemons and signatures are for P-256.
func TestCurve(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{p384, other} {
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pki.ParseKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})); err == nil || !strings.Contains(err.Error(), "P-256") {
			t.Errorf("%T: %v", key.Public(), err)
		}
		if _, err := pki.ParsePublic(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})); err == nil || !strings.Contains(err.Error(), "P-256") {
			t.Errorf("%T: %v", key.Public(), err)
		}
	}
}

// TestAccountKeys: one key, or two of which either may sign; no third one, none twice, and no stranger's.
func TestAccountKeys(t *testing.T) {
	keys := make([]*ecdsa.PrivateKey, 3)
	private := make([][]byte, 3)
	for i := range keys {
		var err error
		if keys[i], err = pki.NewKey(); err != nil {
			t.Fatal(err)
		}
		if private[i], err = pki.EncodeKey(keys[i]); err != nil {
			t.Fatal(err)
		}
	}
	public := func(of ...int) []byte {
		var list []*ecdsa.PublicKey
		for _, i := range of {
			list = append(list, &keys[i].PublicKey)
		}
		data, err := pki.EncodePublic(list...)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, tt := range map[string]struct {
		public, private []byte
		accepted        int // how many public keys; 0 for an error
	}{
		"one": {public(0), private[0], 1}, "two, the old one signs": {public(0, 1), private[0], 2}, "two, the new one signs": {public(0, 1), private[1], 2},
		"a stranger's": {public(0, 1), private[2], 0}, "three": {public(0, 1, 2), private[0], 0}, "twice": {public(0, 0), private[0], 0}, "none": {nil, private[0], 0},
		"no private one": {public(0), nil, 0}, "the wrong way": {private[0], public(0), 0}, "rubbish after": {append(public(0), 'x'), private[0], 0},
		"broken": {[]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), private[0], 0},
	} {
		got, err := pki.ParseAccountKeys(tt.public, tt.private)
		if (err == nil) != (tt.accepted > 0) || len(got.Public) != tt.accepted || (got.Key == nil) != (tt.accepted == 0) {
			t.Errorf("%s: %d public keys, %v", name, len(got.Public), err)
		}
	}
}

// TestOneCertificate reads exactly one.
func TestOneCertificate(t *testing.T) {
	a := pki.EncodeCertificate(newAuthority(t, "a", now).Certificate)
	for name, data := range map[string][]byte{"two": append(slices.Clone(a), a...), "something after": append(slices.Clone(a), 'x'), "none": nil,
		"broken": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")} {
		if _, err := pki.ParseCertificate(data); err == nil {
			t.Errorf("%s: read", name)
		}
	}
	if _, err := pki.ParseCertificate(append(slices.Clone(a), " \n"...)); err != nil {
		t.Errorf("blanks after it: %v", err)
	}
	if _, err := pki.ParseTrusted([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")); err == nil {
		t.Error("a broken one is trusted")
	}
}

// TestCheckAny: while an authority is being replaced, one of the two is enough.
func TestCheckAny(t *testing.T) {
	old, young := newAuthority(t, "old", now), newAuthority(t, "young", now.Add(pki.AuthorityLife))
	both := []*x509.Certificate{old.Certificate, young.Certificate}
	for at, want := range map[time.Duration]error{
		-time.Hour: pki.ErrClock, 0: nil, pki.AuthorityLife: nil, pki.AuthorityLife + time.Hour: nil, 3 * pki.AuthorityLife: pki.ErrExpired,
	} {
		if err := pki.CheckAny(both, now.Add(at)); !errors.Is(err, want) {
			t.Errorf("after %v: %v, want %v", at, err, want)
		}
	}
	fingerprints := pki.Fingerprints(both)
	if want := pki.Fingerprint(old.Certificate) + ", " + pki.Fingerprint(young.Certificate); fingerprints != want {
		t.Errorf("the fingerprints are %s, not %s", fingerprints, want)
	}
}

// TestProfileOfRFC5280 holds what RFC 5280 says of every certificate: a serial number that is positive, has 20 octets at most
// (4.1.2.2) and is unique, and an authority that says what its key is for (4.2.1.3).
func TestProfileOfRFC5280(t *testing.T) {
	a := newAuthority(t, "demo", now)
	if a.Certificate.KeyUsage&x509.KeyUsageCertSign == 0 || a.Certificate.KeyUsage&x509.KeyUsageCRLSign == 0 {
		t.Errorf("the authority's key is for %b", a.Certificate.KeyUsage)
	}
	seen := map[string]bool{a.Certificate.SerialNumber.String(): true}
	for range 50 {
		pair, err := a.Issue(pki.Profile{Name: "leaf", Usage: pki.Client, Life: time.Hour}, now)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.ParseCertificate(pair.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		s := c.SerialNumber
		if s.Sign() <= 0 || s.BitLen() > 8*20-1 || seen[s.String()] {
			t.Errorf("the serial number %v is too long, not positive, or there already", s)
		}
		seen[s.String()] = true
		if c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature {
			t.Errorf("a leaf's key is for %b, authority %v", c.KeyUsage, c.IsCA)
		}
	}
}

// TestChangedLeaf: a certificate is minted again when anything that it says of its owner has changed, and not when the same is
// said in another order.
func TestChangedLeaf(t *testing.T) {
	leaf := pki.Leaf{Name: "x", Issuer: newAuthority(t, "demo", now), Profile: pki.Profile{
		Name: "x", Groups: []string{"g", "h"}, Usage: pki.Server | pki.Client, Names: []string{"a", "b"},
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, Life: pki.LeafLife,
	}}
	pair, err := leaf.Issuer.Issue(leaf.Profile, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(p *pki.Profile)
		due    bool
	}{
		"nothing":   {func(*pki.Profile) {}, false},
		"the order": {func(p *pki.Profile) { p.Names, p.Groups = []string{"b", "a"}, []string{"h", "g", "g"} }, false},
		"the same address, as an IPv6": {func(p *pki.Profile) {
			p.Addresses = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.1")}
		}, false},
		"the user":     {func(p *pki.Profile) { p.Name = "y" }, true},
		"a group less": {func(p *pki.Profile) { p.Groups = []string{"g"} }, true},
		"a name more":  {func(p *pki.Profile) { p.Names = []string{"a", "b", "c"} }, true},
		"another address": {func(p *pki.Profile) {
			p.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")}
		}, true},
		"no server any more": {func(p *pki.Profile) { p.Usage = pki.Client }, true},
	} {
		changed := leaf
		tt.change(&changed.Profile)
		if due := changed.Due(pair.Certificate, pair.Key, now); (due != "") != tt.due {
			t.Errorf("%s: due %q", name, due)
		}
	}
	// An address is written as a certificate has it: four bytes for IPv4, however it was read.
	mapped := leaf
	mapped.Profile.Addresses = []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}
	files, err := pki.Bundle{Leaves: []pki.Leaf{mapped}}.Mint(now)
	if err != nil {
		t.Fatal(err)
	}
	if got := parsePair(t, files, "x.crt").IPAddresses; len(got) != 1 || !got[0].Equal(net.IPv4(10, 0, 0, 1)) {
		t.Errorf("the addresses are %v", got)
	}
}

// TestStep writes and reads a step of a replacement; a program that knows of none reads the same certificates.
func TestStep(t *testing.T) {
	a, b := newAuthority(t, "a", now), newAuthority(t, "b", now)
	blocks := [][]byte{pki.EncodeCertificate(a.Certificate), pki.EncodeCertificate(b.Certificate)}
	for _, step := range []string{pki.StepAdded, pki.StepUsed} {
		data := pki.EncodeStep(blocks, step, now)
		got, since, err := pki.ParseStep(data)
		if err != nil || got != step || !since.Equal(now) {
			t.Errorf("%s: %s since %v, %v", step, got, since, err)
		}
		if certs, err := pki.ParseTrusted(data); err != nil || len(certs) != 2 || !pki.Same(certs[0], a.Certificate) || !pki.Same(certs[1], b.Certificate) {
			t.Errorf("%s: %d certificates, %v", step, len(certs), err)
		}
	}
	for name, data := range map[string][]byte{"no step": blocks[0], "nothing": nil} {
		if got, since, err := pki.ParseStep(data); err != nil || got != pki.StepNone || !since.IsZero() {
			t.Errorf("%s: %s since %v, %v", name, got, since, err)
		}
	}
	for _, headers := range []map[string]string{{"Step": "removed", "Since": "2026-01-02T03:04:05Z"}, {"Step": pki.StepAdded}, {"Step": pki.StepUsed, "Since": "yesterday"}} {
		data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: headers, Bytes: a.Certificate.Raw})
		if got, _, err := pki.ParseStep(data); err == nil {
			t.Errorf("%v is the step %s", headers, got)
		}
	}
}

// TestSplitPair takes a key with what follows it, and nothing that begins otherwise.
func TestSplitPair(t *testing.T) {
	crt, key := encoded(t, newAuthority(t, "a", now))
	gotKey, gotCrt, err := pki.SplitPair(append(slices.Clone(key), crt...))
	if err != nil || string(gotKey) != string(key) || string(gotCrt) != string(crt) {
		t.Errorf("%d and %d bytes, %v", len(gotKey), len(gotCrt), err)
	}
	for name, data := range map[string][]byte{"the wrong way": append(slices.Clone(crt), key...), "nothing": nil} {
		if _, _, err := pki.SplitPair(data); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestRotationOfEncryption: at no step does a key encrypt that another API server, one step behind, cannot read; and none
// decrypts less than was written.
func TestRotationOfEncryption(t *testing.T) {
	begin, err := pki.ParseEncryptionKeys(pki.NewEncryptionKey())
	if err != nil {
		t.Fatal(err)
	}
	added := begin.Next(now)
	used := added.Next(now.Add(time.Hour))
	end := used.Next(now.Add(2 * time.Hour))
	steps := []pki.EncryptionKeys{begin, added, used, end}
	for i, step := range steps[1:] {
		if behind := steps[i]; !slices.Contains(behind.Names(), step.Names()[0]) {
			t.Errorf("at %s a key encrypts that API servers at %s do not have", step.Step, behind.Step)
		}
	}
	if got := []string{added.Names()[0], used.Names()[1]}; !slices.Equal(got, []string{begin.Names()[0], begin.Names()[0]}) {
		t.Error("the old key is not kept while Secrets are encrypted with it")
	}
	if end.Names()[0] == begin.Names()[0] || len(end.Names()) != 1 || end.Step != pki.StepNone || !end.Since.IsZero() {
		t.Errorf("the end is %v, %s since %v", end.Names(), end.Step, end.Since)
	}
	if !added.Since.Equal(now) || !used.Since.Equal(now.Add(time.Hour)) || added.Step != pki.StepAdded || used.Step != pki.StepUsed {
		t.Errorf("%s since %v, %s since %v", added.Step, added.Since, used.Step, used.Since)
	}
}

// TestTokenOfAFastClock: a token of a machine whose clock is a little ahead is not replaced by each of the others.
func TestTokenOfAFastClock(t *testing.T) {
	token := pki.NewToken(now.Add(pki.Backdate - time.Second))
	if token.Due(now) || token.Expired(now) {
		t.Errorf("a token that expires at %v is due at %v", token.Expires, now)
	}
}

// TestKubeconfigs reads what an administrator gets, as client-go does: an address, an authority, and a certificate with its key.
func TestKubeconfigs(t *testing.T) {
	a := newAuthority(t, "demo", now)
	data, err := pki.AdminKubeconfig(a, "https://masters.demo.k8s", pki.AdminLife, now)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Certificate string `json:"client-certificate-data"`
				Key         string `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal(data, &config); err != nil || len(config.Clusters) != 1 || len(config.Users) != 1 {
		t.Fatalf("%v\n%s", err, data)
	}
	cluster, user := config.Clusters[0].Cluster, config.Users[0].User
	if cluster.Server != "https://masters.demo.k8s" {
		t.Errorf("the server is %s", cluster.Server)
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

// TestAtStart: what a daemon reads only at its start is a file of its bundle, and whoever starts daemons again knows it.
func TestAtStart(t *testing.T) {
	a := mastersAuthorities(t)
	bundles, err := pki.MastersBundles(a, self(), api())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(slices.Concat(bundles, etcdBundles(t, "a")), pki.MetricsServerBundle(a)) {
		files, err := b.Mint(now)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range b.AtStart {
			if !slices.ContainsFunc(files, func(f pki.File) bool { return f.Name == name }) {
				t.Errorf("%s has no file %s", b.Dir, name)
			}
		}
		if len(b.AtStart) > 0 && !slices.Contains(pki.Daemons(), b.Dir) {
			t.Errorf("nobody starts %s again", b.Dir)
		}
		if _, err := b.Mint(now.Add(-time.Hour)); len(b.Leaves) > 0 && !errors.Is(err, pki.ErrClock) {
			t.Errorf("%s is minted before its authorities begin: %v", b.Dir, err)
		}
	}
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
