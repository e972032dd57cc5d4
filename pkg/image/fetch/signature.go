package fetch

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"embed"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// Trust has the root certificates that signatures are verified with.
type Trust struct {
	Roots         *x509.CertPool
	Intermediates *x509.CertPool
}

// fulcio has the CA certificates of the public Sigstore instance, from its trust root; they expire in 2031. TUF
// metadata would be more complete, but it expires within months and then needs the network, and baking must work without.
//
//go:embed fulcio/*.pem
var fulcio embed.FS

// PublicTrust returns the trust in the public Sigstore instance.
func PublicTrust() (*Trust, error) {
	trust := &Trust{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	files, err := fs.Glob(fulcio, "fulcio/*.pem")
	if err != nil {
		return nil, fmt.Errorf("trust root: %w", err)
	}
	for _, file := range files {
		data, err := fulcio.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("trust root: %w", err)
		}
		certs, err := cryptoutils.UnmarshalCertificatesFromPEM(data)
		if err != nil {
			return nil, fmt.Errorf("trust root %s: %w", file, err)
		}
		for _, cert := range certs {
			if bytes.Equal(cert.RawIssuer, cert.RawSubject) {
				trust.Roots.AddCert(cert)
			} else {
				trust.Intermediates.AddCert(cert)
			}
		}
	}
	return trust, nil
}

// verify checks a cosign signature over the content with that sha256 (hex): the certificate's chain, its subject and
// issuer, and the signature by its key. sig and cert are in the formats that upstream publishes: base64, and PEM or
// base64 of it.
//
// Such a certificate is valid for ten minutes around the signing, so its chain is verified at its own time of issue.
// Whether the key signed within those minutes is not verified. Rekor, the public transparency log, has the time in its
// entry for this signature. sigstore-go would verify it in a bundle; Kubernetes publishes none, but a signature and a
// certificate, for which it would need the network. It is not queried, and the certificate's own log timestamp is not checked either: to misuse
// an expired key an attacker must have stolen it, and must also replace a file whose digest the lock pins.
func (t *Trust) verify(want lock.Signature, digest string, sig, cert []byte) error {
	leaf, err := parseCertificate(cert)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", want.Certificate, err)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: t.Roots, Intermediates: t.Intermediates,
		CurrentTime: leaf.NotBefore.Add(time.Second),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	})
	if err != nil {
		return fmt.Errorf("certificate %s: not issued by a trusted authority: %w", want.Certificate, err)
	}
	if names := cryptoutils.GetSubjectAlternateNames(leaf); !slices.Contains(names, want.Identity) {
		return fmt.Errorf("certificate %s: wrong identity: the lock says %q, it is %q", want.Certificate, want.Identity, strings.Join(names, ", "))
	}
	issuer, err := oidcIssuer(leaf)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", want.Certificate, err)
	}
	if issuer != want.Issuer {
		return fmt.Errorf("certificate %s: wrong issuer: the lock says %q, it is %q", want.Certificate, want.Issuer, issuer)
	}
	sum, err := hex.DecodeString(digest)
	if err != nil {
		return fmt.Errorf("digest %q: %w", digest, err)
	}
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(sig)))
	if err != nil {
		return fmt.Errorf("%s is not base64: %w", want.URL, err)
	}
	verifier, err := signature.LoadVerifier(leaf.PublicKey, crypto.SHA256)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", want.Certificate, err)
	}
	// The digest was computed here from the whole content, so the content need not be read again.
	if err := verifier.VerifySignature(bytes.NewReader(raw), nil, options.WithDigest(sum)); err != nil {
		return fmt.Errorf("%s does not match the content sha256:%s under the key of %s: %w", want.URL, digest, want.Identity, err)
	}
	return nil
}

func parseCertificate(data []byte) (*x509.Certificate, error) {
	data = bytes.TrimSpace(data)
	if !bytes.HasPrefix(data, []byte("-----BEGIN")) {
		decoded, err := base64.StdEncoding.DecodeString(string(data))
		if err != nil {
			return nil, fmt.Errorf("neither PEM nor base64 of it: %w", err)
		}
		data = decoded
	}
	certs, err := cryptoutils.UnmarshalCertificatesFromPEM(data)
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate found")
	}
	return certs[0], nil
}

// oidcIssuer returns the identity provider, from the extensions that Fulcio documents under
// 1.3.6.1.4.1.57264.1: 8 has it as a DER string, and the older 1 as bare text.
func oidcIssuer(cert *x509.Certificate) (string, error) {
	fulcioArc := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1}
	var old string
	for _, ext := range cert.Extensions {
		switch {
		case ext.Id.Equal(append(slices.Clone(fulcioArc), 8)):
			var issuer string
			rest, err := asn1.Unmarshal(ext.Value, &issuer)
			if err != nil || len(rest) > 0 {
				return "", errors.New("the issuer extension is not a string")
			}
			return issuer, nil
		case ext.Id.Equal(append(slices.Clone(fulcioArc), 1)):
			old = string(ext.Value)
		}
	}
	if old == "" {
		return "", errors.New("no issuer of the identity: the certificate is not from Fulcio")
	}
	return old, nil
}
