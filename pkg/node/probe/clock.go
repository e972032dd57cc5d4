package probe

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// tooEarly finds a CA that is not valid yet: it was made before the machine was started, so that it is the
// clock which is wrong. (A verification would only say that the authority is unknown.)
func tooEarly(text []byte, file string, now time.Time) error {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // the pool has taken it, or it is no certificate
		}
		if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
			return validity(cert, "the CA in "+file, now)
		}
	}
	return nil
}

// validity says how a certificate and the clock disagree.
func validity(cert *x509.Certificate, what string, now time.Time) error {
	clock := now.UTC().Format(time.DateOnly + " 15:04")
	if now.Before(cert.NotBefore) {
		return reason.Errorf(reason.Clock, "%s is valid from %s on, and this machine's clock says %s: waiting for time synchronisation",
			what, cert.NotBefore.UTC().Format(time.RFC3339), clock)
	}
	return reason.Errorf(reason.Clock, "%s was valid until %s, and this machine's clock says %s: it was not renewed, or the clock is ahead",
		what, cert.NotAfter.UTC().Format(time.RFC3339), clock)
}

func subject(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	return "for " + c.Subject.String()
}

func issuer(c *x509.Certificate) string {
	if c == nil {
		return "an unknown authority"
	}
	return c.Issuer.String()
}
