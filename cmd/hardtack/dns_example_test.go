package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/lookup"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

// example returns a file of examples/dns with the pairs replaced; each must be there.
func example(t *testing.T, name string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("examples", "dns", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			t.Fatalf("%s does not have %q", name, pairs[i])
		}
	}
	return strings.NewReplacer(pairs...).Replace(string(text))
}

func writeText(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestDNSExampleUnit has systemd read the unit, and holds its command line to the program's own flags.
func TestDNSExampleUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (Debian's package systemd)")
	}
	unit := writeText(t, filepath.Join(t.TempDir(), "hardtack-dns.service"), example(t, "hardtack-dns.service", "/usr/local/bin/hardtack", "/bin/true"))
	if out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// Every flag exists, or else the usage error comes before the key that is not there.
	line := ""
	for text := range strings.Lines(example(t, "hardtack-dns.service")) {
		if rest, ok := strings.CutPrefix(text, "ExecStart=/usr/local/bin/hardtack "); ok {
			line = strings.TrimSpace(rest)
		}
	}
	err = newApp(new(bytes.Buffer), new(bytes.Buffer)).RunContext(t.Context(), append([]string{"hardtack"}, strings.Fields(line)...))
	if err == nil || !strings.Contains(err.Error(), "%d/k8s.key") {
		t.Errorf("%q: %v", line, err)
	}
}

// TestDNSExample runs the example: a primary, a secondary, the zone, and the machines, of which the checks are left out,
// since they are nobody's here. The secondary has what was written within a second or so.
func TestDNSExample(t *testing.T) {
	if testing.Short() {
		t.Skip("-short was asked for: it starts two name servers")
	}
	if _, err := exec.LookPath("named"); err != nil {
		t.Skip("named is not installed (Debian's package bind9)")
	}
	for _, conf := range []string{"named.conf", "secondary.conf"} {
		file := writeText(t, filepath.Join(t.TempDir(), conf), example(t, conf, `include "/etc/hardtack/k8s.key";`, keyClauseOf(t), "/var/cache/bind", t.TempDir()))
		if out, err := exec.Command("named-checkconf", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("named-checkconf %s: %v\n%s", conf, err, out)
		}
	}
	primary, secondary, key := startExample(t)
	dns := func(args ...string) string {
		var out bytes.Buffer
		if err := newApp(&out, new(bytes.Buffer)).RunContext(t.Context(), append([]string{"hardtack", "dns"}, args...)); err != nil {
			t.Fatalf("dns %q: %v\n%s", args, err, &out)
		}
		return out.String()
	}
	whole := example(t, "machines.yaml")
	checks, groups := strings.Index(whole, "checks:"), strings.Index(whole, "groups:")
	machines := writeText(t, filepath.Join(t.TempDir(), "machines.yaml"), whole[:checks]+whole[groups:])
	target := []string{"--cluster", "demo", "--zone-server", primary, "--tsig-key", key, "--fleet", machines}
	dns(append([]string{"zone", "prepare"}, target[:6]...)...)
	if out := dns(append([]string{"sync"}, target...)...); !strings.Contains(out, "demo: changed") {
		t.Errorf("sync: %s", out)
	}
	dns(append([]string{"plan", "--exit-code"}, target...)...)
	want := []string{"10.0.0.11", "10.0.0.12", "10.0.0.13"}
	var got []lookup.Answer
	for range 100 {
		got = lookup.All(t.Context(), []string{secondary}, []string{"masters.demo.k8s."})
		if len(got) > 0 && slices.Equal(slices.Sorted(slices.Values(got[0].Values)), want) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("the secondary answers %+v, want %v", got, want)
}

// The whole example, its checks included, is an inventory. The CA is not there, which is said before anything is asked.
func TestDNSExampleMachines(t *testing.T) {
	_, err := fleet.File{Path: filepath.Join("examples", "dns", "machines.yaml")}.Read(t.Context(), "demo")
	if err == nil || !strings.Contains(err.Error(), "open /etc/hardtack/ca.crt") {
		t.Errorf("%v", err)
	}
}

func keyClauseOf(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("tsig-keygen", "hardtack").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// startExample starts the example's two servers on loopback, and returns their addresses and the key's file.
func startExample(t *testing.T) (primary, secondary, key string) {
	t.Helper()
	dir := t.TempDir()
	key = writeText(t, filepath.Join(dir, "k8s.key"), keyClauseOf(t))
	writeText(t, filepath.Join(dir, "lib", "k8s.zone"), example(t, "k8s.zone"))
	first, second := zonetest.FreePort(t), zonetest.FreePort(t)
	local := func(port int, own string) []string {
		return []string{"/etc/hardtack/k8s.key", key, `directory "/var/cache/bind";`,
			fmt.Sprintf("directory %q; pid-file none; session-keyfile \"%s/session.key\"; managed-keys-directory %q; dnssec-validation no;", own, own, own),
			"listen-on { any; };", fmt.Sprintf("listen-on port %d { 127.0.0.1; };", port), "listen-on-v6 { any; };", "listen-on-v6 { none; };"}
	}
	own, other := filepath.Join(dir, "primary"), filepath.Join(dir, "secondary")
	conf := writeText(t, filepath.Join(own, "named.conf"), "controls { };\n"+example(t, "named.conf", append(local(first, own),
		"/var/lib/bind/", filepath.Join(dir, "lib")+"/", "also-notify { 10.0.0.54; };", fmt.Sprintf("also-notify { 127.0.0.1 port %d; };", second))...))
	conf2 := writeText(t, filepath.Join(other, "named.conf"), "controls { };\n"+example(t, "secondary.conf", append(local(second, other),
		"primaries { 10.0.0.53 key", fmt.Sprintf("primaries { 127.0.0.1 port %d key", first))...))
	primary, secondary = net.JoinHostPort("127.0.0.1", fmt.Sprint(first)), net.JoinHostPort("127.0.0.1", fmt.Sprint(second))
	for _, s := range [][2]string{{conf, primary}, {conf2, secondary}} {
		if !zonetest.RunNamed(t, s[0], s[1]) {
			t.Fatalf("another process has the port %s", s[1])
		}
	}
	return primary, secondary, key
}
