package e2e

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// labCluster is the demo's cluster with the name of the seed. It starts with one minion and no master. Its member of etcd has
// no volume and no backups, which the seed's user data do not speak of; TestLabEtcd has both.
const labCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: cncfdemo
groups:
- {name: masters, roles: [masters, etcd], size: 0}
- {name: minions, roles: [minions], size: 1}
etcd: {storage: machine, backup: {to: none}}
`

func ready(s lab.Status) bool { return s.Ready }

// TestLab starts a minion before the cluster's first master, then brings up the cluster, kills a minion and watches
// its replacement. Its parts depend on each other.
func TestLab(t *testing.T) {
	needMachines(t)
	isUp := fits(t, labUp, labTakes-labUp)
	r := newLab(t, "e2e", labCluster)
	if !t.Run("a minion waits for the first master", func(t *testing.T) { labWaits(t, r) }) {
		return
	}
	for group, size := range map[string]int{"masters": 1, "minions": 2} {
		if err := r.Scale(t.Context(), group, size); err != nil {
			t.Fatal(err)
		}
	}
	// A machine prints the end of its boot's timeline after the line that it works.
	s := r.until(t, "the cluster is ready, and every machine has told how it booted", func(s lab.Status) bool {
		return s.Ready && !slices.ContainsFunc(s.Machines, func(m lab.MachineStatus) bool { return m.Timeline == nil })
	})
	isUp()
	t.Run("told by the seed's user data, word for word", func(t *testing.T) { labSeed(t, r, s) })
	t.Run("ready with nothing from outside", func(t *testing.T) { labReady(t, r, s) })
	t.Run("API servers reach pods", func(t *testing.T) { labReaches(t, r) })
	t.Run("what each machine takes", func(t *testing.T) { r.takes(t, s, "lab-takes.json") })
	t.Run("names through the machines' own resolver", func(t *testing.T) { labNames(t, r, s) })
	t.Run("files to a machine and back", func(t *testing.T) { labCopies(t, r, s) })
	t.Run("nothing for who is root on a minion", func(t *testing.T) { labAttack(t, r, s) })
	t.Run("a rebooted minion joins again", func(t *testing.T) { labReboots(t, r, s) })
	t.Run("a killed minion is replaced", func(t *testing.T) {
		defer fits(t, 5*time.Minute, faultsTakes)()
		labReplaces(t, r, s)
	})
	t.Run("a plot of all boots", func(t *testing.T) {
		out, err := r.run(t.Context(), "lab", "plot", "--all", "--name", "e2e")
		if err != nil || !strings.HasPrefix(out, "<svg") || strings.Count(out, "until ready") != 1 {
			t.Errorf("lab plot: %v: %.200s", err, out)
		}
	})
}

// labReaches asks by a master that is no minion, and so no part of the pods' network, for what only pods answer.
func labReaches(t *testing.T, r *running) {
	text, err := r.Kubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, text)
	c.reaches(t.Context(), t, "hardtack-lab", func(what string, done func() (bool, string)) {
		last := ""
		r.until(t, what, func(lab.Status) bool {
			ok, state := done()
			if state != last {
				t.Logf("%s: %s", what, state)
				last = state
			}
			return ok
		})
	})
}

// labWaits checks a minion while there is no master: it has asked DNS and leaves the store alone, and the answer was not "no such
// name", which resolvers would cache. TestLabFaults shows that it also prints its reason when nothing has changed for minutes.
func labWaits(t *testing.T, r *running) {
	var minion lab.MachineStatus
	r.until(t, "the minion has looked for a master", func(s lab.Status) bool {
		if len(s.Machines) != 1 {
			return false
		}
		minion = s.Machines[0]
		journal, err := os.ReadFile(filepath.Join(r.home.Dir, "machines", minion.ID, lab.JournalFile))
		return err == nil && strings.Contains(string(journal), "no server is announced yet: the name has its placeholder")
	})
	if got := r.resolves(t, minion.ID, "masters.cncfdemo.k8s"); !slices.Equal(got, []string{"192.0.2.1"}) {
		t.Errorf("without masters masters.cncfdemo.k8s is %v, want the placeholder", got)
	}
}

// labReady checks every machine's report of its boot, and its attempts to reach the internet.
func labReady(t *testing.T, r *running, s lab.Status) {
	for _, m := range s.Machines {
		if m.Phase() != timeline.PhaseReady || m.Timeline == nil {
			t.Errorf("%s (%s) has reached %v, timeline %s", m.ID, m.Group, m.Reached, m.Timeline)
		}
		if len(m.Failures) > 0 {
			t.Errorf("%s (%s) is ready, and says that it failed: %+v", m.ID, m.Group, m.Failures)
		}
		t.Logf("%s %s: %v", m.Group, m.ID, m.Reached)
	}
	// The switch has no route out. This asserts that no machine tried one, except, while there was no master, for the
	// placeholder address in the masters' record.
	known := []string{"192.0.2.1:443"}
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

// The seed's user data: a role file for each role, and nothing else.
const (
	seedMasters = "#cloud-config\nwrite_files:\n- path: /etc/sysconfig/kubernetes-masters\n  content: |\n    CLUSTER_NAME=cncfdemo\n" +
		"- path: /etc/sysconfig/kubernetes-etcd\n  content: |\n    CLUSTER_NAME=cncfdemo\n"
	seedMinions = "#cloud-config\nwrite_files:\n- path: /etc/sysconfig/kubernetes-minions\n  content: |\n    CLUSTER_NAME=cncfdemo\n"
	seedEtcd    = "#cloud-config\nwrite_files:\n- path: /etc/sysconfig/kubernetes-etcd\n  content: |\n    CLUSTER_NAME=cncfdemo\n"
)

// seedLines are the seed's three lines for a minion of that address.
func seedLines(at netip.Addr) string {
	return seedMinions + "    CLOUD_PROVIDER=--cloud-provider=aws\n    KUBELET_HOSTNAME=--hostname-override=" + seedName(at) + "\n"
}

// seedName is the private DNS name of the instance that has the address.
func seedName(at netip.Addr) string { return vnet.HostnameOf(at) + ".us-west-2.compute.internal" }

// labSeed asks every machine for its user data and the resulting configuration.
func labSeed(t *testing.T, r *running, s lab.Status) {
	for _, m := range s.Machines {
		want := seedMinions
		if m.Group == "masters" {
			want = seedMasters
		}
		r.toldBy(t, m.ID, want)
		values := r.effective(t, m.ID)
		for field, from := range map[string]config.From{"cluster": config.FromRole, "store": config.FromInstance, "network.serviceCIDR": config.FromImage, "launchHook": config.FromImage, "caFile": config.FromStore} {
			if values[field].From != from {
				t.Errorf("%s (%s): %s is %+v, want it from the %s", m.ID, m.Group, field, values[field], from)
			}
		}
	}
}

// toldBy asserts that a machine has exactly this user data, and no machine file.
func (r *running) toldBy(t *testing.T, id, userData string) {
	t.Helper()
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(userData)))
	if out := r.ask(t, id, "grep -c "+digest+" /var/lib/hardtack/userdata.json; ls /etc/hardtack 2>/dev/null"); strings.TrimSpace(out) != "1" {
		t.Errorf("%s was told otherwise than by\n%s: %q", id, userData, out)
	}
}

// effective returns a machine's effective configuration, by field.
func (r *running) effective(t *testing.T, id string) map[string]config.Value {
	t.Helper()
	var out struct{ Values []config.Value }
	text := r.ask(t, id, "/usr/lib/hardtack/bin/hardtack-agent config --json")
	if err := json.Unmarshal([]byte(text[max(0, strings.Index(text, "{")):]), &out); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	values := map[string]config.Value{}
	for _, v := range out.Values {
		values[v.Field] = v
	}
	return values
}

func labNames(t *testing.T, r *running, s lab.Status) {
	master, err := s.Find("masters")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Machines {
		for _, group := range []string{"masters", "minions"} {
			if got := r.resolves(t, m.ID, group+".cncfdemo.k8s"); !slices.Equal(got, serving(s, group)) {
				t.Errorf("%s resolves %s.cncfdemo.k8s to %v, want %v", m.ID, group, got, serving(s, group))
			}
		}
	}
	if got := r.resolves(t, master.ID, "nobody.cncfdemo.k8s"); len(got) > 0 {
		t.Errorf("a name that there is not resolves to %v", got)
	}
}

// labReboots restarts a minion, whose key and certificates are gone with its memory: it proves again which machine it is, and is the
// same Node as before. Nobody replaces it meanwhile.
func labReboots(t *testing.T, r *running, s lab.Status) {
	needTime(t)
	minion := living(s, "minions")[0]
	node := func() (uid, boot, ready string) {
		out, err := r.kubectl(t.Context(), "get", "node", minion.Name, "-o", `jsonpath={.metadata.uid} {.status.nodeInfo.bootID} {.status.conditions[?(@.type=="Ready")].status}`)
		if f := strings.Fields(out); err == nil && len(f) == 3 {
			return f[0], f[1], f[2]
		}
		return "", "", fmt.Sprint(err, out)
	}
	uid, boot, was := node()
	if was != "True" {
		t.Fatalf("%s before its reboot: %s", minion.Name, was)
	}
	r.ask(t, minion.ID, "systemd-run --on-active=1 systemctl reboot")
	machines := len(s.Machines)
	s = r.until(t, "the rebooted minion has joined", func(s lab.Status) bool {
		_, now, ready := node()
		return now != "" && now != boot && ready == "True" && s.Ready && slices.Contains(serving(s, "minions"), minion.Address.String())
	})
	if now, _, _ := node(); now != uid {
		t.Errorf("after its reboot %s is the Node %s, and was %s", minion.Name, now, uid)
	}
	if len(s.Machines) != machines {
		t.Errorf("a reboot has led to %d machines of %d", len(s.Machines), machines)
	}
}

// labReplaces kills a minion. Its first replacement gets another cluster's CA and must not join; the second must join
// without help. Meanwhile the minions' record, as the master's resolver sees it, must never be empty and never list a
// machine that was not a minion; in the end it lists the minions in service.
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
	names := func(s lab.Status) {
		known := []string{}
		for _, m := range s.Machines {
			if m.Group == "minions" {
				known = append(known, m.Address.String())
			}
		}
		got := r.resolves(t, master.ID, "minions.cncfdemo.k8s")
		if len(got) == 0 || slices.ContainsFunc(got, func(a string) bool { return !slices.Contains(known, a) }) {
			t.Errorf("while a minion is replaced, minions.cncfdemo.k8s is %v; the minions are and were %v", got, known)
		}
	}
	setFault(t, r, lab.Fault{UserData: foreign(t)})
	kill(t, r, victim.ID)
	before := len(s.Machines)
	var stranger lab.MachineStatus
	s = r.until(t, "the replacement says whom it does not trust", func(s lab.Status) bool {
		names(s)
		if len(s.Machines) <= before {
			return false
		}
		stranger = s.Machines[before]
		return slices.ContainsFunc(stranger.Failures, func(f reason.Failure) bool { return f.Reason == reason.Untrusted })
	})
	if slices.Contains(serving(s, "minions"), stranger.Address.String()) || slices.ContainsFunc(s.Nodes, named(stranger)) {
		t.Errorf("a machine that trusts another cluster has joined: nodes %+v", s.Nodes)
	}
	// The next machine has the other two lines of the seed: the first is a flag that no kubelet knows any more, the
	// second is the machine's own.
	last := stranger.Address.Next()
	setFault(t, r, lab.Fault{UserData: []byte(seedLines(last))})
	abandon(t, r, stranger)
	s = r.until(t, "the killed minion is replaced", func(s lab.Status) bool {
		names(s)
		return s.Ready && len(serving(s, "minions")) == 2 && !slices.Contains(serving(s, "minions"), victim.Address.String())
	})
	s = r.until(t, "the records follow", func(lab.Status) bool {
		return slices.Equal(r.resolves(t, master.ID, "minions.cncfdemo.k8s"), serving(s, "minions"))
	})
	if dead, err := s.Find(victim.ID); err != nil || dead.End != "killed" {
		t.Errorf("the killed machine: %+v, %v", dead, err)
	}
	setFault(t, r, lab.Fault{})
	labOldLines(t, r, s, last)
	r.until(t, "the dead machine's Node is gone", func(s lab.Status) bool {
		return len(s.Nodes) == 2 && !slices.ContainsFunc(s.Nodes, named(victim))
	})
}

// labOldLines checks the minion with the seed's lines of 2016: it works under its name, and has printed once on its
// console which line has no effect any more.
func labOldLines(t *testing.T, r *running, s lab.Status, at netip.Addr) {
	i := slices.IndexFunc(s.Machines, func(m lab.MachineStatus) bool { return m.Address == at })
	if i < 0 {
		t.Fatalf("no machine has the address %s: %+v", at, s.Machines)
	}
	m := s.Machines[i]
	r.toldBy(t, m.ID, seedLines(at))
	if !slices.ContainsFunc(s.Nodes, func(n lab.Node) bool { return n.Name == seedName(at) && n.Ready }) {
		t.Errorf("no node %s is ready: %+v", seedName(at), s.Nodes)
	}
	if out := r.ask(t, m.ID, "tr '\\0' ' ' </proc/$(pidof kubelet)/cmdline"); strings.Contains(out, "cloud-provider") || !strings.Contains(out, "--hostname-override="+seedName(at)) {
		t.Errorf("its kubelet runs as %q", out)
	}
	console, err := os.ReadFile(filepath.Join(r.home.Dir, "machines", m.ID, lab.ConsoleFile))
	if n := strings.Count(string(console), "CLOUD_PROVIDER=--cloud-provider=aws is not used"); err != nil || n != 1 {
		t.Errorf("the console has the warning %d times, %v", n, err)
	}
}

func named(m lab.MachineStatus) func(lab.Node) bool {
	return func(n lab.Node) bool { return n.Name == m.Name }
}

func setFault(t *testing.T, r *running, f lab.Fault) {
	t.Helper()
	if err := r.SetFault(t.Context(), "minions", f); err != nil {
		t.Fatal(err)
	}
}

func kill(t *testing.T, r *running, id string) {
	t.Helper()
	if out, err := r.run(t.Context(), "lab", "kill", "--name", "e2e", id); err != nil {
		t.Fatalf("lab kill: %v: %s", err, out)
	}
}

// abandon abandons a launch, as an operator does who has read the machine's reason. A group does not check the health
// of a machine in its launch, and would wait for it until the hook times out.
func abandon(t *testing.T, r *running, m lab.MachineStatus) {
	t.Helper()
	at, err := r.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	api := autoscaling.New(autoscaling.Options{
		Region: at.Region, BaseEndpoint: &at.Endpoint, Credentials: credentials.NewStaticCredentialsProvider(at.AccessKey, at.Secret, ""),
	})
	_, err = api.CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String("cncfdemo-" + m.Group), LifecycleHookName: aws.String(machine.DefaultLaunchHook), InstanceId: &m.ID,
		LifecycleActionResult: aws.String("ABANDON"),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// foreign is a minion's user data with another cluster's CA.
func foreign(t *testing.T) []byte {
	t.Helper()
	authority, err := pki.NewAuthority("another cluster's", newKey(t), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	userData, err := completed(t, labCluster).UserData("minions", pki.EncodeCertificate(authority.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	return userData
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
