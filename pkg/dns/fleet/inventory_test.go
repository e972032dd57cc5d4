package fleet

import (
	"errors"
	"io/fs"
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

// machines is an inventory with one group, whose machines begin on line 6.
func machines(all ...string) string {
	return "cluster: demo\ngroups:\n  - name: g\n    role: minions\n    machines:\n      - " + strings.Join(all, "\n      - ") + "\n"
}

// etcdCheck is an inventory without machines, and with a check on line 3.
func etcdCheck(fields string) string {
	return "cluster: demo\nchecks:\n  etcd: {" + fields + "}\ngroups: []\n"
}

// Every mistake is found, with its line; a mistake gives no fleet at all.
func TestInventoryRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", "f: it is empty"},
		{"nothing but a comment", "# machines\n", "f: it is empty"},
		{"another cluster", "cluster: other\ngroups: []\n", `f:1: cluster: the inventory is of cluster "other", not "demo" (write cluster: demo`},
		{"an unknown field", "cluster: demo\nroles: []\n", `f:2: field "roles" is not known`},
		{"no role", "cluster: demo\ngroups:\n  - name: g\n", `f:3: groups[0].role: role "" is not known`},
		{"the role none", "cluster: demo\ngroups:\n  - {name: g, role: none}\n", `f:3: groups[0].role: role "none"`},
		{"a name that is none", "cluster: demo\ngroups:\n  - role: minions\n", "f:3: groups[0]: the group has no name"},
		{"a machine without address", "cluster: demo\ngroups:\n  - name: g\n    role: minions\n    machines:\n      - id: a\n", "f:6: groups[0].machines[0]: the machine has no address"},
		{"the other family", "cluster: demo\ngroups:\n  - name: g\n    role: minions\n    machines:\n      - {id: a, address: 'fd00::1'}\n", "address: fd00::1 is of the other family"},
		{"an id twice", "cluster: demo\ngroups:\n  - name: g\n    role: minions\n    machines:\n      - {id: a, address: 10.0.0.1}\n      - {id: a, address: 10.0.0.2}\n", "f:7: groups[0].machines[1].id: id a is also at groups[0].machines[0].id"},
		{"a machine without id", machines("{address: 10.0.0.1}"), "f:6: groups[0].machines[0]: the machine has no id"},
		{"an IPv4 address for IPv6", machines("{id: a, address6: 10.0.0.1}"),
			"f:6: groups[0].machines[0].address6: 10.0.0.1 is of the other family"},
		{"a name for an address", machines("{id: a, address: 10.0.0.1, public: a.example}"),
			`f:6: groups[0].machines[0].public: "a.example" is not an address`},
		{"an address of one link", machines("{id: a, address: 10.0.0.1, address6: fe80::1%eth0}"), `address6: "fe80::1%eth0" is not an address`},
		{"an address twice", machines("{id: a, address: 10.0.0.1}", "{id: b, address6: fd00::1, public: 10.0.0.1}"),
			"f:7: groups[0].machines[1].public: address 10.0.0.1 is also at groups[0].machines[0].address"},
		{"two documents", "cluster: demo\n---\ncluster: demo\n", "f: there is a second YAML document"},
		{"fewer than none", "cluster: demo\ngroups:\n  - {name: g, role: minions, desired: -1}\n", "f:3: groups[0].desired: -1 machines"},
		{"no YAML", "{", "f"},
		{"a check of no role", "cluster: demo\nchecks: {masterz: {}}\ngroups: []\n", `f:2: checks.masterz: role "masterz" is not known`},
		{"a check by HTTPS without a CA", "cluster: demo\nchecks:\n  masters: {}\ngroups: []\n", "f:3: checks.masters.ca: a request by HTTPS needs"},
		{"a certificate without its key", "cluster: demo\nchecks:\n  etcd: {ca: a, cert: b}\ngroups: []\n", "checks.etcd.cert: cert and key go together"},
		{"a check of a port below the first", etcdCheck("port: -1"), "f:3: checks.etcd.port: -1 is not a port"},
		{"a check of a port beyond the last", etcdCheck("port: 65536"), "f:3: checks.etcd.port: 65536 is not a port"},
		{"a check of half a path", etcdCheck("path: health, ca: ca.crt"), `f:3: checks.etcd.path: "health" does not begin with /`},
		{"a check with less than no time", etcdCheck("timeout: -1ns"), "f:3: checks.etcd.timeout"},
		{"a check with fewer failures than none", etcdCheck("failures: -1"), "f:3: checks.etcd.timeout"},
		{"a check with fewer answers than none", etcdCheck("successes: -1"), "f:3: checks.etcd.timeout"},
		{"a check of a field that is none", "cluster: demo\nchecks:\n  etcd: {url: x}\ngroups: []\n", `field "url" is not known`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := checked(t.Context(), "f", []byte(tc.text), "demo", nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) || len(got.Groups) != 0 {
				t.Fatalf("%v, %v", got, err)
			}
			if n := strings.Count(err.Error(), "\n"); n != 0 {
				t.Errorf("%d findings more than the one mistake: %v", n, err)
			}
		})
	}
}

