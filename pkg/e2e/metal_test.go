package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	metalCluster = "cncfdemo"
	// metalRole is a whole role file: without a cloud, a machine must be configured with the store's location.
	metalRole = "CLUSTER_NAME=" + metalCluster + "\nSTORE=dir:" + clusterStore + "\n"
	// metalBusy relaxes the leases of an emulated control plane, which is too slow for the defaults. hardtack lab does
	// the same for its machines.
	metalBusy = lab.LeaderElection + "\n"
	// seedDir is where the agent looks for a NoCloud seed. Whoever installs a machine puts it there.
	seedDir = "/var/lib/cloud/seed/nocloud"
	// storeUnit mounts the cluster's store, and is the operator's own unit. The image has no mount.nfs, which looks up
	// missing options: the kernel needs every address and port. It must not cache for a minute that an object does not
	// exist yet.
	storeUnit  = "/etc/systemd/system/run-hardtack-store.mount"
	storeMount = `[Unit]
Description=The cluster's store, on the file server
After=network-online.target
Wants=network-online.target
[Mount]
What=%[1]s:/
Where=` + clusterStore + `
Type=nfs
Options=vers=4.1,proto=tcp,port=%[2]d,addr=%[1]s,lookupcache=positive
[Install]
WantedBy=multi-user.target
`
	// metalFleet is the inventory of a site without a cloud, maintained by hand.
	metalFleet = `cluster: ` + metalCluster + `
groups:
- name: rack-1
  role: masters+etcd
  machines: [{id: metal-0, address: %s}]
- name: rack-2
  role: minions
  machines: [{id: metal-1, address: %s}, {id: metal-2, address: %s}]
`
)

// metal is a site without a cloud: machines, a name server, a file server.
type metal struct {
	network *vnet.Network
	// files is the file server, and store the directory that it exports.
	files netip.AddrPort
	store *store.Dir
	// master is the control plane, which the test administers.
	master  *cluster
	minions []*cluster
}

// TestMetal starts a control plane and two minions where there is no cloud: they read user data from seed directories,
// BIND has their names, the store is a shared directory, and a token or being first gives a minion its name. It does not
// run in parallel with other tests, so that its three machines have the computer to themselves.
func TestMetal(t *testing.T) {
	needTime(t)
	need(t, "named", "bind9") // for want of which zonetest would skip
	ctx, cancel := context.WithTimeout(interrupted, clusterBound)
	defer cancel()
	m := newMetal(ctx, t)
	m.identity(ctx, t)
	t.Run("seed", func(t *testing.T) { m.seeded(ctx, t) })
	t.Run("store", func(t *testing.T) { m.shared(ctx, t) })
	t.Run("names", func(t *testing.T) { m.named(ctx, t) })
	t.Run("outside", func(t *testing.T) { m.master.outside(ctx, t) })
}

// newMetal makes the site and powers the master and the second minion on. It does not wait for them.
func newMetal(ctx context.Context, t *testing.T) *metal {
	t.Helper()
	server := zonetest.StartBIND(t, zonetest.BINDOptions{})
	network, err := vnet.New(ctx, vnet.Config{Resolver: forwarder{server.Addr}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &metal{network: network, files: netip.MustParseAddrPort("10.1.0.5:2049"), master: &cluster{network: network, addr: netip.MustParseAddr("10.1.0.10")}}
	for _, addr := range []string{"10.1.0.21", "10.1.0.22"} {
		m.minions = append(m.minions, &cluster{network: network, addr: netip.MustParseAddr(addr)})
	}
	m.serveStore(ctx, t)
	m.keepNames(ctx, t, server)
	m.administer(ctx, t)
	m.powerOn(ctx, t, m.master, "metal-0", 2048, map[string]string{role.Masters.File(): metalRole + metalBusy + metalRefuses, role.Etcd.File(): metalRole})
	m.powerOn(ctx, t, m.minions[1], "metal-2", 1536, map[string]string{role.Minions.File(): metalRole + nameLine("metal-2")})
	return m
}

func minionName(i int) string { return fmt.Sprintf("metal-%d", i+1) }

// machines are all of them.
func (m *metal) machines() []*cluster { return append([]*cluster{m.master}, m.minions...) }

// forwarder forwards queries for a name server's zones to it, as a site's resolver does.
type forwarder struct{ server string }

func (f forwarder) Resolve(ctx context.Context, q vnet.Question) (vnet.Reply, error) {
	kind, known := dns.StringToType[q.Type]
	if !known || !dns.IsSubDomain("k8s.", q.Name) {
		return vnet.Reply{Unknown: true}, nil
	}
	client := dns.Client{Net: "tcp"}
	answer, _, err := client.ExchangeContext(ctx, new(dns.Msg).SetQuestion(q.Name, kind), f.server)
	if err != nil {
		return vnet.Reply{}, err
	}
	reply := vnet.Reply{}
	switch answer.Rcode {
	case dns.RcodeSuccess:
	case dns.RcodeNameError:
		reply.NXDomain = true
	default:
		return vnet.Reply{}, fmt.Errorf("the name server says %s", dns.RcodeToString[answer.Rcode])
	}
	for _, rr := range answer.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			reply.TTL = int64(min(soa.Hdr.Ttl, soa.Minttl))
		}
	}
	for _, rr := range answer.Answer {
		if rr.Header().Rrtype == kind {
			reply.Values, reply.TTL = append(reply.Values, strings.TrimPrefix(rr.String(), rr.Header().String())), int64(rr.Header().Ttl)
		}
	}
	return reply, nil
}

