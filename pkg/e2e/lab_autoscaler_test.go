package e2e

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// labAutoscalerImage is the image that the document names: the nodes pull it from the lab's registry.
const labAutoscalerImage = "registry.k8s.io/autoscaling/cluster-autoscaler:lab"

// autoscaledCluster has minions that scale. Its tokens' issuer is a bucket of the lab's region.
const autoscaledCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], size: 1}
- {name: minions, roles: [minions], size: 1, cpus: 2, memory: 3072, aws: {max: 3}}
etcd: {storage: machine, backup: {to: none}}
serviceAccounts: {issuer: "https://demo-tokens.s3.us-west-2.amazonaws.com"}
addons: [cluster-autoscaler]
addonImages: {cluster-autoscaler: "` + labAutoscalerImage + `"}
fileAssets:
- path: /etc/containerd/certs.d/_default/hosts.toml
  roles: [minions]
  content: |
    %s
`

// autoscaledPods want more processors than one minion has: two of big take one each. Those of web are small, on two nodes where there are
// two, and have a budget.
const autoscaledPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: big}
spec:
  replicas: 2
  selector: {matchLabels: {app: big}}
  template:
    metadata: {labels: {app: big}}
    spec:
      containers: [{name: hello, image: "hardtack.local/hello:1", imagePullPolicy: Never, args: [serve], resources: {requests: {cpu: 1100m}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}}]}}
      containers: [{name: hello, image: "hardtack.local/hello:1", imagePullPolicy: Never, args: [serve], readinessProbe: {httpGet: {path: /, port: 8080}}}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
`

// TestLabAutoscaler runs upstream's cluster-autoscaler as the add-on that the document turns on, in a pod of a lab: it takes its role by its
// token, a pod without room becomes a machine that boots, and a machine that is not needed is emptied and ends.
func TestLabAutoscaler(t *testing.T) {
	needTime(t)
	program := autoscalerProgram(t)
	r := newLab(t, "autoscaler", fmt.Sprintf(autoscaledCluster, strings.ReplaceAll(strings.TrimSpace(lab.RegistryMirror()), "\n", "\n    ")))
	if _, err := r.Load(t.Context(), autoscalerArchive(t, program)); err != nil {
		t.Fatal(err)
	}
	first := living(r.until(t, "the cluster is ready", ready), "minions")[0]
	const scaler = "deployment/cluster-autoscaler"
	r.mustKubectl(t, "rollout", "status", "--namespace=kube-system", scaler, "--timeout=15m")
	t.Cleanup(func() {
		if t.Failed() {
			out, err := r.kubectl(context.Background(), "logs", "--namespace=kube-system", scaler, "--tail=100")
			t.Logf("cluster-autoscaler: %v\n%s", err, out)
		}
	})

	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte(autoscaledPods), 0o600); err != nil {
		t.Fatal(err)
	}
	r.mustKubectl(t, "apply", "-f", file)
	now := r.until(t, "a pod without room has a machine", func(s lab.Status) bool {
		return ready(s) && group(s, "minions").Desired == 2 && group(s, "minions").InService == 2
	})
	i := slices.IndexFunc(living(now, "minions"), func(m lab.MachineStatus) bool { return m.ID != first.ID })
	second := living(now, "minions")[i]
	r.mustKubectl(t, "rollout", "status", "deployment/big", "--timeout=10m")
	events := r.mustKubectl(t, "get", "events", "--field-selector=reason=TriggeredScaleUp", "-o", "jsonpath={.items[*].message}")
	if !strings.Contains(events, "demo-minions 1->2 (max: 3)") {
		t.Errorf("the pods were told %q", events)
	}

	// On the new machine are pods with a budget, and no others when big has a pod less.
	r.mustKubectl(t, "rollout", "restart", "deployment/web")
	r.mustKubectl(t, "rollout", "status", "deployment/web", "--timeout=10m")
	if len(r.podsOn(t, second.Name, "web")) == 0 {
		t.Fatal("on the new machine is no pod of web")
	}
	for _, pod := range r.podsOn(t, second.Name, "big") {
		r.mustKubectl(t, "annotate", "pod", pod, "controller.kubernetes.io/pod-deletion-cost=-100")
	}
	r.mustKubectl(t, "scale", "deployment/big", "--replicas=1")
	var states []string
	now = r.until(t, "the machine that is not needed is gone", func(s lab.Status) bool {
		for _, m := range s.Machines {
			if m.ID == second.ID && !slices.Contains(states, m.Lifecycle) {
				states = append(states, m.Lifecycle)
			}
		}
		return ready(s) && group(s, "minions").Desired == 1 && len(living(s, "minions")) == 1
	})
	if living(now, "minions")[0].ID != first.ID {
		t.Errorf("the first machine has ended, not %s", second.ID)
	}
	if !slices.Contains(states, "Terminating:Wait") {
		t.Errorf("the machine went through the states %v without a wait for its pods", states)
	}
	r.mustKubectl(t, "rollout", "status", "deployment/web", "--timeout=10m")
	if on := r.podsOn(t, first.Name, "web"); len(on) != 2 {
		t.Errorf("on the first machine are the pods %v of web", on)
	}
	said := r.mustKubectl(t, "logs", "--namespace=kube-system", scaler)
	for line := range strings.Lines(said) {
		for _, bad := range []string{"AccessDenied", "UnauthorizedOperation", "is forbidden"} {
			if strings.Contains(line, bad) {
				t.Errorf("cluster-autoscaler: %s", line)
			}
		}
	}
}

// group is a group by its name.
func group(s lab.Status, name string) lab.GroupStatus {
	for _, g := range s.Groups {
		if g.Name == name {
			return g
		}
	}
	return lab.GroupStatus{}
}

// podsOn are the names of an application's pods on a node.
func (r *running) podsOn(t *testing.T, node, app string) []string {
	t.Helper()
	return strings.Fields(r.mustKubectl(t, "get", "pods", "-l", "app="+app, "--field-selector=status.phase=Running,spec.nodeName="+node,
		"-o", `go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}} {{end}}{{end}}`))
}

// autoscalerArchive is an archive of the add-on's image: upstream's program, and what starts it with the lab's addresses of AWS.
func autoscalerArchive(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	address, _, err := net.SplitHostPort(lab.RegistryHost()) // where the APIs are too
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + address
	conf, start := filepath.Join(dir, "cloud.conf"), filepath.Join(dir, "start")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", start, "./testdata/autoscaler")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building what starts the autoscaler: %v: %s", err, out)
	}
	if err := os.WriteFile(conf, []byte(cloudConf(endpoint)), 0o644); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromFile(tarOf(t, dir, map[string]string{"upstream": program, "cluster-autoscaler": start, "cloud.conf": conf}))
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	// The SDK asks STS before it has read the general variable.
	config.Config = v1.Config{WorkingDir: "/", Env: []string{"AWS_ENDPOINT_URL=" + endpoint, "AWS_ENDPOINT_URL_STS=" + endpoint,
		"LAB_ARGUMENTS=--cloud-config=/cloud.conf --scan-interval=15s --scale-down-delay-after-add=30s --scale-down-unneeded-time=30s"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(labAutoscalerImage)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "image.tar")
	if err := tarball.WriteToFile(archive, tag, image); err != nil {
		t.Fatal(err)
	}
	return archive
}

// tarOf writes files, by their names there, into a tar archive in dir. All may be run.
func tarOf(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	to := filepath.Join(dir, "layer.tar")
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for name, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return to
}
