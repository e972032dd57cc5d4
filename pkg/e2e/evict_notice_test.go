package e2e

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	ec2 "github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice/watch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// minion is a spot instance with its metadata service, and the watcher that runs on it, with the node's rights.
type minion struct {
	id      string
	service *ec2.Service
	self    *kube.Self
	*watch.Watcher
}

func (m *minion) Instance(netip.Addr) (ec2.Instance, bool) {
	return ec2.Instance{ID: m.id, Spot: true}, true
}

func (m *minion) Credentials(context.Context, string, string) (ec2.Credentials, error) {
	return ec2.Credentials{}, errors.New("it has no role")
}

func (l *leaving) minion(node string) *minion {
	l.Helper()
	m := &minion{id: l.machines[node]}
	m.service = ec2.New(m, nil)
	server := httptest.NewServer(m.service)
	l.Cleanup(server.Close)
	client, err := imds.New(imds.Options{Endpoint: server.URL})
	if err != nil {
		l.Fatal(err)
	}
	l.write(l.T, node+".kubeconfig", l.kubeconfig(nodeUser(node)))
	log := &bytes.Buffer{}
	l.logs[node] = log
	m.self = &kube.Self{File: kube.NewFile(l.dir + "/" + node + ".kubeconfig"), Name: node}
	// Every step asks for everything.
	began := time.Now()
	m.Watcher = &watch.Watcher{Metadata: client, Node: m.self, Log: slog.New(slog.NewTextHandler(log, nil)), Now: func() time.Time { began = began.Add(time.Minute); return began }}
	return m
}

func (l *leaving) announces(m *minion, n ec2.Notices) {
	l.Helper()
	m.service.SetNotices(m.id, n)
	m.Step(l.Context())
}

func (l *leaving) policy(text string) {
	l.Helper()
	if err := l.account.AutoScaling().SetTag(evictionGroup, role.TagNotices, &text); err != nil {
		l.Fatal(err)
	}
}

func (l *leaving) cordoned(node string) bool {
	return l.kubectl(l.T, "", "get", "node", node, "-o", "jsonpath={.spec.unschedulable}") == "true"
}

// TestEvictNotices gives machines notices in their metadata, as EC2 does. They tell it as nodes, to a real API server with
// NodeRestriction, and a master moves their pods, with a real disruption controller.
func TestEvictNotices(t *testing.T) {
	l := newLeaving(t, 900*time.Second)
	a := l.evictor("a")

	// An interruption that leaves time: pods move, the budget holds, and the machine's own end goes by its hook.
	zero := l.minion("node-0")
	l.application("web", "node-0", 2)
	l.announces(zero, ec2.Notices{})
	fewest := l.least("web")
	l.steps(time.Second, "nothing is to do", func() bool { return true }, a)
	l.announces(zero, ec2.Notices{Interruption: &ec2.Interruption{Action: "terminate", Time: time.Now().Add(2 * time.Minute)}})
	l.steps(90*time.Second, "the pods have left", func() bool { return strings.Contains(l.events("node-0"), "Normal Evicted all pods have left") }, a)
	if n := fewest(); n != 2 || len(l.on("node-0")) > 0 || !l.cordoned("node-0") {
		t.Errorf("the application had %d pods of the 2 that its budget keeps; node-0 has %v, cordoned %v", n, l.on("node-0"), l.cordoned("node-0"))
	}
	l.heard("node-0")
	if l.state("node-0") != "InService" || l.completed() > 0 {
		t.Errorf("the machine is %s, and %d hooks were completed", l.state("node-0"), l.completed())
	}
	l.ends("node-0")
	l.steps(time.Minute, "the machine ends", func() bool { return l.state("node-0") == "gone" }, a)
	l.kubectl(t, "", "delete", "node", "node-0")
	delete(l.machines, "node-0")
	l.kubectl(t, "", "delete", "deployment,pdb", "web", "--wait=false")
	l.kubectl(t, "", "delete", "replicasets,pods", "--all", "--force", "--grace-period=0") // there is no garbage collector

	// A budget that allows nothing within the notice's time: what could not move is said before EC2 acts, with the reason.
	one := l.minion("node-1")
	l.application("db", "node-1", 3)
	end := time.Now().Add(40 * time.Second)
	l.announces(one, ec2.Notices{Interruption: &ec2.Interruption{Action: "stop", Time: end}})
	l.steps(time.Minute, "it is given up", func() bool { return strings.Contains(l.events("node-1"), "Warning EvictionIncomplete") }, a)
	if events := l.events("node-1"); !time.Now().Before(end) || !strings.Contains(events, "still has 3 pods that have not left in its time: default/db-") || !strings.Contains(events, "The disruption budget db needs 3 healthy pods and has 3 currently") {
		t.Errorf("%v before the end:\n%s", time.Until(end), events)
	}
	if len(l.on("node-1")) != 3 {
		t.Errorf("node-1 has %v", l.on("node-1"))
	}
	// It was not interrupted after all.
	l.announces(one, ec2.Notices{})
	l.steps(30*time.Second, "the node is used again", func() bool { return !l.cordoned("node-1") }, a)

	// A recommendation is nothing to act on, unless the group says so. The controller sees the change of the tag.
	two := l.minion("node-2")
	l.pod("alone", "node-2", "", "")
	l.announces(two, ec2.Notices{Rebalance: time.Now()})
	for range 3 {
		l.steps(time.Second, "nothing is to do", func() bool { return true }, a)
	}
	if l.cordoned("node-2") {
		t.Error("a recommendation cordons the node")
	}
	l.policy("rebalance=cordon")
	l.steps(30*time.Second, "the node is cordoned", func() bool { return l.cordoned("node-2") }, a)
	if on := l.on("node-2"); len(on) != 1 {
		t.Errorf("node-2 has %v", on)
	}
	l.policy("rebalance=drain")
	l.steps(30*time.Second, "the pod has left", func() bool { return len(l.on("node-2")) == 0 }, a)
	l.announces(two, ec2.Notices{})
	l.steps(30*time.Second, "the node is used again", func() bool { return !l.cordoned("node-2") }, a)

	// A reboot in a while is not due, and one that is near is.
	l.pod("again", "node-2", "", "")
	l.announces(two, ec2.Notices{Scheduled: []ec2.Event{{Code: "system-reboot", NotBefore: time.Now().Add(16 * time.Minute)}}})
	l.steps(time.Second, "nothing is to do", func() bool { return true }, a)
	if l.cordoned("node-2") || len(l.on("node-2")) != 1 {
		t.Error("an event that is not due is acted on")
	}
	l.ahead = 2 * time.Minute
	l.steps(30*time.Second, "the pod has left", func() bool { return len(l.on("node-2")) == 0 }, a)
	l.announces(two, ec2.Notices{Scheduled: []ec2.Event{{Code: "system-reboot", NotBefore: time.Now().Add(16 * time.Minute), State: "completed"}}})
	l.steps(30*time.Second, "the node is used again", func() bool { return !l.cordoned("node-2") }, a)
	l.ahead = 0
	l.liar()
}

