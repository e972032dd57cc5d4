package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The members and their resolver are on the loopback device of a network namespace. The resolver needs port 53. The
// members need other addresses than 127.0.0.0/8, which no record would contain.
const (
	etcdResolver = "127.0.0.1:53"
	etcdService  = "_etcd-server-ssl._tcp.demo.k8s."
)

var etcdMembers = []string{"a", "b", "c"}

func etcdAddress(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.77.0.%d", 11+i)) }

// TestEtcdDiscovery publishes the members of an etcd cluster on a real BIND, first two of three and then all, and lets
// real etcd members find each other by --discovery-srv alone.
func TestEtcdDiscovery(t *testing.T) {
	needMachines(t)
	needNamespaces(t)
	dir := t.TempDir()
	programs.Install(t, dir, programs.DefaultLock(t), "etcd") // here first: inside the namespace it could not be built
	program := filepath.Join(dir, programs.Bin)
	if !inNamespace(t) {
		return
	}
	server := zonetest.StartBIND(t, zonetest.BINDOptions{})
	seen := startResolver(t, server.Addr)
	members := &etcdMachines{}
	syncer := etcdSyncer(t, server, members)
	// etcd wants the domain in the certificates of peers that it found by SRV.
	names, addresses := []string{"demo.k8s"}, []net.IP{}
	for i, name := range etcdMembers {
		names, addresses = append(names, "etcd-"+name+".demo.k8s"), append(addresses, net.IP(etcdAddress(i).AsSlice()))
	}
	etcdtest.Certificate(t, dir, names, addresses...)

	members.set(2)
	publish(t, syncer)
	// A member that starts too early must exit, and not form a cluster of those that are published.
	early := etcdCommand(t, dir, program, 0)
	out, err := early.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("discovery")) {
		t.Fatalf("etcd started with 2 of 3 members published: %v\n%s", err, out)
	}
	members.set(3)
	publish(t, syncer)
	logs := make([]*run.Log, len(etcdMembers))
	for i := range etcdMembers {
		logs[i] = background(t, etcdCommand(t, dir, program, i))
	}
	awaitEtcd(t, dir, program, logs)
	// A lost machine must not change the initial cluster of new members.
	members.set(2)
	publish(t, syncer)
	seen.ask(t)
	seen.check(t)
}

// inNamespace runs the test again in its own network namespace, and reports whether this is that run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "HARDTACK_E2E_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(interrupted, "unshare", "--net", "--mount", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), inside+"=1", untilVariable+"=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("in its own network namespace: %v\n%s", err, out)
		}
		return false
	}
	commands := []string{"ip link set lo up"}
	for i := range etcdMembers {
		commands = append(commands, fmt.Sprintf("ip address add %s/32 dev lo", etcdAddress(i)))
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", strings.Join(commands, "\n")).CombinedOutput(); err != nil {
		t.Fatalf("addresses in the namespace: %v\n%s", err, out)
	}
	return true
}

// etcdMachines is a fleet with one etcd group. Its first n members have machines.
type etcdMachines struct{ n int }

func (f *etcdMachines) set(n int) { f.n = n }

func (f *etcdMachines) Read(context.Context, string) (record.Fleet, error) {
	g := record.Group{Name: "demo-etcd", Cluster: zonetest.Cluster, Role: role.Etcd, Desired: len(etcdMembers), EtcdMembers: etcdMembers}
	for i, name := range etcdMembers[:f.n] {
		g.Members = append(g.Members, record.Member{InstanceID: fmt.Sprintf("i-%017d", i), Lifecycle: record.PendingWait,
			Healthy: true, Running: true, Private: etcdAddress(i), EtcdMember: name})
	}
	return record.Fleet{Cluster: zonetest.Cluster, Groups: []record.Group{g}}, nil
}

