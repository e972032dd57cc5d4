package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// keysCluster is a control plane whose keys are replaced.
type keysCluster struct {
	*master
	// all is the whole test, which outlives its parts as the daemons do.
	all *testing.T
	end func() // of the controller
	// starting: an API server serves before it knows the bindings of roles, which is so at every start of one: until it is
	// ready it forbids what it will allow. early counts that.
	starting atomic.Bool
	early    atomic.Int32
	// joined counts the machines that were launched meanwhile.
	joined int
}

func (r *keysCluster) etcd(i int) {
	url := func(member, base int) string { return fmt.Sprintf("https://127.0.0.1:%d", base+100*member) }
	var peers []string
	for j, name := range etcdMembers {
		peers = append(peers, name+"="+url(j, 2380))
	}
	name := etcdMembers[i]
	r.instance(r.all, "etcd", "etcd-"+name, map[string]string{
		"ETCD_NAME": name, "ETCD_DATA_DIR": filepath.Join(r.dir, "data", name), "ETCD_INITIAL_CLUSTER": strings.Join(peers, ","),
		"ETCD_LISTEN_CLIENT_URLS": url(i, 2379), "ETCD_ADVERTISE_CLIENT_URLS": url(i, 2379),
		"ETCD_LISTEN_PEER_URLS": url(i, 2380), "ETCD_INITIAL_ADVERTISE_PEER_URLS": url(i, 2380),
		"ETCD_LISTEN_METRICS_URLS": fmt.Sprintf("http://127.0.0.1:%d", 2381+100*i),
	})
}

func (r *keysCluster) api(name string) {
	r.instance(r.all, "kube-apiserver", name, map[string]string{
		"ETCD_SERVERS":        "--etcd-servers=https://127.0.0.1:2379,https://127.0.0.1:2479,https://127.0.0.1:2579",
		"KUBE_APISERVER_ARGS": "--bind-address=" + apiServers[name] + " --advertise-address=" + apiServers["api-b"],
	})
}

// begin starts the control plane, whose machines take the authority from the store.
func (r *keysCluster) begin(t *testing.T) {
	t.Helper()
	hosts := strings.ReplaceAll(r.text(t, "/etc/hosts"), masterAddress+" masters.demo.k8s", apiServers["api-a"]+" masters.demo.k8s\n"+apiServers["api-b"]+" masters.demo.k8s")
	for name, content := range map[string]string{"/etc/hosts": hosts, config.CAFile: r.text(t, machine.CAPath), kubelet.EnvFile: "NODE_NAME=node-a\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(machine.CAPath); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for name, log := range r.logs {
			if t.Failed() {
				t.Logf("%s:\n%s", name, tail(log.String(), 25))
			}
		}
	})
	for i := range etcdMembers {
		r.etcd(i)
	}
	for name := range apiServers {
		r.api(name)
	}
	for name := range apiServers {
		r.ready(t, name)
	}
	r.daemon(t, "kube-controller-manager")
	r.daemon(t, "kube-scheduler")
	r.mustKubectl(t, "apply", "-f", filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/10-nodes.yaml"))
	r.token(t)
	r.end = r.controller(t, nil)
	if out, err := r.run(t, "hardtack-agent", "bootstrap", "--patience=50s"); err != nil {
		t.Fatalf("hardtack-agent bootstrap: %v\n%s", err, out)
	}
	r.mustKubectl(t, "create", "configmap", "busy")
	r.mustKubectl(t, "create", "configmap", "pod")
	r.mustKubectl(t, "create", "serviceaccount", "pod")
	r.mustKubectl(t, "create", "rolebinding", "pod", "--clusterrole=edit", "--serviceaccount=default:pod")
	r.mustKubectl(t, "create", "-f", r.file(t, "node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\n"))
}

