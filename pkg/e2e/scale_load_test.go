package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// A client of the masters' name begins with any of its addresses, as a resolver turns them, and tries the next one when it gets
// no answer.
type scaleDialer struct {
	addresses []string
	next      *atomic.Int64
}

var scaleTurns atomic.Int64

func (c *scaleCluster) dialer() *scaleDialer {
	d := &scaleDialer{next: &scaleTurns}
	for _, m := range c.masters {
		d.addresses = append(d.addresses, m.address)
	}
	return d
}

func (d *scaleDialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	first := d.next.Add(1)
	var failed []error
	for i := range d.addresses {
		address := d.addresses[(int(first)+i)%len(d.addresses)]
		conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, net.JoinHostPort(address, "443"))
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// kwok is upstream's stand-in for kubelets, several of them as each keeps to one master: node i is the one's with the label i
// modulo their number. Their requests count as nodes' do, by the group of their certificate.
type kwok struct {
	program, stages string
	running         []*exec.Cmd
}

// start starts them, in place of those that run.
func (k *kwok) start(t *testing.T, c *scaleCluster) {
	t.Helper()
	for _, cmd := range k.running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	k.running = nil
	files := []string{"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml", "pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml"}
	for i := range c.masters {
		var hosts bytes.Buffer
		for j := range c.masters {
			fmt.Fprintln(&hosts, c.masters[(i+j)%len(c.masters)].address, scaleName)
		}
		kubeconfig := c.file(t, fmt.Sprintf("kwok-%d.kubeconfig", i), c.kubeconfig(t, "kwok", "system:nodes", pki.GroupAdmins))
		args := []string{"--mount", "sh", "-ec", `mount --bind "$1" /etc/hosts; shift; exec "$@"`, "sh", c.file(t, fmt.Sprintf("kwok-%d.hosts", i), hosts.Bytes()),
			k.program, "--kubeconfig=" + kubeconfig, fmt.Sprintf("--manage-nodes-with-label-selector=kwok=%d", i), "--node-lease-duration-seconds=40", "--cidr=10.0.0.0/8"}
		for _, file := range files {
			args = append(args, "--config="+filepath.Join(k.stages, file))
		}
		cmd := exec.CommandContext(interrupted, "unshare", args...)
		// A kubelet that cannot renew its lease closes its connections after ten seconds; kwok waits for the library's 45.
		cmd.Env = append(os.Environ(), "HTTP2_READ_IDLE_TIMEOUT_SECONDS=5", "HTTP2_PING_TIMEOUT_SECONDS=5")
		showOnFailure(t, fmt.Sprintf("kwok %d", i), background(t, cmd))
		k.running = append(k.running, cmd)
	}
}

func showOnFailure(t *testing.T, name string, log *run.Log) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		file := filepath.Join(root, "build", strings.ReplaceAll(name, " ", "-")+".log")
		if err := os.WriteFile(file, []byte(log.String()), 0o600); err != nil {
			t.Log(err)
		}
		t.Logf("%s (all of it in %s):\n%s", name, file, tail(log.String(), 5))
	})
}

func (c *scaleCluster) file(t *testing.T, name string, content []byte) string {
	t.Helper()
	name = filepath.Join(c.dir, name)
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// client is a client of the core API with a connection of its own.
func (c *scaleCluster) client(t *testing.T, dial func(context.Context, string, string) (net.Conn, error)) *rest.RESTClient {
	t.Helper()
	config := c.config(t, "load", pki.GroupAdmins)
	config.Dial, config.Timeout = dial, 20*time.Second
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func scaleNodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// node is what a kubelet registers.
func (c *scaleCluster) node(i int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: scaleNodeName(i), Labels: map[string]string{
		"kwok": fmt.Sprint(i % len(c.masters)), "kubernetes.io/hostname": scaleNodeName(i), "kubernetes.io/os": "linux",
	}}}
}

// The pods are in this many namespaces.
const scaleSpaces = 10

func scaleSpace(i int) string { return fmt.Sprintf("load-%d", i%scaleSpaces) }

func scalePod(i int) *corev1.Pod {
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%06d", i), Namespace: scaleSpace(i), Labels: map[string]string{"app": fmt.Sprint(i % 50)}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}},
	}
}

// ids are the unique identities of objects, by namespace and name.
type ids map[string]types.UID

// answered are the objects whose creation was answered with yes, by namespace and name.
type answered struct {
	mu  sync.Mutex
	ids ids
	// again counts the requests that were repeated since there was no answer, or a bad one.
	again int
}

func (a *answered) n() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ids)
}

