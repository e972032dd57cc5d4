package fleet

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const rack = `
cluster: demo
groups:
  - name: control
    role: masters+etcd
    etcd_members: [a]
    machines:
      - {id: m1, address: 10.0.0.1, address6: "fd00::1", public: 203.0.113.7, etcd_member: a}
  - name: work
    role: minions
    desired: 2
    machines:
      - {id: n1, address: 10.0.0.2}
      - {id: n2, address: 10.0.0.3, out: true}
`

func TestInventory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte(rack), 0o600); err != nil {
		t.Fatal(err)
	}
	m1 := record.Member{InstanceID: "m1", Lifecycle: record.InService, Healthy: true, Running: true, EtcdMember: "a",
		Private: netip.MustParseAddr("10.0.0.1"), Private6: netip.MustParseAddr("fd00::1"), Public: netip.MustParseAddr("203.0.113.7")}
	n1 := record.Member{InstanceID: "n1", Lifecycle: record.InService, Healthy: true, Running: true, Private: netip.MustParseAddr("10.0.0.2")}
	n2 := record.Member{InstanceID: "n2", Lifecycle: "Standby", Healthy: true, Running: true, Private: netip.MustParseAddr("10.0.0.3")}
	want := record.Fleet{Cluster: "demo", Groups: []record.Group{
		{Name: "control", Cluster: "demo", Role: role.Masters, Desired: 1, Members: []record.Member{m1}},
		{Name: "control", Cluster: "demo", Role: role.Etcd, Desired: 1, Members: []record.Member{m1}, EtcdMembers: []string{"a"}},
		{Name: "work", Cluster: "demo", Role: role.Minions, Desired: 2, Members: []record.Member{n1, n2}},
	}}
	for name, f := range map[string]reconcile.Fleet{"file": File{Path: file}, "command": Command{Name: "cat", Args: []string{file}}} {
		got, err := f.Read(t.Context(), "demo")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Every mistake is found, with its line; a mistake gives no fleet at all.
func TestInventoryRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "it is empty"},
		{"another cluster", "cluster: other\ngroups: []\n", `f:1: cluster: the inventory is of cluster "other"`},
		{"an unknown field", "cluster: demo\nroles: []\n", `f:2: field "roles" is not known`},
		{"no role", "cluster: demo\ngroups:\n  - name: g\n", `f:3: groups[0].role: role "" is not known`},
		{"the role none", "cluster: demo\ngroups:\n  - {name: g, role: none}\n", `f:3: groups[0].role: role "none"`},
		{"a name that is none", "cluster: demo\ngroups:\n  - role: minions\n", "f:3: groups[0]: the group has no name"},
		{"a machine without address", "cluster: demo\ngroups:\n  - name: g\n    role: minions\n    machines:\n      - id: a\n", "f:6: groups[0].machines[0]: the machine has no address"},
		{"the other family", "cluster: demo\ngroups:\n  - name: g\n    role: minions\n    machines:\n      - {id: a, address: 'fd00::1'}\n", "address: fd00::1 is of the other family"},
		{"an id twice", "cluster: demo\ngroups:\n  - name: g\n    role: minions\n    machines:\n      - {id: a, address: 10.0.0.1}\n      - {id: a, address: 10.0.0.2}\n", "f:7: groups[0].machines[1].id: id a is also at groups[0].machines[0].id"},
		{"two documents", "cluster: demo\n---\ncluster: demo\n", "second YAML document"},
		{"fewer than none", "cluster: demo\ngroups:\n  - {name: g, role: minions, desired: -1}\n", "f:3: groups[0].desired: -1 machines"},
		{"no YAML", "{", "f"},
		{"a check of no role", "cluster: demo\nchecks: {masterz: {}}\ngroups: []\n", `f:2: checks.masterz: role "masterz" is not known`},
		{"a check by HTTPS without a CA", "cluster: demo\nchecks:\n  masters: {}\ngroups: []\n", "f:3: checks.masters.ca: a request by HTTPS needs"},
		{"a certificate without its key", "cluster: demo\nchecks:\n  etcd: {ca: a, cert: b}\ngroups: []\n", "checks.etcd.cert: cert and key go together"},
		{"a check of a field that is none", "cluster: demo\nchecks:\n  etcd: {url: x}\ngroups: []\n", `field "url" is not known`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := parse("f", []byte(tc.text), "demo")
			if err == nil || !strings.Contains(err.Error(), tc.want) || len(got.Groups) != 0 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
