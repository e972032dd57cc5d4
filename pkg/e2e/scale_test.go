package e2e

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// scaleVariable has how many nodes and pods TestScale makes, as "1000,5000".
const scaleVariable = "HARDTACK_SCALE"

func scaleSize(t *testing.T) (nodes, pods int) {
	t.Helper()
	text := os.Getenv(scaleVariable)
	if text == "" {
		return 100, 500
	}
	a, b, _ := strings.Cut(text, ",")
	nodes, err1 := strconv.Atoi(a)
	pods, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || nodes < 10 || pods < 20 {
		t.Fatalf("%s=%q: write NODES,PODS, at least 10 and 20", scaleVariable, text)
	}
	return nodes, pods
}

// scaleDocument gives a control plane for a thousand nodes, however many there will be.
const scaleDocument = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
store: dir:/etc/hardtack/store
groups:
- {name: masters, roles: [masters, etcd]%s}
- {name: minions, roles: [minions], size: 1000}
`

// TestScale puts nodes and pods on the control plane of a document. kwok does what kubelets do, and the watches of each node's
// daemons are open besides, with that node's certificate. Nothing that was acknowledged may be lost, and every pod is bound once.
func TestScale(t *testing.T) { testScale(t, "") }

// TestScaleMasters does the same with three masters, each with a member of etcd, of which one is lost under the load: the one whose
// scheduler and whose member of etcd lead.
func TestScaleMasters(t *testing.T) {
	needTime(t)
	testScale(t, ", members: [a, b, c]")
}

func testScale(t *testing.T, members string) {
	needMachines(t)
	needNamespaces(t)
	nodes, pods := scaleSize(t)
	dir := t.TempDir()
	lock := programs.DefaultLock(t)
	programs.NeedBuilt(t, lock, "etcd", "kubernetes")
	programs.Install(t, dir, lock, "etcd", "kubernetes")
	buildAgent(t, dir)
	kubelets := kwokTool(t)
	if !inMaster(t, dir) {
		return
	}
	// A kubelet that cannot renew its lease closes its connections after ten seconds; what stands for it here waits for the
	// library's 45 otherwise.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "5")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "5")
	s := &scaleRun{
		scaleCluster: newScaleCluster(t, dir, fmt.Sprintf(scaleDocument, members)),
		pods:         &answered{ids: ids{}}, nodes: &answered{ids: ids{}},
	}
	s.figures = scaleFigures{Masters: len(s.masters), Nodes: nodes, Pods: pods}
	s.start(t)
	s.remember(t, "idle")
	kubelets.start(t, s.scaleCluster)
	s.join(t, nodes)
	fleet := s.watch(t, nodes, scaleWatches)
	s.figures.Watches = fleet.want
	s.until(t, 5*time.Minute, "the nodes' watches", func() []string { return fleet.whole(s.scaleCluster) })
	if len(s.masters) == 1 {
		s.load(t, 0, pods)
		s.bound(t)
	} else {
		s.load(t, 0, pods/2)
		s.bound(t)
		s.lose(t, pods/2, pods, fleet, kubelets)
	}
	s.remember(t, "loaded")
	s.judge(t)
	s.measure(t)
	s.figures.write(t)
}

// kwokTool builds kwok where that is due. The stages are those that upstream ships beside it.
func kwokTool(t *testing.T) *kwok {
	t.Helper()
	program := printed(t, root, "scripts/tool", "kwok")
	module := printed(t, filepath.Join(root, "scripts/tools/kwok"), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	return &kwok{program: program, stages: filepath.Join(module, "kustomize/stage")}
}

// scaleRun is one load on one control plane.
type scaleRun struct {
	*scaleCluster
	api         *rest.RESTClient
	nodes, pods *answered
	figures     scaleFigures
	// seen are the last metrics of each API server and each scheduler, by the machine and the daemon.
	seen map[string]samples
}

// until waits, and fails with what is missing.
func (s *scaleRun) until(t *testing.T, within time.Duration, what string, ask func() []string) {
	t.Helper()
	if pending := eventually(within, func() []string {
		missing := ask()
		if len(missing) > 0 {
			time.Sleep(400 * time.Millisecond)
		}
		return missing
	}); len(pending) > 0 {
		t.Fatalf("%s, after %v: %v", what, within, pending)
	}
}

// start starts every master's daemons, and gives the cluster its first objects.
func (s *scaleRun) start(t *testing.T) {
	t.Helper()
	s.seen, s.api = map[string]samples{}, s.client(t, s.dialer().dial)
	for _, daemon := range scaleDaemons {
		for _, m := range s.masters {
			m.daemon(t, daemon)
			showOnFailure(t, m.name()+" "+daemon, &m.daemons[daemon].log)
		}
		if daemon == "kube-apiserver" {
			for _, m := range s.masters {
				s.ready(t, m)
			}
			kubeconfig := s.file(t, "admin.kubeconfig", s.kubeconfig(t, "admin", pki.GroupAdmins))
			for _, file := range []string{"10-nodes.yaml", "11-controller.yaml"} {
				sh(t, "$1 --kubeconfig=$2 apply -f $3", filepath.Join(s.dir, programs.Bin, "kubectl"), kubeconfig, filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons", file))
			}
		}
	}
	for i := range scaleSpaces {
		space := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: scaleSpace(i)}}
		if err := s.api.Post().Resource("namespaces").Body(&space).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	s.until(t, time.Minute, "service accounts", func() []string {
		for i := range scaleSpaces {
			if err := s.api.Get().Namespace(scaleSpace(i)).Resource("serviceaccounts").Name("default").Do(t.Context()).Error(); err != nil {
				return []string{err.Error()}
			}
		}
		return nil
	})
}

func (s *scaleRun) ready(t *testing.T, m *scaleMaster) {
	t.Helper()
	client := s.client(t, m.dial)
	s.until(t, 2*time.Minute, m.name(), func() []string {
		code := 0
		err := client.Get().AbsPath("/readyz").Do(t.Context()).StatusCode(&code).Error()
		if err != nil || code != http.StatusOK {
			return []string{fmt.Sprintf("/readyz: %d, %v", code, err)}
		}
		return nil
	})
}

// join makes the nodes, and waits until each is Ready and has addresses for its pods.
func (s *scaleRun) join(t *testing.T, n int) {
	t.Helper()
	t.Log("nodes join")
	began := time.Now()
	s.create(t, s.nodes, 0, n, 8, s.createNode)
	s.until(t, 10*time.Minute, "nodes", func() []string { return s.nodesWrong(t) })
	s.figures.Joining = since(began)
}

func since(began time.Time) float64 { return math.Round(time.Since(began).Seconds()*10) / 10 }

// load makes pods.
func (s *scaleRun) load(t *testing.T, first, last int) {
	t.Helper()
	s.create(t, s.pods, first, last, 8, s.createPod)
}

// bound waits until every pod runs on a node, and takes the time from the first to the last.
func (s *scaleRun) bound(t *testing.T) {
	t.Helper()
	s.until(t, 15*time.Minute, "pods", func() []string { return s.podsWrong(t) })
	list := s.bindings(t)
	if len(list) == 0 {
		t.Fatal("no audit log has a binding")
	}
	s.figures.Bound = append(s.figures.Bound, math.Round(list[len(list)-1].at.Sub(list[0].at).Seconds()*10)/10)
}

// look reads the metrics of what lives.
func (s *scaleRun) look(t *testing.T) {
	t.Helper()
	for _, m := range s.masters {
		if !m.dead {
			for _, daemon := range []string{"etcd", "kube-apiserver", "kube-scheduler"} {
				s.until(t, time.Minute, "metrics of "+daemon+" on "+m.name(), func() []string {
					seen, err := m.scrape(t, daemon)
					if err != nil {
						return []string{err.Error()}
					}
					s.seen[m.name()+" "+daemon] = seen
					return nil
				})
			}
		}
	}
}

// of are the last metrics of a daemon on all masters.
func (s *scaleRun) of(daemon string) []samples {
	var all []samples
	for _, key := range slices.Sorted(maps.Keys(s.seen)) {
		if strings.HasSuffix(key, " "+daemon) {
			all = append(all, s.seen[key])
		}
	}
	return all
}

func (s *scaleRun) remember(t *testing.T, when string) {
	t.Helper()
	for _, m := range s.masters {
		if !m.dead {
			s.figures.Memory = append(s.figures.Memory, m.memory(t, when)...)
		}
	}
}

// measure fills in what the daemons' metrics say, of a lost master what they said before.
func (s *scaleRun) measure(t *testing.T) {
	t.Helper()
	s.look(t)
	f := &s.figures
	f.Requests = requests(s.of("kube-apiserver"))
	refused, _ := sum(s.of("kube-apiserver"), "apiserver_request_total", func(m *dto.Metric) bool { return label(m, "code") == "429" })
	f.Refused = int(refused)
	_, scheduling := sum(s.of("kube-scheduler"), "scheduler_pod_scheduling_sli_duration_seconds", every)
	f.Scheduling = scheduling.latency("", "")
	etcds := s.of("etcd")
	_, commit := sum(etcds, "etcd_disk_backend_commit_duration_seconds", every)
	f.Commit = commit.latency("", "")
	one := etcds[len(etcds)-1:]
	database, _ := sum(one, "etcd_mvcc_db_total_size_in_bytes", every)
	inUse, _ := sum(one, "etcd_mvcc_db_total_size_in_use_in_bytes", every)
	f.Database, f.InUse = math.Round(database/(1<<20)), math.Round(inUse/(1<<20))
	if len(f.Requests) == 0 || f.Scheduling.Count == 0 || f.Commit.Count == 0 || database == 0 {
		t.Errorf("a metric is not there: %d rows of requests, %d pods scheduled, %d commits, a database of %.0f bytes", len(f.Requests), f.Scheduling.Count, f.Commit.Count, database)
	}
}
