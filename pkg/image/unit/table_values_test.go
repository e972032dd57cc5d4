package unit_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// few is a table of few units, which are given in no order: of two roles and of every machine, with ports, and with what is not listed.
func few(t *testing.T) unit.Table {
	t.Helper()
	const port = "[X-Hardtack]\nPort="
	us := load(t, texts{
		"hardtack-userdata.service": every,
		"all.service":               every + port + "9100/tcp minions\n",
		"needs.service":             every + "[Unit]\nRequires=hardtack-userdata.service\n",
		"other.service":             every + "[Unit]\nRequires=all.service\n",
		"b.service":                 minion + port + "80/tcp 10.0.0.0/8 masters\n",
		"a.socket":                  strings.Replace(minion, "[Service]\nExecStart=/usr/bin/good", "[Socket]\nListenStream=80", 1),
		"web.service":               own("web") + port + "443/tcp 10.0.0.0/8\n",
		"both.service":              minion + "[Unit]\nConditionPathExists=/etc/sysconfig/kubernetes-masters\n" + port + "81/tcp minions\n",
		"idle.service":              triggered,
		"idle.timer":                timer + enabled,
		"own.slice":                 "[Install]\nWantedBy=multi-user.target\n",
	})
	slices.Reverse(us)
	return unit.NewTable(us)
}

// By role, then by name; those of no single role are last. Slices, timers and what nothing starts at boot are not listed.
func TestTableOrder(t *testing.T) {
	table := few(t)
	want := []unit.Row{
		{Unit: "a.socket", Role: "minions"}, {Unit: "b.service", Role: "minions"}, {Unit: "web.service", Role: "web"},
		{Unit: "all.service"}, {Unit: "both.service"}, {Unit: "hardtack-userdata.service"}, {Unit: "needs.service"}, {Unit: "other.service"},
	}
	if d := cmp.Diff(want, table.Units); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := role.FormatOpenings(table.Ports); got != "any:9100/tcp=minions minions:80/tcp=masters+10.0.0.0/8 web:443/tcp=10.0.0.0/8" {
		t.Errorf("the ports are %s", got)
	}
}

func TestTableCombinations(t *testing.T) {
	table := few(t)
	none, ok := table.Combination(nil)
	// What does not require the reader of user data starts without a role, and only that reader fails.
	starts := []string{"all.service", unit.UserData, "other.service"}
	if !ok || !slices.Equal(none.Starts, starts) || !slices.Equal(none.Fails, starts[1:2]) {
		t.Errorf("without a role: %+v", none)
	}
	minions, ok := table.Combination(role.NewSet(role.Minions, "web"))
	want := []string{"a.socket", "b.service", "web.service", "all.service", unit.UserData, "needs.service", "other.service"}
	if !ok || !slices.Equal(minions.Starts, want) || len(minions.Fails) > 0 || !slices.Equal(minions.Skips, []string{"both.service"}) {
		t.Errorf("minions+web: %+v", minions)
	}
	if c, ok := table.Combination(role.NewSet("storage")); ok || c.Name != "" {
		t.Errorf("of a role that no unit names: %+v", c)
	}
}

// Lists are never null, also where no unit is.
func TestTableOfNothing(t *testing.T) {
	data, err := json.Marshal(unit.NewTable(nil))
	if err != nil || strings.Contains(string(data), "null") {
		t.Errorf("%s, %v", data, err)
	}
	text := unit.NewTable(nil).Text()
	if want := "unit  masters  minions  etcd\nkubectl (no unit)\n"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// A row has its mark under its role; what holds for every machine is said below.
func TestTableText(t *testing.T) {
	const want = `unit      masters  minions  etcd  web
a.socket           ✔
b                  ✔
web                               ✔
kubectl (no unit)

Every machine runs all, both, hardtack-userdata, needs, other.
all is reached at 9100/tcp on every machine, from minions.
b is reached at 80/tcp on minions, from masters, 10.0.0.0/8.
web is reached at 443/tcp on web, from 10.0.0.0/8.
With no role, or one that is not known, hardtack-userdata fails and no other unit starts.
`
	if d := cmp.Diff(want, few(t).Text()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
