package e2e

import (
	"crypto/ecdsa"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// labCluster is the demo's: one control plane and two minions.
const labCluster = lab.DefaultCluster

func ready(s lab.Status) bool { return s.Ready }

// TestLab brings the demo's cluster up, kills a minion and watches it being replaced. Its parts build on each other.
func TestLab(t *testing.T) {
	needMachines(t)
	r := newLab(t, "e2e", labCluster)
	// A machine's last word about its boot comes after the word that it works.
	s := r.until(t, "the cluster is ready, and every machine has told how it booted", func(s lab.Status) bool {
		return s.Ready && !slices.ContainsFunc(s.Machines, func(m lab.MachineStatus) bool { return m.Timeline == nil })
	})
	t.Run("ready with nothing from outside", func(t *testing.T) { labReady(t, r, s) })
	t.Run("names through the machines' own resolver", func(t *testing.T) { labNames(t, r, s) })
	t.Run("a killed minion is replaced", func(t *testing.T) { labReplaces(t, r, s) })
	t.Run("another cluster's CA", func(t *testing.T) { labUntrusted(t, r) })
	t.Run("a plot of all boots", func(t *testing.T) {
		out, err := r.run(t.Context(), "lab", "plot", "--all", "--name", "e2e")
		if err != nil || !strings.HasPrefix(out, "<svg") || strings.Count(out, "until ready") != 1 {
			t.Errorf("lab plot: %v: %.200s", err, out)
		}
	})
}

// labReady looks at what every machine says about its boot, and at what any of them wanted from outside.
func labReady(t *testing.T, r *running, s lab.Status) {
	for _, m := range s.Machines {
		if m.Phase() != lab.PhaseReady || m.Timeline == nil {
			t.Errorf("%s (%s) has reached %v, timeline %s", m.ID, m.Group, m.Reached, m.Timeline)
		}
		if len(m.Failures) > 0 {
			t.Errorf("%s (%s) is ready, and says that it failed: %+v", m.ID, m.Group, m.Failures)
		}
		t.Logf("%s %s: %v", m.Group, m.ID, m.Reached)
	}
	// The switch has no way out: what is asserted is that nobody looked for one, but for EC2's time server and, while
	// there was no master, for the address that stands in the masters' record until then.
	known := []string{"169.254.169.123:123", "192.0.2.1:443"}
	for _, o := range s.Outside {
		if !slices.Contains(known, o.To.String()) {
			t.Errorf("%s wanted %s %s from outside, %d packets", o.Machine, o.Proto, o.To, o.Packets)
		}
	}
	out, err := r.run(t.Context(), "lab", "kubectl", "--name", "e2e", "get", "nodes", "-o", "name")
	if err != nil || strings.Count(out, "node/ip-10-1-0-") != 2 {
		t.Errorf("kubectl get nodes: %v: %s", err, out)
	}
}

func labNames(t *testing.T, r *running, s lab.Status) {
	master, err := s.Find("masters")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Machines {
		for _, group := range []string{"masters", "minions"} {
			if got := r.resolves(t, m.ID, group+".demo.k8s"); !slices.Equal(got, serving(s, group)) {
				t.Errorf("%s resolves %s.demo.k8s to %v, want %v", m.ID, group, got, serving(s, group))
			}
		}
	}
	if got := r.resolves(t, master.ID, "nobody.demo.k8s"); len(got) > 0 {
		t.Errorf("a name that there is not resolves to %v", got)
	}
}

// labReplaces kills a minion. While it is being replaced, what the master's resolver says is never empty and never
// somebody who has not been a minion; in the end it is those that serve.
func labReplaces(t *testing.T, r *running, s lab.Status) {
	master, err := s.Find("masters")
	if err != nil {
		t.Fatal(err)
	}
	var victim lab.MachineStatus
	for _, m := range s.Machines {
		if m.Group == "minions" {
			victim = m
		}
	}
	if out, err := r.run(t.Context(), "lab", "kill", "--name", "e2e", victim.ID); err != nil {
		t.Fatalf("lab kill: %v: %s", err, out)
	}
	s = r.until(t, "the killed minion is replaced", func(s lab.Status) bool {
		known := []string{}
		for _, m := range s.Machines {
			if m.Group == "minions" {
				known = append(known, m.Address.String())
			}
		}
		got := r.resolves(t, master.ID, "minions.demo.k8s")
		if len(got) == 0 || slices.ContainsFunc(got, func(a string) bool { return !slices.Contains(known, a) }) {
			t.Errorf("while a minion is replaced, minions.demo.k8s is %v; the minions are and were %v", got, known)
		}
		return s.Ready && len(serving(s, "minions")) == 2 && !slices.Contains(serving(s, "minions"), victim.Address.String())
	})
	s = r.until(t, "the records follow", func(lab.Status) bool {
		return slices.Equal(r.resolves(t, master.ID, "minions.demo.k8s"), serving(s, "minions"))
	})
	if dead, err := s.Find(victim.ID); err != nil || dead.End != "killed" {
		t.Errorf("the killed machine: %+v, %v", dead, err)
	}
	r.until(t, "the dead machine's Node is gone", func(s lab.Status) bool {
		return len(s.Nodes) == 2 && !slices.ContainsFunc(s.Nodes, func(n lab.Node) bool { return n.Name == victim.Name })
	})
}

// TestLabMinionsFirst starts minions while there is no master and never was one: they wait, and join when it appears.
func TestLabMinionsFirst(t *testing.T) {
	needMachines(t)
	r := newLab(t, "first", `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], size: 0}
- {name: minions, roles: [minions], size: 1}
`+lab.Patience)
	s := r.until(t, "the minion says what it waits for", func(s lab.Status) bool {
		return len(s.Machines) == 1 && len(s.Machines[0].Failures) > 0
	})
	minion := s.Machines[0]
	t.Logf("the minion waits: %+v", minion.Failures)
	// It has asked; the answer was no "no", which it would have to keep.
	if got := r.resolves(t, minion.ID, "masters.demo.k8s"); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("without masters masters.demo.k8s is %v, want the placeholder", got)
	}
	if err := r.Scale(t.Context(), "masters", 1); err != nil {
		t.Fatal(err)
	}
	s = r.until(t, "both are ready", ready)
	if got := serving(s, "minions"); !slices.Equal(got, []string{minion.Address.String()}) {
		t.Errorf("the minions are %v, want the one that waited, %s", got, minion.Address)
	}
	if m, err := s.Find(minion.ID); err != nil || len(m.Failures) > 0 {
		t.Errorf("the minion: %+v, %v", m.Failures, err)
	}
}

