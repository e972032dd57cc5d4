package e2e

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// scaleFigures are what one run measured; none of it is asserted. Times are in seconds, memory in MiB.
type scaleFigures struct {
	Masters int `json:"masters"`
	Nodes   int `json:"nodes"`
	Pods    int `json:"pods"`
	Watches int `json:"watches"`
	// Joining is from the first node's creation to the last one that is Ready with its addresses.
	Joining float64 `json:"joining_s"`
	// Bound is from the first pod's creation to the last binding, the pods of the second half of the run apart.
	Bound []float64 `json:"bound_s"`
	// Scheduling is what schedulers say of a pod's time from their queue to its node.
	Scheduling latency  `json:"scheduling"`
	Memory     []memory `json:"memory"`
	// Database is etcd's file, and InUse its part that is in use; Commit is how long it takes on this disk.
	Database float64   `json:"etcd_mib"`
	InUse    float64   `json:"etcd_in_use_mib"`
	Commit   latency   `json:"etcd_commit"`
	Requests []latency `json:"requests"`
	// Refused are the requests that API servers answered with 429.
	Refused int  `json:"refused"`
	Cut     *cut `json:"cut,omitempty"`
}

// cut is what the loss of a master did.
type cut struct {
	// Quiet is the longest time without a created pod, and Unbound the longest without a binding, from the loss on.
	Quiet   float64 `json:"quiet_s"`
	Unbound float64 `json:"unbound_s"`
	// Again are the creations that were repeated, and NotReady the nodes that were called so.
	Again    int `json:"again"`
	NotReady int `json:"not_ready"`
	// Unlogged are pods that have a node without a line in an audit log: the binding that the lost master was answering.
	Unlogged int `json:"unlogged"`
	// Watches is the time until every watch was open at a master that lives.
	Watches float64 `json:"watches_s"`
}

type memory struct {
	Daemon string  `json:"daemon"`
	When   string  `json:"when"`
	Now    float64 `json:"now_mib"`
	Peak   float64 `json:"peak_mib"`
	// CPU is the processor's time of the process that runs now, in seconds.
	CPU float64 `json:"cpu_s"`
	// Restarts are the times that it ended by itself: a controller does that when it cannot renew its lease.
	Restarts int `json:"restarts"`
}

// latency is what a histogram says, by linear interpolation inside its buckets as Prometheus does.
type latency struct {
	Verb     string  `json:"verb,omitempty"`
	Resource string  `json:"resource,omitempty"`
	Count    uint64  `json:"count"`
	P50      float64 `json:"p50_s"`
	P99      float64 `json:"p99_s"`
}

// samples are the families of one process by their names.
type samples map[string]*dto.MetricFamily

// metricsAt is where daemons serve their metrics, on their machine alone.
var metricsAt = map[string]string{
	"etcd": "http://127.0.0.1:2381/metrics", "kube-apiserver": "https://127.0.0.1:443/metrics",
	"kube-controller-manager": "https://127.0.0.1:10257/metrics", "kube-scheduler": "https://127.0.0.1:10259/metrics",
}

// scrape reads the metrics of a daemon from inside its machine, with an administrator's certificate where it asks for one.
func (m *scaleMaster) scrape(t *testing.T, daemon string) (samples, error) {
	t.Helper()
	config := m.cluster.config(t, "figures", pki.GroupAdmins)
	var err error
	transport := &http.Transport{DialContext: m.dial, DisableKeepAlives: true}
	if transport.TLSClientConfig, err = rest.TLSConfigFor(config); err != nil {
		return nil, err
	}
	if daemon != "kube-apiserver" {
		// They serve with a certificate that they make for themselves, at loopback's address only.
		transport.TLSClientConfig.RootCAs, transport.TLSClientConfig.InsecureSkipVerify = nil, true
	}
	transport.TLSClientConfig.MinVersion = tls.VersionTLS12
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, metricsAt[daemon], nil)
	if err != nil {
		return nil, err
	}
	answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s", answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(answer.Body)
}

// histogram adds up histograms of the same buckets.
type histogram struct {
	count   uint64
	buckets map[float64]uint64
}

func (h *histogram) add(m *dto.Histogram) {
	if h.buckets == nil {
		h.buckets = map[float64]uint64{}
	}
	h.count += m.GetSampleCount()
	for _, b := range m.GetBucket() {
		h.buckets[b.GetUpperBound()] += b.GetCumulativeCount()
	}
}

// quantile is by hand because component-base's takes one histogram, and these are sums over labels and processes. It is 0 for a histogram that is empty, and the last finite bound for what is above it.
func (h *histogram) quantile(q float64) float64 {
	rank, below, low := q*float64(h.count), uint64(0), 0.0
	for _, bound := range slices.Sorted(maps.Keys(h.buckets)) {
		n := h.buckets[bound]
		if math.IsInf(bound, 1) {
			return low
		}
		if float64(n) >= rank && n > below {
			return low + (bound-low)*(rank-float64(below))/float64(n-below)
		}
		below, low = n, bound
	}
	return low
}

