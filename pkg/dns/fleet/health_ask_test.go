package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// pemFile writes PEM of one block to a file.
func pemFile(t *testing.T, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "part.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A server that asks for a client's certificate, as etcd does, gets the check's.
func TestHealthWithACertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" || len(r.TLS.PeerCertificates) != 1 {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	own := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, private := pemFile(t, "CERTIFICATE", own.Certificate[0]), pemFile(t, "PRIVATE KEY", key)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	c := check{Port: n, Path: "/health", CA: cert, Cert: cert, Key: private, ServerName: "example.com", Failures: 1}
	ask := func(c check) (bool, error) {
		f := record.Fleet{Groups: []record.Group{one(role.Etcd, "a", loopback(1))}}
		err := (*Health)(nil).apply(t.Context(), &f, map[role.Role]check{role.Etcd: c.complete(role.Etcd, "demo")})
		return f.Groups[0].Members[0].Healthy, err
	}
	if well, err := ask(c); err != nil || !well {
		t.Errorf("with its certificate: %t, %v", well, err)
	}
	without := c
	without.Cert, without.Key = "", ""
	if well, err := ask(without); err != nil || well {
		t.Errorf("without: %t, %v", well, err)
	}
	for name, change := range map[string]func(c *check){
		"a key that is none":              func(c *check) { c.Key = cert },
		"a CA that has no certificate":    func(c *check) { c.CA = private },
		"a certificate that is not there": func(c *check) { c.Cert = "/nowhere/client.crt" },
	} {
		wrong := c
		change(&wrong)
		if well, err := ask(wrong); err == nil || well {
			t.Errorf("%s: %t, %v", name, well, err)
		}
	}
}

// A connection is for one question: the client of the next reading would not know of it, and it would stay open for good.
func TestHealthLeavesNoConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var port string
	if _, port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if !read(t, nil, map[role.Role]check{role.Minions: connection(t, port)}, one(role.Minions, "a", loopback(1)))[0] {
		t.Error("it is not well")
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); err != nil || len(said) != 0 {
		t.Errorf("until it was closed it said %q, %v", said, err)
	}
	closes := make(chan bool, 1)
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { closes <- r.Close }))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	ca := pemFile(t, "CERTIFICATE", s.Certificate().Raw)
	if !well(t, File{Path: inventoryOf(t, fmt.Sprintf("port: %s, server_name: example.com, ca: %s", port, ca))})[role.Masters] || !<-closes {
		t.Error("the server was not told to close the connection")
	}
}

// An answer that breaks off is none.
func TestHealthWantsAWholeAnswer(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	ca := pemFile(t, "CERTIFICATE", s.Certificate().Raw)
	if well(t, File{Path: inventoryOf(t, fmt.Sprintf("port: %s, server_name: example.com, failures: 1, ca: %s", port, ca))})[role.Masters] {
		t.Error("it is well")
	}
}
