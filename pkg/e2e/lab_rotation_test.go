package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
)

// rotationCluster is one master and two minions.
const rotationCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd]}
- {name: minions, roles: [minions], size: 2}
registries:
- {name: registry.example.org, mirrors: ["http://10.1.0.3:5000"], mirrorsOnly: true}
- {name: "10.1.0.3:5000", credentials: true}
`

// readAnew is longer than it takes an API server to have read the files that hardtack-renew.service has changed: it looks
// every minute.
const readAnew = 2 * time.Minute

// TestLabRotation replaces the encryption key and the authorities of a running cluster, by the commands and the procedure
// that operators have, under a client each of whose requests is made once and must be answered: it reads and writes
// Secrets, uses service accounts' tokens, and reads logs of and runs commands in a pod on each node. A command that is cut
// off by the replacement of the API server's own certificate is run once more. No daemon is restarted.
func TestLabRotation(t *testing.T) {
	needTime(t)
	r := newLab(t, "rotation", rotationCluster)
	x := &rotation{running: r, status: r.until(t, "the cluster is ready", ready)}
	t.Run("a pod's image comes through a mirror that wants a password", func(t *testing.T) { labPulls(t, r) })
	x.prepare(t)
	daemons := x.daemons(t)
	stop := x.steady(t)
	x.step(t, pki.StepAdded)
	time.Sleep(readAnew)
	x.step(t, pki.StepUsed)
	x.step(t, pki.StepNone)
	time.Sleep(readAnew)
	for what, n := range stop() {
		t.Logf("%s: %d times", what, n)
		if n < 30 {
			t.Errorf("%s: the client came %d times only", what, n)
		}
	}
	// Each of the three steps replaces the certificate once, and each pod has one command at a time.
	if n, most := x.cut.Load(), int64(3*len(x.pods)); n > most {
		t.Errorf("%d commands were cut off, more than the %d that certificates' replacements account for", n, most)
	} else {
		t.Logf("%d commands were cut off by a certificate's replacement, and ran at the next try", n)
	}
	x.replaced(t)
	if now := x.daemons(t); now != daemons {
		t.Errorf("daemons were started again: they were\n%s\nand are\n%s", daemons, now)
	}
}

// rotation is a lab whose keys are replaced.
type rotation struct {
	*running
	status lab.Status
	// admin has the operator's client.
	admin      *cluster
	kubeconfig string
	pods       []string
	// cut counts the commands in pods that were cut off and run again.
	cut atomic.Int64
	// first and last are the states of what is replaced, before the first step and now, by the command's name.
	first, last map[string]authority.Rotation
}

// rotated lists the commands of hardtack pki rotate whose keys every daemon reads anew. TestRotation has the others: a lab
// with one master is away for the seconds of a start.
func rotated() []string {
	return []string{"encryption", pki.ShortName(pki.FrontProxyCA)}
}

// prepare starts what the client asks.
func (x *rotation) prepare(t *testing.T) {
	t.Helper()
	text, err := x.Kubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(x.kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	x.admin = newClient(t, text)
	x.admin.apply(t.Context(), t, "rotation", nil)
	if open := eventually(labStill, func() []string {
		x.pods = nil
		for _, p := range x.admin.list(t.Context(), t).Items {
			if p.Status.Phase == "Running" {
				x.pods = append(x.pods, p.Metadata.Name)
			}
		}
		if len(x.pods) != 2 {
			time.Sleep(time.Second)
			return []string{fmt.Sprintf("the pods that run are %v", x.pods)}
		}
		return nil
	}); len(open) > 0 {
		t.Fatal(open)
	}
	x.first = x.rotate(t, "--status")
	x.last = x.first
}

// rotate runs the command for everything that can be replaced, and returns the states by its names.
func (x *rotation) rotate(t *testing.T, flags ...string) map[string]authority.Rotation {
	t.Helper()
	states := map[string]authority.Rotation{}
	for _, name := range rotated() {
		args := append([]string{"lab", "aws", "--name", x.home.Name, x.bin, "pki", "rotate", name, "--cluster", "demo", "--yes", "--json"}, flags...)
		if name == "encryption" {
			args = append(args, "--kubeconfig", x.kubeconfig)
		}
		out, err := x.run(t.Context(), args...)
		var state authority.Rotation
		if err == nil {
			err = json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &state)
		}
		if err != nil {
			t.Fatalf("pki rotate %s: %v: %s", name, err, out)
		}
		states[name] = state
	}
	return states
}

// step takes a step of every replacement, and has every machine take it.
func (x *rotation) step(t *testing.T, want string) {
	t.Helper()
	x.last = x.rotate(t, "--taken")
	for name, state := range x.last {
		if state.Step != want {
			t.Fatalf("%s is at step %q, want %q", name, state.Step, want)
		}
	}
	for _, m := range x.status.Machines {
		if out := x.ask(t, m.ID, "systemctl start hardtack-renew; systemctl show --property=Result,ExecMainStatus hardtack-renew"); !strings.Contains(out, "Result=success") || !strings.Contains(out, "ExecMainStatus=0") {
			t.Fatalf("hardtack-renew of %s: %s", m.ID, out)
		}
	}
	t.Logf("%s: every machine has renewed at step %q", time.Now().UTC().Format(time.TimeOnly), want)
}

// replaced asserts that everything has another key, and that machines have only that.
func (x *rotation) replaced(t *testing.T) {
	t.Helper()
	for name, state := range x.last {
		if len(state.Keys) != 1 || slices.Contains(x.first[name].Keys, state.Keys[0]) {
			t.Errorf("%s: the keys were %v, and are %v", name, x.first[name].Keys, state.Keys)
		}
	}
	master, err := x.status.Find("masters")
	if err != nil {
		t.Fatal(err)
	}
	const dir = "/run/hardtack/pki/kube-apiserver/"
	trusted, err := pki.ParseTrusted([]byte(strings.TrimSpace(x.ask(t, master.ID, "cat "+dir+"front-proxy-ca.crt"))))
	if want := x.last[pki.ShortName(pki.FrontProxyCA)].Keys; err != nil || pki.Fingerprints(trusted) != want[0] {
		t.Errorf("the API server trusts %s, %v, want %v", pki.Fingerprints(trusted), err, want)
	}
	for _, secret := range []string{"still", "busy"} {
		raw := x.ask(t, master.ID, "etcdctl --endpoints=https://127.0.0.1:2379 --cacert="+dir+"etcd-ca.crt --cert="+dir+"etcd-client.crt --key="+dir+
			"etcd-client.key --dial-timeout=1m --command-timeout=1m get --print-value-only /registry/secrets/default/"+secret+" | head -c 80 | tr -c '[:print:]' .")
		if !strings.Contains(raw, ":"+x.last["encryption"].Keys[0]+":") {
			t.Errorf("%s is in etcd as %q, want it encrypted with %v", secret, raw, x.last["encryption"].Keys)
		}
	}
}

// daemons are the processes of the machines' daemons.
func (x *rotation) daemons(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, m := range x.status.Machines {
		all.WriteString(m.ID + x.ask(t, m.ID, "systemctl show --property=Id,ExecMainPID etcd 'kube*.service' flanneld containerd hardtack-controller | paste -sd ' '"))
	}
	return all.String()
}

// steady starts the client. The returned function ends it, and returns how often it came for what.
func (x *rotation) steady(t *testing.T) (stop func() map[string]int) {
	t.Helper()
	for _, name := range []string{"still", "busy"} {
		if err := x.do(t.Context(), http.MethodPost, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"`+name+`"},"stringData":{"word":"0"}}`, http.StatusCreated, ""); err != nil {
			t.Fatal(err)
		}
	}
	requests := map[string]func(ctx context.Context, n int) error{
		"a Secret that nobody writes": func(ctx context.Context, _ int) error {
			return x.do(ctx, http.MethodGet, "/api/v1/namespaces/default/secrets/still", "", http.StatusOK, `"word":"MA=="`)
		},
		"a Secret, written and read": func(ctx context.Context, n int) error {
			word := fmt.Sprint(n)
			if err := x.do(ctx, http.MethodPatch, "/api/v1/namespaces/default/secrets/busy", `{"stringData":{"word":"`+word+`"}}`, http.StatusOK, ""); err != nil {
				return err
			}
			return x.do(ctx, http.MethodGet, "/api/v1/namespaces/default/secrets/busy", "", http.StatusOK, base64.StdEncoding.EncodeToString([]byte(word)))
		},
		"a service account's token": func(ctx context.Context, _ int) error { return x.token(ctx) },
	}
	for _, pod := range x.pods {
		requests["the log of "+pod] = func(ctx context.Context, _ int) error {
			return x.do(ctx, http.MethodGet, "/api/v1/namespaces/default/pods/"+pod+"/log?tailLines=5", "", http.StatusOK, "")
		}
		requests["a command in "+pod] = func(ctx context.Context, _ int) error {
			out, err := x.admin.exec(ctx, pod, "/hello", "fetch", "http://127.0.0.1:8080")
			if err != nil && cutOff(err) {
				x.cut.Add(1)
				out, err = x.admin.exec(ctx, pod, "/hello", "fetch", "http://127.0.0.1:8080")
			}
			if err == nil && !strings.Contains(out, "hello from") {
				err = fmt.Errorf("it prints %q", out)
			}
			return err
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	came := map[string]int{}
	for what, request := range requests {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				if err := request(t.Context(), n); err != nil { // one that has begun is not broken off
					t.Errorf("%s, %s: after %v: %v", began.UTC().Format(time.TimeOnly), what, time.Since(began).Round(time.Millisecond), err)
				}
				mu.Lock()
				came[what]++
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	end := func() map[string]int {
		cancel()
		clients.Wait()
		return maps.Clone(came)
	}
	t.Cleanup(func() { end() })
	return end
}

// cutOff tells whether the API server has just read another certificate for kubelets: client-go then closes all that it has open to
// them. By a tunnel of konnectivity the other end of that is the end of the stream: while the command is dialled, or while it runs.
func cutOff(err error) bool {
	return slices.ContainsFunc([]string{"use of closed network connection", "error dialing backend: EOF", "close 1006 (abnormal closure)", "unable to upgrade streaming request: unexpected EOF"}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
}

// do makes a request once, and says if the answer has another code or lacks a text.
func (x *rotation) do(ctx context.Context, method, path, body string, want int, has string) error {
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	code, text, err := send(ctx, x.admin.admin, method, path, kind, body)
	if err != nil {
		return err
	}
	if code != want || !strings.Contains(text, has) {
		return fmt.Errorf("%s %s: %d, want %d and %q: %s", method, path, code, want, has, text)
	}
	return nil
}

// token gets a service account's token, and asks in its name.
func (x *rotation) token(ctx context.Context) error {
	const kind = `"apiVersion":"authentication.k8s.io/v1","kind":`
	code, text, err := send(ctx, x.admin.admin, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token", "application/json", "{"+kind+`"TokenRequest"}`)
	if err != nil {
		return err
	}
	var got struct{ Status struct{ Token string } }
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusCreated {
		return errors.Join(err, fmt.Errorf("a token: %d %s", code, text))
	}
	who := rest.AnonymousClientConfig(x.admin.admin)
	who.BearerToken = got.Status.Token
	code, text, err = send(ctx, who, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", "application/json", "{"+kind+`"SelfSubjectReview"}`)
	if err == nil && (code != http.StatusCreated || !strings.Contains(text, "system:serviceaccount:default:default")) {
		err = fmt.Errorf("asking with it: %d %s", code, text)
	}
	return err
}
