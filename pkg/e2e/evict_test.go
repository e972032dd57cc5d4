package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var (
	podsOfCluster  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodesOfCluster = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// leaving is a cluster of three nodes, the AutoScaling group of their machines, and pods that a pretended scheduler places and
// a pretended kubelet runs.
type leaving struct {
	*testing.T
	*plane
	account *awsfake.Account
	api     *autoscaling.Client
	// machines are the IDs of the nodes' machines, by the nodes' names.
	machines map[string]string
	logs     map[string]*bytes.Buffer
	// ahead is how far the evictors' clock is ahead.
	ahead time.Duration
}

const evictionGroup = "demo-minions"

func newLeaving(t *testing.T, hook time.Duration) *leaving {
	t.Helper()
	l := &leaving{T: t, plane: newPlane(t), account: awsfake.New(awsfake.Options{}), machines: map[string]string{}, logs: map[string]*bytes.Buffer{}}
	server := httptest.NewServer(l.account.Handler())
	t.Cleanup(server.Close)
	l.api = autoscaling.New(autoscaling.Options{Region: "eu-central-1", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")})
	for _, g := range []awsfake.Group{
		{Name: "demo-masters", Max: 1, Desired: 1, Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "masters"}},
		{Name: evictionGroup, Max: 4, Desired: 3, Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "minions"}},
	} {
		if err := l.account.AutoScaling().Create(g); err != nil {
			t.Fatal(err)
		}
	}
	err := l.account.AutoScaling().PutHook(evictionGroup, awsfake.Hook{Name: role.EvictionHook, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: hook, Default: awsfake.Continue})
	if err != nil {
		t.Fatal(err)
	}
	l.account.Tick()
	for i, m := range l.account.AutoScaling().Instances(evictionGroup) {
		name := fmt.Sprintf("node-%d", i)
		l.machines[name] = m.ID
		l.kubectl(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"spec":{"providerID":"aws:///eu-central-1a/%s"}}`, name, m.ID), "apply", "-f", "-")
	}
	l.pretend()
	return l
}

// pretend schedules pods and runs them: a new one is Ready after a second, and one that ends is gone after half of one.
func (l *leaving) pretend() {
	ctx, stop := context.WithCancel(l.Context())
	done := make(chan struct{})
	l.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			nodes, err := l.objects.Resource(nodesOfCluster).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			pods, err := l.objects.Resource(podsOfCluster).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, p := range pods.Items {
				if err := l.kubelet(ctx, p, nodes.Items); err != nil && ctx.Err() == nil {
					l.Logf("pretending: %v", err)
				}
			}
		}
	}()
}

func (l *leaving) kubelet(ctx context.Context, p unstructured.Unstructured, nodes []unstructured.Unstructured) error {
	pods := l.objects.Resource(podsOfCluster).Namespace(p.GetNamespace())
	node, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
	switch {
	case p.GetDeletionTimestamp() != nil:
		if seconds := p.GetDeletionGracePeriodSeconds(); seconds != nil && time.Since(p.GetDeletionTimestamp().Add(-time.Duration(*seconds)*time.Second)) < 500*time.Millisecond {
			return nil
		}
		now, uid := int64(0), p.GetUID()
		return ignoreGone(pods.Delete(ctx, p.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}}))
	case node == "":
		for _, n := range nodes {
			if off, _, _ := unstructured.NestedBool(n.Object, "spec", "unschedulable"); off {
				continue
			}
			_, err := pods.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Binding", "metadata": map[string]any{"name": p.GetName()},
				"target": map[string]any{"apiVersion": "v1", "kind": "Node", "name": n.GetName()}}}, metav1.CreateOptions{}, "binding")
			return ignoreGone(err)
		}
		return nil
	case !counts(&p) && time.Since(p.GetCreationTimestamp().Time) > time.Second:
		const running = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
		_, err := pods.Patch(ctx, p.GetName(), types.StrategicMergePatchType, []byte(running), metav1.PatchOptions{}, "status")
		return ignoreGone(err)
	}
	return nil
}

func ignoreGone(err error) error {
	if err != nil && (strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "UID")) {
		return nil
	}
	return err
}

// counts reports whether a disruption budget counts the pod.
func counts(p *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
	return p.GetDeletionTimestamp() == nil && slices.ContainsFunc(conditions, func(c any) bool {
		of, _ := c.(map[string]any)
		return of["type"] == "Ready" && of["status"] == "True"
	})
}

// application makes a Deployment of three with a budget, all on one node, and waits until it works.
func (l *leaving) application(name, node string, least int) {
	l.Helper()
	for other := range l.machines {
		if other != node {
			l.kubectl(l.T, "", "cordon", other)
		}
	}
	l.kubectl(l.T, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 3
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: x, image: x}], automountServiceAccountToken: false}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: %[1]s}
spec: {minAvailable: %[2]d, selector: {matchLabels: {app: %[1]s}}}
`, name, least), "apply", "-f", "-")
	l.until(time.Minute, "the application works", func() bool {
		return l.kubectl(l.T, "", "get", "pdb", name, "-o", "jsonpath={.status.currentHealthy}") == "3"
	})
	for other := range l.machines {
		if other != node {
			l.kubectl(l.T, "", "uncordon", other)
		}
	}
}

