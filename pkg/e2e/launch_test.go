package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	launch "github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// launches is a cluster with a real API server, whose minions' launch hook holds three machines that pretend to be nodes.
type launches struct {
	*testing.T
	*plane
	account *awsfake.Account
	// ids and names are the machines' and their nodes'.
	ids, names []string
	c          *controller.Controller
	log        bytes.Buffer
}

func newLaunches(t *testing.T) *launches {
	t.Helper()
	l := &launches{T: t, plane: newPlane(t), account: awsfake.New(awsfake.Options{})}
	server := httptest.NewServer(l.account.Handler())
	t.Cleanup(server.Close)
	static := credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")
	groups := autoscaling.New(autoscaling.Options{Region: "eu-central-1", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), RetryMaxAttempts: 1, Credentials: static})
	for _, g := range []awsfake.Group{
		{Name: "demo-masters", Max: 1, Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "masters"}},
		{Name: evictionGroup, Max: 4, Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "minions", role.TagInstanceRole: "demo-minions"}},
	} {
		if err := l.account.AutoScaling().Create(g); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.account.AutoScaling().PutHook(evictionGroup, awsfake.Hook{Name: machine.DefaultLaunchHook, Transition: "autoscaling:EC2_INSTANCE_LAUNCHING", Heartbeat: 1200 * time.Second, Default: awsfake.Abandon}); err != nil {
		t.Fatal(err)
	}
	if err := l.account.AutoScaling().SetDesired(evictionGroup, 3); err != nil {
		t.Fatal(err)
	}
	l.account.Tick()
	instances := &fleet.Instances{Groups: groups, Cluster: "demo",
		Machines: ec2.New(ec2.Options{Region: "eu-central-1", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), RetryMaxAttempts: 1, Credentials: static})}
	for _, i := range l.account.AutoScaling().Instances(evictionGroup) {
		found, err := instances.Instances(t.Context(), []string{i.ID})
		if err != nil || len(found) != 1 || found[0].State != awsfake.StatePendingWait {
			t.Fatalf("%+v, %v", found, err)
		}
		l.ids, l.names = append(l.ids, i.ID), append(l.names, found[0].Name)
	}
	l.write(t, "controller.kubeconfig", l.kubeconfig(planeController))
	api := kube.NewFile(l.dir + "/controller.kubeconfig")
	// This master is the one that the API server announces: another one waits for its turn.
	var masters []netip.Addr
	l.until(time.Minute, "the API server is announced", func() (err error) {
		if masters, err = api.Masters(t.Context()); err == nil && len(masters) != 1 {
			err = fmt.Errorf("the API servers are %v", masters)
		}
		return err
	})
	l.c = &controller.Controller{Nodes: api, Requests: api, Objects: api, Tokens: api, Instances: instances, Launches: &fleet.Launches{API: groups, Hook: machine.DefaultLaunchHook},
		Self: func() (controller.Self, error) {
			return controller.Self{Addresses: masters}, nil
		},
		Now: time.Now, Log: slog.New(slog.NewTextHandler(&l.log, nil))}
	return l
}

func (l *launches) until(within time.Duration, what string, so func() error) {
	l.Helper()
	if pending := eventually(within, func() []string {
		if err := so(); err != nil {
			return []string{err.Error()}
		}
		return nil
	}); len(pending) > 0 {
		l.Fatalf("not within %v: %s: %v", within, what, pending)
	}
}

