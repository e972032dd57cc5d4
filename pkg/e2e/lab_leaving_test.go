package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// leavingCluster has minions that are replaced, and one that is not: the client's.
const leavingCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], size: 1}
- {name: minions, roles: [minions], size: 2}
- {name: clients, roles: [minions], size: 1}
etcd: {storage: machine, backup: {to: none}}
`

// shop is an application as its users are told to write it: a budget, a probe, and pods that answer until nobody asks them any
// more. Its client is a pod of another node. %s is that node's name.
const shop = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 60
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [%[1]q]}]}]}}}
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: shop}}}]
      containers:
      - name: shop
        image: hardtack.local/hello:1
        imagePullPolicy: Never
        args: [serve]
        readinessProbe: {httpGet: {path: /, port: 8080}}
        lifecycle: {preStop: {sleep: {seconds: 20}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: shop}
spec: {minAvailable: 2, selector: {matchLabels: {app: shop}}}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeName: %[1]s
  containers: [{name: client, image: "hardtack.local/hello:1", imagePullPolicy: Never, args: [serve]}]
`

// TestLabLeaving replaces every minion under an application with a budget, by a refresh as AutoScaling does it, while a client asks
// its Service all the time: no request fails, and never fewer pods than the budget wants are ready. Then a minion loses its power:
// requests may fail until Kubernetes has seen that, and none afterwards.
func TestLabLeaving(t *testing.T) {
	needTime(t)
	r := newLab(t, "leaving", leavingCluster)
	s := r.until(t, "the cluster is ready", ready)
	clients, err := s.Find("clients")
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.Kubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := &leavers{running: r, admin: newClient(t, text)}
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, shop, clients.Name), 0o600); err != nil {
		t.Fatal(err)
	}
	x.mustKubectl(t, "apply", "-f", file)
	x.mustKubectl(t, "rollout", "status", "deployment/shop", "--timeout=15m")
	x.mustKubectl(t, "wait", "--for=condition=Ready", "pod/client", "--timeout=10m")
	x.service = x.mustKubectl(t, "get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}")

	stop := x.asks(t)
	t.Run("a refresh of all minions", x.refreshed)
	asked := stop()
	if failed := failures(asked); len(failed) > 0 {
		t.Errorf("of %d requests during the refresh %d failed: %v", len(asked), len(failed), failed)
	}
	if len(asked) < 30 {
		t.Errorf("the client asked %d times only", len(asked))
	}
	for _, a := range asked {
		if a.ready >= 0 && a.ready < 2 {
			t.Errorf("at %s %d pods were ready, and the budget wants 2", a.at.Format(time.TimeOnly), a.ready)
		}
	}
	t.Logf("refresh: %d requests, %d failed", len(asked), len(failures(asked)))
	if t.Failed() {
		return
	}

	stop = x.asks(t)
	t.Run("a pulled plug", x.unplugged)
	asked = stop()
	failed := failures(asked)
	t.Logf("pulled plug: %d requests, %d failed: %v", len(asked), len(failed), failed)
	for _, a := range failed {
		if !x.seen.IsZero() && a.at.After(x.seen.Add(settled)) {
			t.Errorf("at %s a request failed, and the Service had lost the dead pods at %s: %v", a.at.Format(time.TimeOnly), x.seen.Format(time.TimeOnly), a.err)
		}
	}
}

// settled is how long a node may take to have the rules of a Service that has changed, on a busy emulated machine.
const settled = 20 * time.Second

// leavers is a lab whose minions are replaced under an application.
type leavers struct {
	*running
	admin   *cluster
	service string
	// seen is when the Service had no address of the dead machine any more.
	seen time.Time
}

// visit is one request of the client.
type visit struct {
	at time.Time
	// ready is how many pods the Deployment had ready just before, -1 if the API did not say.
	ready int
	err   error
}

func (a visit) String() string { return fmt.Sprintf("%s: %v", a.at.Format(time.TimeOnly), a.err) }

func failures(all []visit) []visit {
	return slices.DeleteFunc(slices.Clone(all), func(a visit) bool { return a.err == nil })
}

func (x *running) mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := x.kubectl(t.Context(), args...)
	if err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, out)
	}
	return out
}

