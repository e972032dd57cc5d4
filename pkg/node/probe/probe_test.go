package probe_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// issue makes a certificate and its key, in PEM, signed by a parent or by itself.
func issue(t *testing.T, template *x509.Certificate, parent *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, with := template, any(key)
	if parent != nil {
		signer, with = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, with)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// save writes certificate and key into one file, as the kubelet does.
func save(t *testing.T, c tls.Certificate) string {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})...)
	file := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func template(name string, from time.Time) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: from.Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IsCA: name == "ca", BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
}

// serve starts a server that wants a client's certificate of its CA, and returns a URL by a name, and a client.
func serve(t *testing.T, h http.HandlerFunc) (*url.URL, *probe.Client) {
	t.Helper()
	now := time.Now().Add(-time.Hour)
	ca := issue(t, template("ca", now), nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{issue(t, template("server", now), &ca)}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = "localhost:" + u.Port()
	identity := save(t, issue(t, template("system:node:a", now), &ca))
	return u, &probe.Client{CA: save(t, ca), Certificate: identity, Key: identity}
}

// TestIdentity asks and changes as the node, whose certificate may be another one at the next question.
func TestIdentity(t *testing.T) {
	target, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"nobody may"}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.TLS.PeerCertificates[0].Subject.CommonName+" "+r.Header.Get("Content-Type")+" "+string(body))
	})
	got, err := client.Get(t.Context(), target)
	if err != nil || string(got) != "GET system:node:a  " {
		t.Errorf("%q, %v", got, err)
	}
	got, err = client.Ask(t.Context(), probe.Request{Method: http.MethodPatch, URL: target, ContentType: "application/merge-patch+json", Body: "{}"})
	if err != nil || string(got) != "PATCH system:node:a application/merge-patch+json {}" {
		t.Errorf("%q, %v", got, err)
	}
	if err := client.Patch(t.Context(), target, "{}"); err != nil {
		t.Error(err)
	}
	_, err = (&probe.Client{CA: client.CA}).Get(t.Context(), target)
	var status *probe.StatusError
	if !errors.As(err, &status) || status.Code != http.StatusForbidden || err.Error() != "status 403 Forbidden: nobody may" || reason.Of(err) != reason.NotReady {
		t.Errorf("%v", err)
	}
}

// TestReasons names the reason of whatever keeps a machine from asking.
func TestReasons(t *testing.T) {
	target, client := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := save(t, issue(t, template("ca", time.Now().Add(-time.Hour)), nil))
	plain := &url.URL{Scheme: "http", Host: "192.0.2.1"}
	ago := func() time.Time { return time.Now().Add(-300 * 24 * time.Hour) }
	later := func() time.Time { return time.Now().Add(300 * 24 * time.Hour) }
	tests := []struct {
		name   string
		client probe.Client
		target *url.URL
		reason reason.Reason
		want   string
	}{
		{"another status", *client, target, reason.NotReady, "status 418"},
		{"another CA", probe.Client{CA: other}, target, reason.Untrusted, "is signed by \"CN=ca\", which is not the CA in " + other},
		{"the clock is behind", probe.Client{CA: client.CA, Now: ago}, target, reason.Clock, "waiting for time synchronisation"},
		{"the clock is ahead", probe.Client{CA: client.CA, Now: later}, target, reason.Clock, "or the clock is ahead"},
		{"no CA", probe.Client{CA: "/nowhere"}, target, reason.File, "reading the CA"},
		{"an empty CA", probe.Client{CA: empty}, target, reason.File, "has no certificate"},
		{"no identity", probe.Client{CA: client.CA, Certificate: empty, Key: empty}, target, reason.File, "reading the client's certificate"},
		{"plain HTTP elsewhere", *client, plain, reason.Internal, "plain HTTP is for the machine itself"},
		{"nobody", *client, &url.URL{Scheme: "https", Host: "127.0.0.1:1"}, reason.Unreachable, "connection refused"},
		{"no name", *client, &url.URL{Scheme: "https", Host: "nobody.invalid"}, reason.DNS, "nobody.invalid"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.client.Get(t.Context(), test.target)
			if err == nil || !strings.Contains(err.Error(), test.want) || reason.Of(err) != test.reason {
				t.Errorf("[%s] %v", reason.Of(err), err)
			}
		})
	}
}

// TestPlain asks the machine itself without TLS, as etcd's and the kubelet's health is asked for.
func TestPlain(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Redirect(w, r, "/readyz", http.StatusFound)
		}
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(u.Host)
	if err := new(probe.Client).Probe(t.Context(), u, at); err != nil {
		t.Error(err)
	}
	u.Path = "/health"
	if err := new(probe.Client).Probe(t.Context(), u, at); err == nil || !strings.Contains(err.Error(), "status 302") {
		t.Errorf("a redirect is followed: %v", err)
	}
}
