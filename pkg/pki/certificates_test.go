package pki_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

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
		parsed          int // how many public keys; 0 for an error
		accepted        bool
	}{
		"one":                    {public(0), private[0], 1, true},
		"two, the old one signs": {public(0, 1), private[0], 2, true},
		"two, the new one signs": {public(0, 1), private[1], 2, true},
		"a stranger's":           {public(0, 1), private[2], 2, false},
		"three":                  {public(0, 1, 2), private[0], 0, false},
		"twice":                  {public(0, 0), private[0], 0, false},
		"none":                   {nil, private[0], 0, false},
		"no private one":         {public(0), nil, 1, false},
		"the wrong way":          {private[0], public(0), 0, false},
		"blanks between":         {slices.Concat(public(0), []byte("\n \n"), public(1)), private[0], 2, true},
		"rubbish after":          {append(public(0), 'x'), private[0], 0, false},
		"broken":                 {[]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), private[0], 0, false},
	} {
		list, err := pki.ParsePublic(tt.public)
		if (err == nil) != (tt.parsed > 0) || len(list) != tt.parsed {
			t.Errorf("%s: %d public keys alone, %v", name, len(list), err)
		}
		got, err := pki.ParseAccountKeys(tt.public, tt.private)
		if (err == nil) != tt.accepted || (got.Key != nil) != tt.accepted || len(got.Public) != len(list) && tt.accepted ||
			len(got.Public) > 0 && !tt.accepted {
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
		// That it says so itself (4.2.1.9) is for those that take a certificate without the extension for an authority's.
		if !c.BasicConstraintsValid || c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature {
			t.Errorf("a leaf's key is for %b, authority %v, which it says: %v", c.KeyUsage, c.IsCA, c.BasicConstraintsValid)
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