// labUntrusted launches a minion that is told another cluster's CA.
func labUntrusted(t *testing.T, r *running) {
	complete := completed(t, labCluster)
	authority, err := pki.NewAuthority("another cluster's", newKey(t), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	userData, err := complete.UserData("minions", pki.EncodeCertificate(authority.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetFault(t.Context(), "minions", lab.Fault{UserData: userData}); err != nil {
		t.Fatal(err)
	}
	before := len(mustStatus(t, r).Machines)
	if err := r.Scale(t.Context(), "minions", 3); err != nil {
		t.Fatal(err)
	}
	var m lab.MachineStatus
	s := r.until(t, "the machine says whom it does not trust", func(s lab.Status) bool {
		if len(s.Machines) <= before {
			return false
		}
		m = s.Machines[before]
		return slices.ContainsFunc(m.Failures, func(f reason.Failure) bool { return f.Reason == reason.Untrusted })
	})
	if len(s.Nodes) != 2 || slices.Contains(serving(s, "minions"), m.Address.String()) {
		t.Errorf("a machine that trusts another cluster has joined: nodes %+v", s.Nodes)
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// completed is a document's complete configuration.
func completed(t *testing.T, document string) *spec.Complete {
	t.Helper()
	of, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		t.Fatal(err)
	}
	cluster, problems := spec.Parse("cluster.yaml", []byte(document))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	complete, problems := cluster.Complete(of)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return complete
}
