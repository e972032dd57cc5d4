package wait_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/wait"
)

const name = "masters.demo.k8s"

// authority is a CA of a test, with its certificate in a file.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, common string) authority {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: common}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	key, der := sign(t, template, template, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return authority{cert, key, file}
}

// sign makes a key and its certificate; a nil signer signs itself.
func sign(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

// serve starts a TLS server at an address of the loopback network, with a certificate for host that is valid
// from a moment on.
func (a authority) serve(t *testing.T, at, host string, from time.Time, h http.HandlerFunc) (port int) {
	t.Helper()
	key, der := sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: from, NotAfter: from.Add(2 * time.Hour)}, a.cert, a.key)
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, text, _ := net.SplitHostPort(l.Addr().String())
	port, err = strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// names is a resolver whose answers can change.
type names struct {
	mu    sync.Mutex
	addrs []string
	asked []string
}

func (n *names) set(addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs = addrs
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, host)
	if len(n.addrs) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.1.0.2:53", IsNotFound: true}
	}
	var out []netip.Addr
	for _, a := range n.addrs {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

func ok(http.ResponseWriter, *http.Request) {}

// TestOutcomes meets every way in which a server can be wrong, and waits each out until the next step.
func TestOutcomes(t *testing.T) {
	ours, others := newAuthority(t, "kubernetes"), newAuthority(t, "another cluster")
	now := time.Now().Add(-time.Minute)
	var steps sync.Mutex
	status := http.StatusInternalServerError
	port := ours.serve(t, "127.0.0.2:0", name, now, func(w http.ResponseWriter, _ *http.Request) {
		steps.Lock()
		defer steps.Unlock()
		if status != http.StatusOK {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n"))
		}
	})
	p := strconv.Itoa(port)
	others.serve(t, "127.0.0.3:"+p, name, now, ok)
	ours.serve(t, "127.0.0.4:"+p, "minions.demo.k8s", now, ok)
	ours.serve(t, "127.0.0.5:"+p, name, time.Now().Add(time.Hour), ok)
	ours.serve(t, "127.0.0.6:"+p, name, time.Now().Add(-3*time.Hour), ok)
	dns := &names{}
	set := func(code int) { steps.Lock(); status = code; steps.Unlock() }
	script := []struct {
		want string // what the status must say before the step after it is taken
		then func()
	}{
		{"[dns] https://" + name + ":" + p + "/readyz: resolving " + name + ": no such name or no address (asked of 10.1.0.2:53)", func() { dns.set("127.0.0.9") }},
		{"[unreachable] https://" + name + ":" + p + "/readyz: 127.0.0.9: connect: connection refused", func() { dns.set("127.0.0.9", "127.0.0.3") }},
		{"[untrusted] https://" + name + ":" + p + "/readyz: 127.0.0.3: its certificate for CN=masters.demo.k8s is signed by \"CN=another cluster\", which is not the CA in " +
			ours.file + "; 127.0.0.9: connect: connection refused", func() { dns.set("127.0.0.4") }},
		{"127.0.0.4: tls: failed to verify certificate: x509: certificate is valid for minions.demo.k8s, not " + name, func() { dns.set("127.0.0.5") }},
		{"and this machine's clock says", func() { dns.set("127.0.0.6") }},
		{"it was not renewed, or the clock is ahead", func() { dns.set("127.0.0.9", "127.0.0.2") }},
		{"[not-ready] https://" + name + ":" + p + "/readyz: 127.0.0.2: status 500 Internal Server Error: these checks fail: etcd; 127.0.0.9: connect", func() { set(http.StatusFound) }},
		{"status 302 Found", func() { set(http.StatusForbidden) }},
		{"status 403 Forbidden", func() { set(http.StatusOK) }},
	}
	at := 0
	target := &url.URL{Scheme: "https", Host: name + ":" + p, Path: "/readyz"}
	err := wait.Run(t.Context(), wait.Options{
		Targets: []*url.URL{target}, Resolver: dns, Prober: &probe.Client{CA: ours.file}, MinWait: time.Millisecond, MaxWait: 5 * time.Millisecond,
		Status: func(text string) {
			if at < len(script) && strings.Contains(text, script[at].want) {
				script[at].then()
				at++
			} else if at < len(script) {
				t.Logf("on the way to %q: %s", script[at].want, text)
			}
		},
	})
	if err != nil || at != len(script) {
		t.Errorf("%v, after %d steps of %d", err, at, len(script))
	}
	if dns.asked[0] != name {
		t.Errorf("asked for %q, where the kubelet asks for %q", dns.asked[0], name)
	}
}

// TestDeadAddress is not held up by a master that takes connections and never answers.
func TestDeadAddress(t *testing.T) {
	ours := newAuthority(t, "kubernetes")
	port := strconv.Itoa(ours.serve(t, "127.0.0.2:0", name, time.Now().Add(-time.Minute), ok))
	var config net.ListenConfig
	hanging, err := config.Listen(t.Context(), "tcp", "127.0.0.3:"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hanging.Close() })
	dns := &names{}
	dns.set("127.0.0.3", "127.0.0.2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Were the hanging one asked first and alone, the other's turn would come after an hour, or when the connection has waited
	// for as long as it may.
	start := time.Now()
	err = wait.Run(ctx, wait.Options{Targets: []*url.URL{{Scheme: "https", Host: name + ":" + port, Path: "/readyz"}},
		Resolver: dns, Prober: &probe.Client{CA: ours.file}, Attempt: time.Hour})
	if took := time.Since(start); err != nil || took > 30*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// TestFiles waits for files in directories that are not there, by any way in which they can come.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	var said []string
	step := 0
	err := wait.Run(t.Context(), wait.Options{
		Files: [][]string{{file("a/b/c.pem")}, {file("one"), file("two")}},
		Status: func(text string) {
			said = append(said, strings.ReplaceAll(text, dir, ""))
			step++
			switch step {
			case 1:
				write(t, file("a/b/c.pem"), "")
			case 2:
				write(t, file("new"), "x")
				if err := os.Symlink("new", file("a/b/link")); err != nil {
					t.Error(err)
				}
				if err := os.Rename(file("new"), file("a/b/c.pem")); err != nil {
					t.Error(err)
				}
			case 3:
				write(t, file("two"), "x")
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"[file] /a/b/c.pem is not there, /one is not there and /two is not there",
		"[file] /a/b/c.pem is empty, /one is not there and /two is not there",
		"[file] /one is not there and /two is not there",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestGivesUp says what was missing last.
func TestGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := wait.Run(ctx, wait.Options{Files: [][]string{{"/nowhere/at/all"}}, Status: func(string) { cancel() }})
	if reason.Of(err) != reason.File || !strings.Contains(err.Error(), "/nowhere/at/all is not there") {
		t.Errorf("%v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	err = wait.Run(ctx, wait.Options{Targets: []*url.URL{{Scheme: "https", Host: "masters.demo.k8s"}}, Resolver: &names{}, Prober: &probe.Client{}, Status: func(string) { cancel() }})
	if reason.Of(err) != reason.DNS || !strings.Contains(err.Error(), "resolving masters.demo.k8s") {
		t.Errorf("%v", err)
	}
}