// joins makes the node of a machine, which says that it is the machine of another.
func (l *launches) joins(i, says int) *kube.Self {
	l.Helper()
	l.kubectl(l.T, fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"spec":{"providerID":"aws:///eu-central-1a/%s"}}`, l.names[i], l.ids[says]), "apply", "-f", "-")
	l.kubectl(l.T, "", "patch", "node", l.names[i], "--subresource=status", "--type=strategic", "-p", `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"x"}]}}`)
	file := fmt.Sprintf("node-%d.kubeconfig", i)
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{"cluster": "x", "user": "x"}}},
		"clusters": []any{map[string]any{"name": "x", "cluster": map[string]any{"server": l.url, "insecure-skip-tls-verify": true}}},
		"users":    []any{map[string]any{"name": "x", "user": map[string]any{"token": planeAdmin, "as": nodeUser(l.names[i]), "as-groups": []string{"system:nodes"}}}}})
	if err != nil {
		l.Fatal(err)
	}
	l.write(l.T, file, string(text))
	return &kube.Self{File: kube.NewFile(l.dir + "/" + file), Name: l.names[i]}
}

// looks lets the master look for a while.
func (l *launches) looks(times int) {
	l.Helper()
	for range times {
		if err := l.c.Reconcile(l.Context()); err != nil {
			l.Fatalf("%v\n%s", err, &l.log)
		}
		time.Sleep(time.Second)
	}
}

func (l *launches) state(i int) string {
	for _, m := range l.account.AutoScaling().Instances(evictionGroup) {
		if m.ID == l.ids[i] {
			return m.State
		}
	}
	return "gone"
}

// TestLaunchByMasters has a stolen minion, an honest one, and a third that has not worked yet. Each has its node's rights and the
// master has its own, in a real API server.
func TestLaunchByMasters(t *testing.T) {
	l := newLaunches(t)
	thief, honest, idle := l.joins(0, 1), l.joins(1, 1), l.joins(2, 2)

	// It says that it is the honest one, and that it works, and it writes into the honest one's node.
	if err := thief.Say(t.Context(), true, "let it in"); err != nil {
		t.Fatal(err)
	}
	asThief, err := dynamic.NewForConfig(&rest.Config{Host: l.url, BearerToken: planeAdmin, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		Impersonate: rest.ImpersonationConfig{UserName: nodeUser(l.names[0]), Groups: []string{"system:nodes"}}})
	if err != nil {
		t.Fatal(err)
	}
	word := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True","reason":"x","message":"x"}]}}`, controller.LaunchCondition)
	answer := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{}"}}}`, controller.AnnotationLaunch)
	for patch, sub := range map[string][]string{word: {"status"}, answer: nil} {
		_, err := asThief.Resource(nodesOfCluster).Patch(t.Context(), l.names[1], apitypes.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
		if !apierrors.IsForbidden(err) {
			t.Errorf("a node writes %s into another: %v", patch, err)
		}
	}
	moved := fmt.Sprintf(`{"spec":{"providerID":"aws:///eu-central-1a/%s"}}`, l.ids[2])
	if _, err := asThief.Resource(nodesOfCluster).Patch(t.Context(), l.names[0], apitypes.StrategicMergePatchType, []byte(moved), metav1.PatchOptions{}); err == nil {
		t.Error("a node says later that it is another machine")
	}
	l.looks(3)
	for i := range l.ids {
		if l.state(i) != awsfake.StatePendingWait {
			t.Fatalf("machine %d is %s\n%s", i, l.state(i), &l.log)
		}
	}
	if a, err := thief.Answer(t.Context()); err != nil || a.Over || !strings.Contains(a.Why, "its name is that of "+l.ids[0]) {
		t.Errorf("the thief is told %+v, %v", a, err)
	}

	// The honest one works: what its agent does at the end of its boot.
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := make(chan string, 1)
	go func() {
		said, err := launch.Complete(ctx, &launch.ByMasters{Own: denied{}, Node: func() (launch.Self, error) { return honest, nil }}, func(err error) { l.Log(err) })
		done <- fmt.Sprint(said, err)
	}()
	for l.state(1) != awsfake.StateInService && ctx.Err() == nil {
		l.looks(1)
		l.account.Tick()
	}
	if said := <-done; said != "the group's launch hook is completed<nil>" {
		t.Errorf("it says %s\n%s", said, &l.log)
	}

	// The third is slow: it asks for time, and gets it once for each time.
	for range 2 {
		if err := idle.Say(t.Context(), false, "slow"); err != nil {
			t.Fatal(err)
		}
		l.looks(2)
	}
	calls := l.account.Calls()
	if beats := calls["autoscaling:RecordLifecycleActionHeartbeat"]; beats != 1 { // the second one has to wait for a minute
		t.Errorf("%d heartbeats", beats)
	}
	if n := calls["autoscaling:CompleteLifecycleAction"]; n != 1 || l.state(0) != awsfake.StatePendingWait || l.state(2) != awsfake.StatePendingWait {
		t.Errorf("%d launches were completed; the thief's is %s, the slow one's %s\n%s", n, l.state(0), l.state(2), &l.log)
	}
	if l.looks(2); l.account.Calls()["autoscaling:CompleteLifecycleAction"] != 1 {
		t.Errorf("a launch that is answered is completed again\n%s", &l.log)
	}
}

// denied is a group that lets its machines do nothing.
type denied struct{}

func (denied) State(context.Context) (string, error) { return awsfake.StatePendingWait, nil }
func (denied) Heartbeat(context.Context) error       { return reason.Errorf(reason.Permission, "denied") }
func (denied) Complete(context.Context) error        { return reason.Errorf(reason.Permission, "denied") }
