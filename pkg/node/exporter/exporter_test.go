package exporter_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/exporter"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T) pki.Authority {
	t.Helper()
	return authorityAt(t, time.Now())
}

func authorityAt(t *testing.T, at time.Time) pki.Authority {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.NewAuthority("test", key, at)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// server is an exporter that serves on loopback.
type server struct {
	*exporter.Exporter
	address string
	ca      pki.Authority
}

func serve(t *testing.T, now func() time.Time, sources ...exporter.Source) *server {
	t.Helper()
	s := &server{ca: authority(t)}
	s.Exporter = &exporter.Exporter{Dir: t.TempDir(), Roles: role.NewSet(role.Masters), Sources: sources, Now: now, Log: slog.New(slog.DiscardHandler)}
	s.mint(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *server) mint(t *testing.T) {
	t.Helper()
	bundle := pki.Bundle{
		Leaves: []pki.Leaf{{Name: "server", Profile: pki.Profile{Name: "x", Usage: pki.Server, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Life: time.Hour}, Issuer: s.ca}},
		Files:  []pki.File{{Name: "ca.crt", Content: pki.EncodeCertificates(s.ca.Trusted())}},
	}
	files, err := bundle.Mint(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(s.Dir, f.Name), f.Content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// client is one of a group, by an authority; without one it shows no certificate.
func (s *server) client(t *testing.T, by *pki.Authority, groups ...string) *http.Client {
	t.Helper()
	trusted := x509.NewCertPool()
	for _, c := range s.ca.Trusted() {
		trusted.AddCert(c)
	}
	config := &tls.Config{RootCAs: trusted}
	if by != nil {
		pair, err := by.Issue(pki.Profile{Name: "somebody", Groups: groups, Usage: pki.Client, Life: time.Hour}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		own, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *server) get(t *testing.T, c *http.Client, path string) (code int, body string, err error) {
	t.Helper()
	answer, err := c.Get("https://" + s.address + path)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// TestWhoMayRead: a certificate of the cluster's authority for the group, and nobody else.
func TestWhoMayRead(t *testing.T) {
	var now = time.Now()
	s := serve(t, func() time.Time { return now })
	other := authority(t)
	member := s.client(t, &s.ca, "people", pki.GroupMetrics)
	for name, c := range map[string]struct {
		client *http.Client
		path   string
		code   int // 0: the handshake fails
	}{
		"nobody":                   {s.client(t, nil), "/metrics", 0},
		"of another authority":     {s.client(t, &other, pki.GroupMetrics), "/metrics", 0},
		"of another group":         {s.client(t, &s.ca, "system:masters"), "/metrics", http.StatusForbidden},
		"of no group":              {s.client(t, &s.ca), "/metrics", http.StatusForbidden},
		"of no group, a daemon":    {s.client(t, &s.ca), "/metrics/kube-scheduler", http.StatusForbidden},
		"of the group":             {member, "/metrics", http.StatusOK},
		"a daemon that is down":    {member, "/metrics/kube-scheduler", http.StatusBadGateway},
		"a daemon of another role": {member, "/metrics/etcd", http.StatusNotFound},
		"no daemon":                {member, "/metrics/..%2fconfigz", http.StatusNotFound},
	} {
		code, body, err := s.get(t, c.client, c.path)
		if code != c.code || (err != nil) != (c.code == 0) {
			t.Errorf("%s: %d, %q, %v, want %d", name, code, body, err, c.code)
		}
	}
	// What began with a good certificate does not outlive it.
	now = now.Add(2 * time.Hour)
	if code, body, err := s.get(t, member, "/metrics"); code != http.StatusForbidden {
		t.Errorf("with an expired certificate: %d, %q, %v", code, body, err)
	}
}

// TestRenewed: the next connection sees other files, and an authority that is replaced.
func TestRenewed(t *testing.T) {
	s := serve(t, time.Now)
	before := s.client(t, &s.ca, pki.GroupMetrics)
	if code, _, err := s.get(t, before, "/metrics"); code != http.StatusOK {
		t.Fatal(code, err)
	}
	old := s.ca
	s.ca = authority(t)
	s.mint(t)
	if code, body, err := s.get(t, s.client(t, &s.ca, pki.GroupMetrics), "/metrics"); code != http.StatusOK {
		t.Errorf("with the new authority: %d, %q, %v", code, body, err)
	}
	if code, _, err := s.get(t, s.client(t, &old, pki.GroupMetrics), "/metrics"); err == nil {
		t.Errorf("with the old one: %d", code)
	}
}

// TestNothingOutlivesItsSource: what cannot be read any more is not there, and says so.
func TestNothingOutlivesItsSource(t *testing.T) {
	var fails error
	nodes := exporter.Nodes(func(context.Context) ([]controller.Node, error) {
		return []controller.Node{{Name: "n1", Ready: true}, {Name: "n2"}}, fails
	})
	hangs := exporter.Source{Name: "slow", Read: func(context.Context) ([]exporter.Metric, error) { return nil, errors.New("no") }}
	s := serve(t, time.Now, nodes, hangs)
	c := s.client(t, &s.ca, pki.GroupMetrics)
	s.Look(t.Context())
	_, body, err := s.get(t, c, "/metrics")
	for _, line := range []string{`hardtack_node_ready{node="n1"} 1`, `hardtack_node_ready{node="n2"} 0`, `hardtack_metrics_source_up{source="nodes"} 1`, `hardtack_metrics_source_up{source="slow"} 0`} {
		if !slices.Contains(strings.Split(body, "\n"), line) {
			t.Errorf("%q is not in\n%s\n%v", line, body, err)
		}
	}
	fails = errors.New("the API server is away")
	s.Look(t.Context())
	_, body, err = s.get(t, c, "/metrics")
	if strings.Contains(body, "hardtack_node_ready{") || !strings.Contains(body, `hardtack_metrics_source_up{source="nodes"} 0`) {
		t.Errorf("%s\n%v", body, err)
	}
}

// lines are what a source reads.
func lines(t *testing.T, source exporter.Source) (string, error) {
	t.Helper()
	metrics, err := source.Read(t.Context())
	if err != nil {
		return "", err
	}
	s := serve(t, time.Now, exporter.Source{Name: "x", Read: func(context.Context) ([]exporter.Metric, error) { return metrics, nil }})
	s.Look(t.Context())
	_, body, err := s.get(t, s.client(t, &s.ca, pki.GroupMetrics), "/metrics")
	var out []string
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "source_up") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n"), err
}

func TestEtcd(t *testing.T) {
	status := func(leader etcd.ID) *etcd.Status {
		return &etcd.Status{At: noon, Leader: leader, Store: etcd.Content{Size: 2 << 30, InUse: 1 << 30, Quota: 4 << 30}}
	}
	full := status(1)
	full.Store.Alarms = []string{etcd.NoSpace, etcd.NoSpace}
	report := &operate.Report{Quorum: 2, Members: []operate.Member{
		// It has a finding, and votes.
		{Name: "a", Role: operate.Leader, Status: full, Seconds: 60},
		{Name: "b", Role: operate.Voter, Status: status(0), Seconds: 30},
		{Name: "c", Role: operate.Voter, Status: status(1), Seconds: 181},
		{Name: "d", Role: operate.Learner, Status: status(1)},
		{Name: "e"},
	}, Backup: &etcd.Backup{At: noon}, Verified: &etcd.Backup{At: noon.Add(-time.Hour), Verified: noon}}
	body, err := lines(t, exporter.Etcd(func(context.Context) (*operate.Report, error) { return report, nil }))
	for _, line := range []string{
		"hardtack_etcd_voters 1", "hardtack_etcd_quorum 2", `hardtack_etcd_member_has_leader{member="b"} 0`, `hardtack_etcd_member_alarm{member="a",alarm="NOSPACE"} 1`,
		`hardtack_etcd_member_database_bytes{member="c"} 2.147483648e+09`, `hardtack_etcd_member_quota_bytes{member="c"} 4.294967296e+09`,
		"hardtack_etcd_backup_timestamp_seconds 1.7954352e+09", "hardtack_etcd_backup_restored_timestamp_seconds 1.7954352e+09",
	} {
		if !slices.Contains(strings.Split(body, "\n"), line) {
			t.Errorf("%q is not in\n%s\n%v", line, body, err)
		}
	}
	if strings.Contains(body, `member="e"`) {
		t.Errorf("a member that has never reported has values:\n%s", body)
	}
}

func TestDNS(t *testing.T) {
	self := func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil }
	for answer, want := range map[string]string{
		"10.0.0.2 10.0.0.1": "hardtack_dns_record_addresses 2\nhardtack_dns_record_has_master 1",
		"::ffff:10.0.0.1":   "hardtack_dns_record_addresses 1\nhardtack_dns_record_has_master 1",
		"192.0.2.1":         "hardtack_dns_record_addresses 1\nhardtack_dns_record_has_master 0",
		"":                  "hardtack_dns_record_addresses 0\nhardtack_dns_record_has_master 0",
		"no server":         "",
	} {
		lookup := func(_ context.Context, host string) (found []netip.Addr, err error) {
			if answer == "no server" || host != "masters.demo.k8s" {
				return nil, errors.New(answer)
			}
			for _, word := range strings.Fields(answer) {
				found = append(found, netip.MustParseAddr(word))
			}
			return found, nil
		}
		if got, err := lines(t, exporter.DNS("masters.demo.k8s", lookup, self)); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", answer, got, err)
		}
	}
}

func TestCertificates(t *testing.T) {
	a := authorityAt(t, noon)
	pair, err := a.Issue(pki.Profile{Name: "x", Usage: pki.Client, Life: time.Hour}, noon)
	if err != nil {
		t.Fatal(err)
	}
	both := slices.Concat(pki.EncodeCertificates(a.Trusted()), pair.Certificate)
	root := fstest.MapFS{"run/pki/etcd/server.crt": {Data: both}, "run/pki/etcd/server.key": {Data: pair.Key}}
	body, err := lines(t, exporter.Certificates(root, "run/pki"))
	if end := `hardtack_certificate_not_after_timestamp_seconds{file="/run/pki/etcd/server.crt"} 1.7954388e+09`; err != nil || !strings.Contains(body, end) || strings.Count(body, "\n") != 1 {
		t.Errorf("%s\n%v, want %s", body, err, end)
	}
	root["run/pki/etcd/peer.crt"] = &fstest.MapFile{Data: []byte("x")}
	if body, err := lines(t, exporter.Certificates(root, "run/pki")); err == nil || !strings.Contains(err.Error(), "run/pki/etcd/peer.crt") {
		t.Errorf("a broken file: %q, %v", body, err)
	}
	if body, err := lines(t, exporter.Certificates(fstest.MapFS{}, "run/pki")); err == nil {
		t.Errorf("no file: %q", body)
	}
}
