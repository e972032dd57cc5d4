package e2e

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
)

// wrongs counts what is wrong, with an example of each.
type wrongs struct {
	n       map[string]int
	example map[string]string
}

func newWrongs() *wrongs { return &wrongs{n: map[string]int{}, example: map[string]string{}} }

func (w *wrongs) add(what, example string) {
	w.n[what]++
	w.example[what] = example
}

// list is what is wrong, with the objects that were acknowledged and are not there, or are others, and with those that nobody was
// told of.
func (w *wrongs) list(acknowledged *answered, there ids) []string {
	acknowledged.mu.Lock()
	defer acknowledged.mu.Unlock()
	for name, id := range acknowledged.ids {
		switch is, ok := there[name]; {
		case !ok:
			w.add("acknowledged and lost", name)
		case is != id:
			w.add("acknowledged, and another one now", name)
		}
	}
	for name := range there {
		if _, ok := acknowledged.ids[name]; !ok {
			w.add("there without an answer", name)
		}
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(w.n)) {
		lines = append(lines, fmt.Sprintf("%d %s, such as %s", w.n[what], what, w.example[what]))
	}
	return lines
}

// nodesWrong lists what is wrong with nodes: each that was acknowledged is there, Ready, with a share of the pods' range that no
// other has, and there is no other.
func (s *scaleRun) nodesWrong(t *testing.T) []string {
	t.Helper()
	var list corev1.NodeList
	if err := s.api.Get().Resource("nodes").Do(t.Context()).Into(&list); err != nil {
		return []string{err.Error()}
	}
	wrong := newWrongs()
	shares, there := map[string]string{}, ids{}
	for _, n := range list.Items {
		there["/"+n.Name] = n.UID
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			wrong.add("not Ready", n.Name)
		}
		if n.Spec.PodCIDR == "" {
			wrong.add("without addresses for pods", n.Name)
		} else if other := shares[n.Spec.PodCIDR]; other != "" {
			wrong.add("with another one's addresses", n.Name+" and "+other)
		}
		shares[n.Spec.PodCIDR] = n.Name
	}
	return wrong.list(s.nodes, there)
}

// podsWrong lists what is wrong with pods: each that was acknowledged is there, runs on a node that is there, and there is no other.
func (s *scaleRun) podsWrong(t *testing.T) []string {
	t.Helper()
	var list corev1.PodList
	if err := s.api.Get().Resource("pods").Do(t.Context()).Into(&list); err != nil {
		return []string{err.Error()}
	}
	wrong, there := newWrongs(), ids{}
	for _, p := range list.Items {
		name := p.Namespace + "/" + p.Name
		there[name] = p.UID
		switch _, node := s.nodes.ids["/"+p.Spec.NodeName]; {
		case p.Spec.NodeName == "":
			wrong.add("without a node", name)
		case !node:
			wrong.add("on a node that is not there", name)
		case p.DeletionTimestamp != nil:
			wrong.add("being deleted", name)
		case p.Status.Phase != corev1.PodRunning:
			wrong.add(string(p.Status.Phase), name)
		}
	}
	return wrong.list(s.pods, there)
}

// unbound says how many pods have no node.
func (s *scaleRun) unbound(t *testing.T) []string {
	t.Helper()
	var list corev1.PodList
	if err := s.api.Get().Resource("pods").Param("fieldSelector", "spec.nodeName=").Do(t.Context()).Into(&list); err != nil {
		return []string{err.Error()}
	}
	if n := len(list.Items); n > 0 {
		return []string{fmt.Sprintf("%d have no node", n)}
	}
	return nil
}

// judge holds what exists against what was acknowledged, once more when all is quiet, and the audit logs against both.
func (s *scaleRun) judge(t *testing.T) {
	t.Helper()
	for what, wrong := range map[string][]string{"nodes": s.nodesWrong(t), "pods": s.podsWrong(t)} {
		if len(wrong) > 0 {
			t.Errorf("%s: %v", what, wrong)
		}
	}
	if len(s.pods.ids) != s.figures.Pods || len(s.nodes.ids) != s.figures.Nodes {
		t.Errorf("%d pods and %d nodes were acknowledged", len(s.pods.ids), len(s.nodes.ids))
	}
	bindings := s.bindings(t)
	unlogged, twice := s.pods.compare(bindings)
	for _, name := range twice {
		t.Errorf("%s was bound more than once", name)
	}
	// Of a master that is lost the log may lack what it was answering, and no more than it answers at once.
	if s.figures.Cut != nil {
		s.figures.Cut.Unlogged = unlogged
	} else if unlogged > 0 {
		t.Errorf("%d pods have a node, and no audit log says from when", unlogged)
	}
	// That is 200 at most (--max-mutating-requests-inflight), and one in twenty of a small load.
	if most := min(200, s.figures.Pods/20); unlogged > most {
		t.Errorf("%d pods have a node, and no audit log says from when; more than %d", unlogged, most)
	}
	t.Logf("%d bindings of %d pods are in the audit logs", len(bindings), len(s.pods.ids))
}

// compare says how many acknowledged pods have no binding, and which have several.
func (a *answered) compare(bindings []binding) (none int, several []string) {
	times := map[string]int{}
	for _, b := range bindings {
		times[b.pod]++
	}
	for name := range a.ids {
		switch n := times[name]; {
		case n == 0:
			none++
		case n > 1:
			several = append(several, name)
		}
	}
	slices.Sort(several)
	return none, several
}

// TestScaleChecks shows that what the runs are judged by finds a pod that is lost, one that is another, one that nobody was told of,
// and one that was bound twice.
func TestScaleChecks(t *testing.T) {
	t.Parallel()
	a := &answered{ids: ids{"x/kept": "1", "x/lost": "2", "x/replaced": "3"}}
	got := newWrongs().list(a, ids{"x/kept": "1", "x/replaced": "4", "x/new": "5"})
	want := []string{"1 acknowledged and lost, such as x/lost", "1 acknowledged, and another one now, such as x/replaced", "1 there without an answer, such as x/new"}
	assert.DeepEqual(t, got, want)

	line := func(verb, subresource, name string, code int) string {
		return fmt.Sprintf(`{"verb":%q,"objectRef":{"resource":"pods","namespace":"x","name":%q,"subresource":%q},"responseStatus":{"code":%d},"stageTimestamp":"2026-11-23T17:00:00.5Z"}`+"\n", verb, name, subresource, code)
	}
	file := filepath.Join(t.TempDir(), "audit.log")
	log := line("create", "binding", "kept", 201) + line("create", "binding", "lost", 409) + line("create", "", "lost", 201) + line("patch", "status", "kept", 200) +
		line("create", "binding", "replaced", 201) + line("create", "binding", "replaced", 201)
	assert.NilError(t, os.WriteFile(file, []byte(log), 0o600))
	none, several := a.compare(bindingsIn(t, file))
	assert.Equal(t, none, 1)
	assert.DeepEqual(t, several, []string{"x/replaced"})

	h := histogram{count: 100, buckets: map[float64]uint64{0.1: 50, 0.2: 90, 0.4: 98, math.Inf(1): 100}}
	assert.DeepEqual(t, []float64{h.quantile(0.5), h.quantile(0.7), h.quantile(0.94), h.quantile(0.99)}, []float64{0.1, 0.15, 0.3, 0.4}, cmpopts.EquateApprox(0, 1e-9))
}
