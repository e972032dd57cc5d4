// Package pki defines the certificates of a cluster: their contents, issuers, lifetimes and renewal.
//
// Its rule: values to values. It reads no file, store or clock; the time is an argument, and the results are contents
// of files. It also defines which role may read which object of the cluster's store, so that the owners of each key are
// listed in one place.
package pki

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// AuthorityLife is the lifetime of an authority: longer than most clusters live, since replacing one means replacing
	// what every machine trusts.
	AuthorityLife = 10 * 365 * 24 * time.Hour
	// Backdate is how long before the signer's time a certificate becomes valid. Machines with time synchronization differ
	// by well under a second; Kerberos and AWS's signatures also allow five minutes.
	Backdate = 5 * time.Minute
)

// ErrClock means that the time is before the start of an authority. Certificates signed now would not be valid, and those of
// others look invalid here.
var ErrClock = errors.New("the clock is wrong")

// ErrExpired means that an authority has expired.
var ErrExpired = errors.New("the certificate authority has expired")

// Authority is a certificate and its signing key. The zero value cannot sign.
type Authority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
	// Others are trusted beside Certificate, and sign nothing here: while an authority is being replaced, its predecessor
	// or its successor.
	Others []*x509.Certificate
}

// Trusted returns all certificates of the authority, the oldest first: that another one signs changes no file of those that
// trust both.
func (a Authority) Trusted() []*x509.Certificate {
	all := append([]*x509.Certificate{a.Certificate}, a.Others...)
	slices.SortStableFunc(all, func(a, b *x509.Certificate) int {
		return cmp.Or(a.NotBefore.Compare(b.NotBefore), bytes.Compare(a.Raw, b.Raw))
	})
	return all
}

// MaxTrusted is how many certificates of an authority, or keys, can be trusted at the same time: the old one and the new one.
// User data has room for little more.
const MaxTrusted = 2

// NewKey makes a private key: P-256, which every daemon accepts, and which signs much faster than RSA.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// NewAuthority returns a self-signed authority for an existing key.
func NewAuthority(name string, key *ecdsa.PrivateKey, now time.Time) (Authority, error) {
	template := &x509.Certificate{ // and a random serial number: see CreateCertificate
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-Backdate).UTC().Truncate(time.Second),
		NotAfter:  now.Add(AuthorityLife).UTC().Truncate(time.Second),
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:      true, BasicConstraintsValid: true,
		// It signs leaves only.
		MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Authority{}, fmt.Errorf("signing the authority %q: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Authority{}, fmt.Errorf("reading back the authority %q: %w", name, err)
	}
	return Authority{Certificate: cert, Key: key}, nil
}

// ParseAuthority parses certificates as ParseTrusted does, and the key of one of them, which then signs.
func ParseAuthority(certPEM, keyPEM []byte) (Authority, error) {
	certs, err := ParseTrusted(certPEM)
	if err != nil {
		return Authority{}, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return Authority{}, err
	}
	i := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return key.PublicKey.Equal(c.PublicKey) })
	if i < 0 {
		return Authority{}, errors.New("the key is not that of the certificate: one of the two was replaced")
	}
	return Authority{Certificate: certs[i], Key: key, Others: slices.Delete(slices.Clone(certs), i, i+1)}, nil
}

// ParseTrusted parses the certificates of an authority: one, or two while it is being replaced.
func ParseTrusted(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := data; len(certs) == 0 || len(bytes.TrimSpace(rest)) > 0; {
		var block []byte
		var err error
		if block, rest, err = nextBlock(rest, blockCertificate); err != nil {
			return nil, err
		}
		cert, err := x509.ParseCertificate(block)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		if !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
			return nil, fmt.Errorf("the certificate of %s is not an authority's: it may sign no other", cert.Subject)
		}
		if slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return Same(c, cert) }) {
			return nil, fmt.Errorf("the certificate of %s is there twice", cert.Subject)
		}
		if certs = append(certs, cert); len(certs) > MaxTrusted {
			return nil, fmt.Errorf("there are more than %d certificates: an old authority and its successor", MaxTrusted)
		}
	}
	return certs, nil
}

