package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// shown returns the certificate that a server presents to a new connection.
func shown(t *testing.T, address, ca, pair string) *x509.Certificate {
	t.Helper()
	config := &tls.Config{RootCAs: pool(t, ca), MinVersion: tls.VersionTLS12}
	if pair != "" {
		crt, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{crt}
	}
	conn, err := (&tls.Dialer{Config: config, NetDialer: &net.Dialer{Timeout: 10 * time.Second}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// renewal runs the timer's command when every certificate is due. No daemon may be restarted.
func (m *master) renewal(t *testing.T) {
	type server struct{ name, address, ca, pair string }
	servers := []server{
		{"kube-apiserver", masterAPI, machine.CAPath, ""},
		{"etcd for clients", "127.0.0.1:2379", "/run/hardtack/pki/etcd/ca.crt", "/run/hardtack/pki/etcd/server"},
		{"etcd for peers", "127.0.0.1:2380", "/run/hardtack/pki/etcd/peer-ca.crt", "/run/hardtack/pki/etcd/peer"},
	}
	before := map[string]*x509.Certificate{}
	for _, s := range servers {
		before[s.name] = shown(t, s.address, s.ca, s.pair)
	}
	began := time.Now()
	out, err := m.run(t, "hardtack-agent", "renew", "--patience=10s")
	if err != nil || strings.Count(out, "minted") != m.certificates {
		t.Fatalf("hardtack-agent renew, of %d certificates: %v\n%s", m.certificates, err, out)
	}
	if out, err := m.run(t, "hardtack-agent", "renew", "--patience=10s"); err != nil || strings.Contains(out, "minted") {
		t.Errorf("again: %v\n%s", err, out)
	}
	for _, s := range servers {
		pending := eventually(90*time.Second, func() []string {
			if now := shown(t, s.address, s.ca, s.pair); now.SerialNumber.Cmp(before[s.name].SerialNumber) == 0 {
				return []string{now.NotAfter.String()}
			}
			return nil
		})
		if len(pending) > 0 {
			t.Errorf("%s still shows the certificate that ends at %v", s.name, pending)
		}
		t.Logf("%s shows the new certificate %v after the renewal began", s.name, time.Since(began).Round(time.Millisecond))
	}
	m.clientsRenew(t)
	for name, cmd := range m.daemons {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("%s has ended: %v\n%s", name, err, tail(m.logs[name].String(), 10))
		}
	}
	// The add-ons' kubeconfig is valid again, and the API server reaches etcd with its new certificate too.
	if out, err := m.run(t, "kubectl", "--kubeconfig=/run/hardtack/pki/admin/kubeconfig", "auth", "whoami"); err != nil {
		t.Errorf("the add-ons' kubeconfig: %v\n%s", err, out)
	}
	m.mustKubectl(t, "get", "secret", "probe")
	if code, err := m.anonymously(t, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("/readyz: %d, %v", code, err)
	}
}

// clientsRenew checks the certificates of the API server's clients on new connections. Clients look for a renewed
// certificate every five minutes (client-go's CertCallbackRefreshDuration). That is too long to wait for, so the test
// cuts their connections.
func (m *master) clientsRenew(t *testing.T) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ss", "--kill", "dport", "=", "443").CombinedOutput(); err != nil {
		t.Fatalf("cutting the connections to the API server: %v\n%s", err, out)
	}
	// The old certificates are valid for two more days, the new ones for seven, the operator's for an hour.
	const old, fresh = "172800", "604800"
	var before map[string]float64
	if pending := eventually(time.Minute, func() []string {
		now := m.requestsByLife(t)
		if before == nil && now[fresh] > 0 {
			before = now
		}
		if before == nil || now[fresh] < before[fresh]+20 {
			return []string{fmt.Sprint(now)}
		}
		if now[old] > before[old] {
			t.Errorf("%v requests still came with an old certificate", now[old]-before[old])
		}
		return nil
	}); len(pending) > 0 {
		t.Errorf("controller manager and scheduler do not show their new certificates: %v", pending)
	}
}

// requestsByLife counts the requests by the remaining life of their certificate: the keys are the upper bounds of the
// histogram's buckets, in seconds.
func (m *master) requestsByLife(t *testing.T) map[string]float64 {
	t.Helper()
	const metric = "apiserver_client_certificate_expiration_seconds_bucket{le="
	out := map[string]float64{}
	last := 0.0
	for line := range strings.Lines(m.mustKubectl(t, "get", "--raw", "/metrics")) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), metric)
		if !ok {
			continue
		}
		bound, count, _ := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(count, 64)
		seconds, boundErr := strconv.ParseFloat(strings.Trim(bound, `"`), 64)
		if err := errors.Join(err, boundErr); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out[strconv.FormatFloat(seconds, 'f', -1, 64)] = n - last
		last = n
	}
	if len(out) == 0 {
		t.Fatal("the API server has no such metric")
	}
	return out
}

// noKeys searches the daemons' logs and every disk that they write to for each secret of the cluster.
func (m *master) noKeys(t *testing.T) {
	var secrets [][]byte
	err := filepath.WalkDir(pki.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type() == fs.ModeSymlink || !strings.HasSuffix(path, ".key") {
			return err
		}
		data, err := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, "-----") && len(line) > 40 {
				secrets = append(secrets, []byte(strings.TrimSpace(line)))
			}
		}
		return err
	})
	if err != nil || len(secrets) < 10 {
		t.Fatalf("%v: %d secrets to look for", err, len(secrets))
	}
	look := func(where string, text []byte) {
		for _, secret := range secrets {
			if bytes.Contains(text, secret) {
				t.Errorf("%s has a private key: %.10s…", where, secret)
			}
		}
		if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
			t.Errorf("%s has a private key", where)
		}
	}
	for name, log := range m.logs {
		look("the log of "+name, []byte(log.String()))
	}
	audit, err := os.ReadFile("/var/log/kube-apiserver/audit.log")
	if err != nil || !bytes.Contains(audit, []byte(`"resource":"secrets"`)) || bytes.Contains(audit, []byte(probeSecret)) {
		t.Errorf("the audit log does not tell of Secrets, or tells what is in one: %v", err)
	}
	look("the audit log", audit)
	// Searched is everything that was written below /etc, except for the store (it is there only in this test), and
	// etcd's data.
	for _, dir := range []string{filepath.Join(m.dir, "upper"), filepath.Join(m.dir, "data")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/hardtack/store/") {
				return err
			}
			data, err := os.ReadFile(path)
			look(path, data)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
