package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/examine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
)

// TestCertificates starts a control plane with certificates that the agent mints, and tests it from outside: who can
// authenticate, how etcd stores Secrets, and how certificates are renewed.
func TestCertificates(t *testing.T) {
	t.Parallel() // it waits more than it works
	needMachines(t, 8*time.Minute)
	needNamespaces(t)
	dir := t.TempDir()
	programs.Install(t, dir, programs.DefaultLock(t), "etcd", "kubernetes")
	buildAgent(t, dir)
	if _, err := program(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, programs.Bin, "hardtack"), "../../cmd/hardtack").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	if !inMaster(t, dir) {
		return
	}
	m := newMaster(t, dir)
	m.start(t)
	// All tests share one cluster, since starting it takes most of the time.
	t.Run("nobody is anonymous", m.anonymous)
	t.Run("etcd takes its own clients only", m.strangersAtEtcd)
	t.Run("secrets are encrypted in etcd", m.encrypted)
	t.Run("each identity may do what it needs", m.identities)
	t.Run("people get certificates without the authority's key", m.people)
	t.Run("kubelets' certificates are good for nothing else", m.kubeletServing)
	t.Run("a NetworkPolicy is answered with a warning", m.networkPolicy)
	t.Run("a token alone is no identity", m.tokenAlone)
	t.Run("a token for one machine", m.ownToken)
	t.Run("a machine proves its identity", m.proved)
	t.Run("renewal needs no restart", m.renewal)
	t.Run("the add-ons give themselves their rights", m.addonsRights)
	t.Run("the encryption key is replaced under a client", m.encryptionRotates)
	t.Run("authorities are replaced without a restart", m.authoritiesRotate)
	t.Run("no key is in a log or on a disk", m.noKeys)
}

func (m *master) anonymous(t *testing.T) {
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/healthz": 200,
		"/": 401, "/version": 401, "/api": 401, "/apis": 401, "/metrics": 401, "/openapi/v2": 401, "/readyz/etcd": 401,
		"/api/v1/namespaces/default/secrets": 401, "/.well-known/openid-configuration": 401,
	} {
		code, err := m.anonymously(t, path)
		if err != nil || code != want {
			t.Errorf("%s: %d, %v, want %d", path, code, err, want)
		}
	}
}

// strangersAtEtcd connects without a certificate, with one of another authority, and with the right one.
func (m *master) strangersAtEtcd(t *testing.T) {
	for _, tt := range []struct {
		address, ca, pair string
		good              bool
	}{
		{"127.0.0.1:2379", "ca", "", false},
		{"127.0.0.1:2379", "ca", "kube-scheduler/client", false}, // the Kubernetes authority's
		{"127.0.0.1:2379", "ca", "kube-apiserver/front-proxy-client", false},
		{"127.0.0.1:2379", "ca", "etcd/peer", false}, // a member's, which is for the other port
		{"127.0.0.1:2379", "ca", "kube-apiserver/etcd-client", true},
		{"127.0.0.1:2380", "peer-ca", "", false},
		{"127.0.0.1:2380", "peer-ca", "kube-apiserver/etcd-client", false},
		{"127.0.0.1:2380", "peer-ca", "etcd/server", false},
		{"127.0.0.1:2380", "peer-ca", "etcd/peer", true},
	} {
		pair := tt.pair
		if pair != "" {
			pair = filepath.Join(pki.Dir, pair)
		}
		err := knock(t, tt.address, filepath.Join(pki.Dir, pki.DirEtcd, tt.ca+".crt"), pair)
		if (err == nil) != tt.good {
			t.Errorf("at %s with %q: %v", tt.address, tt.pair, err)
		}
	}
}

