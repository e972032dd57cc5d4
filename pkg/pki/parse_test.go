package pki_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestWrongFile: who gives a file in the place of another one is told what it is and what it should be, by each parser; and that something
// follows it, or that it is broken, is not mistaken for another fault.
func TestWrongFile(t *testing.T) {
	a := newAuthority(t, "demo", now)
	crt, key := encoded(t, a)
	public, err := pki.EncodePublic(&a.Key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"CERTIFICATE": crt, "PRIVATE KEY": key, "PUBLIC KEY": public}
	for name, tt := range map[string]struct {
		want  string
		parse func([]byte) error
	}{
		"ParseCertificate": {"CERTIFICATE", func(data []byte) error { return second(pki.ParseCertificate(data)) }},
		"ParseTrusted":     {"CERTIFICATE", func(data []byte) error { return second(pki.ParseTrusted(data)) }},
		"ParseAuthority":   {"CERTIFICATE", func(data []byte) error { return second(pki.ParseAuthority(data, key)) }},
		"ParseKey":         {"PRIVATE KEY", func(data []byte) error { return second(pki.ParseKey(data)) }},
		"ParsePublic":      {"PUBLIC KEY", func(data []byte) error { return second(pki.ParsePublic(data)) }},
		"ParseAccountKeys": {"PUBLIC KEY", func(data []byte) error { return second(pki.ParseAccountKeys(data, key)) }},
	} {
		for kind, data := range files {
			err := tt.parse(data)
			switch {
			case kind == tt.want && err != nil:
				t.Errorf("%s: %v", name, err)
			case kind != tt.want && (err == nil || !strings.Contains(err.Error(), kind) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%s is given a %s: %v", name, kind, err)
			}
		}
		// What is there is good: only what follows it is not.
		if err := tt.parse(append(slices.Clone(files[tt.want]), 'x')); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s is given more than a %s: %v", name, tt.want, err)
		}
		broken := pem.EncodeToMemory(&pem.Block{Type: tt.want, Bytes: []byte("x")})
		if err := tt.parse(broken); err == nil || strings.Contains(err.Error(), "P-256") {
			t.Errorf("%s says nothing of a broken %s, or the wrong thing: %v", name, tt.want, err)
		}
	}
}

// TestTrusted: the files of those that trust both authorities are the same whichever signs: the older one is the first, and of two
// that begin in the same second always the same one.
func TestTrusted(t *testing.T) {
	old, young, twin := newAuthority(t, "a", now), newAuthority(t, "a", now.Add(time.Hour)), newAuthority(t, "a", now)
	trusted := func(signer, other pki.Authority) []*x509.Certificate {
		return pki.Authority{Certificate: signer.Certificate, Key: signer.Key, Others: []*x509.Certificate{other.Certificate}}.Trusted()
	}
	for _, got := range [][]*x509.Certificate{trusted(old, young), trusted(young, old)} {
		if len(got) != 2 || !pki.Same(got[0], old.Certificate) || !pki.Same(got[1], young.Certificate) {
			t.Errorf("the first of %d begins at %v", len(got), got[0].NotBefore)
		}
	}
	if !slices.EqualFunc(trusted(old, twin), trusted(twin, old), pki.Same) {
		t.Error("the order changes with the signer")
	}
}

// made returns a certificate that this package would not issue.
func made(t *testing.T, authority bool, usage x509.KeyUsage) []byte {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{NotBefore: now, NotAfter: now.Add(time.Hour), BasicConstraintsValid: true, IsCA: authority, KeyUsage: usage}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestFairLetters counts the letters of many tokens, from a random source that is the same in every run: all are as frequent, up to
// six standard deviations. 256 is no multiple of 36: the remainder of a byte alone would prefer the first four.
func TestFairLetters(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	count := map[rune]int{}
	const tokens, each = 16400, 16400 * 22 / 36
	for range tokens {
		for _, letter := range strings.Replace(pki.NewToken(now).Bearer(), ".", "", 1) {
			count[letter]++
		}
	}
	for letter, n := range count {
		if n < each-600 || n > each+600 {
			t.Errorf("%c is there %d times, want about %d", letter, n, each)
		}
	}
	if len(count) != 36 {
		t.Errorf("tokens have %d letters", len(count))
	}
}