// heard reads the events as hardtack lab kill --graceful does.
func (l *leaving) heard(node string) {
	l.Helper()
	client, err := rest.HTTPClientFor(l.config(planeAdmin))
	if err != nil {
		l.Fatal(err)
	}
	events, err := lab.ReadNodeEvents(l.Context(), client, l.url, node)
	reasons := map[string]string{}
	for _, e := range events {
		reasons[e.Reason] = e.Message
	}
	if err != nil || reasons["Evicting"] == "" || !strings.Contains(reasons["Evicted"], "all pods have left machine "+l.machines[node]) {
		l.Errorf("the events: %+v, %v", events, err)
	}
	if others, err := lab.ReadNodeEvents(l.Context(), client, l.url, "node-9"); err != nil || len(others) > 0 {
		l.Errorf("the events of no node: %+v, %v", others, err)
	}
}

// liar tries what a node that lies could try: it has no way to another's pods.
func (l *leaving) liar() {
	l.Helper()
	ctx := l.Context()
	text := notice.Notice{Kind: notice.Spot, Action: "terminate", At: time.Now().Add(time.Hour)}.String()
	self := kube.Self{File: kube.NewFile(l.dir + "/node-2.kubeconfig"), Name: "node-1"}
	if err := self.SetEnding(ctx, "SpotInterruption", text); err == nil || !strings.Contains(err.Error(), "is not allowed to modify node") {
		l.Errorf("it gives notice for another node: %v", err)
	}
	self.Name = "node-2"
	if err := self.SetEnding(ctx, "SpotInterruption", text); err != nil { // the control of the above
		l.Error(err)
	}
	api, err := dynamic.NewForConfig(l.config(nodeUser("node-2")))
	if err != nil {
		l.Fatal(err)
	}
	for what, patch := range map[string]string{
		"taints itself":          `{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`,
		"labels itself a master": `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
	} {
		if _, err := api.Resource(nodesOfCluster).Patch(ctx, "node-2", apitypes.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
			l.Errorf("it %s", what)
		}
	}
	if shown := l.kubectl(l.T, "", "get", "node", "node-1", "-o", "jsonpath={.status.conditions[?(@.type==\""+notice.Condition+"\")].status}"); shown != "False" {
		l.Errorf("node-1 shows %q", shown)
	}
}
