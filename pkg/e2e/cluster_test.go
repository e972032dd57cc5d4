package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// answerWithin is the time limit of a request, and the interval of retries: long for a working server, short for one
// that has just stopped.
const answerWithin = time.Minute

// TestCluster boots one machine with every role, and tests the functions of a cluster.
func TestCluster(t *testing.T) {
	needMachines(t, 6*time.Minute)
	slots <- struct{}{}
	defer func() { <-slots }()
	ctx, cancel := context.WithTimeout(interrupted, clusterBound)
	defer cancel()
	// Before the machine has the computer's processors for itself: it may have to be built.
	bench := packBench(t)
	isUp := fits(t, 4*time.Minute)
	// The machine outlives the time for the parts, so that a wait that did not end can say what the machine was at.
	c := startCluster(interrupted, t)
	c.bench = bench
	c.comesUp(ctx, t)
	isUp()
	const clusters = labTakes + faultsTakes // the tests after this one, which its longest parts leave their time
	// Sequentially: the machine has two emulated processors.
	for _, part := range []struct {
		name        string
		run         func(context.Context, *testing.T)
		takes, then time.Duration
	}{
		{"timeline", c.timeline, time.Minute, 0},
		{"dns", c.dns, time.Minute, 0},
		{"node", c.node, 0, 0},
		{"anonymous", c.anonymous, 0, 0},
		{"restricted", c.restricted, 0, 0},
		{"encrypted", c.encrypted, 0, 0},
		{"ports", c.ports, 0, 0},
		{"exposure", c.exposure, 20 * time.Second, 0},
		{"memory", c.memory, 0, 0},
		{"pods", c.pods, 80 * time.Second, 0},
		{"metadata", c.metadata, time.Minute, 0},
		{"confined", c.confined, 0, 0},
		{"network policy", c.networkPolicy, 0, 0},
		{"space", c.space, 3 * time.Minute, clusters},
		{"taint", c.taint, 0, 0},
		{"extended", c.extended, time.Minute, clusters},
		{"metrics", c.metrics, 150 * time.Second, clusters},
		{"cis", c.cis, 2 * time.Minute, clusters},
	} {
		t.Run(part.name, func(t *testing.T) {
			defer fits(t, part.takes, part.then)()
			defer c.evidence(t)
			part.run(ctx, t)
		})
	}
	t.Run("outside", func(t *testing.T) { c.outside(ctx, t) })
}

// evidence logs what a machine whose part of a test failed was doing: its load, its memory, and what of the cluster is not well.
func (c *cluster) evidence(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(interrupted, 5*time.Minute)
	defer cancel()
	t.Logf("the machine:\n%s", c.shell(ctx, t, `uptime; free -m; head -n 2 /proc/pressure/*
		top -b -n 1 -w 120 | sed -n 7,17p
		systemctl list-units --failed --no-legend
		export KUBECONFIG=/run/hardtack/pki/admin/kubeconfig
		kubectl get nodes,pods -A -o wide; kubectl get apiservices | grep -v True
		kubectl get events -A --sort-by=.lastTimestamp | tail -n 20
		for pod in $(kubectl get pods -n kube-system -o name); do
			echo "$pod"; kubectl logs -n kube-system $pod --previous --tail=10 2>/dev/null; kubectl logs -n kube-system $pod --tail=10; done
		journalctl -b -p warning -n 100 --no-pager | grep -v hardtack-shell`))
	// The summary of a run has the last lines of a test, and of each the beginning.
	t.Logf("its pods: %s", strings.ReplaceAll(c.shell(ctx, t, `cut -d' ' -f1-3 /proc/loadavg
		kubectl --kubeconfig /run/hardtack/pki/admin/kubeconfig get pods -A --no-headers | awk '{print $2, $3, $4, $5}' | sort -k2`), "\n", ", "))
}

