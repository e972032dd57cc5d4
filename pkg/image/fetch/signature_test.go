package fetch

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

const (
	robot  = "robot@release.example"
	vouch  = "https://accounts.example"
	sigURL = address + ".sig"
	crtURL = address + ".cert"
)

// authority is a certificate authority that issues as Fulcio does.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{t: tb, key: newKey(tb)}
	a.cert = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test root"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().AddDate(-3, 0, 0), NotAfter: time.Now().AddDate(3, 0, 0),
	}, a.key)
	return a
}

func (a *authority) issue(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// leaf is a certificate for robot as Fulcio would have issued it two years ago, for ten minutes.
func (a *authority) leaf(change func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	issuer, err := asn1.MarshalWithParams(vouch, "utf8")
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		EmailAddresses: []string{robot}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		NotBefore:   time.Now().AddDate(-2, 0, 0), NotAfter: time.Now().AddDate(-2, 0, 0).Add(10 * time.Minute),
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(vouch)},
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}, Value: issuer},
		},
	}
	if change != nil {
		change(template)
	}
	key := newKey(a.t)
	return a.issue(template, key), key
}

func (a *authority) trust() *Trust {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &Trust{Roots: pool, Intermediates: x509.NewCertPool()}
}

// under returns an authority that a has issued, as Fulcio's intermediate is.
func (a *authority) under() *authority {
	key := newKey(a.t)
	return &authority{t: a.t, key: key, cert: a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test intermediate"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		NotBefore: time.Now().AddDate(-3, 0, 0), NotAfter: time.Now().AddDate(3, 0, 0),
	}, key)}
}

// signatureOf returns a signature over data and the certificate as upstream publishes them.
func signatureOf(tb testing.TB, data []byte, cert *x509.Certificate, key *ecdsa.PrivateKey) (sig, crt []byte) {
	tb.Helper()
	signer, err := signature.LoadECDSASigner(key, crypto.SHA256)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := signer.SignMessage(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	text, err := cryptoutils.MarshalCertificateToPEM(cert)
	if err != nil {
		tb.Fatal(err)
	}
	return []byte(base64.StdEncoding.EncodeToString(raw)), []byte(base64.StdEncoding.EncodeToString(text))
}

func signed(data []byte) lock.Component {
	c := tool("tool", address, data)
	c.Release["amd64"][0].Signature = &lock.Signature{URL: sigURL, Certificate: crtURL, Identity: robot, Issuer: vouch}
	return c
}

// parts are a signature and its certificate as upstream publishes them.
type parts struct {
	sig, crt []byte
}

func TestSignature(t *testing.T) {
	a := newAuthority(t)
	good, goodKey := a.leaf(nil)
	data := noise(10 << 10)
	of := func(signedData []byte, cert *x509.Certificate, key *ecdsa.PrivateKey) parts {
		sig, crt := signatureOf(t, signedData, cert, key)
		return parts{sig, crt}
	}
	with := func(change func(*x509.Certificate)) parts {
		cert, key := a.leaf(change)
		return of(data, cert, key)
	}
	fine := of(data, good, goodKey)
	pem, err := base64.StdEncoding.DecodeString(string(fine.crt))
	if err != nil {
		t.Fatal(err)
	}
	middle := a.under()
	chained, chainedKey := middle.leaf(nil)
	trust := a.trust()
	trust.Intermediates.AddCert(middle.cert)
	other := newAuthority(t)
	strange, strangeKey := other.leaf(nil)
	for name, test := range map[string]struct {
		parts parts
		err   string
	}{
		"good":                   {fine, ""},
		"bare PEM, newline":      {parts{append(fine.sig, '\n'), pem}, ""},
		"old issuer extension":   {with(func(c *x509.Certificate) { c.ExtraExtensions = c.ExtraExtensions[:1] }), ""},
		"tampered blob":          {of(data[1:], good, goodKey), "does not match the content sha256:" + sha(data)},
		"wrong key":              {of(data, good, newKey(t)), "does not match the content"},
		"wrong identity":         {with(func(c *x509.Certificate) { c.EmailAddresses = []string{"thief@release.example"} }), `wrong identity: the lock says "robot@release.example", it is "thief@release.example"`},
		"no identity":            {with(func(c *x509.Certificate) { c.EmailAddresses = nil }), `wrong identity: the lock says "robot@release.example", it is ""`},
		"wrong issuer":           {with(func(c *x509.Certificate) { c.ExtraExtensions[1].Value = []byte("\x0c\x06https:") }), `wrong issuer: the lock says "https://accounts.example", it is "https:"`},
		"no issuer":              {with(func(c *x509.Certificate) { c.ExtraExtensions = nil }), "no issuer of the identity"},
		"broken issuer":          {with(func(c *x509.Certificate) { c.ExtraExtensions[1].Value = []byte("text") }), "issuer extension is not a string"},
		"through another":        {of(data, chained, chainedKey), ""},
		"another authority":      {of(data, strange, strangeKey), "not issued by a trusted authority"},
		"not for code":           {with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "not issued by a trusted authority"},
		"signature no base64":    {parts{[]byte("%%%"), fine.crt}, sigURL + " is not base64"},
		"certificate no base64":  {parts{fine.sig, []byte("%%%")}, "certificate " + crtURL + ": neither PEM"},
		"certificate of nothing": {parts{fine.sig, nil}, "certificate " + crtURL + ": no certificate found"},
	} {
		t.Run(name, func(t *testing.T) { checkSignature(t, trust, data, test.parts, test.err) })
	}
}

// checkSignature fetches data with the signature and compares the error, and then the cache.
func checkSignature(t *testing.T, trust *Trust, data []byte, p parts, want string) {
	t.Helper()
	u := newUpstream(t)
	u.put(address, data)
	u.put(sigURL, p.sig)
	u.put(crtURL, p.crt)
	f := newFetcher(t, Options{Mirror: u.URL, Trust: trust})
	_, err := f.Get(t.Context(), signed(data))
	if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "signature of "+address)) {
		t.Fatalf("error is %v, want %q", err, want)
	}
	left := listing(t, f.cache.Dir)
	if err != nil && len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err == nil && len(left) != 4 {
		t.Errorf("the cache holds %v, want blob, index, signature and certificate", left)
	}
}

