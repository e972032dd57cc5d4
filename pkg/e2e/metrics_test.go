package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/monitoring"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const metricsDocument = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
store: dir:/etc/hardtack/store
groups:
- {name: masters, roles: [masters, etcd]}
- {name: minions, roles: [minions]}
etcd: {backup: {to: dir:/var/backups/etcd}}
`

// metricsJobs are the jobs of that document but kubelet and cadvisor, whose targets want machines: there are none here.
var metricsJobs = []string{"coredns", "etcd", "hardtack", "konnectivity-server", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

const (
	prometheusAddress = "127.0.0.1:9090"
	metricsCoreDNS    = "coredns-1"
)

// TestMetrics gives a real Prometheus what hardtack monitoring writes for a real control plane: it reaches every target, takes every rule,
// and has what every panel shows, which a Grafana draws where one is here. Without its certificate there is nothing to read, and with it
// nothing but metrics.
func TestMetrics(t *testing.T) {
	needMachines(t, 2*time.Minute)
	needNamespaces(t)
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not on PATH: run scripts/setup --judges, and the test by make")
	}
	dir := t.TempDir()
	lock := programs.DefaultLock(t)
	used := []string{"etcd", "kubernetes", "konnectivity", "coredns"}
	programs.NeedBuilt(t, lock, used...)
	programs.Install(t, dir, lock, used...)
	buildAgent(t, dir)
	if !inMaster(t, dir) {
		return
	}
	m := &metricsRun{scaleRun: &scaleRun{scaleCluster: newScaleCluster(t, dir, metricsDocument)}}
	m.start(t)
	m.masters[0].daemon(t, "konnectivity-server")
	kubeconfig := m.file(t, "admin.kubeconfig", m.kubeconfig(t, "admin", pki.GroupAdmins))
	sh(t, "$1 --kubeconfig=$2 apply -f $3", filepath.Join(dir, programs.Bin, "kubectl"), kubeconfig, filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/12-metrics.yaml"))
	m.report(t)
	m.coredns(t)
	m.node(t)
	m.prometheus(t, prometheus)

	m.until(t, 3*time.Minute, "targets that are up", func() []string { return m.targetsWrong(t) })
	m.until(t, 3*time.Minute, "rules that are evaluated", func() []string { return m.rulesWrong(t) })
	m.until(t, 3*time.Minute, "panels that show something", func() []string { return m.panelsWrong(t) })
	t.Run("Grafana", func(t *testing.T) {
		data, _ := m.dashboard(t)
		grafanaShows(t, prometheusAddress, data)
	})
	m.refused(t)
	m.faults(t)
}

type metricsRun struct {
	*scaleRun
	files string
}

// report writes what the agent of etcd's member reports every minute, since it does not run here.
func (m *metricsRun) report(t *testing.T) {
	t.Helper()
	now := time.Now()
	status := etcd.Status{
		At: now, Instance: "master", Epoch: 1, MemberID: 1, ClusterID: 1, Row: etcd.SRuns, Leader: 1,
		Store:    etcd.Content{Version: "3.6", RaftIndex: 1, Revision: 1, Size: 1 << 20, InUse: 1 << 19, Quota: 4 << 30},
		Backup:   &etcd.Backup{Restore: etcd.Restore{Object: "x", SHA256: strings.Repeat("0", 64), Revision: 1}, At: now, Verified: now},
		Verified: &etcd.Backup{Restore: etcd.Restore{Object: "x", SHA256: strings.Repeat("0", 64), Revision: 1}, At: now, Verified: now},
	}
	if err := m.store.Put(t.Context(), etcd.StatusObject(machine.LoneMember), etcd.Encode(status)); err != nil {
		t.Fatal(err)
	}
}

// node registers one that never becomes ready, and has no address to scrape.
func (m *metricsRun) node(t *testing.T) {
	t.Helper()
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}
	if err := m.api.Post().Resource("nodes").Body(&node).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// coredns runs CoreDNS with the image's way to its metrics, at the address of a pod, and asks it for a name now and then.
func (m *metricsRun) coredns(t *testing.T) {
	t.Helper()
	config := m.file(t, "Corefile", []byte(".:1053 {\n  bind 10.78.0.1\n  hosts {\n    10.9.9.9 a.example\n  }\n  prometheus 10.78.0.1:9153\n}\n"))
	daemon(t, filepath.Join(m.dir, "usr/bin/coredns"), "-conf", config)
	labels := map[string]string{"k8s-app": "kube-dns"}
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: metricsCoreDNS, Namespace: "kube-system", Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "coredns", Image: "coredns"}}, AutomountServiceAccountToken: new(bool)},
	}
	space := m.api.Post().Namespace("kube-system").Resource("pods").Body(&pod)
	if err := space.Do(t.Context()).Into(&pod); err != nil {
		t.Fatal(err)
	}
	pod.ResourceVersion = "" // whatever the scheduler has written meanwhile: it finds no node
	pod.Status.PodIP, pod.Status.PodIPs = "10.78.0.1", []corev1.PodIP{{IP: "10.78.0.1"}}
	if err := m.api.Put().Namespace("kube-system").Resource("pods").Name(pod.Name).SubResource("status").Body(&pod).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	go func() {
		question := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		for t.Context().Err() == nil {
			_, _, _ = new(dns.Client).ExchangeContext(t.Context(), question, "10.78.0.1:1053")
			time.Sleep(200 * time.Millisecond)
		}
	}()
}

// daemon runs a program until the test ends.
func daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	var log run.Log
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	showOnFailure(t, filepath.Base(name), &log)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// names serves the masters' record, which Prometheus asks for: it reads no /etc/hosts.
func (m *metricsRun) names(t *testing.T) {
	t.Helper()
	server := &dns.Server{Addr: "127.0.0.1:53", Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetReply(q)
		if q.Question[0].Name == scaleName+"." && q.Question[0].Qtype == dns.TypeA {
			for _, master := range m.masters {
				answer.Answer = append(answer.Answer, &dns.A{Hdr: dns.RR_Header{Name: scaleName + ".", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: net.ParseIP(master.address)})
			}
		}
		_ = w.WriteMsg(answer)
	})}
	listening := make(chan struct{})
	server.NotifyStartedFunc = func() { close(listening) }
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-listening:
	}
	t.Cleanup(func() { _ = server.Shutdown() })
	sh(t, "rm -f /etc/resolv.conf; echo nameserver 127.0.0.1 >/etc/resolv.conf")
}

// prometheus writes the files of the document, and starts Prometheus with them; only the intervals are a test's.
func (m *metricsRun) prometheus(t *testing.T, program string) {
	t.Helper()
	m.names(t)
	m.files = filepath.Join(m.dir, "monitoring")
	if err := os.Mkdir(m.files, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := monitoring.Files(completed(t, metricsDocument))
	if err != nil {
		t.Fatal(err)
	}
	var kubelets [2][]byte
	for i, suffix := range []string{pki.Crt, pki.Key} {
		if kubelets[i], err = m.store.Get(t.Context(), pki.KubeletServingCA+suffix); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := pki.ParseAuthority(kubelets[0], kubelets[1])
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := monitoring.Credentials(m.authority, ca, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(files, credentials)
	files[monitoring.Configuration] = []byte(strings.ReplaceAll(string(files[monitoring.Configuration]), monitoring.Interval, "5s"))
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(m.files, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	daemon(t, program, "--config.file="+filepath.Join(m.files, monitoring.Configuration), "--storage.tsdb.path="+filepath.Join(m.dir, "tsdb"), "--web.listen-address="+prometheusAddress)
}

// targetsWrong are the jobs without a target, and the targets that are not up.
func (m *metricsRun) targetsWrong(t *testing.T) []string {
	t.Helper()
	var data struct {
		Active []struct {
			Labels                       map[string]string
			Health, LastError, ScrapeURL string
		} `json:"activeTargets"`
	}
	if err := m.ask(t, "targets?state=active", &data); err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	seen := map[string]string{}
	for _, a := range data.Active {
		seen[a.Labels["job"]] = a.Labels["instance"]
		if a.Health != "up" {
			wrong = append(wrong, fmt.Sprintf("%s is %s: %s", a.ScrapeURL, a.Health, a.LastError))
		}
	}
	if jobs := slices.Sorted(maps.Keys(seen)); !slices.Equal(jobs, metricsJobs) {
		wrong = append(wrong, fmt.Sprintf("the jobs with targets are %v", jobs))
	}
	for job, instance := range seen {
		want := m.masters[0].address
		if job == "coredns" {
			want = metricsCoreDNS
		}
		if instance != want {
			wrong = append(wrong, fmt.Sprintf("the instance of %s is %s and not %s", job, instance, want))
		}
	}
	return wrong
}

// rulesWrong are the rules that cannot be evaluated, or fire.
func (m *metricsRun) rulesWrong(t *testing.T) []string {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	if err := m.ask(t, "rules", &data); err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	n := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			n++
			// The node is lost; and only that pages, after ten minutes.
			quiet := r.State == "inactive" || r.Name == "HardtackNodeNotReady" && r.State == "pending"
			if r.Health != "ok" || !quiet {
				wrong = append(wrong, fmt.Sprintf("%s is %s, %s: %s", r.Name, r.State, r.Health, r.LastError))
			}
		}
	}
	if n < 13 {
		wrong = append(wrong, fmt.Sprintf("%d rules", n))
	}
	return wrong
}

// get asks as the holder of a certificate, or without one.
func (m *metricsRun) get(t *testing.T, own *pki.Pair, address string) (int, error) {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pki.EncodeCertificates(m.authority.Trusted()))
	config := &tls.Config{RootCAs: trusted, ServerName: scaleName}
	if own != nil {
		pair, err := tls.X509KeyPair(own.Certificate, own.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 20 * time.Second}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// refused: who may not read metrics, and what who may read them may not.
func (m *metricsRun) refused(t *testing.T) {
	t.Helper()
	issue := func(name string, groups ...string) *pki.Pair {
		pair, err := m.authority.Issue(pki.Profile{Name: name, Groups: groups, Usage: pki.Client, Life: time.Hour}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return &pair
	}
	member, err := pki.MetricsClient(m.authority, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	master := m.masters[0].address
	api, agent := "https://"+master, fmt.Sprintf("https://%s:%d", master, role.MetricsPort)
	for _, c := range []struct {
		name, url string
		own       *pki.Pair
		code      int // 0: no answer
	}{
		{"nobody, of an API server", api + "/metrics", nil, 401},
		{"nobody, of a master", agent + "/metrics", nil, 0},
		{"nobody, of a scheduler", agent + "/metrics/kube-scheduler", nil, 0},
		{"nobody, where pods are", agent + "/targets/coredns", nil, 0},
		{"a node, of a master", agent + "/metrics", issue("system:node:x", "system:nodes"), 403},
		{"a node, of an API server", api + "/metrics", issue("system:node:x", "system:nodes"), 403},
		{"a person, of a controller manager", agent + "/metrics/kube-controller-manager", issue("jane"), 403},
		{"an administrator, of a master", agent + "/metrics", issue("admin", pki.GroupAdmins), 403},
		{"a scheduler by itself", fmt.Sprintf("https://%s:%d/metrics", master, role.SchedulerPort), &member, 0},
		{"etcd by itself", fmt.Sprintf("http://%s:%d/metrics", master, role.EtcdMetricsPort), &member, 0},
		{"Prometheus", agent + "/metrics", &member, 200},
		{"Prometheus, of an API server", api + "/metrics", &member, 200},
		{"Prometheus, a configuration", agent + "/metrics/kube-scheduler/../../configz", &member, 404},
		{"Prometheus, nodes", api + "/api/v1/nodes", &member, 403},
		{"Prometheus, pods", api + "/api/v1/namespaces/kube-system/pods", &member, 403},
		{"Prometheus, secrets", api + "/api/v1/secrets", &member, 403},
		{"Prometheus, a profile", api + "/debug/pprof/", &member, 403},
	} {
		code, err := m.get(t, c.own, c.url)
		if code != c.code || (err != nil) != (c.code == 0) {
			t.Errorf("%s: %d, %v, want %d", c.name, code, err, c.code)
		}
	}
	// What a kubelet asks before it shows its metrics, and before it runs something in a pod.
	for resource, want := range map[string]string{"metrics": "yes", "proxy": "no", "log": "no", "configz": "no"} {
		out, _ := exec.CommandContext(t.Context(), filepath.Join(m.dir, programs.Bin, "kubectl"), "--kubeconfig="+filepath.Join(m.dir, "admin.kubeconfig"),
			"auth", "can-i", "get", "nodes", "--subresource="+resource, "--as=hardtack:prometheus", "--as-group="+pki.GroupMetrics).Output()
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("may Prometheus get nodes/%s: %q, want %s", resource, got, want)
		}
	}
}

// faults: what breaks is seen.
func (m *metricsRun) faults(t *testing.T) {
	t.Helper()
	m.masters[0].daemons["kube-scheduler"].end()
	if err := os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost\n192.0.2.1 "+scaleName+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A member that has lost its quorum.
	if err := m.store.Put(t.Context(), etcd.StatusObject(machine.LoneMember), etcd.Encode(etcd.Status{At: time.Now(), Instance: "master", Epoch: 1, Row: etcd.SRuns})); err != nil {
		t.Fatal(err)
	}
	for _, alert := range []string{"HardtackTargetDown", "HardtackDNSNotWritten", "HardtackEtcdNoQuorum", "HardtackNodeNotReady", "HardtackBackupTooOld"} {
		m.until(t, 2*time.Minute, "the alarm "+alert, func() []string {
			found, err := m.query(t, fmt.Sprintf("ALERTS{alertname=%q}", alert))
			if err != nil || len(found) == 0 {
				return []string{fmt.Sprintf("%v, %v", found, err)}
			}
			return nil
		})
	}
	found, err := m.query(t, `up == 0`)
	if err != nil || len(found) != 1 || found[0].Metric["job"] != "kube-scheduler" {
		t.Errorf("down are %v, %v", found, err)
	}
}