// Check returns ErrClock or ErrExpired if an authority cannot be used at that time.
func Check(authority *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(authority.NotBefore):
		return fmt.Errorf("%w: it says %s, and the certificate authority %q begins at %s, %s later", ErrClock, stamp(now), authority.Subject.CommonName,
			stamp(authority.NotBefore), authority.NotBefore.Sub(now).Round(time.Second))
	case now.After(authority.NotAfter):
		return fmt.Errorf("%w: the clock says %s, and %q ended at %s",
			ErrExpired, stamp(now), authority.Subject.CommonName, stamp(authority.NotAfter))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// CheckAny is Check for authorities of which one is enough.
func CheckAny(authorities []*x509.Certificate, now time.Time) error {
	var errs []error
	for _, a := range authorities {
		err := Check(a, now)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errs[0]
}

// Fingerprints returns the fingerprints of certificates, separated by commas.
func Fingerprints(certs []*x509.Certificate) string {
	var all []string
	for _, c := range certs {
		all = append(all, Fingerprint(c))
	}
	return strings.Join(all, ", ")
}

// Fingerprint returns the SHA-256 of a certificate in hex, as browsers and openssl show it.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// Same reports whether two certificates are identical.
func Same(a, b *x509.Certificate) bool { return bytes.Equal(a.Raw, b.Raw) }

// The types of PEM blocks.
const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
	blockPublic      = "PUBLIC KEY"
)

// EncodeCertificate encodes a certificate as PEM.
func EncodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})
}

// EncodeCertificates encodes certificates as PEM, in their order.
func EncodeCertificates(certs []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, EncodeCertificate(c)...)
	}
	return out
}

// EncodeKey encodes a private key as PEM (PKCS #8).
func EncodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}

// EncodePublic encodes public keys as PEM, in their order.
func EncodePublic(keys ...*ecdsa.PublicKey) ([]byte, error) {
	var out []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			return nil, fmt.Errorf("encoding a public key: %w", err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: blockPublic, Bytes: der})...)
	}
	return out, nil
}

// ParseCertificate parses PEM with exactly one certificate.
func ParseCertificate(data []byte) (*x509.Certificate, error) {
	der, err := oneBlock(data, blockCertificate)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	return cert, nil
}

// ParseKey parses a P-256 private key. Its errors never contain the key.
func ParseKey(data []byte) (*ecdsa.PrivateKey, error) {
	der, err := oneBlock(data, blockKey)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("reading a private key: it is not PKCS #8")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("reading a private key: it is not on the curve P-256")
	}
	return key, nil
}

// AccountKeys are the keys of service accounts' tokens: Key signs, and what Public has signed is accepted.
type AccountKeys struct {
	Key *ecdsa.PrivateKey
	// Public are one or two, while the key is being replaced the old one first.
	Public []*ecdsa.PublicKey
}

// ParseAccountKeys parses public keys, and the private key of one of them.
func ParseAccountKeys(publicPEM, keyPEM []byte) (k AccountKeys, err error) {
	if k.Public, err = ParsePublic(publicPEM); err != nil {
		return AccountKeys{}, err
	}
	if k.Key, err = ParseKey(keyPEM); err != nil {
		return AccountKeys{}, err
	}
	if !slices.ContainsFunc(k.Public, func(p *ecdsa.PublicKey) bool { return k.Key.PublicKey.Equal(p) }) {
		return AccountKeys{}, errors.New("the private key belongs to no public one: one of the two was replaced")
	}
	return k, nil
}

// ParsePublic parses public keys on the curve P-256: one, or two while the key is being replaced.
func ParsePublic(data []byte) ([]*ecdsa.PublicKey, error) {
	var keys []*ecdsa.PublicKey
	for rest := data; len(keys) == 0 || len(bytes.TrimSpace(rest)) > 0; {
		var der []byte
		var err error
		if der, rest, err = nextBlock(rest, blockPublic); err != nil {
			return nil, err
		}
		parsed, err := x509.ParsePKIXPublicKey(der)
		if err != nil {
			return nil, fmt.Errorf("reading a public key: %w", err)
		}
		key, ok := parsed.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, errors.New("reading a public key: it is not on the curve P-256")
		}
		if slices.ContainsFunc(keys, func(k *ecdsa.PublicKey) bool { return key.Equal(k) }) {
			return nil, errors.New("reading public keys: one is there twice")
		}
		if keys = append(keys, key); len(keys) > MaxTrusted {
			return nil, fmt.Errorf("there are more than %d public keys: an old one and its successor", MaxTrusted)
		}
	}
	return keys, nil
}

// oneBlock returns the content of the only PEM block of data.
func oneBlock(data []byte, kind string) ([]byte, error) {
	block, rest, err := nextBlock(data, kind)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("reading PEM: something follows the block %q", kind)
	}
	return block, nil
}

// nextBlock returns the content of the first PEM block of data, and what follows it.
func nextBlock(data []byte, kind string) (content, rest []byte, err error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, nil, fmt.Errorf("reading PEM: there is no block %q in %d bytes", kind, len(data))
	case block.Type != kind:
		return nil, nil, fmt.Errorf("reading PEM: the block is %q, not %q", block.Type, kind)
	}
	return block.Bytes, rest, nil
}
