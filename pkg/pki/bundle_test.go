package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func mastersAuthorities(tb testing.TB) pki.MastersAuthorities {
	tb.Helper()
	accounts, err := pki.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	key, err := pki.ParseEncryptionKeys(pki.NewEncryptionKey())
	if err != nil {
		tb.Fatal(err)
	}
	return pki.MastersAuthorities{Kubernetes: newAuthority(tb, pki.AuthorityName("demo", pki.KubernetesCA), now), FrontProxy: newAuthority(tb, pki.AuthorityName("demo", pki.FrontProxyCA), now),
		KubeletServing: newAuthority(tb, pki.AuthorityName("demo", pki.KubeletServingCA), now),
		EtcdClient:     newAuthority(tb, pki.AuthorityName("demo", pki.EtcdClientCA), now), ServiceAccount: pki.AccountKeys{Key: accounts, Public: []*ecdsa.PublicKey{&accounts.PublicKey}}, Encryption: key}
}

func self() pki.Machine {
	return pki.Machine{Cluster: "demo", Hostname: "ip-10-1-0-12", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.12")}}
}

func api() pki.API {
	return pki.API{Port: 443, Service: netip.MustParseAddr("10.96.0.1"), DNSDomain: "cluster.local", Names: []string{"api.example.com", "203.0.113.7", "localhost"}}
}

func mastersBundles(tb testing.TB) []pki.Bundle {
	tb.Helper()
	bundles, err := pki.MastersBundles(mastersAuthorities(tb), self(), api())
	if err != nil {
		tb.Fatal(err)
	}
	return bundles
}

func etcdBundles(t *testing.T, member string) []pki.Bundle {
	t.Helper()
	return pki.EtcdBundles(pki.EtcdAuthorities{Client: newAuthority(t, pki.AuthorityName("demo", pki.EtcdClientCA), now), Peer: newAuthority(t, pki.AuthorityName("demo", pki.EtcdPeerCA), now)}, self(), member)
}

// TestBundles compares every daemon's files and the content of their certificates with a golden file, to show changes.
func TestBundles(t *testing.T) {
	var text strings.Builder
	bundles := slices.Concat(mastersBundles(t), etcdBundles(t, "a"), etcdBundles(t, ""))
	for _, b := range bundles {
		files, err := b.Mint(now)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, b.Path(""))
		var names []string
		for _, f := range files {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintln(&text, " ", name)
			if strings.HasSuffix(name, ".crt") {
				fmt.Fprintf(&text, "%s", says(parsePair(t, files, name)))
			}
		}
	}
	golden.Assert(t, text.String(), "bundles.golden")
}

func says(c *x509.Certificate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "      %s, signed by %s, for %v, authority %v, usage %v\n", c.Subject, c.Issuer, c.NotAfter.Sub(c.NotBefore), c.IsCA, c.ExtKeyUsage)
	if len(c.DNSNames)+len(c.IPAddresses) > 0 {
		fmt.Fprintf(&b, "      names %v, addresses %v\n", c.DNSNames, c.IPAddresses)
	}
	return b.String()
}

// TestChains verifies each certificate as its peer will: by the authority that the peer has, for its purpose. Its key is beside it.
func TestChains(t *testing.T) {
	for _, b := range slices.Concat(mastersBundles(t), etcdBundles(t, "a")) {
		files, err := b.Mint(now)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range b.Leaves {
			pool := x509.NewCertPool()
			pool.AddCert(l.Issuer.Certificate)
			c := parsePair(t, files, l.Name+pki.Crt)
			if _, err := tls.X509KeyPair(content(t, files, l.Name+pki.Crt), content(t, files, l.Name+pki.Key)); err != nil {
				t.Errorf("%s: %v", b.Path(l.Name), err)
			}
			for _, usage := range c.ExtKeyUsage {
				if _, err := c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
					t.Errorf("%s: %v", b.Path(l.Name), err)
				}
			}
		}
	}
}

