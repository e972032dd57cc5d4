package kubelet_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// routes is /proc/net/route of a machine with two default routes with different metrics, and with other routes.
const routes = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
cbr0	0001F40A	00000000	0001	0	0	0	00FFFFFF	0	0	0
lo	00000000	00000000	0200	0	0	0	00000000	0	0	0
down0	00000000	0100010A	0002	0	0	1	00000000	0	0	0
ens6	00000000	0100010A	0003	0	0	2048	00000000	0	0	0
ens5	00000000	0100010A	0003	0	0	1024	00000000	0	0	0
ens5	0000010A	00000000	0001	0	0	1024	00FFFFFF	0	0	0
`

// minion makes a root directory of a minion.
func minion(t *testing.T, more map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"/proc/net/route": routes, "/proc/meminfo": "MemTotal:        2014496 kB\nMemFree:  1 kB\n", "/proc/sys/kernel/hostname": "vm\n",
		"/etc/kubernetes/kubelet.yaml": string(fromImage(t, "/etc/kubernetes/kubelet.yaml")),
		kubelet.BaseTemplate:           string(fromImage(t, kubelet.BaseTemplate)),
		role.Minions.File():            "CLUSTER_NAME=demo\nKUBELET_HOSTNAME=a\n KUBELET_HOSTNAME=\"--hostname-override=b\"\n",
	}
	for name, text := range more {
		files[name] = text
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue // not there
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func links(name string) (kubelet.Link, error) {
	return kubelet.Link{Name: name, MTU: 9001, Addr: netip.MustParseAddr("10.1.0.12")}, nil
}

// ec2 is the metadata service's data about one instance.
type ec2 metadata.Instance

func (i ec2) Instance(netip.Addr) (metadata.Instance, bool) { return metadata.Instance(i), true }

func (i ec2) Credentials(context.Context, string, string) (metadata.Credentials, error) {
	return metadata.Credentials{}, errors.New("no role")
}

// service starts a metadata service and returns a client of it, configured as the agent's.
func service(t *testing.T, i ec2, faults ...metadata.Fault) *imds.Client {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := metadata.New(i, nil)
	s.SetFaults(i.ID, faults...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(t.Context(), l) // its error at the end of the test does not matter
	}()
	t.Cleanup(func() { <-ended })
	c, err := imds.New(imds.Options{Endpoint: "http://" + l.Addr().String(), MinWait: time.Millisecond, MaxWait: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func instance() ec2 {
	return ec2{ID: "i-0123456789abcdef0", Type: "m7i.large", Placement: metadata.Placement{Account: "123456789012", Region: "eu-central-1", Zone: "eu-central-1a"},
		Card: metadata.Card{Addr: netip.MustParseAddr("10.1.0.12"), Hostname: "ip-10-1-0-12.eu-central-1.compute.internal"}}
}

// TestGather gathers the facts in spite of transient faults.
func TestGather(t *testing.T) {
	client := service(t, instance(), metadata.Fault{Status: 503, Times: 2}, metadata.Fault{Path: "/latest/meta-data", Half: true, Times: 1})
	got, err := kubelet.Gather(t.Context(), kubelet.Source{Root: minion(t, nil), Roles: role.Set{role.Minions}, Metadata: client, Link: links})
	if err != nil {
		t.Fatal(err)
	}
	want := facts(t)
	want.Hostname, want.Override, want.Memory, want.CPUs = "vm", "--hostname-override=b", 2014496<<10, got.CPUs
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestGatherHostname expects the name from DHCP if the host has none configured, and no invented one.
func TestGatherHostname(t *testing.T) {
	const kernel, lease = "/proc/sys/kernel/hostname", "/run/systemd/netif/leases/2"
	const dhcp = "# This is private data. Do not parse.\nADDRESS=10.1.0.12\nHOSTNAME=node-7\nDNS=10.1.0.2\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the kernel's":         {map[string]string{kernel: "vm\n", lease: dhcp}, "vm"},
		"the lease's":          {map[string]string{kernel: "localhost\n", lease: dhcp}, "node-7"},
		"a lease without":      {map[string]string{kernel: "localhost\n", lease: "ADDRESS=10.1.0.12\n"}, "localhost"},
		"the other link's":     {map[string]string{kernel: "localhost\n", lease: "ADDRESS=10.1.0.12\n", lease + "1": dhcp}, "node-7"},
		"no lease":             {map[string]string{kernel: "localhost\n"}, "localhost"},
		"no kernel's, a lease": {map[string]string{kernel: "", lease: dhcp}, "node-7"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kubelet.Gather(t.Context(), kubelet.Source{Root: minion(t, tt.files), Roles: role.Set{role.Minions}, Link: links})
			if err != nil || got.Hostname != tt.want {
				t.Errorf("host name %q, %v, want %q", got.Hostname, err, tt.want)
			}
		})
	}
}

// TestGatherNoNode expects that a master needs no file that only a minion's user data has.
func TestGatherNoNode(t *testing.T) {
	root := minion(t, map[string]string{kubelet.BaseTemplate: "", role.Minions.File(): "", "/etc/kubernetes/kubelet.yaml": ""})
	got, err := kubelet.Gather(t.Context(), kubelet.Source{Root: root, Roles: role.Set{role.Masters}, Link: links})
	if err != nil || got.Hostname == "" || len(got.Kubelet)+len(got.Template) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestGatherFails expects an error that names the missing fact.
func TestGatherFails(t *testing.T) {
	refusing := func(t *testing.T) kubelet.Metadata {
		t.Helper()
		return service(t, instance(), metadata.Fault{Path: "/latest/dynamic", Status: 500})
	}
	none := func(*testing.T) kubelet.Metadata { return nil }
	tests := []struct {
		name     string
		files    map[string]string
		metadata func(t *testing.T) kubelet.Metadata
		link     func(string) (kubelet.Link, error)
		reason   reason.Reason
		want     string
	}{
		{"no route", map[string]string{"/proc/net/route": "Iface\n"}, none, links, reason.Network, "no interface has a default route"},
		{"no address", nil, none, func(string) (kubelet.Link, error) { return kubelet.Link{MTU: 1500}, nil }, reason.Network, "interface ens5 has no IPv4 address"},
		{"no metadata", nil, refusing, links, reason.Metadata, "reading the instance identity document"},
		{"no template", map[string]string{kubelet.BaseTemplate: ""}, none, links, reason.Config, "cni-template.conflist: no such file"},
		{"no memory", map[string]string{"/proc/meminfo": "MemFree: 1 kB\n"}, none, links, reason.Internal, "no line MemTotal"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var said []string
			_, err := kubelet.Gather(t.Context(), kubelet.Source{Root: minion(t, test.files), Roles: role.Set{role.Minions}, Metadata: test.metadata(t), Link: test.link,
				Deadline: 300 * time.Millisecond, Status: func(text string) { said = append(said, text) }})
			if err == nil || reason.Of(err) != test.reason || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
			if test.reason == reason.Network && (len(said) == 0 || !strings.HasPrefix(said[0], "[network] ")) {
				t.Errorf("the status was %q", said)
			}
		})
	}
}

// TestOutage reboots while the metadata service does not answer: the hardware must prove that it is the same machine.
func TestOutage(t *testing.T) {
	for hardware, kept := range map[string]bool{"i-0123456789abcdef0": true, "i-0fedcba9876543210": false, "": false} {
		root := minion(t, map[string]string{"/etc/kubernetes/kubelet.conf.d/x": "", "/run/hardtack/x": "", "/var/lib/hardtack/x": ""})
		first, err := kubelet.Gather(t.Context(), kubelet.Source{Root: root, Hardware: "i-0123456789abcdef0", Metadata: service(t, instance()), Link: links})
		if err != nil {
			t.Fatal(err)
		}
		p, err := kubelet.New(config(), first)
		if err != nil {
			t.Fatal(err)
		}
		if err := kubelet.Apply(t.Context(), p, kubelet.Target{Root: root, SetHostname: func(string) error { return nil }}); err != nil {
			t.Fatal(err)
		}
		out := service(t, instance(), metadata.Fault{Status: 503})
		second, err := kubelet.Gather(t.Context(), kubelet.Source{Root: root, Hardware: hardware, Metadata: out, Link: links, Deadline: 200 * time.Millisecond})
		if (err == nil) != kept || !kept && reason.Of(err) != reason.Metadata {
			t.Errorf("%q: %v", hardware, err)
		}
		if kept && *second.Instance != *first.Instance {
			t.Errorf("%+v, then %+v", first.Instance, second.Instance)
		}
	}
}

// TestLateNetwork waits for the lease.
func TestLateNetwork(t *testing.T) {
	root := minion(t, map[string]string{"/proc/net/route": "Iface\n"})
	f, err := kubelet.Gather(t.Context(), kubelet.Source{Root: root, Link: links, Status: func(string) {
		if err := os.WriteFile(filepath.Join(root, "/proc/net/route"), []byte(routes), 0o600); err != nil {
			t.Error(err)
		}
	}})
	if err != nil || f.Link.Name != "ens5" {
		t.Errorf("%+v, %v", f.Link, err)
	}
}

// TestApply expects that the file which the kubelet waits for is written last, and that a second boot writes nothing.
func TestApply(t *testing.T) {
	root := minion(t, map[string]string{"/etc/kubernetes/kubelet.conf.d/x": "", "/run/hardtack/x": ""})
	p, err := kubelet.New(config(), facts(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	target := kubelet.Target{Root: root, SetHostname: func(name string) error {
		names = append(names, name)
		if _, err := os.Stat(filepath.Join(root, kubelet.EnvFile)); len(names) == 1 && err == nil {
			t.Error("the environment was there before the name")
		}
		return nil
	}}
	inodes := map[string]os.FileInfo{}
	for boot := range 2 {
		if err := kubelet.Apply(t.Context(), p, target); err != nil {
			t.Fatal(err)
		}
		for _, f := range append(p.Files, kubelet.File{Path: "/etc/hostname", Content: p.Name + "\n"}) {
			data, err := os.ReadFile(filepath.Join(root, f.Path))
			if err != nil || string(data) != f.Content {
				t.Errorf("%s: %q, %v", f.Path, data, err)
			}
			info, err := os.Stat(filepath.Join(root, f.Path))
			if err != nil || info.Mode().Perm() != 0o644 || boot == 1 && !os.SameFile(info, inodes[f.Path]) {
				t.Errorf("%s: %v, written again, or %v", f.Path, info, err)
			}
			inodes[f.Path] = info
		}
	}
	for _, dir := range []string{"/etc/kubernetes/kubelet.conf.d", "/run/hardtack", "/etc"} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				t.Errorf("%s is left in %s", e.Name(), dir)
			}
		}
	}
	target.SetHostname = func(string) error { return os.ErrPermission }
	if err := kubelet.Apply(t.Context(), p, target); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v", err)
	}
}