// create makes objects from first to before last, by as many clients at once. Nobody gives up: what is not answered is asked again.
func (c *scaleCluster) create(t *testing.T, a *answered, first, last, clients int, one func(context.Context, *rest.RESTClient, int) (metav1.Object, error)) {
	t.Helper()
	var next atomic.Int64
	next.Store(int64(first))
	var all sync.WaitGroup
	for range clients {
		client := c.client(t, c.dialer().dial)
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < last; i = int(next.Add(1) - 1) {
				object, err := one(t.Context(), client, i)
				for ; err != nil && t.Context().Err() == nil; object, err = one(t.Context(), client, i) {
					a.mu.Lock()
					if a.again++; a.again%200 == 0 {
						t.Logf("asking again, %d times so far: %v", a.again, err)
					}
					a.mu.Unlock()
					time.Sleep(200 * time.Millisecond)
				}
				if err == nil {
					a.mu.Lock()
					a.ids[object.GetNamespace()+"/"+object.GetName()] = object.GetUID()
					a.mu.Unlock()
				}
			}
		})
	}
	all.Wait()
}

func (c *scaleCluster) createNode(ctx context.Context, client *rest.RESTClient, i int) (metav1.Object, error) {
	var is corev1.Node
	err := client.Post().Resource("nodes").Body(c.node(i)).Do(ctx).Into(&is)
	if apierrors.IsAlreadyExists(err) {
		err = client.Get().Resource("nodes").Name(scaleNodeName(i)).Do(ctx).Into(&is)
	}
	return &is, err
}

func (c *scaleCluster) createPod(ctx context.Context, client *rest.RESTClient, i int) (metav1.Object, error) {
	var is corev1.Pod
	want := scalePod(i)
	err := client.Post().Namespace(want.Namespace).Resource("pods").Body(want).Do(ctx).Into(&is)
	if apierrors.IsAlreadyExists(err) {
		err = client.Get().Namespace(want.Namespace).Resource("pods").Name(want.Name).Do(ctx).Into(&is)
	}
	return &is, err
}

// scaleWatches are what the daemons of a node watch all the time; NODE is its name. flanneld's watch of every node is not among
// them: each change of a node is sent to each of the others.
var scaleWatches = map[string][]string{
	"kubelet": {
		"/api/v1/pods?fieldSelector=spec.nodeName%3DNODE", "/api/v1/nodes?fieldSelector=metadata.name%3DNODE", "/api/v1/services",
		"/apis/storage.k8s.io/v1/csidrivers", "/apis/node.k8s.io/v1/runtimeclasses",
	},
	"kube-proxy": {"/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/nodes?fieldSelector=metadata.name%3DNODE"},
}

// scaleFleet are the connections of all nodes' daemons, each with the node's own certificate.
type scaleFleet struct {
	mu sync.Mutex
	// open are the addresses of open watches, and wrong the last error of one that is not, by node, daemon and path.
	open  map[string]string
	wrong map[string]error
	bytes atomic.Int64
	want  int
	all   sync.WaitGroup
	end   context.CancelFunc
}

func (c *scaleCluster) watch(t *testing.T, nodes int, daemons map[string][]string) *scaleFleet {
	t.Helper()
	f := &scaleFleet{open: map[string]string{}, wrong: map[string]error{}}
	ctx, cancel := context.WithCancel(t.Context())
	f.end = func() { cancel(); f.all.Wait() }
	t.Cleanup(f.end)
	for i := range nodes {
		node := scaleNodeName(i)
		config := c.config(t, "system:node:"+node, "system:nodes")
		for daemon, paths := range daemons {
			config := rest.CopyConfig(config)
			config.Dial = c.dialer().dial
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				f.want++
				path = strings.ReplaceAll(path, "NODE", node)
				f.all.Go(func() {
					for ctx.Err() == nil {
						f.stay(ctx, client, node+" "+daemon+" "+path, path)
						time.Sleep(time.Second)
					}
				})
			}
		}
	}
	return f
}

// stay reads a watch until it ends.
func (f *scaleFleet) stay(ctx context.Context, client *http.Client, key, path string) {
	err := func() error {
		u, err := url.Parse("https://" + scaleName + path)
		if err != nil {
			return err
		}
		query := u.Query()
		query.Set("watch", "1")
		u.RawQuery = query.Encode()
		at := ""
		ctx := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { at, _, _ = net.SplitHostPort(i.Conn.RemoteAddr().String()) }})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return err
		}
		request.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", answer.Status)
		}
		f.mu.Lock()
		f.open[key] = at
		delete(f.wrong, key)
		f.mu.Unlock()
		n, err := io.Copy(io.Discard, answer.Body)
		f.bytes.Add(n)
		return err
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, key)
	if err != nil {
		f.wrong[key] = err
	}
}

// at counts the open watches by the address of their master, and returns one error of those that are not open.
func (f *scaleFleet) at() (map[string]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := map[string]int{}
	for _, address := range f.open {
		at[address]++
	}
	for key, err := range f.wrong {
		return at, fmt.Errorf("%s: %w", key, err)
	}
	return at, nil
}

// whole reports what is missing until every watch is open at masters that live.
func (f *scaleFleet) whole(c *scaleCluster) []string {
	at, err := f.at()
	n := 0
	for _, m := range c.masters {
		if !m.dead {
			n += at[m.address]
		}
	}
	if n != f.want {
		return []string{fmt.Sprintf("%d of %d watches are open at masters that live: %v, %v", n, f.want, at, err)}
	}
	return nil
}
