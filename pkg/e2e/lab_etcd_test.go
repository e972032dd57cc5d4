package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// etcdCluster has three separate etcd machines under two masters.
const etcdCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters], size: 2}
- {name: etcd, roles: [etcd], members: [a, b, c]}
`

// TestLabEtcd loses a machine of each group, then all machines of etcd at once, then a member's volume, then those of a
// majority, which is restored from a backup. As long as two members are left the API must answer; each machine must be
// replaced without help, as the member that it was; and what was in the cluster must be there.
func TestLabEtcd(t *testing.T) {
	needTime(t)
	r := newLab(t, "etcd", etcdCluster)
	s := r.until(t, "masters and members are ready", ready)
	r.takes(t, s, "lab-etcd-takes.json")
	for _, member := range []string{"a", "b", "c"} {
		m, err := s.Find("etcd-" + member)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.resolves(t, m.ID, "etcd-"+member+".demo.k8s"); !slices.Equal(got, []string{m.Address.String()}) {
			t.Errorf("etcd-%s.demo.k8s is %v, want %s", member, got, m.Address)
		}
	}
	i := slices.IndexFunc(s.Records, func(x lab.Record) bool { return strings.HasPrefix(x.Name, "_etcd-server-ssl.") && len(x.Values) == 3 })
	if i < 0 {
		t.Errorf("no SRV record of three members: %+v", s.Records)
	}
	// Each API server has a lease in its host's name.
	out, err := r.run(t.Context(), "lab", "kubectl", "--name", "etcd", "get", "leases", "-n", "kube-system", "-l", "apiserver.kubernetes.io/identity=kube-apiserver", "-o", "name")
	if err != nil || strings.Count(out, "lease.coordination.k8s.io/apiserver-") != 2 {
		t.Errorf("the leases of two API servers: %v: %s", err, out)
	}
	kept := labKeeps(t, r)
	var master lab.MachineStatus
	t.Run("without one of masters", func(t *testing.T) { master = labLoses(t, r, "masters") })
	t.Run("a killed master is replaced", func(t *testing.T) { labReplacesMaster(t, r, master) })
	was := r.etcd(t)
	t.Run("without one of etcd-b", func(t *testing.T) { labLoses(t, r, "etcd-b") })
	t.Run("etcd-b is the same member on another machine", func(t *testing.T) { labSameMembers(t, r, was) })
	t.Run("all machines of etcd at once", func(t *testing.T) { labLosesEtcd(t, r, was); kept.there(t, r) })
	t.Run("the volume of etcd-c is lost", func(t *testing.T) { labLosesVolume(t, r, "c", was); kept.there(t, r) })
	t.Run("a backup is restored", func(t *testing.T) { labRestores(t, r, kept) })
}

// labReplacesMaster waits, without helping, until the group has as many working masters as before, and until the
// masters' name, asked through an etcd member's resolver, lists exactly them.
func labReplacesMaster(t *testing.T, r *running, dead lab.MachineStatus) {
	s := r.until(t, "the killed master is replaced", func(s lab.Status) bool {
		now := serving(s, "masters")
		return s.Ready && len(now) == 2 && !slices.Contains(now, dead.Address.String())
	})
	member, err := s.Find("etcd-a")
	if err != nil {
		t.Fatal(err)
	}
	r.until(t, "the masters' record follows", func(s lab.Status) bool {
		return slices.Equal(r.resolves(t, member.ID, "masters.demo.k8s"), serving(s, "masters"))
	})
}

// writes writes through the API. A write that is under way at a member or an API server which ends may have been done or not,
// so that nobody repeats it but the client: it has a second try.
func (r *running) writes(t *testing.T, annotation string) error {
	t.Helper()
	write := func() (string, error) {
		return r.kubectl(t.Context(), "annotate", "namespace", "default", "--overwrite", annotation)
	}
	out, err := write()
	if err != nil {
		t.Logf("a write that was under way: %v: %s", err, out)
		out, err = write()
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// labLoses kills a machine of a group, and writes and reads through the API until its replacement has started systemd.
// It returns the killed machine.
func labLoses(t *testing.T, r *running, group string) lab.MachineStatus {
	s := mustStatus(t, r)
	var victim lab.MachineStatus
	for _, m := range s.Machines {
		if m.Group == group && m.Power == "on" {
			victim = m
			break
		}
	}
	if err := r.Kill(t.Context(), victim.ID); err != nil {
		t.Fatal(err)
	}
	before, answers := len(s.Machines), 0
	r.until(t, "the replacement of "+victim.ID+" boots", func(s lab.Status) bool {
		if err := r.writes(t, "hardtack.dev/killed="+victim.ID); err != nil {
			t.Errorf("without %s the API does not answer: %v", victim.Group, err)
			return true
		}
		answers++
		return len(s.Machines) > before && len(s.Machines[before].Reached) > 2
	})
	if answers == 0 {
		t.Error("the API was never asked")
	}
	t.Logf("without %s the API has answered %d times", victim.Group, answers)
	return victim
}
