package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Usage is what a certificate may be used for; both may be set.
type Usage uint8

// The usages.
const (
	Server Usage = 1 << iota
	Client
)

// Profile is the content of a certificate. Zero values of fields other than Name, Usage and Life mean none.
type Profile struct {
	// Name is the common name: the user name, for a Kubernetes API server and for etcd.
	Name string
	// Groups are the user's groups.
	Groups []string
	Usage  Usage
	// Names and Addresses are the server's.
	Names     []string
	Addresses []netip.Addr
	// Life begins now; Backdate comes on top.
	Life time.Duration
}

// Pair is a certificate and its key in PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Issue makes a key and signs a certificate for it, which expires no later than the authority.
func (a Authority) Issue(p Profile, now time.Time) (Pair, error) {
	if err := Check(a.Certificate, now); err != nil {
		return Pair{}, err
	}
	if p.Name == "" || p.Usage == 0 || p.Life <= 0 {
		return Pair{}, errors.New("issuing a certificate: name, usage and life are needed")
	}
	key, err := NewKey()
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of %s: %w", p.Name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, p.template(a, now), a.Certificate, key.Public(), a.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s: %w", p.Name, err)
	}
	keyPEM, err := EncodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Certificate: EncodeCertificate(&x509.Certificate{Raw: der}), Key: keyPEM}, nil
}

func (p Profile) template(a Authority, now time.Time) *x509.Certificate {
	end := now.Add(p.Life).UTC().Truncate(time.Second)
	if end.After(a.Certificate.NotAfter) {
		end = a.Certificate.NotAfter
	}
	begin := now.Add(-Backdate).UTC().Truncate(time.Second)
	if begin.Before(a.Certificate.NotBefore) {
		begin = a.Certificate.NotBefore
	}
	// The serial number is left to CreateCertificate, which makes a random one of at most 20 bytes: RenewAt counts on both.
	t := &x509.Certificate{
		Subject:   pkix.Name{CommonName: p.Name, Organization: p.Groups},
		NotBefore: begin, NotAfter: end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		DNSNames:              p.Names,
		ExtKeyUsage:           p.Usage.extended(),
	}
	for _, address := range p.Addresses {
		t.IPAddresses = append(t.IPAddresses, net.IP(address.Unmap().AsSlice()))
	}
	return t
}

func (u Usage) extended() []x509.ExtKeyUsage {
	var out []x509.ExtKeyUsage
	if u&Server != 0 {
		out = append(out, x509.ExtKeyUsageServerAuth)
	}
	if u&Client != 0 {
		out = append(out, x509.ExtKeyUsageClientAuth)
	}
	return out
}

// fits reports whether a certificate matches the profile, apart from its times.
func (p Profile) fits(cert *x509.Certificate) bool {
	var addresses []string
	for _, a := range p.Addresses {
		addresses = append(addresses, a.Unmap().String())
	}
	var have []string
	for _, ip := range cert.IPAddresses {
		have = append(have, ip.String())
	}
	return cert.Subject.CommonName == p.Name &&
		sameSet(cert.Subject.Organization, p.Groups) &&
		sameSet(cert.DNSNames, p.Names) &&
		sameSet(have, addresses) &&
		slices.Equal(cert.ExtKeyUsage, p.Usage.extended())
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}
