package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// The users of a plane, whose tokens are their names.
const (
	planeAdmin      = "admin"
	planeController = "hardtack:controller"
)

// planeNodes are nodes that are users too, by nodeUser.
var planeNodes = []string{"node-0", "node-1", "node-2"}

func nodeUser(node string) string { return "system:node:" + node }

// plane is a control plane of one process each, on ports of its own: etcd, the API server, and of the controller manager what
// makes Deployments and counts budgets. It has no scheduler and no kubelet.
type plane struct {
	dir, url string
	objects  dynamic.Interface
}

// newPlane starts a plane, its API server with more options than every plane's.
func newPlane(t *testing.T, options ...string) *plane {
	t.Helper()
	lock := programs.DefaultLock(t)
	programs.NeedBuilt(t, lock, "etcd", "kubernetes")
	p := &plane{dir: t.TempDir()}
	programs.Install(t, p.dir, lock, "etcd", "kubernetes")
	clients, peers, secure := "http://"+freeAddress(t), "http://"+freeAddress(t), freeAddress(t)
	p.url = "https://" + secure
	key := p.serviceAccountKey(t)
	tokens := fmt.Sprintf("%s,admin,1,\"system:masters\"\n%s,%s,2,\n", planeAdmin, planeController, planeController)
	for _, node := range planeNodes {
		tokens += fmt.Sprintf("%s,%s,%s,\"system:nodes\"\n", nodeUser(node), nodeUser(node), node)
	}
	p.write(t, "tokens", tokens)
	p.start(t, "etcd", "--data-dir="+filepath.Join(p.dir, "data"), "--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers, "--unsafe-no-fsync")
	_, port, err := net.SplitHostPort(secure)
	if err != nil {
		t.Fatal(err)
	}
	p.start(t, "kube-apiserver", append(options, "--etcd-servers="+clients, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+filepath.Join(p.dir, "serving"),
		"--token-auth-file="+filepath.Join(p.dir, "tokens"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key)...)
	p.objects, err = dynamic.NewForConfig(p.config(planeAdmin))
	if err != nil {
		t.Fatal(err)
	}
	if pending := eventually(2*time.Minute, func() []string {
		// kube-controller-manager ends where it is not healthy within seconds, and nobody would start it again.
		if err := p.ready(t.Context()); err != nil {
			return []string{fmt.Sprintf("the API server is not ready: %v", err)}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatal(pending)
	}
	p.write(t, "admin.kubeconfig", p.kubeconfig(planeAdmin))
	p.start(t, "kube-controller-manager", "--kubeconfig="+filepath.Join(p.dir, "admin.kubeconfig"), "--controllers=deployment,replicaset,disruption,serviceaccount",
		"--leader-elect=false", "--secure-port=0", "--service-account-private-key-file="+key)
	p.rights(t)
	return p
}

// ready asks the API server whether it has done all that it does at its start.
func (p *plane) ready(ctx context.Context) error {
	client, err := rest.HTTPClientFor(p.config(planeAdmin))
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// rights gives the controller the rights that it has in a cluster, and no more.
func (p *plane) rights(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/11-controller.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.New(p.config(planeAdmin))
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var object map[string]any
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *plane) config(token string) *rest.Config {
	return &rest.Config{Host: p.url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 100, Burst: 200}
}

func (p *plane) kubeconfig(token string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
"clusters":[{"name":"x","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"x","user":{"token":%q}}]}`, p.url, token)
}

func (p *plane) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *plane) serviceAccountKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	return filepath.Join(p.dir, "sa.key")
}

func (p *plane) start(t *testing.T, program string, args ...string) {
	t.Helper()
	log := background(t, exec.CommandContext(interrupted, filepath.Join(p.dir, programs.Bin, program), args...))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", program, tail(log.String(), 25))
		}
	})
}

// kubectl runs kubectl as the administrator.
func (p *plane) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.dir, programs.Bin, "kubectl"), append([]string{"--kubeconfig=" + filepath.Join(p.dir, "admin.kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
