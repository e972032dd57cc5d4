package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// lateBy is the delay after the first attempt to connect until the metadata service is there.
const lateBy = 10 * time.Second

// metadata stands in for EC2's instance metadata service, version 2, when it is slow and faulty: it starts late, and
// answers the first requests for user data with faults, each of them once.
type metadata struct {
	userData   string
	instanceID string

	mu      sync.Mutex
	first   time.Time // the first connection
	refused int       // connections before it had appeared
	tokens  int       // tokens given; only the last one is valid
	faults  []string  // still to come
	log     []string
}

// serve listens on a Unix socket until the test ends.
func (s *metadata) serve(t *testing.T, socket string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lateListener{l, s}) // always an error: that it was closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// lateListener closes connections until the service is there.
type lateListener struct {
	net.Listener
	service *metadata
}

func (l lateListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.service.appeared() {
			return conn, err
		}
		_ = conn.Close()
	}
}

func (s *metadata) appeared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first.IsZero() {
		s.first = time.Now()
	}
	if time.Since(s.first) >= lateBy {
		return true
	}
	s.refused++
	return false
}

func (s *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, r.Method+" "+r.URL.Path)
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
		s.tokens++
		_, _ = io.WriteString(w, s.token())
	case r.Header.Get("X-aws-ec2-metadata-token") != s.token():
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	case r.URL.Path == "/latest/meta-data/instance-id":
		_, _ = io.WriteString(w, s.instanceID)
	case r.URL.Path == "/latest/user-data":
		s.answer(w)
	default:
		http.NotFound(w, r)
	}
}

func (s *metadata) token() string { return fmt.Sprintf("token-%d", s.tokens) }

// answer gives the user data, or the next fault.
func (s *metadata) answer(w http.ResponseWriter) {
	if len(s.faults) == 0 {
		_, _ = io.WriteString(w, s.userData)
		return
	}
	fault := s.faults[0]
	s.faults = s.faults[1:]
	switch fault {
	case "500":
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
	case "401":
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	case "half":
		w.Header().Set("Content-Length", fmt.Sprint(len(s.userData)))
		_, _ = io.WriteString(w, s.userData[:len(s.userData)/2])
	case "slow":
		time.Sleep(2 * time.Second)
		_, _ = io.WriteString(w, s.userData)
	}
}

// TestMetadataService boots a machine that identifies as EC2, with a late and faulty metadata service.
func TestMetadataService(t *testing.T) {
	t.Parallel()
	needMachines(t, 4*time.Minute)
	// Without a cluster's name no unit looks for the cluster's store, for which it would wait on EC2.
	files := map[string]string{role.Masters.File(): "# no CLUSTER_NAME\n"}
	service := &metadata{
		userData: cloudConfig(files), instanceID: "i-0123456789abcdef0",
		faults: []string{"500", "half", "401", "slow"},
	}
	dir, err := os.MkdirTemp("", "hardtack-e2e-") //nolint:usetesting // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "imds")
	service.serve(t, socket)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := boot(t, Asked{Machine: qemu.Config{
		DMI: qemu.DMI{BIOSVendor: "Amazon EC2", Vendor: "Amazon EC2", Product: "m7i.large", Serial: "ec2f5c1a-0000-4000-8000-000000000001"},
		Network: qemu.Network{
			// This network contains only the fixed metadata address; the machine reaches nothing else.
			Kind: qemu.User, Subnet: netip.MustParsePrefix("169.254.169.0/24"), Isolated: true,
			Forwards: []qemu.Forward{{
				Guest:   netip.MustParseAddrPort("169.254.169.254:80"),
				Command: strings.Join([]string{self, pipeMode, socket}, " "),
			}},
		},
	}})
	figures.add("EC2, metadata service late by 10 s and faulty", b)
	b.noCycle(t)
	b.startedFor(t, role.NewSet(role.Masters))
	for path, want := range files {
		if got := b.Files[path]; got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	service.mu.Lock()
	defer service.mu.Unlock()
	if service.refused == 0 || len(service.faults) > 0 {
		t.Errorf("%d connections came too early, faults not met: %v, want some and none", service.refused, service.faults)
	}
	if t.Failed() {
		t.Logf("requests: %s", strings.Join(service.log, "; "))
	}
}
