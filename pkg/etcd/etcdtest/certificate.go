// Package etcdtest has what tests with real etcd members share.
package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Name is a name that every certificate of Certificate is for: that of a server that is asked by an address.
const Name = "etcd"

// Files are a certificate, which is its own authority, and its key, as PEM files.
type Files struct{ Certificate, Key string }

// Certificate writes a certificate for a day into a directory, and returns it with a client's side of it. Every member and
// every client can have it: it is for the loopback device, Name, and the given names and addresses.
func Certificate(tb testing.TB, dir string, names []string, addresses ...net.IP) (Files, *tls.Config) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: Name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    append([]string{Name, "localhost"}, names...),
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1)}, addresses...),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	files := Files{Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	crt := write(tb, files.Certificate, "CERTIFICATE", der)
	pair, err := tls.X509KeyPair(crt, write(tb, files.Key, "PRIVATE KEY", private))
	if err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(crt)
	return files, &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}
}

func write(tb testing.TB, name, kind string, der []byte) []byte {
	tb.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return text
}
