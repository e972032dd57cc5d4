package kubelet_test

import (
	"encoding/json"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// config is the default output of hardtack userdata.
func config() machine.Config {
	return machine.Config{Cluster: "demo", Network: machine.Network{ServiceCIDR: "10.96.0.0/16", PodCIDR: "10.244.0.0/16",
		DNSAddress: "10.96.0.10", DNSDomain: "cluster.local"}}
}

// fromImage reads a file of the image.
func fromImage(t *testing.T, name string) []byte {
	t.Helper()
	data, err := fs.ReadFile(images.FS, filepath.Join("rootfs", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// facts are those of a minion on EC2.
func facts(t *testing.T) kubelet.Facts {
	t.Helper()
	return kubelet.Facts{
		Hostname: "localhost", Roles: role.Set{role.Minions}, Memory: 7935 << 20, CPUs: 2,
		Instance: &kubelet.Instance{ID: "i-0123456789abcdef0", Zone: "eu-central-1a", Region: "eu-central-1", Type: "m7i.large", Name: "ip-10-1-0-12.eu-central-1.compute.internal"},
		Link:     kubelet.Link{Name: "ens5", MTU: 9001, Addr: netip.MustParseAddr("10.1.0.12")},
		Kubelet:  fromImage(t, "/etc/kubernetes/kubelet.yaml"), Template: fromImage(t, kubelet.BaseTemplate),
	}
}

// TestPlans compares whole plans with golden files.
func TestPlans(t *testing.T) {
	tests := map[string]func(c *machine.Config, f *kubelet.Facts){
		"minion": func(*machine.Config, *kubelet.Facts) {},
		"all-in-one-without-metadata": func(c *machine.Config, f *kubelet.Facts) {
			f.Instance, f.Hostname, f.Roles = nil, "Hardtack", role.NewSet(role.All()...)
			f.Memory, f.CPUs, f.Link.MTU = 2<<30, 1, 1500
			c.Node.Labels = map[string]string{"example.com/disk": "nvme", "example.com/empty": ""}
			c.Node.Taints = []string{"dedicated=batch:NoExecute", "node-role.kubernetes.io/control-plane:NoSchedule"}
			c.Node.MaxPods, c.Network.MTU = 40, 1400
		},
		"operators-words": func(c *machine.Config, f *kubelet.Facts) {
			f.Override = " --hostname-override=Worker-1 "
			f.Kubelet = []byte("clusterDNS: [169.254.20.10]\nclusterDomain: example.org\nmaxPods: 20\nkubeReserved: {cpu: 1m}\nsystemReserved: {}\n" +
				"evictionHard: {}\nregisterWithTaints: []\nrotateCertificates: false\nserverTLSBootstrap: false\nproviderID: x\n")
			f.Template = []byte(`{"mtu": 1300}`)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			c, f := config(), facts(t)
			change(&c, &f)
			p, err := kubelet.New(c, f)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			head, err := json.MarshalIndent(map[string]any{"name": p.Name, "provider_id": p.ProviderID, "mtu": p.MTU, "reserved": p.Reserved, "warnings": p.Warnings}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			b.Write(head)
			for _, file := range p.Files {
				b.WriteString("\n== " + file.Path + "\n" + file.Content)
			}
			golden.Assert(t, b.String(), name+".golden")
			if last := p.Files[len(p.Files)-1].Path; last != kubelet.EnvFile {
				t.Errorf("%s is written last: the kubelet waits for %s", last, kubelet.EnvFile)
			}
		})
	}
}

// TestNames tests the precedence of the sources of a name.
func TestNames(t *testing.T) {
	tests := []struct {
		name, naming string
		change       func(f *kubelet.Facts)
		want         string
		reason       reason.Reason
	}{
		{"default on EC2", "", func(*kubelet.Facts) {}, "ip-10-1-0-12.eu-central-1.compute.internal", ""},
		{"default elsewhere", "", func(f *kubelet.Facts) { f.Instance, f.Hostname = nil, "NODE-1" }, "node-1", ""},
		{"instance id", machine.NamingInstanceID, func(*kubelet.Facts) {}, "i-0123456789abcdef0", ""},
		{"hostname", machine.NamingHostname, func(f *kubelet.Facts) { f.Hostname = "node-1.example" }, "node-1.example", ""},
		{"role file", machine.NamingInstanceID, func(f *kubelet.Facts) { f.Override = "--hostname-override=other" }, "other", ""},
		{"no hostname", "", func(f *kubelet.Facts) { f.Instance = nil }, "", reason.Config},
		{"no metadata", machine.NamingIPName, func(f *kubelet.Facts) { f.Instance = nil }, "", reason.Config},
		{"not a name", "", func(f *kubelet.Facts) { f.Override = "--hostname-override=a b" }, "", reason.Config},
		{"too long", "", func(f *kubelet.Facts) { f.Instance.Name = strings.Repeat("a.", 40) + "b" }, "", reason.Config},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, f := config(), facts(t)
			c.Node.Naming = test.naming
			test.change(&f)
			p, err := kubelet.New(c, f)
			if p.Name != test.want || (err != nil) != (test.reason != "") || err != nil && reason.Of(err) != test.reason {
				t.Errorf("%q, %v", p.Name, err)
			}
		})
	}
}

// TestNoNode expects that a master gets a name, which distinguishes it from the others, and no file of a node. Without
// a name it boots all the same.
func TestNoNode(t *testing.T) {
	f := facts(t)
	f.Roles, f.Kubelet, f.Template = role.NewSet(role.Masters, role.Etcd), nil, nil
	p, err := kubelet.New(config(), f)
	if err != nil || p.Name != "ip-10-1-0-12.eu-central-1.compute.internal" || len(p.Warnings) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, file := range p.Files {
		if file.Path != kubelet.InstanceFile {
			t.Errorf("writes %s", file.Path)
		}
	}
	f.Instance, f.Hostname = nil, "localhost"
	p, err = kubelet.New(config(), f)
	if err != nil || p.Name != "" || len(p.Files) > 0 || len(p.Warnings) != 1 {
		t.Errorf("without a name: %+v, %v", p, err)
	}
	named := func(name string) error { t.Errorf("named %q", name); return nil }
	if err := kubelet.Apply(t.Context(), p, kubelet.Target{Root: t.TempDir(), SetHostname: named}); err != nil {
		t.Error(err)
	}
}

// TestReservations has the table of Google's documentation for its formula, and our own machines.
func TestReservations(t *testing.T) {
	minion, control := role.Set{role.Minions}, role.Set{role.Masters, role.Etcd, role.Minions}
	tests := []struct {
		mib    int64
		cpus   int
		roles  role.Set
		memory int64 // MiB, of the kubelet and the system
		cpu    int64
		system int64
		capped bool
	}{
		{600, 1, minion, 255, 60, 0, false},
		{1 << 10, 1, minion, 256, 60, 0, false},
		{2 << 10, 2, minion, 512, 70, 0, false},
		{4 << 10, 2, minion, 1024, 70, 0, false},
		{8 << 10, 4, minion, 1843, 80, 0, false},
		{16 << 10, 8, minion, 2662, 90, 0, false},
		{128 << 10, 64, minion, 9543, 230, 0, false},
		{256 << 10, 96, minion, 12165, 310, 0, false},
		{4 << 10, 2, control, 1024, 70, 768, false},
		{2 << 10, 1, control, 512, 60, 768, false},
		{1 << 10, 1, control, 256, 60, 412, true},
		{256, 1, control, 92, 60, 0, true},
	}
	for _, test := range tests {
		c, f := config(), facts(t)
		f.Memory, f.CPUs, f.Roles = test.mib<<20, test.cpus, test.roles
		p, err := kubelet.New(c, f)
		if err != nil {
			t.Fatal(err)
		}
		want := kubelet.Reservation{KubeMemory: test.memory, KubeCPU: test.cpu, SystemMemory: test.system, Eviction: 100, Capped: test.capped}
		if diff := cmp.Diff(want, p.Reserved); diff != "" {
			t.Errorf("%d MiB, %d CPUs, %s: -want +got\n%s", test.mib, test.cpus, test.roles, diff)
		}
		if left := test.mib - p.Reserved.KubeMemory - p.Reserved.SystemMemory - p.Reserved.Eviction; left < test.mib/4 {
			t.Errorf("%d MiB, %s: %d are left to pods", test.mib, test.roles, left)
		}
	}
}

// TestMTU tests the overhead of VXLAN, and the number of pods in a small range.
func TestMTU(t *testing.T) {
	for _, test := range []struct{ link, told, want int }{{1500, 0, 1450}, {9001, 0, 8951}, {1460, 0, 1410}, {600, 0, 576}, {9001, 1400, 1400}} {
		c, f := config(), facts(t)
		f.Link.MTU, c.Network.MTU = test.link, test.told
		p, err := kubelet.New(c, f)
		if err != nil || p.MTU != test.want {
			t.Errorf("%+v: %d, %v", test, p.MTU, err)
		}
	}
	for cidr, want := range map[string]int{"10.244.0.0/16": 110, "10.244.0.0/24": 110, "10.244.0.0/26": 61, "fd00::/48": 110} {
		c, f := config(), facts(t)
		c.Network.PodCIDR = cidr
		p, err := kubelet.New(c, f)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ MaxPods int }
		if err := yaml.Unmarshal([]byte(p.Files[0].Content), &struct {
			MaxPods *int `yaml:"maxPods"`
		}{&got.MaxPods}); err != nil || got.MaxPods != want {
			t.Errorf("%s: %d pods, want %d (%v)", cidr, got.MaxPods, want, err)
		}
	}
}

// TestImageDefaults compares this package's copy of the image's defaults with the image.
func TestImageDefaults(t *testing.T) {
	c, f := config(), facts(t)
	c.Network.DNSAddress, c.Network.DNSDomain = "10.97.0.10", "other.local"
	p, err := kubelet.New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- 10.97.0.10\n", "clusterDomain: other.local\n"} {
		if !strings.Contains(p.Files[0].Content, want) {
			t.Errorf("%q is not in\n%s", want, p.Files[0].Content)
		}
	}
	if !strings.Contains(p.Files[1].Content, `"mtu": 8951`) {
		t.Errorf("no MTU in\n%s", p.Files[1].Content)
	}
	config := string(fromImage(t, "/etc/containerd/config.toml"))
	if !strings.Contains(config, `conf_template = "`+kubelet.TemplateFile+`"`) {
		t.Errorf("containerd does not read %s", kubelet.TemplateFile)
	}
}
