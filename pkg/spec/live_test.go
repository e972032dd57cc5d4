package spec_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"gotest.tools/v3/assert"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/examine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// TestHardened runs the real etcd and API server of the default lock as a master does, with the command lines of the units,
// the files of the image and the certificates of the agent, and tries on them what the defaults are there to refuse.
func TestHardened(t *testing.T) {
	idp := newIssuer(t)
	c := liveCluster(t, realPrograms(t, spec.DefaultVersion), strings.NewReplacer("https://login.example.org", idp.server.URL,
		"        audiences:", "        certificateAuthority: |\n"+indent(idp.ca(), "          ")+"\n        audiences:").Replace(documentedOIDC(t)))
	c.addons(t)
	t.Run("people", func(t *testing.T) { c.people(t, idp) })
	for _, one := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"ciphers", c.ciphers}, {"pods", c.pods}, {"external addresses", c.externalIPs}, {"events", c.events}, {"tokens", c.tokens},
		{"controller", c.controller}, {"doctor", c.doctor}, {"audit", c.audit},
	} {
		t.Run(one.name, one.run)
	}
}

// live is a control plane of two processes on this computer.
type live struct {
	root, api, etcd string
	ca              []byte
	programs        unpacked
	store           store.Store
	here            *strings.Replacer
	// stop ends the API server.
	stop func()
}

// liveCluster starts the processes for a document.
func liveCluster(t *testing.T, p unpacked, document string) *live {
	t.Helper()
	c := &live{root: t.TempDir(), api: freePort(t), etcd: freePort(t), programs: p}
	c.store = store.NewDir(filepath.Join(c.root, "store"))
	_, err := authority.Create(t.Context(), c.store, complete(t, document).Info(), time.Now())
	assert.NilError(t, err)
	c.here = strings.NewReplacer("/run/hardtack", c.root+"/run/hardtack", "/etc/kubernetes", c.root+"/etc/kubernetes", "/var/", c.root+"/var/",
		":2379", ":"+c.etcd, ":2380", ":"+freePort(t), ":2381", ":"+freePort(t), "--secure-port=443", "--secure-port="+c.api)
	m := c.machine(t, document)
	c.run(t, m, "etcd", "--data-dir=/var/lib/etcd/data") // hardtack-member decides where its data are
	c.serve(t, m)
	c.grant(t)
	return c
}

// machine writes the files of a master: those of its user data, and what the agent mints with the keys in the store.
func (c *live) machine(t *testing.T, document string) guest {
	t.Helper()
	complete := complete(t, document)
	group, err := complete.Group("masters")
	assert.NilError(t, err)
	m := newGuest(t, complete, group)
	for name, text := range m.files {
		if strings.HasPrefix(name, "/etc/kubernetes/") {
			file := filepath.Join(c.root, name)
			assert.NilError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
		}
	}
	conf := config.Effective{Config: complete.Machine(group)}
	c.ca, err = c.store.Get(t.Context(), pki.PublicKubernetes)
	assert.NilError(t, err)
	conf.CAFile = "/ca.crt"
	assert.NilError(t, os.WriteFile(filepath.Join(c.root, "ca.crt"), c.ca, 0o600))
	_, err = certs.Mint(t.Context(), certs.MintOptions{Root: c.root, Roles: group.Roles, Config: conf, Store: c.store, Now: time.Now,
		Host: func() (certs.Host, error) {
			return certs.Host{Name: "live", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.10")}}, nil
		}})
	assert.NilError(t, err)
	return m
}

// run starts a program with the command line of its unit.
func (c *live) run(t *testing.T, m guest, program string, more ...string) (stop func()) {
	t.Helper()
	args := append(m.arguments(t, program+".service", program), more...)
	for i := range args {
		args[i] = c.here.Replace(args[i])
	}
	return c.start(t, c.programs.path(program), args...)
}

// serve starts the API server of a machine, in the place of the one that runs.
func (c *live) serve(t *testing.T, m guest) {
	t.Helper()
	if c.stop != nil {
		c.stop()
	}
	c.stop = c.run(t, m, "kube-apiserver")
	c.await(t, "the API server", func() bool {
		code, _ := c.try(t.Context(), c.admin(), http.MethodGet, "/readyz", "", "")
		return code == http.StatusOK
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	assert.NilError(t, err)
	assert.NilError(t, l.Close())
	return port
}

// start runs a program until it is stopped, at the latest when the test ends.
func (c *live) start(t *testing.T, program string, args ...string) (stop func()) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	assert.NilError(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			text := out.String()
			t.Logf("%s ends with\n%s", filepath.Base(program), text[max(0, len(text)-4000):])
		}
	})
	return stop
}

