package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// ingressCluster is a cluster with a group of a role that Hardtack does not know.
const ingressCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], size: 1}
- {name: minions, roles: [minions], size: 1}
- {name: edge, roles: [ingress], size: 1}
etcd: {storage: machine, backup: {to: none}}
`

// behind is what HAProxy sends requests to.
const behind = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: web, image: "hardtack.local/hello:1", imagePullPolicy: Never, args: [serve]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
`

// ingressImage bakes images/example/ingress, or takes the disk that HARDTACK_INGRESS_IMAGE names.
func ingressImage(t *testing.T) string {
	t.Helper()
	if disk := os.Getenv("HARDTACK_INGRESS_IMAGE"); disk != "" {
		return disk
	}
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), needPacker(t), "build", "-color=false", "-force", "-var", "output="+out, "images/example/ingress/ingress.pkr.hcl")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("baking the example: %v: %s", err, text)
	}
	return filepath.Join(out, "ingress.qcow2")
}

// TestIngress boots the example with a role of its own beside a control plane and a minion: the role has its unit and its record, HTTP
// goes through it to a pod, and the minion's exporter is scraped.
func TestIngress(t *testing.T) {
	needTime(t)
	x := startLab(t, "ingress", ingressCluster, "--detach", "--image", ingressImage(t))
	s := x.until(t, "the cluster is ready", ready)
	machines := map[string]lab.MachineStatus{}
	for _, m := range s.Machines {
		machines[m.Group] = m
	}
	master, minion, edge := machines["masters"], machines["minions"], machines["edge"]

	const unitsOfOwn = "haproxy.service prometheus-node-exporter.service"
	for group, want := range map[string]string{"masters": "inactive inactive", "minions": "inactive active", "edge": "active inactive"} {
		if got := strings.Join(strings.Fields(x.ask(t, machines[group].ID, "systemctl is-active "+unitsOfOwn)), " "); got != want {
			t.Errorf("%s: %s are %s, want %s", group, unitsOfOwn, got, want)
		}
	}
	for _, m := range []lab.MachineStatus{master, minion} {
		if got := x.resolves(t, m.ID, "ingress.demo.k8s"); !slices.Equal(got, []string{edge.Address.String()}) {
			t.Errorf("%s: ingress.demo.k8s is %v, want %s", m.Group, got, edge.Address)
		}
	}
	if got := x.get(t, master.ID, "ingress.demo.k8s", 80, "/healthz"); !strings.Contains(got, " 200 ") {
		t.Errorf("HAProxy says of itself %q", got)
	}
	if got := x.get(t, master.ID, "ingress.demo.k8s", 80, "/"); !strings.Contains(got, " 503 ") {
		t.Errorf("before there is a pod, HAProxy answers %q", got)
	}
	if got := x.get(t, edge.ID, minion.Address.String(), 9100, "/metrics"); !strings.Contains(got, "node_memory_MemTotal_bytes") {
		t.Errorf("the node exporter says %.300q", got)
	}
	if got := x.get(t, minion.ID, "ingress.demo.k8s", 8405, "/metrics"); !strings.Contains(got, `haproxy_backend_servers_total`) && !strings.Contains(got, "haproxy_process_") {
		t.Errorf("HAProxy's metrics are %.300q", got)
	}

	file := filepath.Join(t.TempDir(), "behind.yaml")
	if err := os.WriteFile(file, []byte(behind), 0o600); err != nil {
		t.Fatal(err)
	}
	x.mustKubectl(t, "apply", "-f", file)
	x.mustKubectl(t, "wait", "--for=condition=Ready", "pod/web", "--timeout=10m")
	last := ""
	x.until(t, "HTTP goes through HAProxy to the pod", func(lab.Status) bool {
		last = x.get(t, master.ID, "ingress.demo.k8s", 80, "/")
		return strings.Contains(last, " 200 ")
	})
	t.Logf("through HAProxy: %q", last)
}

// get asks by HTTP from a machine, which has no program for that, and returns the whole answer.
func (r *running) get(t *testing.T, id, host string, port int, path string) string {
	t.Helper()
	return r.ask(t, id, fmt.Sprintf(`timeout 20 bash -c 'exec 3<>/dev/tcp/%s/%d; printf "GET %s HTTP/1.0\r\n\r\n" >&3; cat <&3' 2>&1`, host, port, path))
}
