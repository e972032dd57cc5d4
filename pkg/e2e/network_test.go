package e2e

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	ec2 "github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

//go:embed network.sh
var networkScript []byte

// Units that report the machine's network, and that answer the other machine and the test on port 7.
const (
	networkUnit = `[Unit]
After=hardtack-userdata.service network-online.target
Wants=network-online.target
[Service]
LoadCredential=hardtack.network
ExecStart=/bin/bash %%d/hardtack.network %s
`
	echoSocket  = "[Socket]\nListenStream=7\nAccept=yes\n"
	echoService = "[Service]\nExecStart=/bin/cat\nStandardInput=socket\n"
)

// vpc is the network that the two machines are in.
type vpc struct {
	instances map[netip.Addr]ec2.Instance
}

func (v vpc) Instance(addr netip.Addr) (ec2.Instance, bool) {
	i, ok := v.instances[addr]
	return i, ok
}

func (v vpc) Credentials(context.Context, string, string) (ec2.Credentials, error) {
	return ec2.Credentials{}, errors.New("no roles here")
}

// oneName is a zone with one name.
type oneName struct{}

func (oneName) Resolve(_ context.Context, q vnet.Question) (vnet.Reply, error) {
	switch {
	case q.Name == "masters.cncfdemo.k8s." && q.Type == "A":
		return vnet.Reply{Values: []string{"10.1.0.10", "10.1.0.11"}, TTL: 5}, nil
	case strings.HasSuffix(q.Name, "cncfdemo.k8s."):
		return vnet.Reply{TTL: 5}, nil
	}
	return vnet.Reply{Unknown: true}, nil
}

// TestNetwork boots two machines on a network of the lab, and compares their reports with it.
func TestNetwork(t *testing.T) {
	t.Parallel()
	needMachines(t)
	ctx, cancel := context.WithTimeout(interrupted, bound)
	defer cancel()
	network, err := vnet.New(ctx, vnet.Config{
		Domain: "eu-central-1.compute.internal", Resolver: oneName{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	region := vpc{map[netip.Addr]ec2.Instance{}}
	addrs := []netip.Addr{netip.MustParseAddr("10.1.0.10"), netip.MustParseAddr("10.1.0.11")}
	for i, addr := range addrs {
		region.instances[addr] = instance(i, addr, network.Subnet())
	}
	service := ec2.New(region, nil)
	listener, err := network.Listen(ec2.Address())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = service.Serve(ctx, listener) }()
	for range addrs {
		slots <- struct{}{}
		defer func() { <-slots }()
	}
	volume := newVolume(t)
	var machines []*qemu.Machine
	for i, addr := range addrs {
		machines = append(machines, powerOn(ctx, t, network, region.instances[addr], addrs[1-i], volume[i]...))
	}
	for _, m := range machines {
		if err := m.Await(ctx, quiet, func() bool { return m.Channel().Contains("@done") }); err != nil {
			t.Fatalf("waiting for what the machine finds: %v\nwhat it has told:\n%s\nrequests: %v", err, m.Channel().String(), service.Requests())
		}
	}
	for i, m := range machines {
		checkNetwork(t, region.instances[addrs[i]], m)
		checkEcho(ctx, t, network, addrs[i])
		checkRefused(t, network, region.instances[addrs[i]].ID)
		if err := m.PowerDown(ctx, bound); err != nil || m.Reason() != "guest-shutdown" {
			t.Errorf("machine %d was asked to shut down, and ended for %q: %v", i, m.Reason(), err)
		}
	}
	if content, err := os.ReadFile(volume[1][0].Path); err != nil || !strings.HasPrefix(string(content), "written by ip-10-1-0-11\n") {
		t.Errorf("the volume begins with %.40q, %v", content, err)
	}
}

// checkEcho connects to a machine from the gateway.
func checkEcho(ctx context.Context, t *testing.T, network *vnet.Network, addr netip.Addr) {
	t.Helper()
	conn, err := network.Dial(ctx, netip.AddrPortFrom(addr, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintln(conn, "hello")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%s echoed %q, %v", addr, line, err)
	}
}

// newVolume has each machine's additional disks: none, and one volume.
func newVolume(t *testing.T) [][]qemu.Disk {
	t.Helper()
	path := filepath.Join(t.TempDir(), "volume.raw")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return [][]qemu.Disk{nil, {{Path: path, Serial: "vol0123456789abcdef0", Writable: true}}}
}

func instance(i int, addr netip.Addr, subnet netip.Prefix) ec2.Instance {
	files := roleFiles(role.NewSet(role.Etcd))
	files["/etc/hardtack/e2e"] = fmt.Sprintf("the user data of machine %d\n", i)
	return ec2.Instance{
		ID: fmt.Sprintf("i-0123456789abcdef%d", i), Type: "m7i.large", UserData: []byte(cloudConfig(files)),
		Card: ec2.Card{Addr: addr, MAC: vnet.MACOf(addr), Subnet: subnet, Hostname: vnet.HostnameOf(addr) + ".eu-central-1.compute.internal"},
	}
}

func powerOn(ctx context.Context, t *testing.T, network *vnet.Network, i ec2.Instance, peer netip.Addr, volumes ...qemu.Disk) *qemu.Machine {
	t.Helper()
	port, err := network.Attach(vnet.Machine{Name: i.ID, Addr: i.Card.Addr})
	if err != nil {
		t.Fatal(err)
	}
	// Its clock stays as wrong as it is at power-on.
	port.SetFault(vnet.Clock(), vnet.Silent)
	c := bakedMachine(t)
	c.Name, c.Disks, c.Skew = "hardtack-e2e-"+i.ID, append(c.Disks, volumes...), skew
	c.DMI = qemu.DMI{BIOSVendor: "Amazon EC2", Vendor: "Amazon EC2", Product: i.Type, Serial: "ec2f5c1a-0000-4000-8000-000000000001"}
	c.Network = qemu.Network{Kind: qemu.Stream, Socket: port.Socket(), MAC: i.Card.MAC.String()}
	c.Credentials = map[string][]byte{
		"systemd.extra-unit.hardtack-network.service": fmt.Appendf(nil, networkUnit, peer),
		"systemd.extra-unit.hardtack-echo.socket":     []byte(echoSocket),
		"systemd.extra-unit.hardtack-echo@.service":   []byte(echoService),
		"systemd.unit-dropin.multi-user.target":       []byte("[Unit]\nWants=hardtack-network.service hardtack-echo.socket\n"),
		"hardtack.network":                            networkScript,
	}
	m, err := qemu.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("console of %s:\n%s", i.ID, m.Console())
		}
	})
	return m
}