// A verified signature is verified again without the network, against the current lock.
func TestSignatureFromCache(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.leaf(nil)
	data := noise(1000)
	sig, crt := signatureOf(t, data, cert, key)
	u := newUpstream(t)
	u.put(address, data)
	u.put(sigURL, sig)
	u.put(crtURL, crt)
	f := newFetcher(t, Options{Mirror: u.URL, Trust: a.trust()})
	c := signed(data)
	for range 2 {
		if _, err := f.Get(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(u.seen()); got != 3 {
		t.Errorf("asked %d times, want once for each of three files", got)
	}
	c.Release["amd64"][0].Signature.Identity = "someone@else.example"
	if _, err := f.Get(t.Context(), c); err == nil || !strings.Contains(err.Error(), "wrong identity") {
		t.Errorf("with another identity in the lock: %v", err)
	}
}

func TestSignatureMissingUpstream(t *testing.T) {
	data := noise(1000)
	u := newUpstream(t)
	u.put(address, data)
	f := newFetcher(t, Options{Mirror: u.URL})
	_, err := f.Get(t.Context(), signed(data))
	if err == nil || !strings.Contains(err.Error(), "signature of "+address) || !strings.Contains(err.Error(), "404") {
		t.Errorf("error is %v", err)
	}
}

// A signature that cosign made with the public instance verifies under the embedded roots. It is that of
// protobuf-specs' sample a.txt (github.com/sigstore/protobuf-specs, Apache-2.0), whose digest is here.
func TestPublicSignature(t *testing.T) {
	const digest = "632579b5183d418ff3dc443994fd35e0e1a2a6ce89a1ee22fdca577f8e8bc9c3"
	sig, err := os.ReadFile("testdata/public.sig")
	if err != nil {
		t.Fatal(err)
	}
	crt, err := os.ReadFile("testdata/public.cert")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := parseCertificate(crt)
	if err != nil || time.Now().Before(leaf.NotAfter) {
		t.Fatalf("the certificate has not expired, so this test would not show what it should: %v", err)
	}
	trust, err := PublicTrust()
	if err != nil {
		t.Fatal(err)
	}
	want := lock.Signature{
		URL: "public.sig", Certificate: "public.cert",
		Identity: leaf.EmailAddresses[0], Issuer: "https://github.com/login/oauth",
	}
	if err := trust.verify(want, digest, sig, crt); err != nil {
		t.Error(err)
	}
	if err := trust.verify(want, sha(sig), sig, crt); err == nil || !strings.Contains(err.Error(), "does not match the content") {
		t.Errorf("for other content: %v", err)
	}
	want.Issuer = "https://accounts.google.com"
	if err := trust.verify(want, digest, sig, crt); err == nil || !strings.Contains(err.Error(), "wrong issuer") {
		t.Errorf("for another issuer: %v", err)
	}
	if err := newAuthority(t).trust().verify(want, digest, sig, crt); err == nil || !strings.Contains(err.Error(), "not issued by a trusted authority") {
		t.Errorf("under other roots: %v", err)
	}
}

// The embedded roots are the public instance's: openssl, which knows nothing of ours, agrees that they
// are a chain, and how long they last.
func TestPublicTrust(t *testing.T) {
	trust, err := PublicTrust()
	if err != nil {
		t.Fatal(err)
	}
	if trust.Roots.Equal(x509.NewCertPool()) || trust.Intermediates.Equal(x509.NewCertPool()) {
		t.Fatal("roots or intermediates are empty")
	}
	openssl, err := exec.LookPath("openssl")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("openssl is not installed")
	}
	out, err := exec.CommandContext(t.Context(), openssl, "verify", "-CAfile", "fulcio/fulcio_v1.crt.pem", "fulcio/fulcio_intermediate_v1.crt.pem").CombinedOutput()
	if err != nil {
		t.Errorf("openssl verify: %v\n%s", err, out)
	}
	year := 365 * 24 * time.Hour
	for _, file := range []string{"fulcio.crt.pem", "fulcio_v1.crt.pem", "fulcio_intermediate_v1.crt.pem"} {
		data, err := os.ReadFile(filepath.Join("fulcio", file))
		if err != nil {
			t.Fatal(err)
		}
		certs, err := cryptoutils.UnmarshalCertificatesFromPEM(data)
		if err != nil || len(certs) != 1 {
			t.Fatalf("%s: %d certificates, %v", file, len(certs), err)
		}
		if left := time.Until(certs[0].NotAfter); left < year {
			t.Errorf("%s has %s left: take the new one from the trust root", file, left)
		}
	}
}
