package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest"
	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// The API servers of the test, by the names of their logs.
var apiServers = map[string]string{"api-a": "127.0.0.1", "api-b": "10.77.0.12"}

// memberRests is the time from a member of etcd that works again to the next one that is stopped. On machines it is most of a
// minute: each has its turn.
const memberRests = 10 * time.Second

// TestRotation replaces the authorities and the key that daemons read only at their start, in a control plane of three
// members of etcd and two API servers. Its clients read and write all the time, and none of their requests may fail.
func TestRotation(t *testing.T) {
	needTime(t)
	needNamespaces(t)
	dir := t.TempDir()
	programs.Install(t, dir, programs.DefaultLock(t), "etcd", "kubernetes")
	buildAgent(t, dir)
	if !inMaster(t, dir) {
		return
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "add", apiServers["api-b"]+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := &keysCluster{master: newMaster(t, dir), all: t}
	r.begin(t)
	for _, name := range []string{pki.KubernetesCA, pki.EtcdClientCA, pki.EtcdPeerCA, pki.ServiceAccount} {
		t.Run(pki.ShortName(name), func(t *testing.T) { r.rotate(t, name) })
	}
	t.Run("one at a time", r.lease)
}

// rotate takes the three steps. Between them an operator does what the command says, kubelets renew, and a machine joins.
func (r *keysCluster) rotate(t *testing.T, name string) {
	node := func() *rest.Config {
		c := kubeconfig(t, pki.Dir+"/kubelet/kubeconfig")
		if err := rest.LoadTLSFiles(c); err != nil {
			t.Fatal(err)
		}
		c.CAFile, c.CertFile, c.KeyFile = "", "", ""
		// A minion's: the kubelet of a master asks its own API server, and waits while that is started again.
		c.Host = "https://masters.demo.k8s"
		return c
	}
	old := map[string]*rest.Config{"person": r.person(t), "node": node(), "pod": r.pod(t)}
	etcdOld := map[string]tls.Certificate{}
	for address, pair := range map[string]string{"127.0.0.1:2379": "kube-apiserver/etcd-client", "127.0.0.1:2380": "etcd/peer"} {
		crt, err := tls.LoadX509KeyPair(filepath.Join(pki.Dir, pair+".crt"), filepath.Join(pki.Dir, pair+".key"))
		if err != nil {
			t.Fatal(err)
		}
		etcdOld[address] = crt
	}
	pollers := map[string]*poller{
		"person": {what: "a person", path: "/api/v1/namespaces/default/configmaps/busy", config: rest.CopyConfig(old["person"])},
		"node":   {what: "a node", path: "/api/v1/nodes/node-a", config: node()},
		"pod":    {what: "a pod", path: "/api/v1/namespaces/default/configmaps/pod", config: rest.CopyConfig(old["pod"])},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var polling sync.WaitGroup
	for _, p := range pollers {
		polling.Go(func() {
			for ctx.Err() == nil {
				begun := r.starting.Load()
				err := p.once(t.Context())
				if begun = begun || r.starting.Load(); begun && apierrors.IsForbidden(err) {
					r.early.Add(1)
				} else if err != nil {
					t.Errorf("%s: %v", time.Now().Format(time.TimeOnly), err)
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
	defer polling.Wait()
	defer cancel()
	for _, step := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
		began := time.Now()
		state, err := authority.RotateAuthority(t.Context(), r.store, "demo", name, authority.RotateOptions{Now: time.Now(), Taken: true})
		if err != nil || state.Step != step {
			t.Fatalf("%v: step %s, want %s", err, state.Step, step)
		}
		if out, err := r.run(t, "hardtack-agent", "renew", "--patience=20s"); err != nil {
			t.Fatalf("hardtack-agent renew: %v\n%s", err, out)
		}
		restarted := r.restart(t)
		t.Logf("%s: step %s, started again: %v, after %v", began.Format(time.TimeOnly), step, restarted, time.Since(began).Round(time.Second))
		switch {
		case name == pki.KubernetesCA && step == pki.StepAdded:
			r.published(t, 2)
			time.Sleep(65 * time.Second) // API servers look every minute, if nothing tells them before
			pollers["person"].become(r.person(t))
			pollers["node"].become(node())
			pollers["pod"].become(r.pod(t))
		case step == pki.StepUsed:
			if name == pki.KubernetesCA {
				r.rejoin(t)
			}
			pollers["person"].become(r.person(t))
			pollers["node"].become(node())
			pollers["pod"].become(r.pod(t))
			// What the old one has signed is good until the end.
			for who, c := range old {
				c.CAData = []byte(r.text(t, config.CAFile))
				p := &poller{what: "the old " + who, path: pollers[who].path, config: c}
				if err := p.once(t.Context()); err != nil {
					t.Errorf("step %s: %v", step, err)
				}
			}
		}
		if name == pki.KubernetesCA {
			r.launch(t)
		}
	}
	cancel()
	polling.Wait()
	t.Logf("%d answers of API servers that were not ready", r.early.Swap(0))
	for _, p := range pollers {
		if p.n < 20 {
			t.Errorf("%s came %d times", p.what, p.n)
		}
	}
	r.refused(t, name, old, etcdOld)
}

// published waits until the controller manager has given pods the authorities that are trusted.
func (r *keysCluster) published(t *testing.T, want int) {
	t.Helper()
	if pending := eventually(time.Minute, func() []string {
		text := r.mustKubectl(t, "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)
		if strings.Count(text, "BEGIN") != want {
			return []string{text}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatalf("pods trust: %v", pending)
	}
}

// rejoin stands for the kubelet, which gets another certificate within a week. The controller manager looks for another
// authority every minute.
func (r *keysCluster) rejoin(t *testing.T) {
	t.Helper()
	if pending := eventually(3*time.Minute, func() []string {
		if err := os.Remove(certs.NodeIdentity); err != nil {
			t.Fatal(err)
		}
		out, err := r.run(t, "hardtack-agent", "bootstrap", "--patience=30s")
		if err != nil {
			t.Fatalf("another certificate for the node: %v\n%s", err, out)
		}
		signer, err := pki.ParseCertificate([]byte(r.text(t, pki.Dir+"/kube-controller-manager/client-ca.crt")))
		if err != nil {
			t.Fatal(err)
		}
		if pair, err := tls.LoadX509KeyPair(certs.NodeIdentity, certs.NodeIdentity); err != nil || pair.Leaf.CheckSignatureFrom(signer) != nil {
			return []string{fmt.Sprint("signed by the old authority: ", err)}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatal(pending)
	}
}

// launch starts a machine that trusts what the store says, and joins.
func (r *keysCluster) launch(t *testing.T) {
	t.Helper()
	r.joined++
	node := fmt.Sprintf("launched-%d", r.joined)
	files := map[string]string{kubelet.EnvFile: "NODE_NAME=" + node + "\n", role.Minions.File(): r.text(t, role.Minions.File())}
	out, err := r.run(t, "hardtack-agent", "bootstrap", "--patience=50s", "--root="+imagestest.Root(t, files))
	if err != nil || !strings.Contains(out, "node "+node+", joined") {
		t.Errorf("a machine that is launched meanwhile: %v\n%s\n%s", err, out, tail(r.logs["controller"].String(), 10))
	}
}

// refused: nothing that the old one has signed is taken any more.
func (r *keysCluster) refused(t *testing.T, name string, old map[string]*rest.Config, etcdOld map[string]tls.Certificate) {
	t.Helper()
	who := map[string][]string{pki.KubernetesCA: {"person", "node"}, pki.ServiceAccount: {"pod"}}[name]
	for _, w := range who {
		c := old[w]
		c.CAData = []byte(r.text(t, config.CAFile))
		if err := (&poller{what: "the old " + w, path: "/api", config: c}).once(t.Context()); err == nil || !strings.Contains(err.Error(), "Unauthorized") && !strings.Contains(err.Error(), "the server has asked for the client to provide credentials") {
			t.Errorf("the old %s: %v, want it refused", w, err)
		}
	}
	for address, authority := range map[string]string{"127.0.0.1:2379": pki.EtcdClientCA, "127.0.0.1:2380": pki.EtcdPeerCA} {
		if authority != name {
			continue
		}
		crt := etcdOld[address]
		ca := map[string]string{pki.EtcdClientCA: "ca.crt", pki.EtcdPeerCA: "peer-ca.crt"}[name]
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, filepath.Join(pki.Dir, pki.DirEtcd, ca)), MinVersion: tls.VersionTLS12,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &crt, nil }}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
		if err == nil {
			_ = answer.Body.Close()
			t.Errorf("%s takes a certificate of the replaced authority", address)
		} else if !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// lease lets two masters start their API servers again at once.
func (r *keysCluster) lease(t *testing.T) {
	var mu sync.Mutex
	var holders sync.WaitGroup
	at, n := 0, 0
	for _, holder := range []string{"a", "b", "c"} {
		holders.Go(func() {
			client, err := kube.NewFile(filepath.Join(r.dir, "admin.kubeconfig")).Client()
			if err != nil {
				t.Error(err)
				return
			}
			err = client.Alone(t.Context(), kube.Lease{Name: "probe", Holder: holder, Life: time.Minute}, func(context.Context) error {
				mu.Lock()
				at++
				n = max(n, at)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				at--
				mu.Unlock()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	holders.Wait()
	if n != 1 {
		t.Errorf("%d at once", n)
	}
}

// TestLivesOfTheUnits: what a rotation waits for is what the units bound.
func TestLivesOfTheUnits(t *testing.T) {
	us, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"kube-apiserver.service":          fmt.Sprintf("--service-account-max-token-expiration=%.0fh", authority.TokenLife.Hours()),
		"kube-controller-manager.service": fmt.Sprintf("--cluster-signing-duration=%.0fh", pki.LeafLife.Hours()),
	} {
		u := us[slices.IndexFunc(us, func(u unit.Unit) bool { return u.Name == name })]
		if !slices.Contains(strings.Fields(u.Value("Service", "ExecStart").Value), want) {
			t.Errorf("%s has no %s", name, want)
		}
	}
}
