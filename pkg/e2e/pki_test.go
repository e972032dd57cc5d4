package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fetch"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/unit"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// master is a control plane in namespaces of its own: the daemons of the units, with the flags of the units, on the
// files that the agent mints. Its /run is a tmpfs, and its /etc is the image's over this computer's.
type master struct {
	dir     string
	store   store.Store
	config  machine.Config
	daemons map[string]*exec.Cmd
	logs    map[string]*output
}

// The addresses of the master: the second is not loopback's.
const (
	masterAPI     = "127.0.0.1:443"
	masterAddress = "10.77.0.11"
	probeSecret   = "hardtack-and-salt-pork"
)

// TestCertificates starts a control plane from what the agent mints, and looks at it from outside: who gets in, what
// is in etcd, and what happens when certificates are renewed.
func TestCertificates(t *testing.T) {
	needMachines(t)
	if os.Geteuid() != 0 {
		t.Skip("makes network and mount namespaces: run as root")
	}
	dir := t.TempDir()
	install(t, dir, "etcd", "kubernetes")
	buildAgent(t, dir)
	if !inMaster(t, dir) {
		return
	}
	m := newMaster(t, dir)
	m.start(t)
	// One cluster for all: starting it is what takes long.
	t.Run("nobody is anonymous", m.anonymous)
	t.Run("etcd takes its own clients only", m.strangersAtEtcd)
	t.Run("secrets are encrypted in etcd", m.encrypted)
	t.Run("each identity may do what it needs", m.identities)
	t.Run("renewal needs no restart", m.renewal)
	t.Run("no key is in a log or on a disk", m.noKeys)
}

// install puts programs of the lock, from the cache or built, into a directory.
func install(t *testing.T, dir string, names ...string) {
	t.Helper()
	const file = "kubernetes-1.36.lock.yaml"
	data, err := fs.ReadFile(images.FS, file)
	if err != nil {
		t.Fatal(err)
	}
	lock, problems := component.Parse(file, data)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	fetcher, err := fetch.New(fetch.Options{Assets: images.FS, Source: fetch.Modules})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		c, _ := lock.Component(name)
		result, err := fetcher.Get(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range result.Entries {
			if err := installEntry(dir, e); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// bin is where the image has programs.
const bin = "usr/bin"

func installEntry(dir string, e rootfs.Entry) error {
	to := filepath.Join(dir, e.Path)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil || e.Mode.IsDir() {
		return err
	}
	if e.Link != "" {
		return os.Symlink(e.Link, to)
	}
	content, err := e.Open()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(file, content)
		err = errors.Join(err, file.Close())
	}
	return errors.Join(err, content.Close())
}

func buildAgent(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, bin, "hardtack-agent"), "../../cmd/hardtack-agent")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
}

// inMaster runs the test again in namespaces of its own, and tells whether this is that run.
func inMaster(t *testing.T, dir string) bool {
	t.Helper()
	const inside = "HARDTACK_E2E_MASTER"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(interrupted, "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", os.Args[0],
			"-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), inside+"=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Errorf("in its own namespaces: %v", err)
		}
		return false
	}
	etc, err := filepath.Abs(filepath.Join(root, "images", "rootfs", "etc"))
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`ip link set lo up
ip address add %s/32 dev lo
ip route add default dev lo
mkdir %[2]s/upper %[2]s/work
mount -t overlay overlay -o lowerdir=%[3]s:/etc,upperdir=%[2]s/upper,workdir=%[2]s/work /etc
mount -t tmpfs tmpfs /run
mkdir -p /etc/hardtack /etc/sysconfig`, masterAddress, dir, etc)
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("preparing the namespaces: %v\n%s", err, out)
	}
	return true
}