func (c *live) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !done(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s took too long", what)
		}
	}
}

// as is a client with the certificate that the agent has minted into a directory.
func (c *live) as(dir string) *rest.Config {
	name := filepath.Join(c.root, "/run/hardtack/pki", dir, "client")
	return &rest.Config{Host: "https://127.0.0.1:" + c.api, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca, CertFile: name + pki.Crt, KeyFile: name + pki.Key}}
}

func (c *live) admin() *rest.Config { return c.as(pki.DirAdmin) }

// try sends a request, and returns 0 with the error where there is no answer.
func (c *live) try(ctx context.Context, who *rest.Config, method, path, kind, body string) (int, string) {
	client, err := rest.HTTPClientFor(who)
	if err != nil {
		return 0, err.Error()
	}
	request, err := http.NewRequestWithContext(ctx, method, who.Host+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if kind == "" {
		kind = "application/json"
	}
	request.Header.Set("Content-Type", kind)
	answer, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }() // only read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// want asserts the answer's code, and that its text has the words.
func (c *live) want(t *testing.T, who *rest.Config, method, path, body string, code int, words string) {
	t.Helper()
	got, text := c.try(t.Context(), who, method, path, "", body)
	assert.Assert(t, got == code && strings.Contains(text, words), "%s %s: %d, want %d with %q: %.600s", method, path, got, code, words, text)
}

// grant gives the add-ons' user its rights, as the first master of a cluster does.
func (c *live) grant(t *testing.T) {
	t.Helper()
	text, err := fs.ReadFile(images.FS, "rootfs"+addons.Dir+"/"+addons.First)
	assert.NilError(t, err)
	objects, err := addons.Load(nil, nil, fstest.MapFS{addons.First: {Data: text}})
	assert.NilError(t, err)
	client, err := kube.New(c.admin())
	assert.NilError(t, err)
	superuser := func(ctx context.Context) (addons.Cluster, error) {
		kubeconfig, err := certs.Superuser(ctx, c.store, "https://127.0.0.1:"+c.api, time.Now())
		if err != nil {
			return nil, err
		}
		return kube.NewOf(kubeconfig)
	}
	assert.NilError(t, addons.Grant(t.Context(), client, superuser, objects, slog.New(slog.NewTextHandler(t.Output(), nil))))
}

// addons applies what the masters apply at their start.
func (c *live) addons(t *testing.T) {
	t.Helper()
	dir, err := fs.Sub(images.FS, "rootfs"+addons.Dir)
	assert.NilError(t, err)
	encoded := base64.StdEncoding.EncodeToString([]byte(c.ca))
	values := map[string]string{"CLUSTER_NAME": "demo", "DNS_ADDRESS": "10.96.0.10", "DNS_DOMAIN": "cluster.local", "SERVICE_CIDR": "10.96.0.0/16", "POD_CIDR": "10.244.0.0/16", "PAUSE_IMAGE": "pause",
		"KUBERNETES_CA": encoded, "KUBELET_CA": encoded, "METRICS_SERVER_CERTIFICATE": encoded, "METRICS_SERVER_KEY": encoded}
	maps.Copy(values, cloudValues(t))
	objects, err := addons.Load(values, append(machine.CloudAddons(), pki.MetricsServer), dir)
	assert.NilError(t, err)
	client, err := kube.New(c.admin())
	assert.NilError(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	assert.NilError(t, addons.Apply(t.Context(), client, objects, log))
	c.cloudAddons(t)
	c.addonOff(t, client, dir, log)
	for _, namespace := range []string{"default", "kube-system"} { // as the controller manager does
		c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts", `{"metadata":{"name":"default"}}`, http.StatusCreated, "")
	}
}

// addonOff: an add-on that the document names no more goes, but not what somebody else calls the same.
func (c *live) addonOff(t *testing.T, client *kube.Client, dir fs.FS, log *slog.Logger) {
	t.Helper()
	const ours, theirs = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io", "/api/v1/namespaces/kube-system/services/metrics-server"
	c.want(t, c.admin(), http.MethodGet, ours, "", http.StatusOK, "caBundle")
	c.want(t, c.admin(), http.MethodDelete, theirs, "", http.StatusOK, "")
	c.want(t, c.admin(), http.MethodPost, path.Dir(theirs), `{"metadata":{"name":"metrics-server"},"spec":{"ports":[{"port":443}]}}`, http.StatusCreated, "")
	off, err := addons.Off(dir, nil)
	assert.NilError(t, err)
	for range 2 { // the second master finds nothing
		assert.NilError(t, addons.Remove(t.Context(), client, off, log))
	}
	c.want(t, c.admin(), http.MethodGet, ours, "", http.StatusNotFound, "")
	c.want(t, c.admin(), http.MethodGet, "/apis/apps/v1/namespaces/kube-system/deployments/metrics-server", "", http.StatusNotFound, "")
	c.want(t, c.admin(), http.MethodGet, theirs, "", http.StatusOK, "")
}

// ciphers: no CBC at the API server, and nothing older than TLS 1.3 at etcd.
func (c *live) ciphers(t *testing.T) {
	t.Helper()
	dial := func(port string, newest uint16, suites ...uint16) error {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: newest, CipherSuites: suites}}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	assert.NilError(t, dial(c.api, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256))
	assert.ErrorContains(t, dial(c.api, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA), "handshake failure")
	assert.ErrorContains(t, dial(c.etcd, tls.VersionTLS12), "protocol version")
}

const privilegedPod = `{"metadata":{"name":"%s"},"spec":{"hostNetwork":true,"containers":[{"name":"a","image":"a","securityContext":{"privileged":true}}]}}`

// pods that could take over their machine: not where a namespace does not allow it.
func (c *live) pods(t *testing.T) {
	t.Helper()
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/default/pods", fmt.Sprintf(privilegedPod, "takes-over"), http.StatusForbidden, `violates PodSecurity \"baseline:latest\"`)
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/kube-system/pods", fmt.Sprintf(privilegedPod, "system"), http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/default/pods", `{"metadata":{"name":"usual"},"spec":{"containers":[{"name":"a","image":"a"}]}}`, http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"drivers","labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`, http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/drivers/serviceaccounts", `{"metadata":{"name":"default"}}`, http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/drivers/pods", fmt.Sprintf(privilegedPod, "driver"), http.StatusCreated, "")
}

// externalIPs: a Service that takes the traffic of an address that is not its own (CVE-2020-8554).
func (c *live) externalIPs(t *testing.T) {
	t.Helper()
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"thief"},"spec":{"ports":[{"port":80}],"externalIPs":["192.0.2.1"]}}`, http.StatusForbidden, "external IPs is denied")
}

// events: one client that writes more than admission.yaml's limits allow at once is refused, and only its events are.
func (c *live) events(t *testing.T) {
	t.Helper()
	const atOnce, writers = 500, 50 // of one user; each writer writes 14, until 700 are written
	var written, refused atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range 14 {
				code, text := c.try(t.Context(), c.admin(), http.MethodPost, "/api/v1/namespaces/default/events", "",
					fmt.Sprintf(`{"metadata":{"name":"flood-%d-%d"},"involvedObject":{"namespace":"default"},"reason":"Flood"}`, w, n))
				switch code {
				case http.StatusCreated:
					written.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("an event: %d %.300s", code, text)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d events written, %d refused", written.Load(), refused.Load())
	assert.Assert(t, written.Load() >= atOnce, "%d events were written, fewer than one client may write at once", written.Load())
	assert.Assert(t, refused.Load() > 0, "no event of %d was refused", written.Load())
	c.want(t, c.admin(), http.MethodGet, "/api/v1/namespaces/default/events?limit=1", "", http.StatusOK, "EventList")
}

// tokens: a pod's lives for the hour that the kubelet asks for, not for a year. Only a token of a pod would be extended.
func (c *live) tokens(t *testing.T) {
	t.Helper()
	const kubeletAsks = 3607
	code, text := c.try(t.Context(), c.admin(), http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token", "",
		fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":%d,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"usual"}}}`, kubeletAsks))
	assert.Equal(t, code, http.StatusCreated, text)
	var answer struct{ Status struct{ Token string } }
	assert.NilError(t, json.Unmarshal([]byte(text), &answer))
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(answer.Status.Token, ".")[1])
	assert.NilError(t, err)
	var claims struct{ Exp, Iat int64 }
	assert.NilError(t, json.Unmarshal(payload, &claims))
	assert.Equal(t, claims.Exp-claims.Iat, int64(kubeletAsks))
}

