package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// master is a control plane in its own namespaces: the daemons with the flags of their units, and the files that the
// agent mints. Its /run is a tmpfs, and its /etc has the image's files over this computer's.
type master struct {
	dir     string
	store   store.Store
	told    config.Effective
	daemons map[string]*exec.Cmd
	logs    map[string]*run.Log
	// certificates is how many the machine has of its own.
	certificates int
}

// The addresses of the master: the second is not loopback's.
const (
	masterAPI     = "127.0.0.1:443"
	masterAddress = "10.77.0.11"
	probeSecret   = "hardtack-and-salt-pork"
)

func buildAgent(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, programs.Bin, "hardtack-agent"), "../../cmd/hardtack-agent")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
}

// inMaster runs the test again in its own namespaces, and reports whether this is that run.
func inMaster(t *testing.T, dir string) bool {
	t.Helper()
	const inside = "HARDTACK_E2E_MASTER"
	if os.Getenv(inside) == "" {
		run := "^" + t.Name() + "$"
		if _, part, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
			run += "/" + part
		}
		cmd := exec.CommandContext(interrupted, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", os.Args[0],
			"-test.run="+run, "-test.v", "-test.timeout=45m")
		cmd.Env = append(os.Environ(), inside+"=1", untilVariable+"=")
		cmd.WaitDelay = endWithin
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
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /var/lib
mkdir -p /etc/hardtack /etc/sysconfig /var/lib/kubelet /run/hardtack/pki/node
ln -s /run/hardtack/pki/node /var/lib/kubelet/pki`, masterAddress, dir, etc)
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("preparing the namespaces: %v\n%s", err, out)
	}
	return true
}

// newMaster creates the cluster's store, the files that user data would write, and the machine's certificates, minted
// five days ago: they are valid for two more days, and due for renewal.
func newMaster(t *testing.T, dir string) *master {
	t.Helper()
	m := &master{dir: dir, store: store.NewDir("/etc/hardtack/store"), daemons: map[string]*exec.Cmd{}, logs: map[string]*run.Log{}}
	if _, err := authority.Create(t.Context(), m.store, completed(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n").Info(), time.Now().Add(-6*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	ca, err := m.store.Get(t.Context(), pki.PublicKubernetes)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{machine.CAPath: ca}
	for _, r := range role.All() {
		files[r.File()] = []byte("CLUSTER_NAME=demo\nSTORE=" + m.store.String() + "\n")
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
	if m.told, err = config.Read("/", config.Hardware{Why: "this is a test"}); err != nil {
		t.Fatal(err)
	}
	decide(t, m.store, "/run/hardtack/etcd", etcd.Facts{Member: machine.LoneMember})
	minted, err := certs.Mint(t.Context(), certs.MintOptions{
		Roles: role.NewSet(role.Masters, role.Etcd), Config: m.told, Store: m.store,
		Host: func() (certs.Host, error) {
			return certs.Host{Name: "master", Addresses: []netip.Addr{netip.MustParseAddr(masterAddress)}}, nil
		},
		Now: func() time.Time { return time.Now().Add(-5 * 24 * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, directory := range minted {
		m.certificates += len(directory.Certificates)
	}
	return m
}

// decide writes the environment with which etcd begins, as the agent does for a member of a first start.
func decide(t *testing.T, records store.Store, dir string, facts etcd.Facts) {
	t.Helper()
	data, err := records.Get(t.Context(), etcd.BeginObject(1))
	if err != nil {
		t.Fatal(err)
	}
	begin, err := etcd.Parse[etcd.Begin](data)
	if err != nil {
		t.Fatal(err)
	}
	facts.Store.Begin = &begin
	if facts.PeerURL == "" {
		facts.PeerURL = begin.Members[0].URL
	}
	lines := etcd.Action{Start: etcd.New, Clients: etcd.Open}.Environment(facts)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "member"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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

// daemon starts the command of a unit's ExecStart=, with the settings of the files that the unit names.
func (m *master) daemon(t *testing.T, name string) { m.instance(t, name, name, nil) }

// instance starts another one of a daemon, with settings of its own.
func (m *master) instance(t *testing.T, name, as string, own map[string]string) {
	t.Helper()
	settings := map[string]string{"ETCD_DATA_DIR": filepath.Join(m.dir, "data")}
	maps.Copy(settings, own)
	words, env := unitCommand(t, "/", name, settings)
	cmd := exec.CommandContext(interrupted, filepath.Join(m.dir, words[0]), words[1:]...)
	cmd.Env = append(os.Environ(), env...)
	m.daemons[as], m.logs[as] = cmd, background(t, cmd)
}

// unitCommand is the command of a unit's ExecStart= and its environment, on a machine whose files are below a root directory.
// Settings win over those of the files that the unit names.
func unitCommand(t *testing.T, root, name string, settings map[string]string) (words, env []string) {
	t.Helper()
	us, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	u := us[slices.IndexFunc(us, func(u unit.Unit) bool { return u.Name == name+".service" })]
	settings = maps.Clone(settings)
	given := maps.Clone(settings)
	for _, o := range u.Values("Service", "EnvironmentFile") {
		file := strings.TrimPrefix(o.Value, "-")
		data, err := os.ReadFile(filepath.Join(root, file))
		if strings.HasPrefix(o.Value, "-/run/") && errors.Is(err, fs.ErrNotExist) {
			continue // made where there is something to say
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok && !strings.HasPrefix(key, "#") && given[key] == "" {
				settings[key] = value
			}
		}
	}
	for key, value := range settings {
		env = append(env, key+"="+value)
	}
	for word := range strings.FieldsSeq(u.Value("Service", "ExecStart").Value) {
		if key, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(key, "{") {
			words = append(words, strings.Fields(settings[key])...)
			continue
		}
		words = append(words, os.Expand(word, func(key string) string { return settings[key] }))
	}
	return words, env
}

// pool has the CA that the machine trusts, from its user data.
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
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, machine.CAPath), MinVersion: tls.VersionTLS12}}
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

// run runs one of the installed programs, and returns its output.
func (m *master) run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(m.dir, programs.Bin, program), args...).CombinedOutput()
	return string(out), err
}

// etcdctl calls etcd with the certificate of a bundle, or with none for "".
func (m *master) etcdctl(t *testing.T, bundle, name string, args ...string) (string, error) {
	t.Helper()
	base := []string{"--endpoints=https://127.0.0.1:2379", "--cacert=/run/hardtack/pki/etcd/ca.crt", "--command-timeout=5s"}
	if bundle != "" {
		base = append(base, "--cert="+filepath.Join(pki.Dir, bundle, name+".crt"), "--key="+filepath.Join(pki.Dir, bundle, name+".key"))
	}
	return m.run(t, "etcdctl", append(base, args...)...)
}

// kubectl runs kubectl with an operator's kubeconfig.
func (m *master) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(m.dir, "admin.kubeconfig")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		data, err := pki.AdminKubeconfig(readAuthority(t.Context(), t, m.store), "https://masters.demo.k8s", time.Hour, time.Now())
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