// ready waits until an API server is ready, and both its way to etcd and the rights of its clients work.
func (r *keysCluster) ready(t *testing.T, name string) {
	t.Helper()
	if pending := eventually(3*time.Minute, func() []string {
		if out, err := r.kubectl(t, "--server=https://"+apiServers[name], "--tls-server-name=masters.demo.k8s", "get", "--raw", "/readyz"); err != nil {
			time.Sleep(time.Second)
			return []string{out}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatalf("%s does not become ready: %v\n%s", name, pending, tail(r.logs[name].String(), 15))
	}
}

// stop ends a daemon as systemd does.
func (r *keysCluster) stop(t *testing.T, as string) {
	t.Helper()
	cmd := r.daemons[as]
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait()
}

// restart does what hardtack-renew.service does on the machines one after the other.
func (r *keysCluster) restart(t *testing.T) []string {
	t.Helper()
	pending := certs.PendingRestarts("/")
	for _, daemon := range pending {
		switch daemon {
		case pki.DirEtcd:
			for i, member := range etcdMembers {
				r.stop(t, "etcd-"+member)
				r.etcd(i)
				r.etcdHealthy(t)
				time.Sleep(memberRests)
			}
		case pki.DirAPIServer:
			for name := range apiServers {
				r.stop(t, name)
				r.starting.Store(true)
				r.api(name)
				r.ready(t, name)
				r.starting.Store(false)
			}
		case pki.DirControllerManager, pki.DirScheduler:
			r.stop(t, daemon)
			r.daemon(r.all, daemon)
		case pki.DirController:
			r.end()
			r.end = r.controller(t, nil)
		}
		if err := os.Remove(filepath.Join(pki.Dir, daemon, ".restart")); err != nil {
			t.Fatal(err)
		}
	}
	return pending
}

func (r *keysCluster) etcdHealthy(t *testing.T) {
	t.Helper()
	if pending := eventually(time.Minute, func() []string {
		out, err := r.run(t, "etcdctl", "--endpoints=https://127.0.0.1:2379,https://127.0.0.1:2479,https://127.0.0.1:2579", "--cacert=/run/hardtack/pki/etcd/ca.crt",
			"--cert=/run/hardtack/pki/kube-apiserver/etcd-client.crt", "--key=/run/hardtack/pki/kube-apiserver/etcd-client.key", "endpoint", "health")
		if err != nil {
			return []string{out}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatalf("etcd: %v", pending)
	}
}

// poller is a client that reads and writes one object all the time.
type poller struct {
	what, path string

	mu     sync.Mutex
	config *rest.Config
	n      int
}

// become makes the poller another client, as one that has read its files again.
func (p *poller) become(config *rest.Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.config = config
}

// once reads and writes: on connections that stay, and on new ones.
func (p *poller) once(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	c := rest.CopyConfig(p.config)
	c.GroupVersion, c.NegotiatedSerializer, c.Timeout = &schema.GroupVersion{Version: "v1"}, scheme.Codecs.WithoutConversion(), 30*time.Second
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return err
	}
	if p.n%2 == 0 {
		utilnet.CloseIdleConnectionsFor(client.Client.Transport)
	}
	if err := client.Get().AbsPath(p.path).Do(ctx).Error(); err != nil {
		return fmt.Errorf("%s, request %d: reading: %w", p.what, p.n, err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, p.n)
	if err := client.Patch(types.MergePatchType).AbsPath(p.path).Body([]byte(patch)).Do(ctx).Error(); err != nil {
		return fmt.Errorf("%s, request %d: writing: %w", p.what, p.n, err)
	}
	return nil
}

func kubeconfig(t *testing.T, file string) *rest.Config {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// person is an operator with a kubeconfig that was just printed.
func (r *keysCluster) person(t *testing.T) *rest.Config {
	t.Helper()
	file := filepath.Join(r.dir, "admin.kubeconfig")
	_ = os.Remove(file)
	r.mustKubectl(t, "version")
	c := kubeconfig(t, file)
	c.Host = "https://masters.demo.k8s"
	return c
}

// pod is a service account's client with a new token, and the authority that a pod's volume has now.
func (r *keysCluster) pod(t *testing.T) *rest.Config {
	t.Helper()
	c := &rest.Config{Host: "https://masters.demo.k8s", BearerToken: strings.TrimSpace(r.mustKubectl(t, "create", "token", "pod", "--duration=1h"))}
	c.CAData = []byte(r.mustKubectl(t, "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`))
	return c
}
