package timeline

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// boot is a minion's, in microseconds.
var boot = []Unit{
	{Name: "kubelet.service", Begin: 9_000_000, ExecStart: 20_500_000, ActiveEnter: 24_000_000, CPU: 3_000_000_000, Restarts: 1,
		Commands: []Command{
			{Args: []string{"/usr/lib/hardtack/bin/hardtack-agent", "wait", "--api"}, Start: 9_100_000, Stop: 20_400_000},
			{Args: []string{"/usr/bin/kubelet", "--config=x"}, Main: true, Start: 20_500_000},
		}},
	{Name: "hardtack-userdata.service", Begin: 4_000_000, ExecStart: 4_010_000, ExecExit: 5_010_000, ActiveEnter: 5_020_000, CPU: 700_000_000,
		Commands: []Command{{Args: []string{"/usr/lib/hardtack/bin/hardtack-userdata"}, Main: true, Start: 4_010_000, Stop: 5_010_000}}},
	{Name: "hardtack-node.service", Begin: 8_000_000, ExecStart: 8_010_000, ActiveEnter: 8_960_000, CPU: 500_000_000,
		Commands: []Command{{Args: []string{"/usr/lib/hardtack/bin/hardtack-agent", "node"}, Main: true, Start: 8_010_000, Stop: 8_950_000}}},
	{Name: "hardtack-bootstrap.service", Begin: 8_100_000, ExecStart: 8_110_000, ActiveEnter: 0, CPU: 400_000_000,
		Commands: []Command{{Args: []string{"/usr/lib/hardtack/bin/hardtack-agent", "bootstrap"}, Main: true, Start: 8_110_000}}},
	{Name: "hardtack-ready.service", Begin: 8_000_000, ExecStart: 8_010_000, CPU: 200_000_000,
		Commands: []Command{{Args: []string{"/usr/lib/hardtack/bin/hardtack-agent", "ready"}, Main: true, Start: 8_010_000}}},
	{Name: "etcd.service"},
}

// TestBuild compares the whole form with a golden file, which is its documentation's example.
func TestBuild(t *testing.T) {
	got := Build(Machine{Instance: "i-0123456789abcdef0", Node: "ip-10-1-0-12.eu-central-1.compute.internal", Roles: "minions", Boot: "b", RootHash: "0f"},
		Boot{Firmware: 4_500_000, Loader: 700_000, Userspace: 3_200_000}, boot, []Mark{{"node", 25_000}, {"kubelet", 24_100}}, 26_000_000)
	got.Ready = 25_000
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, string(text)+"\n", "minion.json")
	// 1000 and 940; 8110 to 26000, in which kubelet's wait lies; what ready uses is no part of the boot.
	if diff := cmp.Diff(Share{Work: 1940, Wait: 17890, CPU: 1600}, got.Agent); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	read, ok := Parse("[  31.5] hardtack-agent[99]: " + got.Line() + "\r")
	if diff := cmp.Diff(got, read); !ok || diff != "" {
		t.Errorf("%v %s", ok, diff)
	}
	for _, line := range []string{"", got.Line()[:200], strings.Replace(got.Line(), `"schema":1`, `"schema":2`, 1)} {
		if _, ok := Parse(line); ok {
			t.Errorf("%q is no timeline", line)
		}
	}
}

func TestProgress(t *testing.T) {
	want := Progress{Phase: PhaseCerts, Units: []string{"a.service", "b.service"}, At: 20604}
	const line = `{"hardtack":"progress","phase":"certs","units":["a.service","b.service"],"at":20604}`
	if want.Line() != line {
		t.Errorf("%s, want %s", want.Line(), line)
	}
	got, ok := ParseProgress("\x1b[0m[  20.6] hardtack-agent[99]: " + line + "\r")
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("%v %s", ok, diff)
	}
	for _, other := range []string{"", line[:40], `{"hardtack":"failed","unit":"x"}`, `{"hardtack":"progress","units":"one"}`} {
		if p, ok := ParseProgress(other); ok {
			t.Errorf("%q is read as %+v", other, p)
		}
	}
	if diff := cmp.Diff([]Phase{"power", "kernel", "systemd", "user data", "certs", "kubelet", "ready"}, Phases(role.NewSet(role.Minions))); diff != "" {
		t.Errorf("a minion's phases (-want +got)\n%s", diff)
	}
}

func TestUnion(t *testing.T) {
	tests := []struct {
		spans []Wait
		want  int64
	}{
		{nil, 0}, {[]Wait{{1, 3}}, 2}, {[]Wait{{5, 9}, {1, 3}}, 6}, {[]Wait{{1, 9}, {2, 3}, {8, 10}}, 9}, {[]Wait{{5, 2}}, 0},
	}
	for _, test := range tests {
		if got := union(test.spans); got != test.want {
			t.Errorf("%v: %d, want %d", test.spans, got, test.want)
		}
	}
}
