package systemd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// odd is a file of variables with everything that systemd.exec(5) says of one.
const odd = `ODD_PLAIN=a b  c
  ODD_BLANKS  =  x y  
# ODD_COMMENT=1
; ODD_COMMENT=2
ODD_HASH=a # b
ODD_SINGLE='a "b" \c '
ODD_DOUBLE="a \"b\" \$c \\ \d"
ODD_BOTH='a' "b"
ODD_INSIDE=a"b"c'd'
ODD_ESCAPE=a\ b\"c\\
ODD_LINES=a \
  b
ODD_QUOTED="a
b"
ODD_EMPTY=
ODD_TWICE=1
ODD_TWICE=2
no assignment
ODD_FLAG=--cluster-cidr=10.0.0.0/16 --v=2
# a comment \
ODD_HIDDEN=1
ODD_LAST=z`

// TestRoleFileNotEnough boots a minion outside a cloud whose role file does not say where the store is. The units that need
// it fail and are started again, and the console has one line. Then somebody writes the line that it asks for
// on the machine, and everything goes on by itself. In the same boot systemd itself reads a file of variables, by which
// pkg/node/envfile is judged.
func TestRoleFileNotEnough(t *testing.T) {
	c := newContainer(t, role.Set{role.Minions}, "")
	c.write(t, "/etc/hardtack/user-data", "#cloud-config\nwrite_files:\n- path: /etc/sysconfig/kubernetes-minions\n  content: |\n    CLUSTER_NAME=demo\n    KUBELET_HOSTNAME=--hostname-override=a\n")
	c.write(t, "/etc/odd.env", odd)
	c.write(t, "/etc/systemd/system/odd.service", "[Service]\nType=oneshot\nEnvironmentFile=/etc/odd.env\nExecStart=/usr/bin/env -0\nStandardOutput=file:/report/env\n")
	console, out := c.boot(t, `
systemctl start odd.service
until [ -e /run/hardtack/said/hardtack-userdata.service ]; do sleep 0.2; done
waits() { until systemctl show --property=StatusText $1 | grep --quiet "$2"; do sleep 0.2; done; }
waits hardtack-ready.service '\[config\]'
for unit in hardtack-node hardtack-bootstrap; do until systemctl show --property=NRestarts $unit.service | grep --quiet '=[2-9]'; do sleep 0.2; done; done
echo STORE=dir:/srv/store >>/etc/sysconfig/kubernetes-minions
echo 127.0.0.1 masters.demo.k8s >>/etc/hosts
waits hardtack-bootstrap.service '\[unreachable\]'
until [ -e /run/hardtack/node.env ]; do sleep 0.2; done
ls /run/hardtack/said
cat /run/hardtack/ca.crt
journalctl --unit=hardtack-node.service --output=cat | grep msg=told
`)
	var said []reason.Failure
	reached := map[timeline.Phase]bool{}
	for _, line := range console {
		if p, ok := timeline.ParseProgress(line); ok {
			reached[p.Phase] = true
			if len(p.Units) == 0 || p.At <= 0 {
				t.Errorf("the console has the step %+v", p)
			}
		}
		if f, ok := reason.Parse(line); ok && f.Reason == reason.Config {
			said = append(said, f) // of what comes later, for want of a master, others tell
		}
	}
	if !reached[timeline.PhaseUserData] || reached[timeline.PhaseCerts] {
		t.Errorf("the console says that these phases are reached: %v", reached)
	}
	if len(said) != 1 || !strings.Contains(said[0].Next, "write the line STORE=dir:/PATH") {
		t.Errorf("the console says %+v, want one line about the store", said)
	}
	for _, want := range []string{
		"BEGIN CERTIFICATE",
		`field=store value=dir:/srv/store from="role file" where=/etc/sysconfig/kubernetes-minions`,
		"field=network.serviceCIDR value=10.96.0.0/16 from=image where=/etc/kubernetes/config",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "hardtack-userdata.service") {
		t.Errorf("the trouble is not over:\n%s", out)
	}
	if n := strings.Count(strings.Join(console, "\n"), "the store of the cluster's secrets is not given"); n != 1 {
		t.Errorf("the console has the cause %d times", n)
	}
	data, err := os.ReadFile(filepath.Join(c.report, "env"))
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	ours := envfile.Parse(odd)
	for entry := range strings.SplitSeq(string(data), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "ODD_") {
			continue
		}
		judged++
		if got, set := ours.Get(name); !set || got != value {
			t.Errorf("%s is %q to systemd and %q (%v) to us", name, value, got, set)
		}
	}
	names := map[string]bool{}
	for _, v := range ours {
		names[v.Name] = true
	}
	if judged != len(names) || judged < 14 {
		t.Errorf("systemd reads %d variables, and we %d: %v", judged, len(names), names)
	}
}
