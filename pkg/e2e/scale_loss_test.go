package e2e

import (
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
)

// lose makes pods, and meanwhile takes away the master whose scheduler leads, to which etcd's leadership was given before.
func (s *scaleRun) lose(t *testing.T, first, last int, fleet *scaleFleet, kubelets *kwok) {
	t.Helper()
	s.figures.Cut = &cut{}
	victim := s.leader(t)
	s.moveLeader(t, victim)
	s.look(t)
	made := make(chan struct{})
	go func() {
		defer close(made)
		s.load(t, first, last)
	}()
	for s.pods.n() < first+(last-first)/4 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	victim.cut(t)
	before := s.pods.n()
	t.Logf("%s is gone, at %d pods", victim.name(), before)
	s.until(t, 5*time.Minute, "the nodes' watches", func() []string { return fleet.whole(s.scaleCluster) })
	s.figures.Cut.Watches = since(began)
	<-made
	if after := s.pods.n() - before; after < (last-first)/10 {
		t.Errorf("%d pods were made after the loss of %s: it was under no load", after, victim.name())
	}
	s.until(t, 15*time.Minute, "pods", func() []string { return s.unbound(t) })
	// kwok gives up on a status that it could not write while etcd had no leader. A kubelet begins anew with its next sync.
	kubelets.start(t, s.scaleCluster)
	s.bound(t)
	s.until(t, 5*time.Minute, "nodes", func() []string { return s.nodesWrong(t) })
	if now := s.leader(t); now == victim {
		t.Errorf("the scheduler of %s still leads", victim.name())
	}
	s.consequences(t, began)
}

// consequences measures what the loss did.
func (s *scaleRun) consequences(t *testing.T, began time.Time) {
	t.Helper()
	s.figures.Cut.Again = s.pods.again
	last := began
	for _, b := range s.bindings(t) {
		if b.at.After(last) {
			s.figures.Cut.Unbound, last = max(s.figures.Cut.Unbound, math.Round(b.at.Sub(last).Seconds()*10)/10), b.at
		}
	}
	var list corev1.PodList
	if err := s.api.Get().Resource("pods").Do(t.Context()).Into(&list); err != nil {
		t.Fatal(err)
	}
	var made []time.Time
	for _, p := range list.Items {
		if p.CreationTimestamp.After(began) {
			made = append(made, p.CreationTimestamp.Time)
		}
	}
	slices.SortFunc(made, time.Time.Compare)
	last = began
	for _, at := range made {
		s.figures.Cut.Quiet, last = max(s.figures.Cut.Quiet, math.Round(at.Sub(last).Seconds())), at
	}
	var events corev1.EventList
	if err := s.api.Get().Namespace(metav1.NamespaceDefault).Resource("events").Param("fieldSelector", "reason=NodeNotReady").Do(t.Context()).Into(&events); err != nil {
		t.Fatal(err)
	}
	notReady := map[string]bool{}
	for _, e := range events.Items {
		notReady[e.InvolvedObject.Name] = true
	}
	s.figures.Cut.NotReady = len(notReady)
}

// leader is the master whose scheduler leads.
func (s *scaleRun) leader(t *testing.T) *scaleMaster {
	t.Helper()
	var lease coordinationv1.Lease
	err := s.api.Get().AbsPath("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler").Do(t.Context()).Into(&lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		t.Fatalf("asking which scheduler leads: %v", err)
	}
	host, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	for _, m := range s.masters {
		if m.name() == host {
			return m
		}
	}
	t.Fatalf("the scheduler of %q leads, which is none of the masters", host)
	return nil
}

// moveLeader makes a master's member the leader of etcd.
func (s *scaleRun) moveLeader(t *testing.T, to *scaleMaster) {
	t.Helper()
	ask := func(endpoints []string, args ...string) []byte {
		pki := filepath.Join(to.root, "run/hardtack/pki/kube-apiserver")
		args = append([]string{"--endpoints=" + strings.Join(endpoints, ","), "--cacert=" + pki + "/etcd-ca.crt", "--cert=" + pki + "/etcd-client.crt", "--key=" + pki + "/etcd-client.key"}, args...)
		out, err := exec.CommandContext(t.Context(), filepath.Join(s.dir, programs.Bin, "etcdctl"), args...).Output()
		if err != nil {
			t.Fatalf("etcdctl %v: %v", args, err)
		}
		return out
	}
	url := func(m *scaleMaster) string { return "https://etcd-" + m.group.Member + ".demo.k8s:2379" }
	var all []string
	for _, m := range s.masters {
		all = append(all, url(m))
	}
	var statuses []struct {
		Endpoint string
		Status   struct {
			Header struct {
				Member uint64 `json:"member_id"`
			}
			Leader uint64
		}
	}
	if err := json.Unmarshal(ask(all, "endpoint", "status", "--write-out=json"), &statuses); err != nil {
		t.Fatal(err)
	}
	byID, wanted := map[uint64]string{}, uint64(0)
	for _, e := range statuses {
		byID[e.Status.Header.Member] = e.Endpoint
		if e.Endpoint == url(to) {
			wanted = e.Status.Header.Member
		}
	}
	if leader := statuses[0].Status.Leader; leader != wanted {
		ask([]string{byID[leader]}, "move-leader", strconv.FormatUint(wanted, 16))
	}
}