// pod makes a pod on a node that a controller of that kind makes, "" for none.
func (l *leaving) pod(name, node, kind string, annotations string) {
	l.Helper()
	owner := ""
	if kind != "" {
		owner = fmt.Sprintf(`ownerReferences: [{apiVersion: apps/v1, kind: %s, name: x, uid: "00000000-0000-0000-0000-000000000001", controller: true}],`, kind)
	}
	l.kubectl(l.T, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, %s annotations: {%s}}
spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: x, image: x}]}
`, name, owner, annotations, node), "apply", "-f", "-")
}

// evictor returns the evictor of a master, with the rights that it has there.
func (l *leaving) evictor(master string) *evict.Evictor {
	l.write(l.T, "controller.kubeconfig", l.kubeconfig(planeController))
	log := &bytes.Buffer{}
	l.logs[master] = log
	return &evict.Evictor{
		Cluster:  &kube.Evictor{File: kube.NewFile(l.dir + "/controller.kubeconfig"), Holder: master},
		Machines: &fleet.Evictions{API: l.api, Cluster: "demo"},
		Now:      func() time.Time { return time.Now().Add(l.ahead) }, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
}

// steps lets masters take steps until that is so.
func (l *leaving) steps(within time.Duration, what string, so func() bool, masters ...*evict.Evictor) {
	l.Helper()
	l.until(within, what, func() bool {
		for _, m := range masters {
			if _, err := m.Step(l.Context()); err != nil {
				l.Fatalf("%s: a step: %v", what, err)
			}
		}
		return so()
	})
}

func (l *leaving) until(within time.Duration, what string, so func() bool) {
	l.Helper()
	if pending := eventually(within, func() []string {
		if so() {
			return nil
		}
		return []string{what}
	}); len(pending) > 0 {
		for master, log := range l.logs {
			l.Logf("master %s:\n%s", master, log)
		}
		l.Fatalf("not within %v: %s\n%s", within, what, l.kubectl(l.T, "", "get", "nodes,pods,pdb,events", "-A", "-o", "wide"))
	}
}

// on returns the pods of a node.
func (l *leaving) on(node string) []string {
	return strings.Fields(l.kubectl(l.T, "", "get", "pods", "--field-selector=spec.nodeName="+node, "-o", "jsonpath={.items[*].metadata.name}"))
}

func (l *leaving) state(node string) string {
	for _, i := range l.account.AutoScaling().Instances(evictionGroup) {
		if i.ID == l.machines[node] {
			return i.State
		}
	}
	return "gone"
}

func (l *leaving) ends(node string) {
	l.Helper()
	if err := l.account.AutoScaling().Terminate(l.machines[node], false); err != nil {
		l.Fatal(err)
	}
	l.account.Tick()
	if l.state(node) != "Terminating:Wait" {
		l.Fatalf("machine %s is %s", l.machines[node], l.state(node))
	}
}

func (l *leaving) events(node string) string {
	return l.kubectl(l.T, "", "get", "events", "--field-selector=involvedObject.kind=Node,involvedObject.name="+node, "-o", `jsonpath={range .items[*]}{.type} {.reason} {.message}{"\n"}{end}`)
}

// least watches an application as a client does, and returns a function that returns the fewest Ready pods that it has had.
func (l *leaving) least(app string) func() int {
	l.Helper()
	options := metav1.ListOptions{LabelSelector: "app=" + app}
	pods := l.objects.Resource(podsOfCluster).Namespace("default")
	have, err := pods.List(l.Context(), options)
	if err != nil {
		l.Fatal(err)
	}
	works := map[types.UID]bool{}
	for _, p := range have.Items {
		works[p.GetUID()] = counts(&p)
	}
	options.ResourceVersion = have.GetResourceVersion()
	w, err := pods.Watch(l.Context(), options)
	if err != nil {
		l.Fatal(err)
	}
	var mu sync.Mutex
	fewest, events := len(works), 0
	go func() {
		for e := range w.ResultChan() {
			p, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			mu.Lock()
			events++
			works[p.GetUID()] = e.Type != watch.Deleted && counts(p)
			now := 0
			for _, one := range works {
				if one {
					now++
				}
			}
			fewest = min(fewest, now)
			mu.Unlock()
		}
	}()
	l.Cleanup(w.Stop)
	return func() int {
		time.Sleep(time.Second) // the watch's last events
		mu.Lock()
		defer mu.Unlock()
		if events == 0 {
			l.Fatal("the watch has seen nothing")
		}
		return fewest
	}
}

// completed is how often the completion of a hook was asked for, with or without success.
func (l *leaving) completed() int { return l.account.Calls()["autoscaling:CompleteLifecycleAction"] }

// TestEvict ends machines of a cluster with a real API server and a real disruption controller.
func TestEvict(t *testing.T) {
	l := newLeaving(t, 900*time.Second)
	a, b := l.evictor("a"), l.evictor("b")

	// Pods move, the budget holds, and what a machine keeps stays.
	l.application("web", "node-0", 2)
	l.pod("daemon", "node-0", "DaemonSet", "")
	l.pod("static", "node-0", "", `kubernetes.io/config.mirror: x, kubernetes.io/config.source: file, kubernetes.io/config.hash: x`)
	l.pod("alone", "node-0", "", "")
	fewest := l.least("web")
	l.steps(time.Second, "nothing is to do", func() bool { return true }, a, b)
	l.ends("node-0")
	l.steps(time.Minute, "the machine ends", func() bool { return l.state("node-0") == "gone" }, a, b)
	if n := fewest(); n != 2 {
		t.Errorf("the application had %d pods of the 2 that its budget keeps", n)
	}
	if left := l.on("node-0"); !slices.Equal(left, []string{"daemon", "static"}) {
		t.Errorf("node-0 ends with %v", left)
	}
	if n := l.completed(); n != 1 {
		t.Errorf("the hook was completed %d times", n)
	}
	if n := l.account.Calls()["autoscaling:RecordLifecycleActionHeartbeat"]; n != 1 {
		t.Errorf("%d heartbeats", n)
	}
	if events := l.events("node-0"); !strings.Contains(events, "Normal Evicted all pods have left") || strings.Contains(events, "EvictionIncomplete") {
		t.Errorf("events:\n%s", events)
	}
	if log := l.logs["a"].String() + l.logs["b"].String(); !strings.Contains(log, "pod=default/alone") {
		t.Errorf("the log does not name the pod that nothing makes anew:\n%s", log)
	}
	l.kubectl(t, "", "delete", "node", "node-0")
	delete(l.machines, "node-0")
	l.kubectl(t, "", "delete", "deployment,pdb", "web", "--wait=false")
	l.kubectl(t, "", "delete", "pods", "--all", "--force", "--grace-period=0")

	// A budget that allows nothing: it is said, and the master that said it stops.
	l.application("db", "node-1", 3)
	fewest = l.least("db")
	l.ends("node-1")
	const blocked = "Warning EvictionBlocked 3 pods cannot be evicted now"
	l.steps(time.Minute, "it is reported", func() bool { return strings.Contains(l.events("node-1"), blocked) }, a)
	if events := l.events("node-1"); !strings.Contains(events, "default/db-") || !strings.Contains(events, "The disruption budget db needs 3 healthy pods and has 3 currently") {
		t.Errorf("events:\n%s", events)
	}
	if !strings.Contains(l.logs["a"].String(), "a pod cannot be evicted now") {
		t.Errorf("the log:\n%s", l.logs["a"])
	}
	l.kubectl(t, "", "patch", "pdb", "db", "--type=merge", "-p", `{"spec":{"minAvailable":2}}`)
	l.until(time.Minute, "the budget allows one", func() bool {
		return l.kubectl(t, "", "get", "pdb", "db", "-o", "jsonpath={.status.disruptionsAllowed}") == "1"
	})
	// Not while the first master may still be at it.
	if _, err := b.Step(t.Context()); err != nil || len(l.on("node-1")) != 3 {
		t.Errorf("the second master does not wait: %v, %v", err, l.on("node-1"))
	}
	l.steps(evict.LeaseLife+time.Minute, "the second master goes on", func() bool { return l.state("node-1") == "gone" }, b)
	if n := fewest(); n != 2 {
		t.Errorf("the application had %d pods of the 2 that its budget keeps", n)
	}
	if n := l.completed(); n != 2 || l.account.Calls()["autoscaling:RecordLifecycleActionHeartbeat"] != 2 {
		t.Errorf("the hook was completed %d times, after %d heartbeats", n-1, l.account.Calls()["autoscaling:RecordLifecycleActionHeartbeat"]-1)
	}
	if left := l.on("node-1"); len(left) > 0 {
		t.Errorf("node-1 ends with %v", left)
	}
	l.kubectl(t, "", "delete", "node", "node-1")
	delete(l.machines, "node-1")

	// A budget that allows nothing until the hook's time is over.
	l.kubectl(t, "", "patch", "pdb", "db", "--type=merge", "-p", `{"spec":{"minAvailable":3}}`)
	l.until(time.Minute, "the budget allows none", func() bool {
		return l.kubectl(t, "", "get", "pdb", "db", "-o", "jsonpath={.status.currentHealthy} {.status.disruptionsAllowed} {.status.desiredHealthy}") == "3 0 3"
	})
	l.ends("node-2")
	l.steps(time.Minute, "it is reported", func() bool { return strings.Contains(l.events("node-2"), blocked) }, b)
	l.ahead = 900*time.Second - 45*time.Second
	if _, err := b.Step(t.Context()); err != nil || l.state("node-2") != "Terminating:Wait" {
		t.Errorf("before its time is over the machine is %s, %v", l.state("node-2"), err)
	}
	l.ahead = 900*time.Second - 15*time.Second
	l.steps(time.Second, "the machine ends with its pods", func() bool { return l.state("node-2") == "gone" }, b)
	// Those of the budget have not left, and others may not have ended yet.
	if events := l.events("node-2"); !regexp.MustCompile("Warning EvictionIncomplete machine " + l.machines["node-2"] + ` ends with \d+ pods that have not left in its time: default/db-`).MatchString(events) {
		t.Errorf("events:\n%s", events)
	}
	l.until(time.Minute, "the budget's pods are left", func() bool { return len(l.on("node-2")) == 3 })
	if l.completed() != 3 {
		t.Errorf("node-2 has %v, and hooks were completed %d times", l.on("node-2"), l.completed())
	}
	l.ahead = 0
	l.stays(b)
}

// stays has nodes that are marked for machines that do not end: what we cordoned is uncordoned, and nothing else.
func (l *leaving) stays(e *evict.Evictor) {
	l.Helper()
	for i, m := range l.account.AutoScaling().Instances(evictionGroup)[:3] {
		ours := []string{"true", "false", ""}[i]
		name := "again-" + []string{"ours", "theirs", "unmarked"}[i]
		mark := ""
		if ours != "" {
			mark = fmt.Sprintf(`,"annotations":{%q:"{\"instance\":\"%s\",\"since\":\"2026-01-02T03:04:05Z\",\"until\":\"2026-01-02T03:14:05Z\",\"held\":true,\"cordoned\":%s}"}`, evict.Annotation, m.ID, ours)
		}
		l.kubectl(l.T, fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q%s},"spec":{"unschedulable":true,"providerID":"aws:///eu-central-1a/%s"}}`, name, mark, m.ID), "apply", "-f", "-")
	}
	get := func(name string) string {
		return l.kubectl(l.T, "", "get", "node", "again-"+name, "-o", `jsonpath={.spec.unschedulable} {.metadata.annotations.hardtack\.dev/evicting}`)
	}
	l.steps(10*time.Second, "the marks are gone", func() bool { return get("ours") == " " && get("theirs") == "true " }, e)
	if got := get("unmarked"); got != "true " {
		l.Errorf("a node that others have cordoned is %q", got)
	}
}
