package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// compareCluster has one master, and minions one at a time. It differs from the demo's document for kubeadm: its
// machines read the ConfigMap cluster-info before they are authenticated, and the controller manager signs that
// ConfigMap with their token.
const compareCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], size: 1}
- {name: minions, roles: [minions], size: 0}
kubeControllerManager:
  flags:
    controllers: ["*", token-cleaner-controller, bootstrap-signer-controller]
    leader-elect-lease-duration: 2m0s
    leader-elect-renew-deadline: 1m30s
    leader-elect-retry-period: 10s
kubeScheduler:
  config: {leaderElection: {leaseDuration: 2m0s, renewDeadline: 1m30s, retryPeriod: 10s}}
fileAssets:
- path: /etc/kubernetes/authentication.yaml
  roles: [masters]
  content: |
    apiVersion: apiserver.config.k8s.io/v1
    kind: AuthenticationConfiguration
    anonymous:
      enabled: true
      conditions:
      - path: /livez
      - path: /readyz
      - path: /healthz
      - path: /api/v1/namespaces/kube-public/configmaps/cluster-info
`

// compared is the lab in which machines join, one at a time.
type compared struct {
	*running
	kubeadm, version string
	// token is kubeadm's bootstrap token.
	token string
	// image is a link to the disk of machines that are launched from now on.
	image string
	// disks and userData are indexed by the way of joining; nil user data are the group's own.
	disks    map[string]string
	userData map[string][]byte
	nodes    *nodeWatch
	// accel is the accelerator of machines that join; empty is the lab's.
	accel qemu.Accel
}

// TestCompareKubeadm measures the time from power-on to a Ready node, with Hardtack and with kubeadm: the same lab,
// master and baked disk (for kubeadm with kubeadm added), one machine at a time; and with Hardtack's sealed disk, where there is
// one. It fails for no measured time.
func TestCompareKubeadm(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("HARDTACK_COMPARE_KUBEADM"))
	if err != nil || rounds < 1 {
		t.Skip("measures for half an hour: run scripts/compare-kubeadm, or set HARDTACK_COMPARE_KUBEADM to a number of rounds")
	}
	out := os.Getenv("HARDTACK_COMPARE_OUT")
	if out == "" {
		out = filepath.Join(root, "build")
	}
	host, err := qemu.Detect()
	if err != nil {
		t.Fatal(err)
	}
	c := startComparison(t)
	if os.Getenv("HARDTACK_COMPARE_INSTRUCTIONS") == "1" {
		c.accel = qemu.Instructions
	}
	order := []string{byHardtack, byKubeadm}
	if sealed := os.Getenv(sealedVariable); sealed != "" {
		if c.disks[bySealed], err = filepath.Abs(sealed); err != nil {
			t.Fatal(err)
		}
		order = []string{byHardtack, bySealed, byKubeadm}
	}
	figures := comparison{Kubernetes: c.version, CPUs: runtime.NumCPU(), KVM: host.KVM, UserData: map[string]int{}, Instructions: c.accel == qemu.Instructions}
	c.until(t, "the master is ready", ready)
	c.allowKubeadm(t)
	for by, data := range c.userData {
		figures.UserData[by] = len(data)
	}
	for round := range rounds {
		for _, by := range order {
			j := c.join(t, by, round+1)
			t.Logf("%+v", j)
			figures.Joins = append(figures.Joins, j)
			// After each, since a later one may fail.
			if err := figures.write(out); err != nil {
				t.Fatal(err)
			}
		}
		slices.Reverse(order) // so that none is always the one that comes after another
	}
}

// startComparison builds kubeadm and its disk, and starts the lab.
func startComparison(t *testing.T) *compared {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	component, assets, err := kubeadmComponent()
	if err != nil {
		t.Fatal(err)
	}
	c := &compared{version: component.Version, image: filepath.Join(dir, "image.qcow2"), userData: map[string][]byte{}}
	if c.kubeadm, err = buildKubeadm(t.Context(), component, assets, dir, log); err != nil {
		t.Fatal(err)
	}
	baked, err := filepath.Abs(image(t))
	if err != nil {
		t.Fatal(err)
	}
	with, err := kubeadmDisk(t.Context(), baked, c.kubeadm, dir)
	if err != nil {
		t.Fatal(err)
	}
	c.disks = map[string]string{byHardtack: baked, byKubeadm: with}
	c.start(t, "compare")
	return c
}

// start starts the lab, with its master from Hardtack's disk.
func (c *compared) start(t *testing.T, name string) {
	t.Helper()
	c.boots(t, byHardtack)
	t.Setenv("HARDTACK_IMAGE", c.image)
	c.running = newLab(t, name, compareCluster)
	t.Cleanup(func() {
		if t.Failed() {
			c.lastWords(t)
		}
	})
}

// boots selects the disk of machines that are launched from now on, as a new launch template would.
func (c *compared) boots(t *testing.T, by string) {
	t.Helper()
	next := c.image + ".next"
	if err := os.Symlink(c.disks[by], next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, c.image); err != nil {
		t.Fatal(err)
	}
}

// lastWords shows the end of the journal of the newest machine, which tells why it has not joined.
func (c *compared) lastWords(t *testing.T) {
	t.Helper()
	s, err := c.Status(context.Background())
	if err != nil || len(s.Machines) == 0 {
		said, reading := os.ReadFile(c.home.Log())
		t.Logf("asking for the machines: %v; the lab's log ends with (%v):\n%s", err, reading, tail(string(said), consoleTail))
		return
	}
	m := s.Machines[len(s.Machines)-1]
	file, err := c.home.LogOf(m.ID, lab.JournalFile)
	if err != nil {
		t.Log(err)
		return
	}
	journal, err := os.ReadFile(file)
	t.Logf("%s (%s) %+v; its journal ends with (%v):\n%s", m.ID, m.Group, m.Reached, err, tail(string(journal), consoleTail))
}

// allowKubeadm prepares the cluster with kubeadm's own phases, as an administrator from outside, and makes the user
// data.
func (c *compared) allowKubeadm(t *testing.T) {
	t.Helper()
	kubeconfig, config := c.watch(t)
	c.token = newToken(t)
	c.phases(t, kubeconfig)
	c.announce(t, config.CAData)
	// Its pods would wait for the first machine, and start on that one alone.
	if out, err := c.kubectl(t, "scale", "deployment", "coredns", "--namespace", "kube-system", "--replicas", "0"); err != nil {
		t.Fatalf("scaling CoreDNS to nothing: %v: %s", err, out)
	}
	c.userData[byKubeadm] = c.joinData(t, config.CAData)
	data, err := completed(t, compareCluster).UserData("minions", config.CAData)
	if err != nil {
		t.Fatal(err)
	}
	c.userData[byHardtack], c.userData[bySealed] = data, data
}

// watch begins to watch the nodes, and returns the administrator's kubeconfig.
func (c *compared) watch(t *testing.T) ([]byte, *rest.Config) {
	t.Helper()
	kubeconfig, err := c.Kubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if c.nodes, err = watchNodes(t.Context(), rest.CopyConfig(config)); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, config
}

// newToken is a bootstrap token of kubeadm's form.
func newToken(t *testing.T) string {
	t.Helper()
	b := make([]byte, 11)
	_, _ = rand.Read(b) // never fails
	text := hex.EncodeToString(b)
	return text[:6] + "." + text[6:]
}

// phases runs the phases of `kubeadm init` that joining machines need.
func (c *compared) phases(t *testing.T, kubeconfig []byte) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/kubeadm/init.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, admin := filepath.Join(dir, "init.yaml"), filepath.Join(dir, "kubeconfig")
	for file, content := range map[string]string{
		config: strings.NewReplacer("VERSION", c.version, "TOKEN", c.token).Replace(string(text)), admin: string(kubeconfig),
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, phase := range []string{"upload-config kubeadm", "upload-config kubelet", "bootstrap-token"} {
		args := append([]string{"init", "phase"}, strings.Fields(phase)...)
		if _, err := run.Output(t.Context(), c.kubeadm, append(args, "--config", config, "--kubeconfig", admin)...); err != nil {
			t.Fatal(err)
		}
	}
}

// announce replaces the server in cluster-info: kubeadm wrote the forwarded address, which machines cannot reach.
func (c *compared) announce(t *testing.T, ca []byte) {
	t.Helper()
	cluster := map[string]any{"server": "https://masters.demo.k8s:443", "certificate-authority-data": ca}
	info, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "clusters": []any{map[string]any{"name": "", "cluster": cluster}},
	})
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"kubeconfig": string(info)}})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.kubectl(t, "patch", "configmap", "cluster-info", "--namespace", "kube-public", "--type", "merge", "--patch", string(patch)); err != nil {
		t.Fatalf("changing cluster-info: %v: %s", err, out)
	}
	// The controller manager signs it as soon as it has seen the token.
	c.until(t, "cluster-info is signed with the token", func(lab.Status) bool {
		out, err := c.kubectl(t, "get", "configmap", "cluster-info", "--namespace", "kube-public", "--output", "jsonpath={.data.jws-kubeconfig-"+c.token[:6]+"}")
		return err == nil && strings.Contains(out, "..")
	})
}

func (c *compared) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return c.run(t.Context(), append([]string{"lab", "kubectl", "--name", c.home.Name}, args...)...)
}

// joinData is the user data of a machine that kubeadm joins.
func (c *compared) joinData(t *testing.T, ca []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(ca)
	if block == nil {
		t.Fatal("the cluster's CA is no PEM")
	}
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pin := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	text, err := os.ReadFile("testdata/kubeadm/user-data")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("TOKEN"), []byte(c.token))
	return bytes.ReplaceAll(text, []byte("HASH"), []byte("sha256:"+hex.EncodeToString(pin[:])))
}

// join powers a machine on, waits until its Node is Ready, and terminates it.
func (c *compared) join(t *testing.T, by string, round int) join {
	t.Helper()
	m := c.launch(t, by)
	j := c.measure(t, by, m)
	j.Round = round
	c.leave(t, m)
	return j
}

// launch powers a machine on, and waits until its Node is Ready.
func (c *compared) launch(t *testing.T, by string) lab.MachineStatus {
	t.Helper()
	c.boots(t, by)
	// A machine that counts is slower than the time that a time server would set its clock to.
	counts := c.accel == qemu.Instructions
	fault := lab.Fault{Accel: c.accel, NoTime: counts}
	if by == byKubeadm {
		fault.UserData = c.userData[by]
	}
	if err := c.SetFault(t.Context(), "minions", fault); err != nil {
		t.Fatal(err)
	}
	before := len(mustStatus(t, c.running).Machines)
	if err := c.Scale(t.Context(), "minions", 1); err != nil {
		t.Fatal(err)
	}
	var m lab.MachineStatus
	c.until(t, by+" has a machine whose kernel runs", func(s lab.Status) bool {
		if len(s.Machines) <= before {
			return false
		}
		m = s.Machines[before]
		c.nodes.expect(m.Name, m.PID)
		return slices.ContainsFunc(m.Reached, func(r lab.Reached) bool { return r.Phase == timeline.PhaseKernel })
	})
	if counts {
		c.ask(t, m.ID, "setsid bash -c '"+idling+"' < /dev/null > /dev/null 2>&1 &")
	}
	c.until(t, by+" has joined a machine, whose Node is Ready", func(s lab.Status) bool {
		m = s.Machines[before]
		return !c.nodes.node(m.Name).ready.IsZero()
	})
	return m
}

// measure takes a machine's figures.
func (c *compared) measure(t *testing.T, by string, m lab.MachineStatus) join {
	t.Helper()
	text := c.ask(t, m.ID, "echo tasks=$(sed -n 's/^processes //p' /proc/stat); "+
		"systemctl show --no-pager --property=Id,LoadState,ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic,InactiveExitTimestampMonotonic "+
		"hardtack-userdata.service hardtack-bootstrap.service kubeadm-join.service kubelet.service")
	head, shown, _ := strings.Cut(strings.TrimSpace(text), "\n")
	units, err := parseShow(shown)
	if err != nil {
		t.Fatal(err)
	}
	owners, err := parseOwners(c.ask(t, m.ID, "systemctl show --no-pager --property=Id,CPUUsageNSec '*.service' init.scope"))
	if err != nil {
		t.Errorf("%s: who used the processors: %v", by, err)
	}
	seen := c.nodes.node(m.Name)
	if seen.kubelet != c.version {
		t.Errorf("%s: the kubelet is of version %q, and kubeadm of %q: what is compared is not of one module", by, seen.kubelet, c.version)
	}
	if seen.err != nil {
		t.Errorf("%s: the machine's processor time: %v", by, seen.err)
	}
	if c.accel == qemu.Instructions {
		j := c.counted(t, by, m, units)
		j.Owners = owners
		return j
	}
	j := join{By: by, Owners: owners, CPU: seen.cpu.Seconds(), Registered: seen.registered.Sub(m.PoweredOn).Seconds(), Ready: seen.ready.Sub(m.PoweredOn).Seconds()}
	if j.Tasks, err = strconv.Atoi(strings.TrimPrefix(head, "tasks=")); err != nil {
		t.Errorf("%s: the number of tasks: %v", by, err)
	}
	for _, r := range m.Reached {
		if r.Phase == timeline.PhaseKernel {
			j.Kernel = r.Seconds
		}
	}
	j.steps(t, units)
	if j.Kernel <= 0 {
		t.Errorf("%s: no kernel: %+v", by, m.Reached)
	}
	return j
}

// steps takes the times of the way to a node from the machine's units.
func (j *join) steps(t *testing.T, units map[string]Unit) {
	t.Helper()
	after := func(d time.Duration) float64 { return j.Kernel + d.Seconds() }
	j.Files, j.Kubelet = after(units["hardtack-userdata.service"].Exited), after(units["kubelet.service"].Started)
	j.Joining = after(units["hardtack-bootstrap.service"].Exited)
	if j.By == byKubeadm {
		j.Joining = after(units["kubeadm-join.service"].Started)
	}
	if j.Files <= j.Kernel || j.Joining < j.Files || j.Kubelet < j.Joining || j.Registered < j.Kubelet || j.Ready < j.Registered {
		t.Errorf("%s: times that do not follow each other: %+v; units: %+v", j.By, j, units)
	}
}

// leave terminates a machine and waits until nothing is left of it that could affect the next one.
func (c *compared) leave(t *testing.T, m lab.MachineStatus) {
	t.Helper()
	if err := c.Scale(t.Context(), "minions", 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if out, err := c.kubectl(t, "delete", "node", m.Name, "--ignore-not-found"); err != nil {
		t.Fatalf("deleting the node: %v: %s", err, out)
	}
	c.until(t, fmt.Sprintf("%s and its Node are gone", m.ID), func(s lab.Status) bool {
		old, err := s.Find(m.ID)
		return err == nil && old.Power == "off" && len(s.Nodes) == 0
	})
}