// skew is the error of the machines' clocks. clockBound is the precision of the check; no boot takes that long.
const (
	skew       = -48 * time.Hour
	clockBound = time.Hour
)

// checkNetwork compares a machine's report with the network.
func checkNetwork(t *testing.T, i ec2.Instance, m *qemu.Machine) {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(m.Channel().String()) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(key, "@") {
			found[key] = value
		}
	}
	addr := i.Card.Addr.String()
	name, _, _ := strings.Cut(i.Card.Hostname, ".")
	want := map[string]string{
		"@hostname": name, "@address": addr + "/24", "@router": "10.1.0.1", "@mtu": "9001", "@mac": i.Card.MAC.String(),
		"@resolves": "10.1.0.10 10.1.0.11", "@itself": addr, "@nowhere": "none",
		"@metadata": addr, "@without-token": "Unauthorized",
		"@userdata":    "the user data of machine " + i.ID[len(i.ID)-1:],
		"@outside-tcp": "Connection refused",
		"@ping":        "4000",
		"@peer":        "from " + name,
	}
	for key, value := range want {
		if found[key] != value {
			t.Errorf("%s: %s is %q, want %q", i.ID, key, found[key], value)
		}
	}
	seconds, err := strconv.ParseInt(found["@clock"], 10, 64)
	if off := time.Since(time.Unix(seconds, 0)) + skew; err != nil || off.Abs() > clockBound {
		t.Errorf("%s: the clock says %q, %s beside the %s that it is meant to be wrong", i.ID, found["@clock"], off, skew)
	}
	t.Logf("%s, %s after power-on: %v", i.ID, time.Since(m.Started()).Round(time.Second), found)
}

// checkRefused asserts that a machine's attempts were counted.
func checkRefused(t *testing.T, network *vnet.Network, id string) {
	t.Helper()
	for _, want := range []struct{ dst, proto string }{{"192.0.2.1:443", "tcp"}, {"192.0.2.1:123", "udp"}, {"192.0.2.1:0", "icmp"}} {
		if !slices.ContainsFunc(network.Refused(), func(a vnet.Attempt) bool {
			return a.Machine == id && a.Dst.String() == want.dst && a.Proto == want.proto && a.Bytes > 0
		}) {
			t.Errorf("%s: an attempt to reach %s by %s is not counted: %v", id, want.dst, want.proto, network.Refused())
		}
	}
}