func etcdSyncer(t *testing.T, server zonetest.BIND, fleet reconcile.Fleet) *reconcile.Syncer {
	t.Helper()
	key, err := zone.ReadKey(server.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zone.NewRFC2136(zone.RFC2136Config{Server: server.Addr, Key: key, Policy: record.DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	syncer, err := reconcile.New(reconcile.Config{Zone: z, Fleet: fleet, Pace: -1})
	if err != nil {
		t.Fatal(err)
	}
	return syncer
}

func publish(t *testing.T, syncer *reconcile.Syncer) {
	t.Helper()
	if _, err := syncer.Sync(t.Context(), zonetest.Cluster); err != nil {
		t.Fatalf("publishing: %v", err)
	}
}

// srvAnswers counts answers for etcd's SRV name by their number of targets.
type srvAnswers struct {
	mu     sync.Mutex
	counts map[int]int
}

// startResolver forwards queries on etcdResolver to the server, and counts the SRV targets.
func startResolver(t *testing.T, server string) *srvAnswers {
	t.Helper()
	seen := &srvAnswers{counts: map[int]int{}}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		answer, _, err := new(dns.Client).Exchange(query, server)
		if err != nil {
			answer = new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
		} else if query.Question[0].Name == etcdService && query.Question[0].Qtype == dns.TypeSRV {
			seen.mu.Lock()
			seen.counts[len(answer.Answer)]++
			seen.mu.Unlock()
		}
		_ = w.WriteMsg(answer)
	})
	conn, err := net.ListenPacket("udp", etcdResolver)
	if err != nil {
		t.Fatalf("listening for etcd's questions: %v", err)
	}
	s := &dns.Server{PacketConn: conn, Handler: handler}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return seen
}

// ask asks for the SRV records as etcd would.
func (s *srvAnswers) ask(t *testing.T) {
	t.Helper()
	if _, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion(etcdService, dns.TypeSRV), etcdResolver); err != nil {
		t.Fatal(err)
	}
}

// check asserts that the name was answered, each time with all members or with none.
func (s *srvAnswers) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[0] == 0 || s.counts[len(etcdMembers)] < len(etcdMembers)+1 || len(s.counts) != 2 {
		t.Errorf("answers by number of SRV targets are %v; want some with none, then only whole ones", s.counts)
	}
}

// etcdCommand runs member i, which learns about the others only by DNS.
func etcdCommand(t *testing.T, dir, program string, i int) *exec.Cmd {
	t.Helper()
	resolv := filepath.Join(dir, "resolv.conf")
	host, _, _ := net.SplitHostPort(etcdResolver)
	if err := os.WriteFile(resolv, []byte("nameserver "+host+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	name := "etcd-" + etcdMembers[i] + ".demo.k8s"
	crt, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	args := []string{"--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, resolv,
		filepath.Join(program, "etcd"), "--name=" + etcdMembers[i], "--data-dir=" + filepath.Join(dir, "data-"+etcdMembers[i]),
		"--discovery-srv=demo.k8s", "--initial-cluster-token=test", "--initial-cluster-state=new",
		"--initial-advertise-peer-urls=https://" + name + ":2380", "--advertise-client-urls=https://" + name + ":2379",
		fmt.Sprintf("--listen-peer-urls=https://%s:2380", etcdAddress(i)), fmt.Sprintf("--listen-client-urls=https://%s:2379", etcdAddress(i)),
		"--cert-file=" + crt, "--key-file=" + key, "--trusted-ca-file=" + crt, "--client-cert-auth",
		"--peer-cert-file=" + crt, "--peer-key-file=" + key, "--peer-trusted-ca-file=" + crt, "--peer-client-cert-auth",
	}
	return exec.CommandContext(interrupted, "unshare", args...)
}

// awaitEtcd waits until every member is started, in the same cluster, and returns the written value.
func awaitEtcd(t *testing.T, dir, program string, logs []*run.Log) {
	t.Helper()
	ctl := func(i int, args ...string) (string, error) {
		base := []string{"--endpoints", fmt.Sprintf("https://%s:2379", etcdAddress(i)), "--cacert", filepath.Join(dir, "tls.crt"),
			"--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key"), "--command-timeout=2s"}
		out, err := exec.CommandContext(interrupted, filepath.Join(program, "etcdctl"), append(base, args...)...).CombinedOutput()
		return string(out), err
	}
	var last string
	pending := eventually(time.Minute, func() []string {
		for i := range etcdMembers {
			out, err := ctl(i, "member", "list", "-w", "simple")
			if last = out; err != nil || strings.Count(out, ", started,") != len(etcdMembers) {
				return []string{out}
			}
		}
		return nil
	})
	if len(pending) > 0 {
		for i, log := range logs {
			t.Logf("etcd-%s:\n%s", etcdMembers[i], log.String())
		}
		t.Fatalf("the members are not one cluster: %s", last)
	}
	if out, err := ctl(0, "put", "found", "by DNS"); err != nil {
		t.Fatalf("etcdctl put: %v\n%s", err, out)
	}
	for i, name := range etcdMembers {
		if out, err := ctl(i, "get", "found"); err != nil || !strings.Contains(out, "by DNS") {
			t.Errorf("etcd-%s does not have what etcd-a was told: %v\n%s", name, err, out)
		}
	}
}
