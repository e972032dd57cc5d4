package e2e

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	ec2 "github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// faultsCluster has groups without machines, and minions whose user data is nearly as large as allowed. A minion that
// waits for a token reports it after half a minute without change; the default is five minutes, which would only make
// the test longer.
func faultsCluster() string {
	noise := make([]byte, 11700) // does not compress; in base64 and with the rest it is just below 16 KiB
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise) // never fails
	return fmt.Sprintf(`apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], size: 0}
- {name: minions, roles: [minions], size: 0}
- {name: slow, roles: [minions], size: 0}
- {name: refused, roles: [minions], size: 0}
fileAssets:
- {path: /etc/hardtack/noise, base64: %s, roles: [minions]}
- path: /etc/systemd/system/hardtack-ready.service.d/stall.conf
  roles: [minions]
  content: |
    [Service]
    ExecStart=
    ExecStart=/usr/lib/hardtack/bin/hardtack-agent ready --stall 30s
`, base64.StdEncoding.EncodeToString(noise))
}

// otherRange is a master's user data with another range of Services than the cluster's.
const otherRange = `#cloud-config
write_files:
- path: /etc/sysconfig/kubernetes-masters
  content: |
    CLUSTER_NAME=demo
    SERVICE_CIDR=--service-cluster-ip-range=10.0.0.0/16
- path: /etc/sysconfig/kubernetes-etcd
  content: |
    CLUSTER_NAME=demo
`

// faulty is a machine with a fault.
type faulty struct {
	name, group string
	fault       lab.Fault
	reasons     []reason.Reason
	configured  bool
}

// TestLabFaults launches faulty machines in one lab. Each must print its fault on the console, `lab status` must show
// it, and if the fault is in the user data, no file of a role may be written.
func TestLabFaults(t *testing.T) {
	needMachines(t, faultsTakes)
	r := newLab(t, "faults", faultsCluster())
	// These two fail only after minutes without change, during which the other cases run.
	late := []faulty{
		{"metadata service that refuses", "refused", lab.Fault{Metadata: []ec2.Fault{{Status: http.StatusServiceUnavailable}}}, []reason.Reason{reason.UserData, reason.Metadata}, false},
		{"metadata service that is slow, and user data of nearly 16 KiB", "slow", lab.Fault{Metadata: []ec2.Fault{{Delay: 3 * time.Second}}}, []reason.Reason{reason.DNS}, true},
	}
	var places []int
	for _, c := range late {
		places = append(places, r.launch(t, c))
	}
	for _, c := range []faulty{
		{"corrupt user data", "minions", lab.Fault{UserData: []byte("#cloud-config\nwrite_files: [{path: /etc/sysconfig/kubernetes-minions\n")}, []reason.Reason{reason.UserData}, false},
		{"user data of no role", "minions", lab.Fault{UserData: []byte("#cloud-config\n{}\n")}, []reason.Reason{reason.UserData}, false},
		{"a range that is not the cluster's", "masters", lab.Fault{UserData: []byte(otherRange)}, []reason.Reason{reason.Drift}, true},
		{"clock a day behind, and no time server", "masters", lab.Fault{Skew: -24 * time.Hour, NoTime: true}, []reason.Reason{reason.Clock}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fits(t, time.Minute)
			r.tells(t, c, r.launch(t, c))
		})
	}
	for i, c := range late {
		t.Run(c.name, func(t *testing.T) {
			fits(t, time.Minute)
			r.tells(t, c, places[i])
		})
	}
	t.Run("a clock that a time server corrects", r.corrected)
}

// corrected: a clock that no certificate would be minted by is nobody's fault where there is a time server.
func (r *running) corrected(t *testing.T) {
	fits(t, 2*time.Minute)
	place := r.launch(t, faulty{group: "masters", fault: lab.Fault{Skew: -24 * time.Hour}})
	var m lab.MachineStatus
	r.until(t, "the master is ready", func(s lab.Status) bool {
		m = s.Machines[place]
		return m.Phase() == timeline.PhaseReady
	})
	text := strings.TrimSpace(r.ask(t, m.ID, "date +%s"))
	if now, err := strconv.ParseInt(text, 10, 64); err != nil || time.Since(time.Unix(now, 0)).Abs() > time.Hour {
		t.Errorf("its clock says %q: %v", text, err)
	}
}

// launch launches the machine of an empty group, and returns its index among the lab's machines.
func (r *running) launch(t *testing.T, c faulty) int {
	t.Helper()
	if err := r.SetFault(t.Context(), c.group, c.fault); err != nil {
		t.Fatal(err)
	}
	before := len(mustStatus(t, r).Machines)
	if err := r.Scale(t.Context(), c.group, 1); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the machine is launched", func(s lab.Status) bool { return len(s.Machines) > before })
	return before
}

// tells waits until the machine reports the failure, and terminates it: the next case has an empty group, whatever this one told.
func (r *running) tells(t *testing.T, c faulty, place int) {
	t.Helper()
	m := mustStatus(t, r).Machines[place]
	t.Cleanup(func() {
		if err := r.Scale(interrupted, c.group, 0); err != nil {
			t.Error(err)
		}
		// Otherwise its group would let it drain for a minute.
		if err := r.Kill(interrupted, m.ID); err != nil {
			t.Error(err)
		}
	})
	r.until(t, "the machine says what is wrong", func(s lab.Status) bool {
		m = s.Machines[place]
		told := slices.ContainsFunc(m.Failures, func(f reason.Failure) bool { return slices.Contains(c.reasons, f.Reason) })
		if !told && m.Phase() == timeline.PhaseReady {
			t.Fatalf("%s works: %v", m.ID, m.Reached)
		}
		return told
	})
	t.Logf("%+v", m.Failures)
	if f := m.Failures[0]; f.Reason == reason.Drift {
		if !strings.Contains(f.Cause, "network.serviceCIDR is 10.0.0.0/16 in /etc/sysconfig/kubernetes-masters, and the cluster's is 10.96.0.0/16") {
			t.Errorf("it does not say both values: %s", f.Cause)
		}
		if out := r.ask(t, m.ID, "find /run/hardtack/pki -name '*.key' | wc -l; pidof etcd kube-apiserver"); strings.TrimSpace(out) != "0" {
			t.Errorf("keys, and daemons that serve: %q", out)
		}
	}
	files := r.ask(t, m.ID, "ls /etc/sysconfig")
	if got := strings.Contains(files, "kubernetes-"); got != c.configured {
		t.Errorf("role files %q, want some: %v", files, c.configured)
	}
	out, err := r.run(t.Context(), "lab", "status", "--name", "faults")
	if err != nil || !strings.Contains(out, m.ID+" ("+c.group+"): ") || !strings.Contains(out, "["+string(m.Failures[0].Reason)+"]") {
		t.Errorf("lab status: %v: %s", err, out)
	}
}

func mustStatus(t *testing.T, r *running) lab.Status {
	t.Helper()
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