func (h *histogram) latency(verb, resource string) latency {
	return latency{Verb: verb, Resource: resource, Count: h.count, P50: h.quantile(0.5), P99: h.quantile(0.99)}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// sum adds up a family of several processes; accept is asked for each sample.
func sum(all []samples, family string, accept func(*dto.Metric) bool) (total float64, h histogram) {
	for _, s := range all {
		for _, m := range s[family].GetMetric() {
			if !accept(m) {
				continue
			}
			if m.GetHistogram() != nil {
				h.add(m.GetHistogram())
			}
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return total, h
}

func every(*dto.Metric) bool { return true }

// requests are the latencies by verb and resource, the most frequent first, without those that stay open.
func requests(all []samples) []latency {
	by := map[[2]string]*histogram{}
	for _, s := range all {
		for _, m := range s["apiserver_request_duration_seconds"].GetMetric() {
			verb, resource := label(m, "verb"), label(m, "resource")
			if sub := label(m, "subresource"); sub != "" {
				resource += "/" + sub
			}
			if verb == "WATCH" || verb == "CONNECT" || label(m, "resource") == "" {
				continue
			}
			key := [2]string{verb, resource}
			if by[key] == nil {
				by[key] = &histogram{}
			}
			by[key].add(m.GetHistogram())
		}
	}
	rows := make([]latency, 0, len(by))
	for key, h := range by {
		rows = append(rows, h.latency(key[0], key[1]))
	}
	slices.SortFunc(rows, func(a, b latency) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Verb+a.Resource, b.Verb+b.Resource))
	})
	return rows
}

// memory reads what the daemons have in memory now, and had at most, and what of the processor they took.
func (m *scaleMaster) memory(t *testing.T, when string) []memory {
	t.Helper()
	var rows []memory
	for _, daemon := range scaleDaemons {
		pid, restarts := m.daemons[daemon].state()
		status, stat, err := usage(pid)
		if errors.Is(err, fs.ErrNotExist) {
			t.Logf("%s on %s is not running now", daemon, m.name())
			continue
		}
		if err != nil {
			t.Fatalf("%s on %s: %v", daemon, m.name(), err)
		}
		mib := func(bytes uint64) float64 { return math.Round(float64(bytes) / (1 << 20)) }
		rows = append(rows, memory{Daemon: m.name() + " " + daemon, When: when, Now: mib(status.VmRSS), Peak: mib(status.VmHWM), CPU: stat.CPUTime(), Restarts: restarts})
	}
	return rows
}

// usage is what the kernel says of a process.
func usage(pid int) (procfs.ProcStatus, procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStatus{}, procfs.ProcStat{}, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return status, procfs.ProcStat{}, err
	}
	stat, err := p.Stat()
	return status, stat, err
}

// binding is the line of an audit log that says that a pod got its node.
type binding struct {
	pod string
	at  time.Time
}

// bindings are those that API servers have answered with yes, by their audit logs, in the order of time.
func (c *scaleCluster) bindings(t *testing.T) []binding {
	t.Helper()
	var found []binding
	for _, m := range c.masters {
		files, err := filepath.Glob(filepath.Join(m.root, "var/log/kube-apiserver/*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no audit log: %v", m.name(), err)
		}
		for _, file := range files {
			found = append(found, bindingsIn(t, file)...)
		}
	}
	slices.SortFunc(found, func(a, b binding) int { return a.at.Compare(b.at) })
	return found
}

func bindingsIn(t *testing.T, file string) []binding {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var lines io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if lines, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var found []binding
	scanner := bufio.NewScanner(lines)
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		var line struct {
			Verb      string
			ObjectRef struct{ Resource, Subresource, Namespace, Name string }
			Response  struct{ Code int } `json:"responseStatus"`
			At        time.Time          `json:"stageTimestamp"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v in %.200q", file, err, scanner.Text())
		}
		if o := line.ObjectRef; o.Resource == "pods" && o.Subresource == "binding" && line.Verb == "create" && line.Response.Code == http.StatusCreated {
			found = append(found, binding{o.Namespace + "/" + o.Name, line.At})
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return found
}

// write leaves the figures in the build directory, and in the test's log.
func (f *scaleFigures) write(t *testing.T) {
	t.Helper()
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "build", fmt.Sprintf("scale-%d-%d-%d.json", f.Masters, f.Nodes, f.Pods))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| process, MiB | now | peak | processor, s | restarts |\n|---|---|---|---|---|\n")
	for _, m := range f.Memory {
		fmt.Fprintf(&b, "| %s, %s | %.0f | %.0f | %.1f | %d |\n", m.Daemon, m.When, m.Now, m.Peak, m.CPU, m.Restarts)
	}
	fmt.Fprintf(&b, "\n| request | count | p50, ms | p99, ms |\n|---|---|---|---|\n")
	for _, r := range f.Requests[:min(len(f.Requests), 16)] {
		fmt.Fprintf(&b, "| %s %s | %d | %.1f | %.1f |\n", r.Verb, r.Resource, r.Count, r.P50*1000, r.P99*1000)
	}
	f.Requests, f.Memory = nil, nil
	text, err = json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n\n%s\n%s", file, b.String(), text)
}
