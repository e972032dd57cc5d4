package role_test

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/figure"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

//go:generate go test -count=1 -run TestClusterFigure . -update

// TestClusterFigure draws units/cluster.svg from the profiles of the roles: what runs on their machines, and who connects to whom.
func TestClusterFigure(t *testing.T) {
	t.Parallel()
	golden.Assert(t, string(drawCluster()), "../../../units/cluster.svg")
}

// drawCluster puts the roles beside each other, those that ask on the left of those that answer.
func drawCluster() []byte {
	const top, wide, gap, high, width = 64.0, 236.0, 180.0, 22.0, 1120.0
	columns := []role.Role{role.Minions, role.Masters, role.Etcd}
	colours := map[role.Role]string{role.Masters: figure.Sky, role.Minions: figure.Green, role.Etcd: figure.Orange}
	left := map[role.Role]float64{}
	units, served := 0, 0
	for i, r := range columns {
		left[r] = 20 + float64(i)*(wide+gap)
		units = max(units, len(r.Profile().Units))
		served = max(served, len(servedPorts(r)))
	}
	ports := top + 42 + float64(units)*(high+4) + 34
	bottom := ports + float64(served+1)*(high+16)
	f := figure.New(width, bottom+64, "A running cluster: what runs on the machines of a role, and who connects to whom")
	for column, r := range columns {
		x := left[r]
		// No two columns have a port at the same height, so that an arrow leads to one and comes from none.
		ports := ports + float64(column)*(high+16)/float64(len(columns))
		f.Rect(x, top, wide, bottom-top, "none", "")
		f.Text(x+12, top+22, figure.Title, string(r))
		for i, u := range r.Profile().Units {
			f.Text(x+12, top+48+float64(i)*(high+4), figure.Plain, strings.TrimSuffix(u.Name, ".service"))
		}
		f.Text(x+12, ports-12, figure.Muted, "answers other machines at")
		for i, p := range servedPorts(r) {
			y := ports + float64(i)*(high+16)
			f.Rect(x+8, y, wide-16, high, colours[r], "")
			f.Middle(x+wide/2, y+15, figure.Inside, fmt.Sprintf("%s %d  %s", p.Protocol, p.Number, p.What()))
			for _, from := range p.From {
				switch {
				case from == r:
					f.Text(x+12, y+high+11, figure.Muted, among(p, r))
				case left[from] < x:
					f.Arrow(left[from]+wide, y+high/2, x+8, y+high/2)
				default:
					f.Arrow(left[from], y+high/2, x+wide-8, y+high/2)
				}
			}
		}
	}
	f.Text(20, bottom+26, figure.Muted, fmt.Sprintf("Machines find each other by name: %s.CLUSTER.k8s, %sMEMBER.CLUSTER.k8s. The DNS function keeps these records equal to each group's healthy members.", role.Masters, role.MemberPrefix))
	f.Text(20, bottom+46, figure.Muted, "API servers reach pods through the tunnels that konnectivity-agent opens to every master. Ports for programs of the same machine are left out.")
	return f.Bytes()
}

// servedPorts are those that other machines connect to.
func servedPorts(r role.Role) (ports []role.Port) {
	for _, p := range r.Ports() {
		if len(p.From) > 0 {
			ports = append(ports, p)
		}
	}
	return ports
}

func among(p role.Port, r role.Role) string {
	if len(p.From) > 1 {
		return "also among " + string(r)
	}
	return "among " + string(r)
}
