package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newAuthority(tb testing.TB, name string, at time.Time) pki.Authority {
	tb.Helper()
	key, err := pki.NewKey()
	if err != nil {
		tb.Fatal(err)
	}
	a, err := pki.NewAuthority(name, key, at)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func encoded(t *testing.T, a pki.Authority) (crt, key []byte) {
	t.Helper()
	key, err := pki.EncodeKey(a.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pki.EncodeCertificate(a.Certificate), key
}

func TestAuthority(t *testing.T) {
	a := newAuthority(t, "demo kubernetes-ca", now)
	crt, key := encoded(t, a)
	back, err := pki.ParseAuthority(crt, key)
	if err != nil {
		t.Fatal(err)
	}
	c := back.Certificate
	if !c.NotBefore.Equal(now.Add(-5*time.Minute)) || !c.NotAfter.Equal(now.Add(pki.AuthorityLife)) {
		t.Errorf("valid from %v to %v", c.NotBefore, c.NotAfter)
	}
	if !c.IsCA || !c.MaxPathLenZero || c.Subject.CommonName != "demo kubernetes-ca" {
		t.Errorf("%v, authority %v, path length zero %v", c.Subject, c.IsCA, c.MaxPathLenZero)
	}
	if other := newAuthority(t, "demo kubernetes-ca", now); pki.Same(other.Certificate, c) || pki.Fingerprint(other.Certificate) == pki.Fingerprint(c) {
		t.Error("two authorities are the same")
	}
}

func TestParseAuthorityRefuses(t *testing.T) {
	a, b := newAuthority(t, "a", now), newAuthority(t, "b", now)
	crt, key := encoded(t, a)
	_, otherKey := encoded(t, b)
	leaf, err := a.Issue(pki.Profile{Name: "leaf", Usage: pki.Client, Life: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		crt, key []byte
		want     string
	}{
		"another key":    {crt, otherKey, "not that of the certificate"},
		"a leaf":         {leaf.Certificate, leaf.Key, "not an authority's"},
		"nothing":        {nil, key, "no block"},
		"the wrong way":  {key, crt, `is "PRIVATE KEY", not "CERTIFICATE"`},
		"the same twice": {append(append([]byte{}, crt...), crt...), key, "there twice"},
		"a broken key":   {crt, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "not PKCS #8"},
		"half a file":    {crt[:len(crt)/2], key, "no block"},
	} {
		if _, err := pki.ParseAuthority(tt.crt, tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestClock(t *testing.T) {
	a := newAuthority(t, "demo", now)
	for name, tt := range map[string]struct {
		at   time.Time
		want error
		says string
	}{
		"now":                         {now, nil, ""},
		"a little slow":               {now.Add(-4 * time.Minute), nil, ""},
		"an hour slow":                {now.Add(-time.Hour), pki.ErrClock, "55m0s later"},
		"a machine without a battery": {time.Unix(0, 0), pki.ErrClock, "1970-01-01"},
		"the last second":             {now.Add(pki.AuthorityLife), nil, ""},
		"after the end":               {now.Add(pki.AuthorityLife + time.Second), pki.ErrExpired, "2035-12-31"},
	} {
		_, err := a.Issue(pki.Profile{Name: "leaf", Usage: pki.Client, Life: time.Hour}, tt.at)
		if !errors.Is(err, tt.want) || tt.says != "" && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLeafLivesWithinItsAuthority(t *testing.T) {
	a := newAuthority(t, "demo", now)
	for after, begin := range map[time.Duration]time.Duration{
		-4 * time.Minute:              -pki.Backdate, // no earlier than the authority
		0:                             -pki.Backdate,
		time.Minute:                   time.Minute - pki.Backdate,
		pki.AuthorityLife - time.Hour: pki.AuthorityLife - time.Hour - pki.Backdate,
	} {
		at := now.Add(after)
		pair, err := a.Issue(pki.Profile{Name: "leaf", Usage: pki.Server, Life: pki.LeafLife}, at)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.ParseCertificate(pair.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if c.NotBefore.Before(a.Certificate.NotBefore) || c.NotAfter.After(a.Certificate.NotAfter) {
			t.Errorf("at %v: %v to %v is outside of the authority's time", at, c.NotBefore, c.NotAfter)
		}
		if !c.NotBefore.Equal(now.Add(begin)) {
			t.Errorf("at %v: begins at %v: a clock that is a little slow would refuse it, or it lives longer than it should", at, c.NotBefore)
		}
	}
}

func TestIssueRefusesNothing(t *testing.T) {
	a := newAuthority(t, "demo", now)
	for _, p := range []pki.Profile{{}, {Name: "x", Usage: pki.Client}, {Name: "x", Life: time.Hour}, {Usage: pki.Client, Life: time.Hour}} {
		if _, err := a.Issue(p, now); err == nil {
			t.Errorf("%+v was signed", p)
		}
	}
}

// TestNotSigned: what cannot be signed is an error, and no half of a pair.
func TestNotSigned(t *testing.T) {
	a, b := newAuthority(t, "demo", now), newAuthority(t, "demo", now)
	for name, tt := range map[string]struct {
		issuer pki.Authority
		names  []string
	}{
		"with the key of another authority": {pki.Authority{Certificate: a.Certificate, Key: b.Key}, nil},
		"a name that is not ASCII":          {a, []string{"müller.example"}}, // RFC 5280, 4.2.1.6: an IA5String
	} {
		pair, err := tt.issuer.Issue(pki.Profile{Name: "x", Usage: pki.Server, Names: tt.names, Life: time.Hour}, now)
		if err == nil || pair.Certificate != nil || pair.Key != nil {
			t.Errorf("%s: %d and %d bytes, %v", name, len(pair.Certificate), len(pair.Key), err)
		}
	}
	if a, err := pki.NewAuthority("\xff", a.Key, now); err == nil || a.Certificate != nil {
		t.Errorf("an authority whose name is not UTF-8: %v", err)
	}
}

// TestErrorsShowNoSecrets reads secrets that are a little broken.
func TestErrorsShowNoSecrets(t *testing.T) {
	const secret = "MIGHAgEAMBMGByqGSM49"
	for name, err := range map[string]error{
		"key":            second(pki.ParseKey([]byte("-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n"))),
		"encryption key": second(pki.ParseEncryptionKeys([]byte(secret))),
		"token":          second(pki.ParseToken([]byte(`{"token":"` + secret + `","expires":"2026-01-02T03:04:05Z"}`))),
		"token's JSON":   second(pki.ParseToken([]byte(`{"token":"` + secret))),
	} {
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestOpenSSL verifies issued certificates with another implementation.
func TestOpenSSL(t *testing.T) {
	program, err := exec.LookPath("openssl")
	if err != nil {
		t.Skipf("openssl is not installed (Debian's package openssl): %v", err)
	}
	dir := t.TempDir()
	at := time.Now()
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	a, other := newAuthority(t, "demo", at), newAuthority(t, "other", at)
	ca, otherCA := write("ca.crt", pki.EncodeCertificate(a.Certificate)), write("other.crt", pki.EncodeCertificate(other.Certificate))
	pair, err := a.Issue(pki.Profile{Name: "server", Usage: pki.Server, Names: []string{"masters.demo.k8s"}, Life: time.Hour}, at)
	if err != nil {
		t.Fatal(err)
	}
	crt, key := write("server.crt", pair.Certificate), write("server.key", pair.Key)
	for _, tt := range []struct {
		args []string
		good bool
	}{
		{[]string{"verify", "-x509_strict", "-CAfile", ca, "-purpose", "sslserver", "-verify_hostname", "masters.demo.k8s", crt}, true},
		{[]string{"verify", "-x509_strict", "-CAfile", ca, "-verify_hostname", "minions.demo.k8s", crt}, false},
		{[]string{"verify", "-x509_strict", "-CAfile", ca, "-purpose", "sslclient", crt}, false},
		{[]string{"verify", "-x509_strict", "-CAfile", otherCA, crt}, false},
		{[]string{"pkey", "-in", key, "-check", "-noout"}, true},
	} {
		out, err := exec.CommandContext(t.Context(), program, tt.args...).CombinedOutput()
		if (err == nil) != tt.good {
			t.Errorf("openssl %s: %v\n%s", strings.Join(tt.args, " "), err, out)
		}
	}
}

func BenchmarkIssue(b *testing.B) {
	a := newAuthority(b, "demo", now)
	for b.Loop() {
		if _, err := a.Issue(pki.Profile{Name: "leaf", Usage: pki.Client, Life: time.Hour}, now); err != nil {
			b.Fatal(err)
		}
	}
}

func parsePair(t *testing.T, files []pki.File, name string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(content(t, files, name))
	if block == nil {
		t.Fatalf("%s is not PEM", name)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func content(t *testing.T, files []pki.File, name string) []byte {
	t.Helper()
	i := slices.IndexFunc(files, func(f pki.File) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no file %s", name)
	}
	return files[i].Content
}