// All mistakes of an inventory are told at once, in the order of their lines, also those of a group or a check whose role is not known.
func TestInventoryTellsEveryMistake(t *testing.T) {
	const text = `cluster: demo
groups:
  - role: minnions
    machines: &same
      - {id: a, address: x}
  - name: twice
    role: minions
    machines: *same
checks:
  etcd: {port: 65536, path: x}
  masterz: {cert: c}
`
	want := []string{
		"f:3: groups[0]: the group has no name",
		"f:3: groups[0].role: ",
		"f:5: groups[0].machines[0].address: ",
		"f:8: groups[1].machines[0].address: ", // an alias has no lines of its own below it
		"f:8: groups[1].machines[0].id: id a is also at groups[0].machines[0].id",
		"f:10: checks.etcd.ca: ",
		"f:10: checks.etcd.path: ",
		"f:10: checks.etcd.port: ",
		"f:11: checks.masterz: ",
		"f:11: checks.masterz.cert: ",
	}
	_, _, err := parse("f", []byte(text), "demo")
	if err == nil {
		t.Fatal("it is taken")
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d findings, want %d:\n%v", len(got), len(want), err)
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("finding %d is %q, want %q", i, got[i], want[i])
		}
	}
}

// What is at a limit is taken.
func TestInventoryTakes(t *testing.T) {
	six := record.Member{InstanceID: "a", Lifecycle: record.InService, Healthy: true, Running: true, Private6: netip.MustParseAddr("fd00::1")}
	minions := func(desired int, all ...record.Member) []record.Group {
		return []record.Group{{Name: "g", Cluster: "demo", Role: role.Minions, Desired: desired, Members: all}}
	}
	for name, tc := range map[string]struct {
		text string
		want []record.Group
	}{
		"no group":                    {"cluster: demo\ngroups: []\n", nil},
		"no machine desired":          {"cluster: demo\ngroups:\n  - {name: g, role: minions, desired: 0}\n", minions(0)},
		"an address of IPv6 alone":    {machines("{id: a, address6: fd00::1}"), minions(1, six)},
		"a check of all defaults":     {etcdCheck(""), nil},
		"a check of the first port":   {etcdCheck("port: 1"), nil},
		"a check of the last port":    {etcdCheck("port: 65535"), nil},
		"a check of the shortest try": {etcdCheck("timeout: 1ns, failures: 1, successes: 1"), nil},
		"a check of the root":         {etcdCheck("path: /, ca: ca.crt"), nil},
	} {
		got, _, err := parse("f", []byte(tc.text), "demo")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(record.Fleet{Cluster: "demo", Groups: tc.want}, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// A file that cannot be read, and a program that fails, are no empty fleets, whatever the program has printed by then.
func TestInventoryThatCannotBeHad(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.yaml")
	if got, err := (File{Path: none}).Read(t.Context(), "demo"); !errors.Is(err, fs.ErrNotExist) || len(got.Groups) != 0 {
		t.Errorf("no file: %+v, %v", got, err)
	}
	got, err := Command{Name: "sh", Args: []string{"-c", "printf 'cluster: demo\\ngroups: []\\n'; exit 3"}}.Read(t.Context(), "demo")
	if err == nil || got.Cluster != "" {
		t.Errorf("a program that fails: %+v, %v", got, err)
	}
}

// The records have the owner that their reader is told, and a fleet that cannot be read is none.
func TestOwned(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte(rack), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Owned{Fleet: File{Path: file}, Owner: "rack-7"}
	if got, err := f.Read(t.Context(), "demo"); err != nil || got.Owner != "rack-7" || len(got.Groups) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := f.Read(t.Context(), "other"); err == nil || len(got.Groups) != 0 {
		t.Errorf("of another cluster: %+v, %v", got, err)
	}
}
