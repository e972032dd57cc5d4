package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"time"
)

const (
	// LeafLife is how long what masters mint is valid. Kubernetes has no revocation, so that a stolen certificate
	// is good until it ends: days, not a year. Shorter than days and an outage of the store over a
	// weekend would stop a cluster: renewal is due after 2/3, which leaves 56 hours to notice and repair.
	LeafLife = 7 * 24 * time.Hour
	// AdminLife is how long an administrator's certificate is valid: a working day, and whatever is left of it.
	AdminLife = 24 * time.Hour
	// jitter is how much of its life a certificate may be renewed earlier than at 2/3, so that machines which
	// were started together do not come to the store together.
	jitter = 0.1
)

// How each daemon takes what is renewed, by the sources of Kubernetes 1.36 and etcd 3.6; none needs a restart.
//
//	kube-apiserver   server, front-proxy-client   inotify on both files and a look every minute; a pair that does not
//	                                              match is left alone (apiserver/…/dynamiccertificates)
//	                 kubelet-client, etcd-client  read at each new connection (client-go/transport: cachingCertificateLoader,
//	                                              etcd's client/pkg/transport: GetClientCertificate)
//	                 ca, front-proxy-ca           inotify and a look every minute
//	controller manager, scheduler, our own        client: read at each new connection and every five minutes, when the old
//	                                              connections are closed (client-go/transport/cert_rotation.go)
//	                 ca.crt and ca.key            as kube-apiserver's server (certificates/signer/ca_provider.go)
//	etcd             server, peer                 read at each new connection, of clients and of members
//	kubelet          its own                      it renews itself; its file is what kube-proxy and flanneld read, as above
//
// The service account's key, the encryption key and etcd's authorities are read at the start alone. They do not change.

// RenewAt is when a certificate is due: at 2/3 of its life or up to a tenth of its life before that. The same certificate
// gives the same time, since it is drawn from its serial number.
func RenewAt(cert *x509.Certificate) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	var tail [8]byte
	serial := cert.SerialNumber.FillBytes(make([]byte, 20))
	copy(tail[:], serial[12:])
	// The upper 53 bits of the tail, as a fraction of one.
	fraction := float64(binary.BigEndian.Uint64(tail[:])>>11) / (1 << 53)
	return cert.NotBefore.Add(time.Duration(float64(life) * (2.0/3 - jitter*fraction)))
}

// Due says why the leaf has to be minted again, given the files that there are; "" is that it need not be.
func (l Leaf) Due(certPEM, keyPEM []byte, now time.Time) string {
	if len(certPEM) == 0 || len(keyPEM) == 0 {
		return "there is none"
	}
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return fmt.Sprintf("what is there cannot be used: %v", err)
	}
	cert, err := ParseCertificate(certPEM)
	if err != nil {
		return fmt.Sprintf("what is there cannot be used: %v", err)
	}
	switch {
	case cert.CheckSignatureFrom(l.Issuer.Certificate) != nil:
		return "another authority has signed it"
	case !l.Profile.fits(cert):
		return "the names, addresses or groups have changed"
	case now.Before(cert.NotBefore):
		return "it is not valid yet: the clock was ahead when it was minted"
	case !now.Before(RenewAt(cert)):
		return "it is due since " + stamp(RenewAt(cert))
	}
	return ""
}
