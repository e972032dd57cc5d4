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

	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
)

// Trust is whose certificates are believed.
type Trust struct {
	Roots         *x509.CertPool
	Intermediates *x509.CertPool
}

// fulcio holds the certificates of the public Sigstore instance's authority, as its trust root
// distributes them; they end in 2031. TUF metadata would say more, but it expires within months and
// then needs the network, and an image must be bakeable without one.
//
//go:embed fulcio/*.pem
var fulcio embed.FS

// PublicTrust is the trust in the public Sigstore instance.
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

// verify checks a cosign signature over the content with that sha256 (hex): the certificate's chain,
// whom and by whom it was issued, and the signature by its key. sig and cert are as upstream publishes
// them: base64, and PEM or base64 of it.
//
// Such a certificate lives for ten minutes around the signing, so its chain is verified at its own time
// of issue. What remains open is whether the key signed within those minutes. Rekor, the transparency
// log, would tell: its entry for this signature carries the time and is public. It is not asked here,
// and neither is the certificate's own log timestamp checked: who can misuse an expired key must have
// stolen it, and must besides replace a file whose digest the lock already pins.
func (t *Trust) verify(want component.Signature, digest string, sig, cert []byte) error {
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
	// The digest was computed here from the whole content, so it may stand for it.
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
		return nil, errors.New("holds no certificate")
	}
	return certs[0], nil
}

// oidcIssuer returns who vouched for the identity, from the extensions that Fulcio documents under
// 1.3.6.1.4.1.57264.1: 8 holds it as a DER string, and the older 1 as bare text.
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
		return "", errors.New("says no issuer of the identity: it is not from Fulcio")
	}
	return old, nil
}