func TestDue(t *testing.T) {
	b := etcdBundles(t, "a")[0]
	leaf := b.Leaves[0]
	pair, err := leaf.Issuer.Issue(leaf.Profile, now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := leaf.Issuer.Issue(leaf.Profile, now)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCertificate(pair.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	moved, foreign := leaf, leaf
	moved.Profile.Addresses = append(slices.Clone(leaf.Profile.Addresses), netip.MustParseAddr("10.1.0.99"))
	foreign.Issuer = newAuthority(t, pki.AuthorityName("demo", pki.EtcdClientCA), now)
	for name, tt := range map[string]struct {
		leaf     pki.Leaf
		crt, key []byte
		at       time.Time
		want     string
	}{
		"fresh":                   {leaf, pair.Certificate, pair.Key, now, ""},
		"half way":                {leaf, pair.Certificate, pair.Key, now.Add(pki.LeafLife / 2), ""},
		"just before its time":    {leaf, pair.Certificate, pair.Key, pki.RenewAt(cert).Add(-time.Second), ""},
		"at its time":             {leaf, pair.Certificate, pair.Key, pki.RenewAt(cert), "it is due since"},
		"expired":                 {leaf, pair.Certificate, pair.Key, now.Add(2 * pki.LeafLife), "it is due since"},
		"nothing there":           {leaf, nil, nil, now, "there is none"},
		"no key":                  {leaf, pair.Certificate, nil, now, "there is none"},
		"no certificate":          {leaf, nil, pair.Key, now, "there is none"},
		"two certificates":        {leaf, append(slices.Clone(pair.Certificate), other.Certificate...), pair.Key, now, "cannot be used"},
		"another's key":           {leaf, pair.Certificate, other.Key, now, "cannot be used"},
		"broken":                  {leaf, []byte("x"), pair.Key, now, "cannot be used"},
		"the machine has moved":   {moved, pair.Certificate, pair.Key, now, "have changed"},
		"a new authority":         {foreign, pair.Certificate, pair.Key, now, "another authority"},
		"the clock has gone back": {leaf, pair.Certificate, pair.Key, now.Add(-time.Hour), "the clock was ahead"},
	} {
		got := tt.leaf.Due(tt.crt, tt.key, tt.at)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestRenewAt looks at where in their lives a thousand certificates are due: all in the tenth before 2/3, and spread.
func TestRenewAt(t *testing.T) {
	a := newAuthority(t, "demo", now)
	first, last := 1.0, 0.0
	for range 1000 {
		pair, err := a.Issue(pki.Profile{Name: "leaf", Usage: pki.Client, Life: pki.LeafLife}, now)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.ParseCertificate(pair.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if again := pki.RenewAt(c); !again.Equal(pki.RenewAt(c)) {
			t.Fatal("not the same twice")
		}
		at := float64(pki.RenewAt(c).Sub(c.NotBefore)) / float64(c.NotAfter.Sub(c.NotBefore))
		first, last = min(first, at), max(last, at)
	}
	if first < 2.0/3-0.1 || last > 2.0/3 || last-first < 0.09 {
		t.Errorf("due from %.3f to %.3f of their lives, want it spread from 0.567 to 0.667", first, last)
	}
}

func TestToken(t *testing.T) {
	token := pki.NewToken(now)
	data, err := token.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := pki.ParseToken(data)
	if err != nil || back != token {
		t.Fatalf("%v: %+v, want %+v", err, back, token)
	}
	if strings.Contains(token.String(), token.Secret) || fmt.Sprint(token) != token.String() {
		t.Errorf("%v shows its secret", token)
	}
	if strings.Contains(fmt.Sprintf("%+v %v", token, []pki.Token{token}), token.Secret) {
		t.Error("a formatted token shows its secret")
	}
	if pki.NewToken(now).Bearer() == token.Bearer() {
		t.Error("two tokens are the same")
	}
	for after, want := range map[time.Duration][2]bool{
		0: {false, false}, pki.TokenLife/2 - 1: {false, false}, pki.TokenLife / 2: {true, false},
		pki.TokenLife - 1: {true, false}, pki.TokenLife: {true, true}, -time.Hour: {true, false},
	} {
		at := token.Expires.Add(after - pki.TokenLife)
		if due, expired := token.Due(at), token.Expired(at); due != want[0] || expired != want[1] {
			t.Errorf("after %v: due %v, expired %v, want %v", after, due, expired, want)
		}
	}
	for _, text := range []string{"", "{}", `{"token":"abc","expires":"2026-01-02T03:04:05Z"}`, `{"token":"abcdef.0123456789abcdef"}`,
		`{"token":"abcdef.0123456789abcdef","expires":"2026-01-02T03:04:05Z","more":1}`, `{"token":"ABCDEF.0123456789abcdef","expires":"2026-01-02T03:04:05Z"}`} {
		if got, err := pki.ParseToken([]byte(text)); err == nil {
			t.Errorf("%s was read as %v", text, got)
		}
	}
}

func TestEncryptionConfig(t *testing.T) {
	key := bytes.Repeat([]byte{7}, pki.EncryptionKeySize)
	config, err := pki.EncryptionConfig(pki.EncryptionKeys{Keys: [][]byte{key}})
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, string(config), "encryption.golden.yaml")
	if !strings.Contains(string(config), base64.StdEncoding.EncodeToString(key)) {
		t.Error("the key is not in it")
	}
	two, err := pki.EncryptionConfig(pki.EncryptionKeys{Keys: [][]byte{key, bytes.Repeat([]byte{8}, pki.EncryptionKeySize)}})
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, string(two), "encryption-two.golden.yaml")
	for _, keys := range [][][]byte{nil, {key[1:]}, {key, key[1:]}} {
		if _, err := pki.EncryptionConfig(pki.EncryptionKeys{Keys: keys}); err == nil {
			t.Errorf("%d keys, one of them none, were taken", len(keys))
		}
	}
	a, b := pki.NewEncryptionKey(), pki.NewEncryptionKey()
	if bytes.Equal(a, b) {
		t.Error("two keys are the same")
	}
}

func TestKubeconfig(t *testing.T) {
	files := pki.Kubeconfig{Server: "https://127.0.0.1:443", CAFile: "/ca.crt", User: "u", CertificateFile: "/c.crt", KeyFile: "/c.key"}.Render()
	golden.Assert(t, string(files), "kubeconfig-files.golden.json")
	token := pki.Kubeconfig{Server: "https://masters.demo.k8s:443", CAFile: "/ca.crt", User: "bootstrap", Token: "abcdef.0123456789abcdef"}.Render()
	golden.Assert(t, string(token), "kubeconfig-token.golden.json")
}

// TestAccess holds the table against what must never be: a minion that reads a key, or anybody who replaces one.
func TestAccess(t *testing.T) {
	var keys []string
	for _, name := range pki.Authorities() {
		keys = append(keys, name+pki.Key)
	}
	keys = append(keys, pki.ServiceAccount+pki.Key, pki.EncryptionKey)
	for _, key := range keys {
		if covers(pki.AccessOf(role.Minions).Read, key) {
			t.Errorf("a minion may read %s", key)
		}
		for _, set := range role.Combinations() {
			if covers(pki.AccessOfAll(set).Write, key) {
				t.Errorf("%s may write %s", set, key)
			}
		}
	}
	if covers(pki.AccessOf(role.Masters).Read, pki.EtcdPeerCA+pki.Key) || covers(pki.AccessOf(role.Etcd).Read, pki.KubernetesCA+pki.Key) {
		t.Error("masters may become members of etcd, or etcd's machines masters")
	}
	if a := pki.AccessOfAll(role.NewSet(role.Masters, role.Minions)); !slices.IsSorted(a.Read) || len(slices.Compact(slices.Clone(a.Read))) != len(a.Read) {
		t.Errorf("%v is not sorted, or says something twice", a.Read)
	}
}

func BenchmarkMintMasters(b *testing.B) {
	bundles := mastersBundles(b)
	for b.Loop() {
		for _, bundle := range bundles {
			if _, err := bundle.Mint(now); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// covers reports whether one of the paths of an Access is the object or a directory of it.
func covers(paths []string, object string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return p == object || strings.HasSuffix(p, "/") && strings.HasPrefix(object, p)
	})
}

// TestEncryptionKeys: what is written is read back, and what is not keys is refused without showing one.
func TestEncryptionKeys(t *testing.T) {
	keys, err := pki.ParseEncryptionKeys(pki.NewEncryptionKey())
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		data, err := keys.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := pki.ParseEncryptionKeys(data)
		if err != nil || !slices.Equal(back.Names(), keys.Names()) || back.Step != keys.Step || !back.Since.Equal(keys.Since) {
			t.Errorf("%v: %v %s %v, want %v %s %v", err, back.Names(), back.Step, back.Since, keys.Names(), keys.Step, keys.Since)
		}
		keys = keys.Next(now)
	}
	a, b := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
	const rest = `,"step":"added","since":"2026-01-02T03:04:05Z"}`
	for _, text := range []string{a + "\n" + b, `{"keys":["` + a + `"]` + rest, `{"keys":["` + a + `","` + a + `"]` + rest, `{"keys":["` + a + `","AAAA"]` + rest,
		`{"keys":["AAAA","` + a + `"]` + rest,
		`{"keys":["` + a + `","` + b + `"],"step":"none","since":"2026-01-02T03:04:05Z"}`, `{"keys":["` + a + `","` + b + `"],"step":"added"}`,
		`{"keys":["` + a + `","` + b + `"],"more":1` + rest[:len(rest)-1] + "}", "{" + a} {
		_, err := pki.ParseEncryptionKeys([]byte(text))
		if err == nil || strings.Contains(err.Error(), a) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