// controller: hardtack-controller can do what it does, and not more.
func (c *live) controller(t *testing.T) {
	t.Helper()
	me := c.as(pki.DirController)
	client, err := kube.New(me)
	assert.NilError(t, err)
	c.want(t, c.admin(), http.MethodPost, "/api/v1/nodes", `{"metadata":{"name":"n"}}`, http.StatusCreated, "")
	nodes, err := client.Nodes(t.Context())
	assert.Assert(t, err == nil && len(nodes) == 1, "%v %v", nodes, err)
	assert.NilError(t, client.Label(t.Context(), "n", map[string]string{"node-role.kubernetes.io/minions": ""}))
	_, err = client.Masters(t.Context())
	assert.NilError(t, err)
	for signer, may := range map[string]bool{"kubernetes.io/kubelet-serving": true, "kubernetes.io/kube-apiserver-client-kubelet": true, "kubernetes.io/kube-apiserver-client": false} {
		name := signer[strings.Index(signer, "/")+1:]
		c.want(t, c.admin(), http.MethodPost, "/apis/certificates.k8s.io/v1/certificatesigningrequests", request(t, name, signer), http.StatusCreated, "")
		err := client.Approve(t.Context(), name, "a test")
		assert.Assert(t, (err == nil) == may, "%s: %v", signer, err)
	}
	token := func(name, kind string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": map[string]any{"name": name, "namespace": "kube-system"}}
	}
	assert.NilError(t, client.Apply(t.Context(), token("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token")))
	i := 0
	c.await(t, "the policy about Secrets", func() bool { // it takes effect a little after it was made
		i++
		return client.Apply(t.Context(), token(fmt.Sprintf("foreign-%d", i), "Opaque")) != nil
	})
	assert.ErrorContains(t, client.Apply(t.Context(), token("foreign", "Opaque")), "writes bootstrap tokens only")
	assert.ErrorContains(t, client.Apply(t.Context(), token("bootstrap-token-x", "Opaque")), "writes bootstrap tokens only")
	c.want(t, me, http.MethodDelete, "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef", "", http.StatusOK, "")
	assert.NilError(t, client.Remove(t.Context(), nodes[0]))
	for _, path := range []string{"/api/v1/secrets", "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/kube-system/configmaps", "/api/v1/namespaces/default/pods/usual/log"} {
		c.want(t, me, http.MethodGet, path, "", http.StatusForbidden, "hardtack:controller")
	}
	// It sees pods and evicts them, as their budgets allow, and ends none past these.
	c.want(t, me, http.MethodGet, "/api/v1/pods", "", http.StatusOK, "")
	c.want(t, me, http.MethodDelete, "/api/v1/namespaces/default/pods/usual", "", http.StatusForbidden, "hardtack:controller")
	c.want(t, me, http.MethodDelete, "/api/v1/namespaces/default/pods", "", http.StatusForbidden, "hardtack:controller")
	c.want(t, me, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", everything("me", "hardtack:controller"), http.StatusForbidden, "")
}

// everything is a binding of cluster-admin.
func everything(name, user string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, name, user)
}