// knock opens a TLS connection with a client's certificate, and sends a request: only then has the server checked the
// certificate.
func knock(t *testing.T, address, ca, pair string) error {
	t.Helper()
	config := &tls.Config{RootCAs: pool(t, ca), MinVersion: tls.VersionTLS12}
	if pair != "" {
		crt, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
		if err != nil {
			t.Fatal(err)
		}
		// GetClientCertificate and not Certificates: Go would send no certificate unless an authority that the server
		// names has signed it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &crt, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// encrypted writes a Secret and a ConfigMap with the same text, and searches for the text in etcd.
func (m *master) encrypted(t *testing.T) {
	m.mustKubectl(t, "create", "secret", "generic", "probe", "--from-literal=word="+probeSecret)
	m.mustKubectl(t, "create", "configmap", "probe", "--from-literal=word="+probeSecret)
	secret, err := m.etcdctl(t, pki.DirAPIServer, "etcd-client", "get", "--print-value-only", "/registry/secrets/default/probe")
	if err != nil || !strings.HasPrefix(secret, "k8s:enc:secretbox:v1:key-") || strings.Contains(secret, probeSecret) {
		t.Errorf("the Secret in etcd: %v, %.60q", err, secret)
	}
	configMap, err := m.etcdctl(t, pki.DirAPIServer, "etcd-client", "get", "--print-value-only", "/registry/configmaps/default/probe")
	if err != nil || !strings.Contains(configMap, probeSecret) {
		t.Errorf("the ConfigMap in etcd, which is to show that the word would be found: %v, %.60q", err, configMap)
	}
	if out := m.mustKubectl(t, "get", "secret", "probe", "-o", "jsonpath={.data.word}"); out == "" {
		t.Error("the Secret cannot be read back")
	}
}

// encryptionRotates takes the three steps to a new key while a client reads and writes Secrets all the time. No daemon is
// restarted, and no request of the client fails. The API server's metric tells when it has taken a step.
func (m *master) encryptionRotates(t *testing.T) {
	m.mustKubectl(t, "create", "secret", "generic", "busy", "--from-literal=word=0")
	stop, ended := make(chan struct{}), make(chan int, 1)
	halt := sync.OnceValue(func() int { close(stop); return <-ended })
	defer halt() // a client that outlives its test ends all of them
	go func() {
		n := 0
		defer func() { ended <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			n++
			for _, args := range [][]string{{"get", "secret", "probe"}, {"patch", "secret", "busy", "-p", fmt.Sprintf(`{"stringData":{"word":"%d"}}`, n)}} {
				if out, err := m.kubectl(t, args...); err != nil {
					t.Errorf("kubectl %v during the rotation: %v\n%s", args, err, out)
				}
			}
		}
	}()
	prefix := func(name string) string {
		value, err := m.etcdctl(t, pki.DirAPIServer, "etcd-client", "get", "--print-value-only", "/registry/secrets/default/"+name)
		if err != nil {
			t.Fatalf("etcdctl: %v\n%s", err, value)
		}
		key, _, _ := strings.Cut(strings.TrimPrefix(value, "k8s:enc:secretbox:v1:"), ":")
		return key
	}
	client := func() *kube.Client {
		c, err := kube.NewFile(filepath.Join(m.dir, "admin.kubeconfig")).Client()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := prefix("probe")
	o := authority.RotateOptions{Now: time.Now(), Taken: true, Rewrite: func(ctx context.Context) error {
		if got := prefix("probe"); got != first {
			t.Errorf("the Secret that nobody writes has the key %s before it is written again, want %s", got, first)
		}
		n, err := client().RewriteSecrets(ctx)
		t.Logf("%d Secrets written again", n)
		return err
	}}
	var state authority.Rotation
	for _, step := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
		var err error
		if state, err = authority.RotateEncryption(t.Context(), m.store, o); err != nil || state.Step != step {
			t.Fatalf("%v: step %s, want %s", err, state.Step, step)
		}
		if out, err := m.run(t, "hardtack-agent", "renew", "--patience=10s"); err != nil {
			t.Fatalf("hardtack-agent renew: %v\n%s", err, out)
		}
		file, err := os.ReadFile("/run/hardtack/pki/kube-apiserver/encryption.yaml")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := examine.UsesEncryption(t.Context(), client(), file, t.Output()); err != nil {
			t.Fatalf("step %s: %v", step, err)
		}
		t.Logf("step %s: taken after %v", step, time.Since(began).Round(time.Second))
	}
	if n := halt(); n < 10 {
		t.Errorf("the client came %d times", n)
	}
	for _, name := range []string{"probe", "busy"} {
		if got := prefix(name); got != state.Keys[0] || got == first {
			t.Errorf("%s is encrypted with %s, want %s and not %s", name, got, state.Keys[0], first)
		}
	}
	if out := m.mustKubectl(t, "get", "secret", "probe", "-o", "jsonpath={.data.word}"); out != base64.StdEncoding.EncodeToString([]byte(probeSecret)) {
		t.Errorf("the Secret is %q", out)
	}
}

// networkPolicy writes a NetworkPolicy, as somebody does who takes it for enforced.
func (m *master) networkPolicy(t *testing.T) {
	m.mustKubectl(t, "apply", "-f", filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/30-network-policy.yaml"))
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) { // the API server reads new policies now and then
		out := m.mustKubectl(t, "create", "-f", policy)
		if strings.Contains(out, "this NetworkPolicy is stored and not enforced") && strings.Contains(out, "deny created") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a NetworkPolicy is answered with %q", out)
		}
		m.mustKubectl(t, "delete", "-f", policy)
	}
	if out := m.mustKubectl(t, "delete", "-f", policy); strings.Contains(out, "enforced") {
		t.Errorf("its deletion is answered with %q", out)
	}
}

// authoritiesRotate replaces the authorities whose users read them anew. The aggregator's certificate is taken at every
// step, and refused when its authority is no longer trusted; kubelets' certificates come from the new authority as soon
// as that is to sign, and are trusted by the file of the API server.
func (m *master) authoritiesRotate(t *testing.T) {
	pair := filepath.Join(pki.Dir, pki.DirAPIServer, "front-proxy-client")
	old, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
	if err != nil {
		t.Fatal(err)
	}
	current := func() (int, error) {
		now, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
		if err != nil {
			return 0, err
		}
		return m.aggregated(t, now)
	}
	for _, name := range []string{pki.FrontProxyCA, pki.KubeletServingCA} {
		for _, step := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
			state, err := authority.RotateAuthority(t.Context(), m.store, "demo", name, authority.RotateOptions{Now: time.Now(), Taken: true})
			if err != nil || state.Step != step {
				t.Fatalf("%v: step %s, want %s", err, state.Step, step)
			}
			if out, err := m.run(t, "hardtack-agent", "renew", "--patience=10s"); err != nil {
				t.Fatalf("hardtack-agent renew: %v\n%s", err, out)
			}
			if code, err := current(); err != nil || code != http.StatusOK {
				t.Errorf("%s, step %s: the aggregator's certificate is answered with %d, %v", name, step, code, err)
			}
			if step == pki.StepAdded {
				time.Sleep(65 * time.Second) // the API server looks every minute, if nothing tells it before
			}
			if name != pki.KubeletServingCA {
				continue
			}
			n := 0
			if pending := eventually(90*time.Second, func() []string {
				n++
				cert := m.signed(t, fmt.Sprintf("%s-%d", step, n))
				if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, pki.Dir+"/kube-apiserver/kubelet-ca.crt")}); err != nil {
					t.Errorf("step %s: the API server would not take a kubelet's certificate: %v", step, err)
				}
				data, err := os.ReadFile("/run/hardtack/pki/kube-controller-manager/kubelet-serving-ca.crt")
				if err != nil {
					t.Fatal(err)
				}
				signer, err := pki.ParseCertificate(data)
				if err != nil || pki.Fingerprint(signer) != state.Keys[0] || cert.CheckSignatureFrom(signer) != nil {
					return []string{fmt.Sprintf("signed by another than %s: %v", state.Keys[0], err)}
				}
				return nil
			}); len(pending) > 0 {
				t.Errorf("step %s: %v", step, pending)
			}
		}
	}
	if pending := eventually(90*time.Second, func() []string {
		if code, err := m.aggregated(t, old); err != nil || code != http.StatusUnauthorized {
			return []string{fmt.Sprintf("%d, %v", code, err)}
		}
		return nil
	}); len(pending) > 0 {
		t.Errorf("a certificate of the replaced authority is still taken: %v", pending)
	}
}

// aggregated asks the API server as its aggregator asks others: in the name of a user, with the aggregator's certificate.
func (m *master) aggregated(t *testing.T, pair tls.Certificate) (int, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, machine.CAPath), MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://masters.demo.k8s/version", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("X-Remote-User", "somebody")
	answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// token does the same as a master's controller: it creates the Secret, and the object in the store.
func (m *master) token(t *testing.T) pki.Token {
	t.Helper()
	token := pki.NewToken(time.Now())
	data, err := token.Marshal()
	if err == nil {
		err = m.store.Put(t.Context(), pki.BootstrapToken, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.mustKubectl(t, "create", "secret", "generic", "-n", "kube-system", "bootstrap-token-"+token.ID, "--type=bootstrap.kubernetes.io/token",
		"--from-literal=token-id="+token.ID, "--from-literal=token-secret="+token.Secret, "--from-literal=usage-bootstrap-authentication=true",
		"--from-literal=expiration="+token.Expires.Format(time.RFC3339), "--from-literal=auth-extra-groups="+pki.GroupBootstrappers)
	return token
}
