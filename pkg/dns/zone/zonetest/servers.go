package zonetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/judges"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Server is another name server than BIND for a test, with the empty dynamic zone k8s.
type Server struct {
	// Addr is its host:port on loopback, for UDP and TCP.
	Addr string
	// KeyFile has a key that may read and update the zone, in BIND's form; OtherFile has one that the server knows but does
	// not permit.
	KeyFile, OtherFile string
}

// knotText is the configuration of Knot DNS. Its journal must be on a disk of its own directory.
const knotText = `server:
    rundir: "%[1]s"
    listen: 127.0.0.1@%[2]d
database:
    storage: "%[1]s/db"
log:
  - target: stderr
    any: info
key:
  - id: hardtack
    algorithm: hmac-sha256
    secret: %[3]s
  - id: other
    algorithm: hmac-sha256
    secret: %[4]s
acl:
  - id: hardtack
    address: 127.0.0.1
    key: hardtack
    action: [transfer, update]
zone:
  - domain: k8s
    storage: "%[1]s"
    file: k8s.zone
    acl: hardtack
`

// StartKnot starts Knot DNS, which stops at the end of the test. It skips the test only if knotd is not there.
func StartKnot(t testing.TB) Server {
	t.Helper()
	return startServer(t, "knotd", func(dir string, port int) run.Command {
		write(t, filepath.Join(dir, "k8s.zone"), fmt.Sprintf("$ORIGIN k8s.\n"+zoneText, 5))
		if err := os.MkdirAll(filepath.Join(dir, "db"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "knot.conf"), fmt.Sprintf(knotText, dir, port, keySecret, otherSecret))
		return run.Command{Name: judge("knotd"), Args: []string{"-c", filepath.Join(dir, "knot.conf")}}
	})
}

// pdnsText is the configuration of PowerDNS, with everything in one file of SQLite.
const pdnsText = `launch=gsqlite3
module-dir=%[5]s
gsqlite3-database=%[1]s/pdns.sqlite
gsqlite3-dnssec=yes
dnsupdate=yes
allow-dnsupdate-from=
local-address=127.0.0.1
local-port=%[2]d
socket-dir=%[1]s
daemon=no
guardian=no
disable-axfr=no
cache-ttl=0
query-cache-ttl=0
negquery-cache-ttl=0
zone-cache-refresh-interval=0
setuid=
setgid=
config-dir=%[1]s
`

// StartPowerDNS starts PowerDNS, which stops at the end of the test. It skips the test only if pdns_server, or Python's
// SQLite that makes its database, is not there.
func StartPowerDNS(t testing.TB) Server {
	t.Helper()
	return startServer(t, "pdns_server", func(dir string, port int) run.Command {
		modules, schema := pdnsFiles(t)
		write(t, filepath.Join(dir, "pdns.conf"), fmt.Sprintf(pdnsText, dir, port, keySecret, otherSecret, modules))
		const make = "import sqlite3,sys; sqlite3.connect(sys.argv[1]).executescript(open(sys.argv[2]).read())"
		if err := run.Run(t.Context(), run.Command{Name: "python3", Args: []string{"-c", make, filepath.Join(dir, "pdns.sqlite"), schema}}); err != nil {
			t.Fatalf("making PowerDNS's database: %v", err)
		}
		zone := filepath.Join(dir, "k8s.zone")
		write(t, zone, fmt.Sprintf("$ORIGIN k8s.\n"+zoneText, 5))
		for _, args := range [][]string{
			{"load-zone", "k8s", zone}, {"set-kind", "k8s", "primary"},
			{"import-tsig-key", "hardtack", "hmac-sha256", keySecret}, {"import-tsig-key", "other", "hmac-sha256", otherSecret},
			{"set-meta", "k8s", "TSIG-ALLOW-DNSUPDATE", "hardtack"}, {"set-meta", "k8s", "TSIG-ALLOW-AXFR", "hardtack"},
			{"set-meta", "k8s", "ALLOW-DNSUPDATE-FROM", "127.0.0.0/8"}, {"set-meta", "k8s", "SOA-EDIT-DNSUPDATE", "INCREASE"},
		} {
			if err := run.Run(t.Context(), run.Command{Name: judge("pdnsutil"), Args: append([]string{"--config-dir=" + dir}, args...)}); err != nil {
				t.Fatalf("preparing PowerDNS's zone: %v", err)
			}
		}
		return run.Command{Name: judge("pdns_server"), Args: []string{"--config-dir=" + dir}}
	})
}

// pdnsFiles finds PowerDNS's backends and the schema of its database, installed or unpacked.
func pdnsFiles(t testing.TB) (modules, schema string) {
	t.Helper()
	for _, root := range []string{judges.Path("nameservers"), "/"} {
		found, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/pdns/libgsqlite3backend.so"))
		text := filepath.Join(root, "usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql")
		if _, err := os.Stat(text); err == nil && len(found) > 0 {
			return filepath.Dir(found[0]), text
		}
	}
	t.Skip("PowerDNS's backend for SQLite is not there: run scripts/setup --judges")
	return "", ""
}

// judge is the path of a program, unpacked or installed; empty if it is neither.
func judge(name string) string {
	unpacked := judges.Path("bin", name)
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked
	}
	installed, _ := exec.LookPath(name)
	return installed
}

// startServer starts a server that prepare has written the files of, at a free port.
func startServer(t testing.TB, name string, prepare func(dir string, port int) run.Command) Server {
	t.Helper()
	if judge(name) == "" {
		t.Skipf("%s is not there: run scripts/setup --judges", name)
	}
	for range 5 {
		dir, port := t.TempDir(), FreePort(t)
		s := Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), KeyFile: filepath.Join(dir, "hardtack.key"), OtherFile: filepath.Join(dir, "other.key")}
		write(t, s.KeyFile, fmt.Sprintf(keyText, "hardtack", keySecret))
		write(t, s.OtherFile, fmt.Sprintf(keyText, "other", otherSecret))
		if answers(t, prepare(dir, port), s.Addr) {
			return s
		}
	}
	t.Fatalf("%s found no free port", name)
	return Server{}
}

// answers starts a server, and reports whether it answers for its zone; false is that another has its port.
func answers(t testing.TB, c run.Command, addr string) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	log := &run.Log{}
	c.Stdout, c.Stderr = log, log
	go func() {
		// The end of the context ends exactly this process, by its id.
		ended <- run.Run(ctx, c)
	}()
	stop := func() {
		cancel()
		t.Logf("%s has ended: %v", filepath.Base(c.Name), <-ended)
	}
	inUse := func() bool { // named says "address in use", the others "address already in use"
		text := strings.ToLower(log.String())
		return strings.Contains(text, "address in use") || strings.Contains(text, "address already in use")
	}
	q := new(dns.Msg).SetQuestion("k8s.", dns.TypeSOA)
	for range 400 {
		select {
		case err := <-ended:
			cancel()
			if inUse() {
				return false
			}
			t.Fatalf("%s ended: %v\n%s", c.Name, err, log)
		case <-time.After(25 * time.Millisecond):
		}
		client := dns.Client{Net: "tcp", Timeout: time.Second}
		if a, _, err := client.ExchangeContext(ctx, q, addr); err == nil && a.Authoritative && len(a.Answer) == 1 {
			t.Cleanup(stop)
			return true
		}
	}
	stop()
	if inUse() {
		return false
	}
	t.Fatalf("%s does not answer\n%s", c.Name, log)
	return false
}
