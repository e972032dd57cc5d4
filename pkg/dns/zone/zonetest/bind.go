package zonetest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// BIND is a name server for a test, with the empty dynamic zone k8s.
type BIND struct {
	// Addr is its host:port on loopback, for UDP and TCP.
	Addr string
	// KeyFile has a key that may read and update the zone; OtherFile has one that the server knows but does not permit.
	KeyFile, OtherFile string
}

const (
	keyText = "key \"%s\" {\n\talgorithm hmac-sha256;\n\tsecret \"%s\";\n};\n"

	// Keys of tests; they open nothing.
	keySecret   = "aGFyZHRhY2staGFyZHRhY2staGFyZHRhY2stMDEyMzQ="
	otherSecret = "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItMDE="

	// The SOA minimum follows Hardtack's advice: how long a resolver caches a name that does not exist.
	zoneText = "$TTL 60\n@ IN SOA ns.k8s. hostmaster.k8s. ( 1 3600 600 86400 %d )\n@ IN NS ns.k8s.\nns IN A 127.0.0.1\n"

	bindText = `include "%[1]s/hardtack.key";
include "%[1]s/other.key";
options {
	directory "%[1]s";
	pid-file none;
	session-keyfile "%[1]s/session.key";
	managed-keys-directory "%[1]s";
	listen-on port %[2]d { 127.0.0.1; };
	listen-on-v6 { none; };
	recursion no;
	dnssec-validation no;
	notify no;
	allow-transfer { none; };
};
controls { };
zone "k8s" {
	type primary;
	file "%[1]s/k8s.zone";
	allow-update { key "hardtack"; %[3]s };
	allow-transfer { %[4]s };
};
`
)

// BINDOptions change the initial zone of a server.
type BINDOptions struct {
	// Minimum is the SOA minimum in seconds; 0 means 5.
	Minimum int
	// Records are additional lines of the zone file.
	Records string
	// Unsigned: clients on loopback may update the zone without a key.
	Unsigned bool
	// NoTransfer: no key may transfer the zone.
	NoTransfer bool
}

// rights returns the clients in allow-update besides the key, and those in allow-transfer.
func (o BINDOptions) rights() (update, transfer string) {
	transfer = `key "hardtack";`
	if o.Unsigned {
		update = "127.0.0.1;"
	}
	if o.NoTransfer {
		transfer = "none;"
	}
	return update, transfer
}

// StartBIND starts a server that stops at the end of the test. It skips the test only if named (Debian's package
// bind9) is not installed.
func StartBIND(t testing.TB, o BINDOptions) BIND {
	t.Helper()
	named, err := exec.LookPath("named")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("named is not installed (Debian's package bind9)")
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if o.Minimum == 0 {
		o.Minimum = 5
	}
	for name, text := range map[string]string{
		"hardtack.key": fmt.Sprintf(keyText, "hardtack", keySecret),
		"other.key":    fmt.Sprintf(keyText, "other", otherSecret),
		"k8s.zone":     fmt.Sprintf(zoneText, o.Minimum) + o.Records,
	} {
		write(t, filepath.Join(dir, name), text)
	}
	update, transfer := o.rights()
	// Another process may take a free port before named does: try again with another port.
	for range 5 {
		port := FreePort(t)
		b := BIND{Addr: fmt.Sprintf("127.0.0.1:%d", port), KeyFile: filepath.Join(dir, "hardtack.key"), OtherFile: filepath.Join(dir, "other.key")}
		write(t, filepath.Join(dir, "named.conf"), fmt.Sprintf(bindText, dir, port, update, transfer))
		if startNamed(t, named, filepath.Join(dir, "named.conf"), b.Addr) {
			return b
		}
	}
	t.Fatal("named found no free port")
	return BIND{}
}

// RunNamed starts named with a configuration, for as long as the test runs, and reports whether it answers for the zone
// k8s at addr; false is that another process has the port.
func RunNamed(t testing.TB, conf, addr string) bool {
	t.Helper()
	named, err := exec.LookPath("named")
	if err != nil {
		t.Fatal(err)
	}
	return startNamed(t, named, conf, addr)
}

// startNamed reports whether the server answers for its zone.
func startNamed(t testing.TB, named, conf, addr string) bool {
	t.Helper()
	return answers(t, run.Command{Name: named, Args: []string{"-g", "-n", "1", "-c", conf}}, addr)
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// FreePort returns a port that neither UDP nor TCP uses on loopback.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 20 {
		var c net.ListenConfig
		l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		p, err := c.ListenPacket(t.Context(), "udp", l.Addr().String())
		_ = l.Close()
		if err == nil {
			_ = p.Close()
			return port
		}
	}
	t.Fatal("no port is free for both UDP and TCP")
	return 0
}
