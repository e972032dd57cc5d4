package fleet

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// server is a machine that answers what the test says, and the file of its CA.
type server struct {
	*httptest.Server
	status atomic.Int32
	asked  atomic.Int32
	ca     string
	port   string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{ca: filepath.Join(t.TempDir(), "ca.crt")}
	s.status.Store(http.StatusOK)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		w.Header().Set("Location", "/readyz?again")
		if r.URL.Path != "/readyz" || r.URL.RawQuery != "" {
			w.WriteHeader(http.StatusOK) // what a redirect leads to
			return
		}
		w.WriteHeader(int(s.status.Load()))
	}))
	t.Cleanup(s.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(s.ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return s
}

// inventoryOf is a file with one master at 127.0.0.1 and one that is out, and this check of masters.
func inventoryOf(t *testing.T, check string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "machines.yaml")
	text := fmt.Sprintf("cluster: demo\nchecks:\n  masters: {%s}\ngroups:\n  - name: rack\n    role: masters+etcd\n    etcd_members: [a]\n    machines:\n"+
		"      - {id: m1, address: 127.0.0.1}\n      - {id: m2, address: 127.0.0.2, out: true}\n", check)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// loopback is 127.0.0.n.
func loopback(n byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, n}) }

// well reads, and returns in which roles the first machine is healthy.
func well(t *testing.T, f File) map[role.Role]bool {
	t.Helper()
	got, err := f.Read(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	out := map[role.Role]bool{}
	for _, g := range got.Groups {
		if !g.Members[1].Healthy {
			t.Error("a machine that is out was checked")
		}
		out[g.Role] = g.Members[0].Healthy
	}
	return out
}

// A machine leaves after so many failures in a row and comes back after so many answers in a row; the first reading decides
// at once. Only the role with the check is concerned.
func TestHealthThresholds(t *testing.T) {
	s := newServer(t)
	f := File{Path: inventoryOf(t, "port: "+s.port+", server_name: example.com, failures: 3, successes: 2, ca: "+s.ca), Health: &Health{}}
	for i, step := range []struct {
		status int
		want   bool
	}{
		{200, true}, {500, true}, {500, true}, {200, true}, // two failures are not three, and an answer begins anew
		{500, true}, {200, true}, {500, true}, {500, true}, {200, true},
		{503, true}, {503, true}, {302, false}, // a redirect is no answer
		{200, false}, {500, false}, {200, false}, {200, true},
	} {
		s.status.Store(int32(step.status))
		got := well(t, f)
		if got[role.Masters] != step.want {
			t.Fatalf("step %d (%d): well is %t, want %t", i, step.status, got[role.Masters], step.want)
		}
		if !got[role.Etcd] {
			t.Fatalf("step %d: etcd, which has no check, is not well", i)
		}
	}
}

// A reading without memory tries a machine as often as the threshold says before it believes that it is dead.
func TestHealthOfOneReading(t *testing.T) {
	s := newServer(t)
	s.status.Store(500)
	f := File{Path: inventoryOf(t, "port: "+s.port+", server_name: example.com, failures: 2, ca: "+s.ca)}
	if well(t, f)[role.Masters] || s.asked.Load() != 2 {
		t.Errorf("asked %d times, want 2 and the machine to be dead", s.asked.Load())
	}
}

func TestHealthRefusesWhoeverElseAnswers(t *testing.T) {
	s, other := newServer(t), newServer(t)
	for name, check := range map[string]string{
		"another name":      "port: " + s.port + ", failures: 1, ca: " + s.ca, // the certificate is not for masters.demo.k8s
		"nobody":            "port: 1, server_name: example.com, failures: 1, ca: " + s.ca,
		"no TLS connection": "port: " + plain(t) + ", server_name: example.com, failures: 1, timeout: 200ms, ca: " + other.ca,
	} {
		if well(t, File{Path: inventoryOf(t, check)})[role.Masters] {
			t.Errorf("%s is well", name)
		}
	}
}

// plain is the port of a server that accepts connections and says nothing.
func plain(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Without a path it is a connection; a file that cannot be read, and a caller whose time is over, change nothing.
func TestHealthByConnection(t *testing.T) {
	f := record.Fleet{Cluster: "demo", Groups: []record.Group{{Name: "e", Role: role.Etcd, Members: []record.Member{
		{InstanceID: "a", Lifecycle: record.InService, Private: loopback(1)}, {InstanceID: "b", Lifecycle: record.InService, Private: loopback(2)}}}}}
	var port int
	if _, err := fmt.Sscan(plain(t), &port); err != nil {
		t.Fatal(err)
	}
	checks := map[role.Role]check{role.Etcd: check{Port: port, Failures: 1}.complete(role.Etcd, "demo")}
	if err := (&Health{}).apply(t.Context(), &f, checks); err != nil || !f.Groups[0].Members[0].Healthy || f.Groups[0].Members[1].Healthy {
		t.Errorf("%+v, %v", f.Groups[0].Members, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&Health{}).apply(ended, &f, checks); !errors.Is(err, context.Canceled) {
		t.Errorf("with its time over: %v", err)
	}
	_, err := File{Path: inventoryOf(t, "ca: /nowhere/ca.crt")}.Read(t.Context(), "demo")
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/ca.crt") {
		t.Errorf("without the CA: %v", err)
	}
}

// etcd answers /health only to a client with a certificate.
func TestHealthDefaults(t *testing.T) {
	for _, tt := range []struct {
		role role.Role
		in   check
		want check
	}{
		{role.Masters, check{CA: "ca"}, check{Port: 443, Path: "/readyz", CA: "ca", ServerName: "masters.demo.k8s", Timeout: 2 * time.Second, Failures: 3, Successes: 2}},
		{role.Etcd, check{}, check{Port: 2379, Timeout: 2 * time.Second, Failures: 3, Successes: 2}},
		{role.Etcd, check{CA: "a", Cert: "c", Key: "k"}, check{Port: 2379, Path: "/health", CA: "a", Cert: "c", Key: "k", ServerName: "demo.k8s", Timeout: 2 * time.Second, Failures: 3, Successes: 2}},
		{role.Minions, check{Cert: "c", Key: "k"}, check{Port: 10250, Cert: "c", Key: "k", Timeout: 2 * time.Second, Failures: 3, Successes: 2}},
		{role.Minions, check{Failures: 5}, check{Port: 10250, Timeout: 2 * time.Second, Failures: 5, Successes: 2}},
	} {
		if got := tt.in.complete(tt.role, "demo"); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.role, got, tt.want)
		}
	}
}
