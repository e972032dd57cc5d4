package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"time"
)

const (
	// LeafLife is the lifetime of certificates that masters mint. Kubernetes has no revocation, so a stolen certificate is
	// usable until it expires: days, not a year. With a shorter life an outage of the store over a weekend would stop a
	// cluster: renewal is due after 2/3 of it, which leaves 56 hours to notice and repair.
	LeafLife = 7 * 24 * time.Hour
	// AdminLife is the lifetime of an administrator's certificate: one day.
	AdminLife = 24 * time.Hour
	// FirstLife is the lifetime of the certificate by which a master gives UserAddons its rights in a new cluster.
	FirstLife = 5 * time.Minute
	// jitter is the fraction of its life by which a certificate may be renewed before 2/3, so that machines that started
	// together do not call the store together.
	jitter = 0.1
)

// How each daemon reloads renewed files, from the sources of Kubernetes 1.36 and etcd 3.6; none needs a restart for what is
// renewed, and Bundle.AtStart has what one needs a restart for when it is replaced.
//
//	kube-apiserver   server, front-proxy-client   inotify on both files and a look every minute; a pair that does not
//	                                              match is left alone (apiserver/…/dynamiccertificates)
//	                 kubelet-client, etcd-client  read at each new connection (client-go/transport: cachingCertificateLoader,
//	                                              etcd's client/pkg/transport: GetClientCertificate)
//	                 ca, front-proxy-ca           inotify and a look every minute
//	controller manager, scheduler, our own        client: read at each new connection and every five minutes, when the old
//	                                              connections are closed (client-go/transport/cert_rotation.go)
//	                 the signers' authorities     as kube-apiserver's server (certificates/signer/ca_provider.go)
//	etcd             server, peer                 read at each new connection, of clients and of members
//	kubelet          its own                      it renews itself; its file is what kube-proxy and flanneld read, as above
//
//	kube-apiserver   encryption.yaml              a look every minute (encryptionconfig/controller)
//	                 kubelet-ca                   client-go's transports of 1.36 look at it (ClientsAllowCARotation), and so
//	                                              does every kubeconfig's authority, but not in clients built with an older one
//	kubelet          ca, for its clients          as kube-apiserver's ca
//
// Read only at the start are the service accounts' keys, etcd's authorities (by etcd and by kube-apiserver), the
// controller manager's --root-ca-file, which it publishes to pods, and before 1.36 every kubeconfig's authority, also by
// flanneld.

// RenewAt returns when a certificate is due for renewal: at 2/3 of its life, or up to a tenth of its life earlier. The
// result is the same for the same certificate, since the jitter is derived from its serial number.
func RenewAt(cert *x509.Certificate) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	var tail [8]byte
	serial := cert.SerialNumber.FillBytes(make([]byte, 20))
	copy(tail[:], serial[12:])
	// The upper 53 bits of the tail, as a fraction of one.
	fraction := float64(binary.BigEndian.Uint64(tail[:])>>11) / (1 << 53)
	return cert.NotBefore.Add(time.Duration(float64(life) * (2.0/3 - jitter*fraction)))
}

// Due returns why the leaf must be minted again, given its current files, or "".
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
