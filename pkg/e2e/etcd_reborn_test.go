package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// seats are the machines of three members of etcd: addresses of one network namespace, and a directory each that stands
// for the machine's disk. etcd runs with the variables of the image and of the agent, and with certificates of the
// cluster's authorities.
type seats struct {
	dir     string
	mu      sync.Mutex
	running map[string]*exec.Cmd
	logs    map[string]*run.Log
}

func newSeats(t *testing.T, dir string) *seats {
	t.Helper()
	s := &seats{dir: dir, running: map[string]*exec.Cmd{}, logs: map[string]*run.Log{}}
	hosts := "127.0.0.1 localhost\n"
	var a pki.EtcdAuthorities
	for name, to := range map[string]*pki.Authority{pki.EtcdClientCA: &a.Client, pki.EtcdPeerCA: &a.Peer} {
		key, err := pki.NewKey()
		if err == nil {
			*to, err = pki.NewAuthority(pki.AuthorityName("demo", name), key, time.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var addresses []netip.Addr // of all: in one namespace a member's connections come from the address that they go to
	for i, m := range etcdMembers {
		hosts += fmt.Sprintf("%s %s\n", etcdAddress(i), role.MemberHost("demo", m))
		addresses = append(addresses, etcdAddress(i))
	}
	for _, m := range etcdMembers {
		for _, b := range pki.EtcdBundles(a, pki.Machine{Cluster: "demo", Hostname: "etcd-" + m, Addresses: addresses}, m) {
			files, err := b.Mint(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				s.write(t, s.path(m, "pki", f.Name), string(f.Content))
			}
		}
	}
	s.write(t, filepath.Join(dir, "hosts"), hosts)
	if out, err := exec.CommandContext(t.Context(), "mount", "--bind", filepath.Join(dir, "hosts"), "/etc/hosts").CombinedOutput(); err != nil {
		t.Fatalf("the members' names: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount("/etc/hosts", 0); err != nil {
			t.Error(err)
		}
		for m, log := range s.logs {
			s.end(m)
			if t.Failed() {
				t.Logf("etcd-%s:\n%s", m, tail(log.String(), 12))
			}
			if err := os.RemoveAll(s.path(m)); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// path is a file of a member's machine.
func (s *seats) path(member string, parts ...string) string {
	return filepath.Join(append([]string{s.dir, "machine-" + member}, parts...)...)
}

func (s *seats) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Replace(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// imageEnv are the variables of the image's /etc/kubernetes/etcd and the settings that make the machine a member, with the
// paths and addresses of the seat.
func (s *seats) imageEnv(t *testing.T, member string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "images/rootfs/etc/kubernetes/etcd"))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	set := func(key, value string) {
		value = strings.Replace(value, "/run/hardtack/pki/etcd", s.path(member, "pki"), 1)
		value = strings.Replace(value, "/var/lib/etcd", s.path(member, "disk"), 1)
		for i, m := range etcdMembers { // one namespace for all of them
			if m == member {
				value = strings.NewReplacer("0.0.0.0", etcdAddress(i).String(), "http://127.0.0.1:2381", fmt.Sprintf("http://%s:2381", etcdAddress(i))).Replace(value)
			}
		}
		env[key] = value
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			set(key, value)
		}
	}
	for _, setting := range machine.EtcdSettings("demo", member, etcdMembers) {
		set(setting.Variable(), setting.Value)
	}
	return env
}

// undecided are variables by which a member starts whenever it starts: with all members' names, and a token that never
// changes.
func (s *seats) undecided(t *testing.T, member string) map[string]string {
	t.Helper()
	env := s.imageEnv(t, member)
	var peers []string
	for _, m := range etcdMembers {
		peers = append(peers, m+"="+machine.EtcdPeerURL("demo", m, etcdMembers))
	}
	env["ETCD_INITIAL_CLUSTER"], env["ETCD_INITIAL_CLUSTER_TOKEN"] = strings.Join(peers, ","), "demo"
	env["ETCD_DATA_DIR"] = s.path(member, "disk", "data")
	return env
}

// start starts etcd of a member.
func (s *seats) start(t *testing.T, member string, env map[string]string) {
	t.Helper()
	if err := s.spawn(member, env); err != nil {
		t.Fatal(err)
	}
}

func (s *seats) spawn(member string, env map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.logs[member]
	if log == nil {
		log = &run.Log{}
	}
	cmd := exec.CommandContext(interrupted, filepath.Join(s.dir, programs.Bin, "etcd"))
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running[member], s.logs[member] = cmd, log
	return nil
}

// end ends a member as a machine does that loses its power.
func (s *seats) end(member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cmd := s.running[member]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(s.running, member)
	}
}

// replace ends the machine of a member: the next one has an empty disk.
func (s *seats) replace(t *testing.T, member string) {
	t.Helper()
	s.end(member)
	if err := os.RemoveAll(s.path(member, "disk")); err != nil {
		t.Fatal(err)
	}
}

// ctl asks a member as a client of the cluster does.
func (s *seats) ctl(member string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(interrupted, 10*time.Second)
	defer cancel()
	base := []string{"--endpoints", machine.EtcdURL("demo", member), "--cacert", s.path(member, "pki", "ca.crt"),
		"--cert", s.path(member, "pki", "server.crt"), "--key", s.path(member, "pki", "server.key"), "--command-timeout=3s"}
	out, err := exec.CommandContext(ctx, filepath.Join(s.dir, programs.Bin, "etcdctl"), append(base, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// await waits until a linearizable read at a member works.
func (s *seats) await(t *testing.T, member string) {
	t.Helper()
	if pending := eventually(time.Minute, func() []string {
		if out, err := s.ctl(member, "get", "answer"); err != nil {
			return []string{out}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatalf("etcd-%s does not serve: %v", member, pending)
	}
}

// status is what a member says of itself: the cluster's ID and the revision.
func (s *seats) status(t *testing.T, member string) (cluster, revision string) {
	t.Helper()
	out, err := s.ctl(member, "endpoint", "status", "-w", "fields")
	if err != nil {
		t.Fatalf("etcd-%s: %v\n%s", member, err, out)
	}
	for line := range strings.Lines(out) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), " : "); key {
		case `"ClusterID"`:
			cluster = value
		case `"Revision"`:
			revision = value
		}
	}
	return cluster, revision
}

const acknowledged = 100

// fill writes keys, each of them acknowledged.
func (s *seats) fill(t *testing.T) {
	t.Helper()
	for i := range acknowledged {
		if out, err := s.ctl("abc"[i%3:i%3+1], "put", fmt.Sprintf("key-%03d", i), "here"); err != nil {
			t.Fatalf("etcdctl put: %v\n%s", err, out)
		}
	}
}

// keep has a member know on its disk that all keys are committed: a quorum can acknowledge without it, and it writes what it
// learns of that with the next entry that it stores. What it does not know to be committed, --force-new-cluster discards.
func (s *seats) keep(t *testing.T, member string) {
	t.Helper()
	for range 2 {
		if out, err := s.ctl(member, "put", "kept", "yes"); err != nil {
			t.Fatalf("etcdctl put: %v\n%s", err, out)
		}
		s.await(t, member)
	}
}

// keys counts the acknowledged keys that a member still has.
func (s *seats) keys(member string) (int, error) {
	out, err := s.ctl(member, "get", "--prefix", "key-", "--keys-only")
	return strings.Count(out, "key-"), err
}

// TestEtcdReborn replaces the machines of two members of three while the third is off, and then lets the third return. The
// two have nothing of what the cluster acknowledged, so that they must not serve as that cluster.
func TestEtcdReborn(t *testing.T) {
	needMachines(t)
	needNamespaces(t)
	dir := t.TempDir()
	programs.Install(t, dir, programs.DefaultLock(t), "etcd") // here first: inside the namespace it could not be built
	if !inNamespace(t) {
		return
	}
	// The attack, against an etcd whose first start nobody decides: names and token are those of the cluster, and so is its
	// identity. It shows that the fault is there to be caught.
	t.Run("with the names and a token that never changes", func(t *testing.T) {
		s := newSeats(t, dir)
		for _, m := range etcdMembers {
			s.start(t, m, s.undecided(t, m))
		}
		for _, m := range etcdMembers {
			s.await(t, m)
		}
		s.fill(t)
		first, _ := s.status(t, "a")
		s.end("c")
		for _, m := range []string{"a", "b"} {
			s.replace(t, m)
		}
		for _, m := range []string{"a", "b"} {
			s.start(t, m, s.undecided(t, m))
		}
		s.await(t, "a")
		second, _ := s.status(t, "a")
		n, err := s.keys("a")
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.ctl("a", "put", "reborn", "yes"); err != nil || second != first || n != 0 {
			t.Errorf("the second cluster has the ID %s and %d keys, and takes a write: %v, %s; the first one had %s", second, n, err, out, first)
		}
	})
	// The same, where the agent decides.
	t.Run("with the agent", func(t *testing.T) {
		d := newDecided(t, dir)
		for _, m := range etcdMembers {
			d.on(t, m)
		}
		for _, m := range etcdMembers {
			d.says(t, m, "S: report: etcd runs: <nil>")
			d.await(t, m)
		}
		d.fill(t)
		d.keep(t, "c")
		first, _ := d.status(t, "c")
		for _, m := range etcdMembers {
			d.off(m)
		}
		for _, m := range []string{"a", "b"} {
			d.replace(t, m)
			d.on(t, m)
		}
		for _, m := range []string{"a", "b"} {
			d.says(t, m, "no other member answers with a quorum")
		}
		if running := len(d.running); running != 0 {
			t.Fatalf("%d members run that have nothing of what the cluster acknowledged", running)
		}
		// The third has the data, and alone it takes no writes.
		d.on(t, "c")
		d.says(t, "c", "S: report")
		if out, err := d.ctl("c", "put", "alone", "yes"); err == nil {
			t.Errorf("the third takes a write without a quorum: %s", out)
		}
		for _, m := range []string{"a", "b"} {
			d.says(t, m, "no other member answers with a quorum")
		}
		d.off("c")
		// What a person would restore from: a copy of its data, started by itself.
		survivor := d.imageEnv(t, "c")
		survivor["ETCD_DATA_DIR"], survivor["ETCD_FORCE_NEW_CLUSTER"] = d.path("c", "disk", "data"), "true"
		d.start(t, "c", survivor)
		d.await(t, "c")
		if n, err := d.keys("c"); err != nil || n != acknowledged {
			t.Errorf("the third has %d keys, want %d: %v", n, acknowledged, err)
		}
		if last, _ := d.status(t, "c"); last != first {
			t.Errorf("the third is of the cluster %s, and was of %s", last, first)
		}
	})
}
