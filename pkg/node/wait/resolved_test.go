package wait_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/wait"
)

// The network of the test, in a namespace of its own: a name server as a VPC's, and a master.
const (
	nameServer = "10.1.0.2"
	master     = "10.1.0.12"
	stub       = "127.0.0.53"
	namedConf  = `options { directory "%[1]s"; pid-file none; session-keyfile "%[1]s/session.key"; listen-on { 10.1.0.2; };
	listen-on-v6 { none; }; recursion no; dnssec-validation no; };
controls { };
zone "demo.k8s" { type primary; file "%[1]s/zone"; };
`
	// A "no" is kept for a quarter of an hour, Route 53's default.
	zone = "$TTL 5\n@ IN SOA ns.demo.k8s. h.demo.k8s. ( %d 3600 600 86400 900 )\n@ IN NS ns.demo.k8s.\nns IN A 10.1.0.2\n%s"
)

// insideRoot names the variable by which the test finds itself in the namespaces, with the root directory to use.
const insideRoot = "HARDTACK_TEST_RESOLVED_ROOT"

// dropIn is the file of the image that this is about.
const dropIn = "usr/lib/systemd/resolved.conf.d/10-hardtack.conf"

// TestTooEarly asks for masters.<cluster>.k8s before there is any, through the image's own systemd-resolved and a real
// BIND, and again without the image's setting, which must show what it is for.
func TestTooEarly(t *testing.T) {
	if _, err := exec.LookPath("named"); err != nil {
		t.Skip("named is not installed (Debian's package bind9)")
	}
	var debian baketest.Base
	t.Cleanup(func() {
		if err := debian.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, with := range []bool{true, false} {
		t.Run(fmt.Sprintf("setting=%v", with), func(t *testing.T) {
			root := debian.Root(t, "../../../images", 64)
			if with {
				text, err := os.ReadFile("../../../images/rootfs/" + dropIn)
				if err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(root, dropIn), string(text))
				if err := os.Chmod(filepath.Join(root, dropIn), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestInside$", "-test.v")
			cmd.Env = append(os.Environ(), insideRoot+"="+root)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, syscall.EPERM) {
				t.Skip("namespaces of its own need root: ", err)
			}
			// Without the setting, the "no" is kept; both are the same program.
			want := "the stub says no: false"
			if !with {
				want = "the stub says no: true"
			}
			if err != nil || !bytes.Contains(out, []byte(want)) {
				t.Errorf("%v, want %q in\n%s", err, want, out)
			}
		})
	}
}

// TestInside is what runs in the namespaces.
func TestInside(t *testing.T) {
	root := os.Getenv(insideRoot)
	if root == "" {
		t.Skip("TestTooEarly runs this, in a network of its own")
	}
	server := newServer(t)
	startResolved(t, root)
	if _, err := lookup(t, stub); !notFound(err) {
		t.Fatalf("before there is a master: %v", err)
	}
	// The first try is the second one that asks. When its "no" has been told, the master comes.
	appeared := false
	ctx, cancel := context.WithCancel(t.Context())
	ours := newAuthority(t, "kubernetes")
	port := ours.serve(t, master+":0", name, time.Now().Add(-time.Minute), ok)
	err := wait.Run(ctx, wait.Options{
		Targets:  []*url.URL{{Scheme: "https", Host: net.JoinHostPort(name, strconv.Itoa(port)), Path: "/readyz"}},
		Resolver: resolver(stub), Prober: &probe.Client{CA: ours.file}, MinWait: time.Millisecond, MaxWait: 50 * time.Millisecond,
		Status: func(text string) {
			t.Log(text)
			if appeared || !strings.HasPrefix(text, "[dns] ") {
				return
			}
			appeared = true
			server.publish(t)
			if _, err := lookup(t, stub); err != nil {
				cancel() // it would be told so for a quarter of an hour
			}
		},
	})
	if !appeared {
		t.Error("the wait never said that there is no address")
	}
	t.Logf("the stub says no: %v", err != nil)
}

// nameserver is a BIND.
type nameserver struct {
	process *os.Process
	dir     string
}

// newServer makes the network and starts BIND in it, without a record for the masters.
func newServer(t *testing.T) nameserver {
	t.Helper()
	for _, line := range []string{
		"mount --make-rprivate /", "ip link set lo up", "ip link add lan0 type veth peer name lan1", "ip address add " + nameServer + "/24 dev lan0",
		"ip address add " + master + "/24 dev lan0", "ip link set lan1 up", "ip link set lan0 up",
	} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "named.conf"), fmt.Sprintf(namedConf, dir))
	write(t, filepath.Join(dir, "zone"), fmt.Sprintf(zone, 1, ""))
	s := nameserver{start(t, "named", "-g", "-c", filepath.Join(dir, "named.conf")), dir}
	until(t, "BIND answers", func() bool {
		_, err := lookup(t, nameServer)
		return notFound(err)
	})
	return s
}

// publish gives the masters an address, and returns when the server says so.
func (s nameserver) publish(t *testing.T) {
	t.Helper()
	write(t, filepath.Join(s.dir, "zone"), fmt.Sprintf(zone, 2, "masters IN A "+master+"\n"))
	if err := s.process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until(t, "BIND has the record", func() bool {
		_, err := lookup(t, nameServer)
		return err == nil
	})
}

// startResolved starts the image's systemd-resolved.
func startResolved(t *testing.T, root string) {
	t.Helper()
	for _, line := range []string{"mount -t proc proc " + root + "/proc", "mount -t tmpfs tmpfs " + root + "/run"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	file := filepath.Join(root, "run/systemd/resolved.conf.d/test.conf")
	write(t, file, "[Resolve]\nDNS="+nameServer+"\nDomains=~.\n")
	for _, name := range []string{file, filepath.Dir(file), filepath.Join(root, "run/systemd")} {
		if err := os.Chmod(name, 0o755); err != nil { // it gives root up before it reads this
			t.Fatal(err)
		}
	}
	start(t, "chroot", root, "/usr/lib/systemd/systemd-resolved")
	until(t, "resolved answers", func() bool {
		_, err := lookup(t, stub)
		return notFound(err)
	})
}

// start starts a program that ends with the test.
func start(t *testing.T, program string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended, which the log then says
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", program, log.String())
		}
	})
	return cmd.Process
}

// until waits for something that has to come, and fails only when the test's own time is over.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: never", what)
		case <-tick.C:
		}
	}
}

// resolver asks one server, as Go's own resolver does on a machine whose /etc/resolv.conf names it.
func resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(server, "53"))
	}}
}

func lookup(t *testing.T, server string) ([]string, error) {
	t.Helper()
	return resolver(server).LookupHost(t.Context(), name+".")
}

func notFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}