// request is a certificate request for a signer.
func request(t *testing.T, name, signer string) string {
	t.Helper()
	key, err := pki.NewKey()
	assert.NilError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}, DNSNames: []string{"n"}}, key)
	assert.NilError(t, err)
	usage := "client auth"
	if strings.HasSuffix(signer, "serving") {
		usage = "server auth"
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"signerName":%q,"usages":["digital signature",%q],"request":%q}}`, name, signer, usage, base64.StdEncoding.EncodeToString(text))
}

// doctor: what is asked of a component that is not there gets the API's own error at once, and a check of hardtack doctor.
func (c *live) doctor(t *testing.T) {
	t.Helper()
	const object, shop = `{"metadata":{"name":%q},"spec":%s}`, "/namespaces/default/"
	for path, body := range map[string]string{
		"/apis/apiregistration.k8s.io/v1/apiservices": fmt.Sprintf(object, "v1.absent.example.org",
			`{"group":"absent.example.org","version":"v1","groupPriorityMinimum":1000,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"absent"}}`),
		"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": `{"metadata":{"name":"absent"},"webhooks":[{"name":"absent.example.org","admissionReviewVersions":["v1"],"sideEffects":"None",
			"clientConfig":{"service":{"namespace":"default","name":"absent"}},"rules":[{"apiGroups":["batch"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["jobs"]}]}]}`,
		"/apis/autoscaling/v2" + shop + "horizontalpodautoscalers": fmt.Sprintf(object, "web", `{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}`),
		"/api/v1" + shop + "persistentvolumeclaims":                fmt.Sprintf(object, "data", `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`),
		"/api/v1" + shop + "services":                              fmt.Sprintf(object, "front", `{"type":"LoadBalancer","ports":[{"port":80}]}`),
		"/apis/networking.k8s.io/v1" + shop + "ingresses":          fmt.Sprintf(object, "front", `{"ingressClassName":"nginx","defaultBackend":{"service":{"name":"front","port":{"number":80}}}}`),
	} {
		c.want(t, c.admin(), http.MethodPost, path, body, http.StatusCreated, "")
	}
	client, err := kube.New(c.admin())
	assert.NilError(t, err)
	want := map[string]string{
		"nodes": "no machine has joined", "dns": "no CoreDNS answers", "metrics": "wait for it: default/web",
		"apis": "v1.absent.example.org gets 503, Service default/absent: ServiceNotFound", "webhooks": "Service default/absent does not exist: what it would look at is refused, after up to 10 s",
		"volumes": "default/data: no StorageClass is the default", "loadbalancers": "default/front", "ingresses": "default/front",
	}
	var found doctor.List
	c.await(t, "the API server to have looked for the API's pods", func() bool {
		found = examine.Run(t.Context(), client, time.Now().Add(2*examine.Patience))
		return slices.ContainsFunc(found, func(ch doctor.Check) bool { return strings.Contains(ch.Text, "ServiceNotFound") })
	})
	for _, ch := range found {
		if words, asked := want[ch.Name]; asked {
			assert.Assert(t, ch.State == doctor.Error && strings.Contains(ch.Text, words), "%+v", ch)
			delete(want, ch.Name)
		}
	}
	assert.Equal(t, len(want), 0, "%v of %v", want, found)
	c.want(t, c.admin(), http.MethodGet, "/apis/absent.example.org/v1", "", http.StatusServiceUnavailable, "")
	c.want(t, c.admin(), http.MethodPost, "/apis/batch/v1/namespaces/default/jobs",
		`{"metadata":{"name":"one"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"one","image":"one"}]}}}}`, http.StatusInternalServerError, `service \"absent\" not found`)
}