// newMaster makes the cluster's store, what user data would bring, and the machine's certificates as they were minted
// five days ago: good for two more days, and due.
func newMaster(t *testing.T, dir string) *master {
	t.Helper()
	m := &master{dir: dir, store: store.NewDir("/etc/hardtack/store"), daemons: map[string]*exec.Cmd{}, logs: map[string]*output{}}
	if _, err := authority.Create(t.Context(), m.store, "demo", time.Now().Add(-6*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	ca, err := m.store.Get(t.Context(), pki.PublicKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	m.config = machine.Config{
		APIVersion: machine.APIVersion, Kind: machine.Kind, Cluster: "demo", Group: "masters", ConfigHash: strings.Repeat("0", 64),
		Store: m.store.String(), API: machine.API{Port: 443},
		Network: machine.Network{ServiceCIDR: "10.96.0.0/16", PodCIDR: "10.244.0.0/16", DNSAddress: "10.96.0.10", DNSDomain: "cluster.local"},
	}
	config, err := m.config.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{certs.AuthorityPath: ca, machine.Path: config}
	for _, r := range role.All() {
		files[r.File()] = []byte("CLUSTER_NAME=demo\n")
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	files["/etc/hosts"] = append(hosts, []byte("\n"+masterAddress+" masters.demo.k8s\n")...)
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err = certs.Mint(t.Context(), certs.MintOptions{
		Roles: role.NewSet(role.Masters, role.Etcd), Config: m.config, Store: m.store,
		Host: func() (certs.Host, error) {
			return certs.Host{Name: "master", Addresses: []netip.Addr{netip.MustParseAddr(masterAddress)}}, nil
		},
		Now: func() time.Time { return time.Now().Add(-5 * 24 * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start starts the daemons of the units, and waits until the API server answers.
func (m *master) start(t *testing.T) {
	t.Helper()
	m.daemon(t, "etcd")
	m.daemon(t, "kube-apiserver")
	t.Cleanup(func() {
		for name, log := range m.logs {
			if t.Failed() {
				t.Logf("%s:\n%s", name, tail(log.String(), 25))
			}
		}
	})
	if pending := eventually(2*time.Minute, func() []string {
		code, err := m.anonymously(t, "/readyz")
		if err != nil || code != http.StatusOK {
			return []string{fmt.Sprintf("/readyz: %d, %v", code, err)}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatalf("the API server does not become ready: %v", pending)
	}
	m.daemon(t, "kube-controller-manager") // which gives up without an API server, and systemd starts it again
	m.daemon(t, "kube-scheduler")
}

// daemon starts what a unit's ExecStart= says, with the settings of the files that the unit names.
func (m *master) daemon(t *testing.T, name string) {
	t.Helper()
	us, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	u := us[slices.IndexFunc(us, func(u unit.Unit) bool { return u.Name == name+".service" })]
	settings := map[string]string{"ETCD_DATA_DIR": filepath.Join(m.dir, "data")}
	var env []string
	for _, o := range u.Values("Service", "EnvironmentFile") {
		data, err := os.ReadFile(strings.TrimPrefix(o.Value, "-"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok && !strings.HasPrefix(key, "#") && settings[key] == "" {
				settings[key] = value
			}
		}
	}
	for key, value := range settings {
		env = append(env, key+"="+value)
	}
	var words []string
	for word := range strings.FieldsSeq(u.Value("Service", "ExecStart").Value) {
		if key, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(key, "{") {
			words = append(words, strings.Fields(settings[key])...)
			continue
		}
		words = append(words, os.Expand(word, func(key string) string { return settings[key] }))
	}
	log := &output{}
	cmd := exec.CommandContext(interrupted, filepath.Join(m.dir, words[0]), words[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.daemons[name], m.logs[name] = cmd, log
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// pool is what a machine trusts: the authority of its user data.
func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(data) {
		t.Fatalf("%s has no certificate", file)
	}
	return p
}

// anonymously asks the API server without any certificate.
func (m *master) anonymously(t *testing.T, path string) (int, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, certs.AuthorityPath), MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://masters.demo.k8s"+path, nil)
	if err != nil {
		return 0, err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
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

// run runs one of the installed programs, and returns what it says.
func (m *master) run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(m.dir, bin, program), args...).CombinedOutput()
	return string(out), err
}

// etcdctl asks etcd with the certificate of a bundle; "" is none.
func (m *master) etcdctl(t *testing.T, bundle, name string, args ...string) (string, error) {
	t.Helper()
	base := []string{"--endpoints=https://127.0.0.1:2379", "--cacert=/run/hardtack/pki/etcd/ca.crt", "--command-timeout=5s"}
	if bundle != "" {
		base = append(base, "--cert="+filepath.Join(pki.Dir, bundle, name+".crt"), "--key="+filepath.Join(pki.Dir, bundle, name+".key"))
	}
	return m.run(t, "etcdctl", append(base, args...)...)
}

// strangersAtEtcd comes with no certificate, with one of another authority, and with the right one.
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

// knock opens a TLS connection with a client's certificate, and asks for a page: only then has the server looked at it.
func knock(t *testing.T, address, ca, pair string) error {
	t.Helper()
	config := &tls.Config{RootCAs: pool(t, ca), MinVersion: tls.VersionTLS12}
	if pair != "" {
		crt, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
		if err != nil {
			t.Fatal(err)
		}
		// Not Certificates, of which Go would send none when no authority that the server names has signed it.
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

// kubectl runs kubectl with a kubeconfig of the operator's.
func (m *master) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(m.dir, "admin.kubeconfig")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		crt, crtErr := m.store.Get(t.Context(), pki.KubernetesCA+pki.Crt)
		key, keyErr := m.store.Get(t.Context(), pki.KubernetesCA+pki.Key)
		ca, err := pki.ParseAuthority(crt, key)
		if err := errors.Join(crtErr, keyErr, err); err != nil {
			t.Fatal(err)
		}
		data, err := pki.AdminKubeconfig(ca, "https://masters.demo.k8s", time.Hour, time.Now())
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m.run(t, "kubectl", append([]string{"--kubeconfig=" + file}, args...)...)
}

func (m *master) mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.kubectl(t, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// encrypted writes a Secret and a ConfigMap with the same word, and looks for the word in etcd.
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

// identities asks the API server what each certificate and the bootstrap token may do.
func (m *master) identities(t *testing.T) {
	m.mustKubectl(t, "apply", "-f", filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/10-nodes.yaml"))
	m.token(t)
	if out, err := m.run(t, "hardtack-agent", "bootstrap", "--patience=10s"); err != nil {
		t.Fatalf("hardtack-agent bootstrap: %v\n%s", err, out)
	}
	kubelet := []string{"--server=https://masters.demo.k8s", "--certificate-authority=" + certs.AuthorityPath,
		"--client-certificate=/run/hardtack/pki/kube-apiserver/kubelet-client.crt", "--client-key=/run/hardtack/pki/kube-apiserver/kubelet-client.key"}
	bootstrap := []string{"--kubeconfig=/run/hardtack/pki/kubelet/bootstrap-kubeconfig"}
	for _, tt := range []struct {
		who  []string
		may  string
		want string
	}{
		{kubelet, "get nodes --subresource=proxy", "yes"}, {kubelet, "get secrets", "no"}, {kubelet, "create pods", "no"}, {kubelet, "delete nodes", "no"},
		{bootstrap, "create certificatesigningrequests.certificates.k8s.io", "yes"}, {bootstrap, "get secrets", "no"}, {bootstrap, "get nodes", "no"},
		{bootstrap, "create nodes", "no"}, {bootstrap, "approve certificatesigningrequests.certificates.k8s.io", "no"},
	} {
		out, _ := m.run(t, "kubectl", slices.Concat(tt.who, []string{"auth", "can-i"}, strings.Fields(tt.may))...)
		if answer := strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]); answer != tt.want {
			t.Errorf("%s, %s: %q, want %s", tt.who[0], tt.may, out, tt.want)
		}
	}
	// The other two are at work: they hold their leases.
	if pending := eventually(time.Minute, func() []string {
		out, err := m.kubectl(t, "get", "-n", "kube-system", "lease", "kube-controller-manager", "kube-scheduler")
		if err != nil {
			return []string{out}
		}
		return nil
	}); len(pending) > 0 {
		t.Errorf("controller manager and scheduler: %v", pending)
	}
}

// token does what a master's controller does: the Secret, and the same in the store.
func (m *master) token(t *testing.T) {
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
}

// shown is the certificate that a server shows to a new connection.
func shown(t *testing.T, address, ca, pair string) *x509.Certificate {
	t.Helper()
	config := &tls.Config{RootCAs: pool(t, ca), MinVersion: tls.VersionTLS12}
	if pair != "" {
		crt, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{crt}
	}
	conn, err := (&tls.Dialer{Config: config, NetDialer: &net.Dialer{Timeout: 10 * time.Second}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// renewal runs what the timer runs. Every certificate is due, and no daemon is touched.
func (m *master) renewal(t *testing.T) {
	type server struct{ name, address, ca, pair string }
	servers := []server{
		{"kube-apiserver", masterAPI, certs.AuthorityPath, ""},
		{"etcd for clients", "127.0.0.1:2379", "/run/hardtack/pki/etcd/ca.crt", "/run/hardtack/pki/etcd/server"},
		{"etcd for peers", "127.0.0.1:2380", "/run/hardtack/pki/etcd/peer-ca.crt", "/run/hardtack/pki/etcd/peer"},
	}
	before := map[string]*x509.Certificate{}
	for _, s := range servers {
		before[s.name] = shown(t, s.address, s.ca, s.pair)
	}
	began := time.Now()
	out, err := m.run(t, "hardtack-agent", "renew", "--patience=10s")
	if err != nil || strings.Count(out, "minted") != 9 {
		t.Fatalf("hardtack-agent renew: %v\n%s", err, out)
	}
	if out, err := m.run(t, "hardtack-agent", "renew", "--patience=10s"); err != nil || strings.Contains(out, "minted") {
		t.Errorf("again: %v\n%s", err, out)
	}
	for _, s := range servers {
		pending := eventually(90*time.Second, func() []string {
			if now := shown(t, s.address, s.ca, s.pair); now.SerialNumber.Cmp(before[s.name].SerialNumber) == 0 {
				return []string{now.NotAfter.String()}
			}
			return nil
		})
		if len(pending) > 0 {
			t.Errorf("%s still shows the certificate that ends at %v", s.name, pending)
		}
		t.Logf("%s shows the new certificate %v after the renewal began", s.name, time.Since(began).Round(time.Millisecond))
	}
	for name, cmd := range m.daemons {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("%s has ended: %v\n%s", name, err, tail(m.logs[name].String(), 10))
		}
	}
	// The master's own kubeconfig is good again, and the API server reaches etcd by its new certificate too.
	if out, err := m.run(t, "kubectl", "--kubeconfig=/run/hardtack/pki/admin/kubeconfig", "get", "secret", "probe"); err != nil {
		t.Errorf("the masters' kubeconfig: %v\n%s", err, out)
	}
	if code, err := m.anonymously(t, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("/readyz: %d, %v", code, err)
	}
}

// noKeys looks for every secret of the cluster in what the daemons have logged, and on every disk that they write to.
func (m *master) noKeys(t *testing.T) {
	var secrets [][]byte
	err := filepath.WalkDir(pki.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type() == fs.ModeSymlink || !strings.HasSuffix(path, ".key") {
			return err
		}
		data, err := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, "-----") && len(line) > 40 {
				secrets = append(secrets, []byte(strings.TrimSpace(line)))
			}
		}
		return err
	})
	if err != nil || len(secrets) < 10 {
		t.Fatalf("%v: %d secrets to look for", err, len(secrets))
	}
	look := func(where string, text []byte) {
		for _, secret := range secrets {
			if bytes.Contains(text, secret) {
				t.Errorf("%s has a private key: %.10s…", where, secret)
			}
		}
		if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
			t.Errorf("%s has a private key", where)
		}
	}
	for name, log := range m.logs {
		look("the log of "+name, []byte(log.String()))
	}
	// Everything that was written below /etc, but for the store, which is an operator's in a laboratory; and etcd's data.
	for _, dir := range []string{filepath.Join(m.dir, "upper"), filepath.Join(m.dir, "data")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/hardtack/store/") {
				return err
			}
			data, err := os.ReadFile(path)
			look(path, data)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