// asks has the client ask the Service all the time. The returned function ends it, and returns what came of each request.
func (x *leavers) asks(t *testing.T) (stop func() []visit) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	var all []visit
	done.Go(func() {
		for ctx.Err() == nil {
			a := visit{at: time.Now(), ready: -1}
			if out, err := x.kubectl(t.Context(), "get", "deployment", "shop", "-o", "jsonpath={.status.readyReplicas}"); err == nil {
				a.ready, _ = strconv.Atoi(out)
			}
			out, err := x.admin.exec(t.Context(), "client", "/hello", "fetch", "http://"+x.service)
			if err != nil && !strings.Contains(err.Error(), "exit code") {
				// The way to the client's pod, by the API server, was broken: the client itself was not asked, or did not get to say.
				t.Logf("%s: the client was not reached: %v", a.at.Format(time.TimeOnly), err)
				time.Sleep(time.Second)
				continue
			}
			if a.err = err; err == nil && !strings.Contains(out, "hello from") {
				a.err = fmt.Errorf("it prints %q", out)
			}
			all = append(all, a)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	t.Cleanup(cancel)
	return func() []visit {
		cancel()
		done.Wait()
		return all
	}
}

// refreshed has AutoScaling replace all machines of the group, with new ones before the old ones go.
func (x *leavers) refreshed(t *testing.T) {
	region, err := x.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	groups := autoscaling.New(autoscaling.Options{Region: region.Region, BaseEndpoint: &region.Endpoint, Credentials: credentials.NewStaticCredentialsProvider(region.AccessKey, region.Secret, "")})
	described, err := groups.DescribeAutoScalingGroups(t.Context(), &autoscaling.DescribeAutoScalingGroupsInput{})
	if err != nil {
		t.Fatal(err)
	}
	var group string
	for _, g := range described.AutoScalingGroups {
		if strings.HasSuffix(aws.ToString(g.AutoScalingGroupName), "minions") {
			group = aws.ToString(g.AutoScalingGroupName)
		}
	}
	was := map[string]bool{}
	for _, m := range living(mustStatus(t, x.running), "minions") {
		was[m.ID] = true
	}
	_, err = groups.StartInstanceRefresh(t.Context(), &autoscaling.StartInstanceRefreshInput{AutoScalingGroupName: &group,
		Preferences: &types.RefreshPreferences{MinHealthyPercentage: aws.Int32(100), MaxHealthyPercentage: aws.Int32(150), SkipMatching: aws.Bool(false)}})
	if err != nil {
		t.Fatal(err)
	}
	x.until(t, "every minion is another machine", func(s lab.Status) bool {
		now := living(s, "minions")
		return s.Ready && len(now) == 2 && !slices.ContainsFunc(now, func(m lab.MachineStatus) bool { return was[m.ID] })
	})
	refreshes, err := groups.DescribeInstanceRefreshes(t.Context(), &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: &group})
	if err != nil {
		t.Fatal(err)
	}
	if status := refreshes.InstanceRefreshes[0].Status; status != types.InstanceRefreshStatusSuccessful && status != types.InstanceRefreshStatusInProgress {
		t.Errorf("the refresh is %s: %s", status, aws.ToString(refreshes.InstanceRefreshes[0].StatusReason))
	}
	x.mustKubectl(t, "rollout", "status", "deployment/shop", "--timeout=15m")
}

// unplugged takes the power of a machine that has a pod of the application.
func (x *leavers) unplugged(t *testing.T) {
	node := strings.Fields(x.mustKubectl(t, "get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].spec.nodeName}"))[0]
	dead := strings.Fields(x.mustKubectl(t, "get", "pods", "-l", "app=shop", "--field-selector=spec.nodeName="+node, "-o", "jsonpath={.items[*].status.podIP}"))
	machines := mustStatus(t, x.running).Machines
	at := slices.IndexFunc(machines, func(m lab.MachineStatus) bool { return m.Name == node })
	if at < 0 {
		t.Fatalf("no machine is called %s", node)
	}
	if out, err := x.run(t.Context(), "lab", "kill", "--name", x.home.Name, machines[at].ID); err != nil {
		t.Fatalf("lab kill: %v: %s", err, out)
	}
	x.until(t, "the Service has no address of the dead machine", func(lab.Status) bool {
		out, err := x.kubectl(t.Context(), "get", "endpointslices", "-l", "kubernetes.io/service-name=shop", "-o", "jsonpath={range .items[*].endpoints[?(@.conditions.ready==true)]}{.addresses[0]} {end}")
		gone := err == nil && !slices.ContainsFunc(strings.Fields(out), func(ip string) bool { return slices.Contains(dead, ip) })
		if gone {
			x.seen = time.Now()
		} else {
			time.Sleep(time.Second)
		}
		return gone
	})
	x.until(t, "the group has another machine", func(s lab.Status) bool { return s.Ready && len(living(s, "minions")) == 2 })
	x.mustKubectl(t, "rollout", "status", "deployment/shop", "--timeout=15m")
}