// audit: who did what is there, and what a Secret holds is not.
func (c *live) audit(t *testing.T) {
	t.Helper()
	const known = "ship's biscuit"
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"kept"},"stringData":{"known":"`+known+`"}}`, http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"kept"},"data":{"known":"`+known+`"}}`, http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", everything("all", "eve"), http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"beat"}}`, http.StatusCreated, "")
	c.want(t, c.admin(), http.MethodGet, "/livez", "", http.StatusOK, "")
	file := filepath.Join(c.root, "/var/log/kube-apiserver/audit.log")
	info, err := os.Stat(file)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), fs.FileMode(0o600))
	var text []byte
	for _, want := range []string{`"resource":"secrets","namespace":"default","name":"kept"`, `"roleRef":`, `"username":"hardtack:controller"`, "violates PodSecurity", `"username":"oidc:ada@example.org"`} {
		c.await(t, want, func() bool {
			text, err = os.ReadFile(file)
			return err == nil && bytes.Contains(text, []byte(want))
		})
	}
	for _, secret := range []string{known, base64.StdEncoding.EncodeToString([]byte(known)), `"resource":"leases"`, `"requestURI":"/livez`, `"resource":"events"`, "eyJhbGciOi"} {
		assert.Assert(t, !bytes.Contains(text, []byte(secret)), "the audit log has %q", secret)
	}
}