// comesUp waits until the node is ready, and logs the progress.
func (c *cluster) comesUp(ctx context.Context, t *testing.T) {
	t.Helper()
	c.await(ctx, t, "the API server", func() (bool, string) {
		code, body, err := c.get(ctx, c.admin, "/readyz")
		return code == http.StatusOK, fmt.Sprint(code, " ", innermost(err), " ", firstLine(body))
	})
	c.await(ctx, t, "the node", func() (bool, string) {
		nodes, err := c.kube.Nodes(ctx)
		if err != nil || len(nodes) == 0 {
			return false, fmt.Sprintf("%d nodes, %v", len(nodes), err)
		}
		return nodes[0].Ready, fmt.Sprintf("%s ready: %v", nodes[0].Name, nodes[0].Ready)
	})
	c.up = true
}

// innermost is the cause of an error, which is the same at each try, unlike the ports in the rest of its text.
func innermost(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

// still is how long a state that is waited on may stay the same; on two emulated processors the longest was 2m17s.
const still = 15 * time.Minute

// await polls until done returns true. What ends it is the machine's end, the whole test's, or a state that stays the same.
func (c *cluster) await(ctx context.Context, t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	last, changed := "", time.Now()
	for {
		ok, state := done()
		if state != last {
			t.Logf("%s after power-on: %s: %s", time.Since(c.machine.Started()).Round(time.Second), what, state)
			last, changed = state, time.Now()
		}
		if ok {
			return
		}
		if time.Since(changed) > still {
			t.Fatalf("waiting for %s: nothing has changed for %v: %s", what, still, state)
		}
		c.hopeful(t, what)
		select {
		case <-time.After(time.Second):
		case <-c.machine.Ended():
			if c.machine.EmulatorCrash() && c.again != nil {
				t.Logf("%s after power-on: QEMU's emulator crashed the machine, which is powered on again, once; its console ended with:\n%s",
					time.Since(c.machine.Started()).Round(time.Second), c.machine.Console().Tail(consoleTail))
				if err := c.again(); err != nil {
					t.Fatal(err)
				}
				c.again = nil
				continue
			}
			t.Fatalf("waiting for %s: the machine has ended; its console ends with:\n%s", what, c.machine.Console().Tail(consoleTail))
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v; last: %s", what, context.Cause(ctx), state)
		}
	}
}

// hopeful ends the wait for a machine without a role, since it does not get one later.
func (c *cluster) hopeful(t *testing.T, what string) {
	t.Helper()
	for line := range strings.Lines(c.machine.Console().String()) {
		if f, ok := reason.Parse(line); ok && f.Unit == reader {
			t.Fatalf("waiting for %s: %s: [%s] %s", what, f.Unit, f.Reason, f.Cause)
		}
	}
}

// get asks the API server for a path.
func (c *cluster) get(ctx context.Context, who *rest.Config, path string) (int, string, error) {
	return c.do(ctx, who, http.MethodGet, path, "", "")
}

// do sends a request, with a body in JSON unless that is empty.
func (c *cluster) do(ctx context.Context, who *rest.Config, method, path, kind, body string) (int, string, error) {
	return send(ctx, who, method, path, kind, body)
}

// send sends a request to an API server, with a body of that media type unless it is empty, and returns the answer's
// code and text.
func send(ctx context.Context, who *rest.Config, method, path, kind, body string) (int, string, error) {
	client, err := rest.HTTPClientFor(who)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, who.Host+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		request.Header.Set("Content-Type", kind)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := readAll(answer.Body)
	return answer.StatusCode, text, errors.Join(err, answer.Body.Close())
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// timeline reads the machine's timeline of its own boot.
func (c *cluster) timeline(ctx context.Context, t *testing.T) {
	t.Helper()
	var found timeline.Timeline
	c.await(ctx, t, "the machine's own word that it is ready", func() (bool, string) {
		for line := range strings.Lines(c.machine.Console().String()) {
			if one, ok := timeline.Parse(line); ok {
				found = one
				return true, "is there"
			}
		}
		return false, "is not there"
	})
	// Lines that were written while the timeline waited have the same form.
	text, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	keep(t, "cluster-timeline.json", text)
	for _, name := range []string{"etcd.service", "kube-apiserver.service", "kubelet.service", "flanneld.service", "hardtack-controller.service"} {
		if !strings.Contains(string(text), `"`+name+`"`) {
			t.Errorf("the timeline has no %s", name)
		}
	}
	// The other daemons are left out: on an overloaded processor they lose their leases, or time out, and exit by
	// themselves.
	const waiting = "kubelet.service 'hardtack-*.service'"
	restarts := c.shell(ctx, t, "systemctl show --property=Id,NRestarts "+waiting+" | grep -v '^$' | paste - - | grep -v NRestarts=0")
	if restarts != "" {
		t.Errorf("units were started again, where they should have waited:\n%s", restarts)
	}
	// A daemon's wait runs in a process before the daemon's own.
	if gave := c.shell(ctx, t, "journalctl --boot --quiet --no-pager _PID=1 | grep -F 'Control process exited'"); gave != "" {
		t.Errorf("what waits before a daemon starts has given up:\n%s", gave)
	}
}

// dns waits for the cluster's own DNS.
func (c *cluster) dns(ctx context.Context, t *testing.T) {
	t.Helper()
	c.rolledOut(ctx, t, "kube-system", "coredns")
}

// rolledOut waits until every pod of a Deployment has its current template and is available.
func (c *cluster) rolledOut(ctx context.Context, t *testing.T, namespace, name string) {
	t.Helper()
	c.await(ctx, t, name, func() (bool, string) {
		var d struct {
			Metadata struct {
				Generation int `json:"generation"`
			} `json:"metadata"`
			Spec struct {
				Replicas int `json:"replicas"`
			} `json:"spec"`
			Status struct {
				Generation int `json:"observedGeneration"`
				Replicas   int `json:"replicas"`
				Updated    int `json:"updatedReplicas"`
				Available  int `json:"availableReplicas"`
			} `json:"status"`
		}
		code, body, err := c.get(ctx, c.admin, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name)
		if err != nil || code != http.StatusOK {
			return false, fmt.Sprint(code, " ", err)
		}
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			return false, err.Error()
		}
		want, have := d.Spec.Replicas, d.Status
		return want > 0 && have.Generation == d.Metadata.Generation && have.Updated == want && have.Replicas == want && have.Available == want,
			fmt.Sprintf("%d of %d are of the present template, %d available", have.Updated, want, have.Available)
	})
}

// node checks the registered Node, and the changes that the controller made to it.
func (c *cluster) node(ctx context.Context, t *testing.T) {
	t.Helper()
	code, body, err := c.get(ctx, c.admin, "/api/v1/nodes/"+clusterNode)
	if err != nil || code != http.StatusOK {
		t.Fatal(code, body, err)
	}
	for _, want := range []string{
		`"node-role.kubernetes.io/masters"`, `"node-role.kubernetes.io/minions"`, `"node-role.kubernetes.io/control-plane"`,
		`"podCIDR":"10.244.0.0/24"`, `"effect":"NoSchedule"`, `"flannel.alpha.coreos.com/public-ip":"10.1.0.10"`,
	} {
		if !strings.Contains(strings.ReplaceAll(body, `": "`, `":"`), want) {
			t.Errorf("the node has no %s:\n%s", want, body)
		}
	}
}

// extended has the API server of the same machine ask pods.
func (c *cluster) extended(ctx context.Context, t *testing.T) {
	t.Helper()
	c.reaches(ctx, t, "e2e", func(what string, done func() (bool, string)) { c.await(ctx, t, what, done) })
}

// reaches has pods serve what API servers ask them for: a validating webhook, an aggregated API, and pages by the proxies of pods
// and Services. The aggregated API is told who asks, which is the client's user.
func (c *cluster) reaches(ctx context.Context, t *testing.T, user string, await func(what string, done func() (bool, string))) {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.NewAuthority("hello-extend", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Profile{Name: "hello-extend", Names: []string{"hello-extend.kube-system.svc"}, Usage: pki.Server, Life: time.Hour * 2}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString
	c.apply(ctx, t, "extend", map[string]string{
		"CERTIFICATE": text(pair.Certificate), "KEY": text(pair.Key), "CA": text(pki.EncodeCertificate(authority.Certificate))})
	for what, path := range map[string]string{
		"a pod's page by the API server's proxy":     "/api/v1/namespaces/kube-system/pods/hello-extend:8080/proxy/",
		"a Service's page by the API server's proxy": "/api/v1/namespaces/kube-system/services/hello-extend:web/proxy/",
	} {
		await(what, func() (bool, string) {
			code, body, err := c.get(ctx, c.admin, path)
			return code == http.StatusOK && strings.HasPrefix(body, "hello from "), fmt.Sprint(code, " ", err, " ", firstLine(body))
		})
	}
	await("the aggregated API", func() (bool, string) {
		code, body, err := c.get(ctx, c.admin, "/apis/hello.hardtack.dev/v1/greetings/hello")
		return code == http.StatusOK && strings.Contains(body, `"to":"`+user+`"`), fmt.Sprint(code, " ", err, " ", firstLine(body))
	})
	object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{%s}}}`
	const path = "/api/v1/namespaces/default/configmaps"
	await("an object that the webhook lets pass", func() (bool, string) {
		code, body, err := c.do(ctx, c.admin, http.MethodPost, path, "application/json", fmt.Sprintf(object, "passes", ""))
		return code == http.StatusCreated || code == http.StatusConflict, fmt.Sprint(code, " ", err, " ", firstLine(body))
	})
	code, body, err := c.do(ctx, c.admin, http.MethodPost, path, "application/json", fmt.Sprintf(object, "refused", `"hello.hardtack.dev/refuse":"yes"`))
	if err != nil || code < 400 || !strings.Contains(body, "hello refuses what has the label") {
		t.Errorf("an object that the webhook refuses: %d %s %v", code, body, err)
	}
}

// metrics: the add-on answers what people ask by kubectl top, of a node and of its pods.
func (c *cluster) metrics(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, what := range []string{"nodes", "pods -n kube-system"} {
		c.await(ctx, t, "kubectl top "+what, func() (bool, string) {
			out := c.shell(ctx, t, "kubectl --kubeconfig /run/hardtack/pki/admin/kubeconfig top "+what+" --no-headers")
			// A node's line ends in its share of the memory, a pod's in its MiB.
			return regexp.MustCompile(`(?m)^(` + clusterNode + `|metrics-server-\S+) +[1-9][0-9]*m .* [1-9][0-9]*(%|Mi) *$`).MatchString(out), out
		})
	}
	code, body, err := c.get(ctx, c.admin, "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io")
	if err != nil || code != http.StatusOK || strings.Contains(body, "insecureSkipTLSVerify") {
		t.Errorf("the API server does not verify metrics-server: %d %s %v", code, body, err)
	}
}

// services is the default range of Services.
var services = netip.MustParsePrefix("10.96.0.0/16")

// outside asserts that the machine fetched nothing from the internet, and lists the attempts. The API server asks metrics-server
// from its APIService's first second on; before kube-proxy's first rules are in, such a packet's way is the default route, and
// no router knows that address.
func (c *cluster) outside(_ context.Context, t *testing.T) {
	t.Helper()
	for _, a := range c.network.Refused() {
		if services.Contains(a.Dst.Addr()) && a.Packets <= 3 {
			t.Logf("before kube-proxy's first rules: %d packets to the Service %s", a.Packets, a.Dst)
			continue
		}
		t.Errorf("the machine wanted %d bytes of %s at %s", a.Bytes, a.Proto, a.Dst)
	}
}