// keepNames runs the command that keeps the machines' records in the server's zone.
func (m *metal) keepNames(ctx context.Context, t *testing.T, server zonetest.BIND) {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	fleet := filepath.Join(t.TempDir(), "machines.yaml")
	if err := os.WriteFile(fleet, fmt.Appendf(nil, metalFleet, m.master.addr, m.minions[0].addr, m.minions[1].addr), 0o600); err != nil {
		t.Fatal(err)
	}
	zone := []string{"--cluster", metalCluster, "--zone-server", server.Addr, "--tsig-key", server.KeyFile}
	if err := run.Run(ctx, run.Command{Name: bin, Args: append([]string{"dns", "zone", "prepare"}, zone...)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- run.Run(ctx, run.Command{Name: bin, Args: append([]string{"dns", "sync", "--watch", "--fleet", fleet}, zone...)})
	}()
	t.Cleanup(func() {
		cancel()
		t.Logf("dns sync has ended: %v", <-ended)
	})
}

// administer makes the test the cluster's administrator.
func (m *metal) administer(ctx context.Context, t *testing.T) {
	t.Helper()
	c := m.master
	var err error
	if c.api, err = m.network.Forward(ctx, "127.0.0.1:0", vnet.To(netip.AddrPortFrom(c.addr, 443))); err != nil {
		t.Fatal(err)
	}
	c.operator(ctx, t, m.store)
	c.admin.ServerName = mastersName
	if c.kube, err = kube.New(c.admin); err != nil {
		t.Fatal(err)
	}
}

const mastersName = "masters." + metalCluster + ".k8s"

// powerOn starts a machine with these files in the user data of its seed directory.
func (m *metal) powerOn(ctx context.Context, t *testing.T, c *cluster, name string, memory int, files map[string]string) {
	t.Helper()
	files[storeUnit] = fmt.Sprintf(storeMount, m.files.Addr(), m.files.Port())
	c.powerOn(ctx, t, m.network, name, memory, map[string][]byte{"tmpfiles.extra": seedDirectory(cloudConfig(files), name)})
}

// seedDirectory has systemd-tmpfiles write a NoCloud seed to the disk, as an installer would have done.
func seedDirectory(userData, id string) []byte {
	var lines []byte
	for _, f := range []struct{ name, text string }{{"user-data", userData}, {"meta-data", "instance-id: " + id + "\n"}} {
		lines = fmt.Appendf(lines, "f~ %s/%s 0600 root root - %s\n", seedDir, f.name, base64.StdEncoding.EncodeToString([]byte(f.text)))
	}
	return lines
}

// joined waits until both minions are nodes of the cluster, and ready.
func (m *metal) joined(ctx context.Context, t *testing.T) {
	t.Helper()
	want := []string{"metal-1 true", "metal-2 true"}
	m.master.await(ctx, t, "the nodes", func() (bool, string) {
		for _, c := range m.machines() {
			c.failed(t)
		}
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		nodes, err := m.master.kube.Nodes(ctx)
		var have []string
		for _, n := range nodes {
			have = append(have, fmt.Sprintf("%s %v", n.Name, n.Ready))
		}
		slices.Sort(have)
		return slices.Equal(have, want), fmt.Sprint(have, " ", err)
	})
}

// failed ends the test if the machine has stopped or its configuration is incomplete: it cannot recover.
func (c *cluster) failed(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(c.machine.Console().String()) {
		if f, ok := reason.Parse(line); ok && f.Reason == reason.Config {
			t.Fatalf("%s: %s: [%s] %s", c.addr, f.Unit, f.Reason, f.Cause)
		}
	}
	select {
	case <-c.machine.Ended():
		t.Fatalf("%s has ended", c.addr)
	default:
	}
}

// seeded asserts that every machine has its role from its seed directory, and nothing from elsewhere.
func (m *metal) seeded(ctx context.Context, t *testing.T) {
	t.Helper()
	for i, c := range m.machines() {
		roles := "minions"
		if c == m.master {
			roles = "masters+etcd"
		}
		if want := fmt.Sprintf("roles %s, from seed (%s/user-data)", roles, seedDir); !strings.Contains(c.machine.Console().String(), want) {
			t.Errorf("metal-%d does not say %q; its reader says:\n%s", i, want, c.shell(ctx, t, "journalctl --boot --quiet --no-pager --output=cat --unit="+reader))
		}
		want := ""
		if c == m.minions[0] {
			want = filepath.Base(pki.MachineTokenPath)
		}
		if out := c.shell(ctx, t, "ls "+filepath.Dir(machine.Path)+" 2>/dev/null"); out != want {
			t.Errorf("metal-%d was told %q beside its role files, want %q", i, out, want)
		}
	}
}

// shared asserts that all machines see the same store, and that minions cannot read objects that only masters may.
func (m *metal) shared(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := m.store.Get(ctx, pki.BootstrapToken); err != nil {
		t.Errorf("the master's bootstrap token: %v", err)
	}
	want := fmt.Sprintf("nfs4 %s:/ 600 root", m.files.Addr())
	for i, c := range m.machines() {
		have := c.shell(ctx, t, "cd "+clusterStore+" && findmnt --noheadings --output=FSTYPE,SOURCE --target=. && stat --format='%a %U' "+pki.BootstrapToken)
		if strings.Join(strings.Fields(have), " ") != want {
			t.Errorf("metal-%d has %q as its store, want %q", i, have, want)
		}
	}
}

// named asserts that a minion finds the control plane through its own resolver.
func (m *metal) named(ctx context.Context, t *testing.T) {
	t.Helper()
	for i, c := range m.minions {
		found := strings.Fields(c.shell(ctx, t, "getent ahostsv4 "+mastersName))
		if len(found) == 0 || found[0] != m.master.addr.String() {
			t.Errorf("%s finds %s at %q, want %s", minionName(i), mastersName, found, m.master.addr)
		}
	}
}
