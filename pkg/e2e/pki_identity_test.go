package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest"
	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds/imdstest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// tokenAlone is the attack of who has copied the token off a minion: it asks for the certificate of another node. Then the
// machine itself asks, first without a controller.
func (m *master) tokenAlone(t *testing.T) {
	m.mustKubectl(t, "apply", "-f", filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/10-nodes.yaml"))
	token := m.token(t)
	if err := os.WriteFile(kubelet.EnvFile, []byte("NODE_NAME=node-a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(machine.CAPath)
	if err != nil {
		t.Fatal(err)
	}
	attacker, err := kube.NewJoiner("https://masters.demo.k8s", ca, token.Bearer())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(request, node string) { askFor(t, attacker, request, node) }
	pending := func(request string) {
		t.Helper()
		if got, err := attacker.Answer(t.Context(), request); err != nil || got.Approved || got.Over != "" || len(got.Certificate) > 0 {
			t.Errorf("%s: %+v, %v, want a request that is pending", request, got, err)
		}
	}
	ask("attack", "victim")
	out, err := m.run(t, "hardtack-agent", "bootstrap", "--patience=10s")
	if err == nil || !strings.Contains(out, "no master has decided") {
		t.Errorf("without a controller: %v\n%s", err, out)
	}
	pending("attack") // the controller manager had ten seconds

	// A node that works keeps its name, and its own machine joins by itself. Without a cloud the first one that asks for a
	// free name gets it: "attack" would be approved now.
	m.mustKubectl(t, "delete", "csr", "--all")
	m.mustKubectl(t, "create", "-f", m.file(t, "victim.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: victim}\n"))
	m.mustKubectl(t, "patch", "node", "victim", "--subresource=status", "--patch", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	ask("attack-2", "victim")
	defer m.controller(t, nil)()
	if out, err := m.run(t, "hardtack-agent", "bootstrap", "--patience=30s"); err != nil || !strings.Contains(out, "node node-a, joined") {
		t.Errorf("hardtack-agent bootstrap: %v\n%s\n%s", err, out, tail(m.logs["controller"].String(), 20))
	}
	pending("attack-2")
	if got, err := attacker.Answer(t.Context(), "attack-2"); err != nil || !strings.Contains(got.Why, "is there and Ready") {
		t.Errorf("the reason is %+v, %v", got, err)
	}
	who, err := m.run(t, "kubectl", "--kubeconfig=/run/hardtack/pki/kubelet/kubeconfig", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if err != nil || who != "system:node:node-a" {
		t.Errorf("the machine is %q, %v", who, err)
	}
}

// askFor makes a request for a node's certificate, with a key of its own.
func askFor(t *testing.T, who *kube.Joiner, request, node string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key)
	if err == nil {
		err = who.Ask(t.Context(), certs.JoinRequest{Name: request, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ownToken is a machine without a cloud whose user data have a token for it alone, with the real programs on all sides, and
// who has a copy of it, or the cluster's token.
func (m *master) ownToken(t *testing.T) {
	const node = "node-b.example"
	m.mustKubectl(t, "delete", "csr", "--all")
	joiner := func(token pki.Token) *kube.Joiner {
		t.Helper()
		j, err := kube.NewJoiner("https://masters.demo.k8s", []byte(m.text(t, machine.CAPath)), token.Bearer())
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	cluster := m.file(t, "cluster.yaml", "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\nstore: "+m.store.String()+"\n")
	text, err := m.run(t, "hardtack", "userdata", "-f", cluster, "--group", "minions", "--machine", node, "--ca", m.file(t, "ca.crt", m.text(t, machine.CAPath)), "--kubeconfig", filepath.Join(m.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	result, problems := userdata.Parse([]byte(text), nil)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{machine.CAPath: m.text(t, machine.CAPath), kubelet.EnvFile: "NODE_NAME=" + node + "\n"}
	var own pki.Token
	for _, f := range result.Files {
		files[f.Path] = string(f.Content)
		if f.Path != pki.MachineTokenPath {
			continue
		}
		if own, err = pki.ParseToken(f.Content); err != nil || f.Mode != 0o600 {
			t.Errorf("%s, %v, mode %v", f.Path, err, f.Mode)
		}
	}
	attacker, copied := joiner(m.token(t)), joiner(own)
	undecided := func(who *kube.Joiner, request, why string) {
		t.Helper()
		var got certs.JoinAnswer
		if pending := eventually(30*time.Second, func() []string {
			if got, err = who.Answer(t.Context(), request); err != nil || !strings.Contains(got.Why, why) {
				return []string{fmt.Sprintf("%+v, %v", got, err)}
			}
			return nil
		}); len(pending) > 0 || got.Approved || got.Over != "" || len(got.Certificate) > 0 {
			t.Errorf("%s: %+v, %v, want it undecided: %s", request, got, err, why)
		}
	}
	bootstrap := func() (string, error) {
		t.Helper()
		return m.run(t, "hardtack-agent", "bootstrap", "--patience=30s", "--root="+imagestest.Root(t, files))
	}
	end := m.controller(t, nil)
	askFor(t, attacker, "before", node)
	undecided(attacker, "before", "waits until")
	askFor(t, copied, "other", "victim-b")
	undecided(copied, "other", "asks for the node victim-b")
	if out, err := bootstrap(); err != nil || !strings.Contains(out, "node "+node+", joined") {
		t.Errorf("the machine: %v\n%s\n%s", err, out, tail(m.logs["controller"].String(), 20))
	}
	askFor(t, copied, "again", node)
	undecided(copied, "again", "was used by another request")
	undecided(attacker, "before", "waits until")
	expires, err := time.Parse(time.RFC3339, m.decoded(t, own, "expiration"))
	if left := time.Until(expires); err != nil || left > 5*time.Minute {
		t.Errorf("%v: the used token is good for another %v", err, left)
	}
	// As if these minutes were over: the machine, which has lost its key by a reboot, is a machine like any other.
	m.mustKubectl(t, "delete", "-n", "kube-system", "secret", "bootstrap-token-"+own.ID)
	if out, err := bootstrap(); err != nil || !strings.Contains(out, "node "+node+", joined") {
		t.Errorf("after a reboot: %v\n%s\n%s", err, out, tail(m.logs["controller"].String(), 20))
	}
	end()

	files[role.Masters.File()] = m.text(t, role.Masters.File()) + config.FirstComeVariable + "=no\n"
	defer m.controller(t, nil, "--root="+imagestest.Root(t, files))()
	askFor(t, attacker, "free", "nobody")
	undecided(attacker, "free", "FIRST_COME=no")
}

// decoded is a field of a bootstrap token's Secret.
func (m *master) decoded(t *testing.T, token pki.Token, field string) string {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(m.mustKubectl(t, "get", "-n", "kube-system", "secret", "bootstrap-token-"+token.ID, "-o", "jsonpath={.data."+field+"}"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// proved is a machine of a cloud that joins, with the real programs on both sides: the proof, STS, and the group of the
// instance. Before it, another machine of the group asks for its name.
func (m *master) proved(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm": 0, "ssm:PutParameter": 0}})
	account.AddUser("operator", awsfake.Administrator())
	// On the port of a lab's endpoint, which is the scheme's own: no signature has it.
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(account.Handler())
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	service := httptest.NewServer(&imdstest.Service{InstanceID: "i-0123456789abcdef0"})
	t.Cleanup(service.Close)
	for _, name := range []string{"demo-masters", "demo-minions"} {
		account.AddRole(name, awsfake.Administrator())
	}
	group := awsfake.Group{Name: "demo-minions", Max: 2, Desired: 2, Zones: []string{"us-west-2a"},
		Tags: map[string]string{role.TagCluster: "demo", role.TagRole: "minions", role.TagInstanceRole: "demo-minions"}}
	if err := account.AutoScaling().Create(group); err != nil {
		t.Fatal(err)
	}
	account.Tick()
	var machines []awsfake.Machine
	for _, member := range account.AutoScaling().Instances(group.Name) {
		if one, ok := account.EC2().Machine(member.ID); ok {
			machines = append(machines, one)
		}
	}
	if len(machines) != 2 {
		t.Fatalf("%d machines", len(machines))
	}
	// as is a root directory and the environment of a session of a role.
	as := func(name, session string) (string, []string) {
		t.Helper()
		c, err := account.Issue(name, session, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		dir := imagestest.Root(t, map[string]string{
			"proc/cmdline": "hardtack.userdata=imds hardtack.imds=" + service.URL, "credentials/hardtack.aws-endpoint": server.URL,
			machine.CAPath: m.text(t, machine.CAPath), role.Minions.File(): m.text(t, role.Minions.File()), role.Masters.File(): m.text(t, role.Masters.File()),
			kubelet.EnvFile: "NODE_NAME=" + nameOf(machines[0]) + "\n",
		})
		return dir, []string{"CREDENTIALS_DIRECTORY=" + filepath.Join(dir, "credentials"), "AWS_REGION=us-west-2",
			"AWS_ACCESS_KEY_ID=" + c.AccessKey, "AWS_SECRET_ACCESS_KEY=" + c.Secret, "AWS_SESSION_TOKEN=" + c.Token}
	}
	bootstrap := func(session string) (string, error) {
		t.Helper()
		dir, env := as("demo-minions", session)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(m.dir, programs.Bin, "hardtack-agent"), "bootstrap", "--patience=15s", "--root="+dir)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	dir, env := as("demo-masters", "i-00000000000000010")
	defer m.controller(t, env, "--root="+dir)()
	if out, err := bootstrap(machines[1].ID); err == nil || !strings.Contains(out, "instance "+machines[1].ID+" is ") || !strings.Contains(out, "asks for the node "+nameOf(machines[0])) {
		t.Errorf("as another machine: %v\n%s\n%s", err, out, tail(m.logs["controller"].String(), 20))
	}
	before := account.Calls()["sts:GetCallerIdentity"]
	if out, err := bootstrap(machines[0].ID); err != nil || !strings.Contains(out, "node "+nameOf(machines[0])+", joined") {
		t.Errorf("the machine itself: %v\n%s\n%s", err, out, tail(m.logs["controller"].String(), 20))
	}
	if calls := account.Calls()["sts:GetCallerIdentity"] - before; calls != 1 {
		t.Errorf("joining cost %d calls to STS, want 1", calls)
	}
}

// nameOf is the private DNS name of a machine.
func nameOf(m awsfake.Machine) string {
	return "ip-" + strings.ReplaceAll(m.Private.String(), ".", "-") + ".us-west-2.compute.internal"
}

func (m *master) text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// controller starts the masters' controller, with its own user and the rights of its addon.
func (m *master) controller(t *testing.T, env []string, args ...string) (end func()) {
	t.Helper()
	m.mustKubectl(t, "apply", "-f", filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/11-controller.yaml"))
	cmd := exec.CommandContext(interrupted, filepath.Join(m.dir, programs.Bin, "hardtack-agent"),
		append([]string{"controller", "--kubeconfig=/run/hardtack/pki/hardtack-controller/kubeconfig"}, args...)...) // not below --root
	cmd.Env = append(os.Environ(), env...)
	m.logs["controller"] = background(t, cmd)
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// file writes a file for kubectl.
func (m *master) file(t *testing.T, name, content string) string {
	t.Helper()
	name = filepath.Join(m.dir, name)
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// identities asks the API server for the rights of each certificate and of the bootstrap token.
func (m *master) identities(t *testing.T) {
	m.mustKubectl(t, "apply", "-f", filepath.Join(root, "images/rootfs/usr/lib/hardtack/addons/10-nodes.yaml"))
	token := m.token(t)
	apiServer := []string{"--server=https://masters.demo.k8s", "--certificate-authority=" + machine.CAPath,
		"--client-certificate=/run/hardtack/pki/kube-apiserver/kubelet-client.crt", "--client-key=/run/hardtack/pki/kube-apiserver/kubelet-client.key"}
	bootstrap := []string{"--server=https://masters.demo.k8s", "--certificate-authority=" + machine.CAPath, "--token=" + token.Bearer()}
	for _, tt := range []struct {
		who  []string
		may  string
		want string
	}{
		{apiServer, "get nodes --subresource=proxy", "yes"}, {apiServer, "get secrets", "no"}, {apiServer, "create pods", "no"}, {apiServer, "delete nodes", "no"},
		{bootstrap, "create certificatesigningrequests.certificates.k8s.io", "yes"}, {bootstrap, "get secrets", "no"}, {bootstrap, "get nodes", "no"},
		{bootstrap, "create nodes", "no"}, {bootstrap, "approve certificatesigningrequests.certificates.k8s.io", "no"},
	} {
		out, _ := m.run(t, "kubectl", slices.Concat(tt.who, []string{"auth", "can-i"}, strings.Fields(tt.may))...)
		if answer := strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]); answer != tt.want {
			t.Errorf("%s, %s: %q, want %s", tt.who[0], tt.may, out, tt.want)
		}
	}
	// The other two daemons work: they hold their leases.
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

// addonsRights: who applies the add-ons has no rights in a new cluster, or where somebody has taken them, and then by one binding. A
// master that starts its API server again takes one lease as the controller, which may do no more with leases.
func (m *master) addonsRights(t *testing.T) {
	kubeconfig := func(dir string) string { return "--kubeconfig=" + filepath.Join(pki.Dir, dir, "kubeconfig") }
	if who, err := m.run(t, "kubectl", kubeconfig(pki.DirAdmin), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"); err != nil ||
		who != pki.UserAddons+` ["system:authenticated"]` {
		t.Errorf("the add-ons' user: %q, %v", who, err)
	}
	may := func(want, dir string, what ...string) {
		t.Helper()
		var out string
		if pending := eventually(20*time.Second, func() []string {
			out, _ = m.run(t, "kubectl", append([]string{kubeconfig(dir), "auth", "can-i"}, what...)...)
			if strings.HasSuffix("\n"+strings.TrimSpace(out), "\n"+want) {
				return nil
			}
			return []string{out}
		}); len(pending) > 0 {
			t.Errorf("%s, %v: %q, want %s", dir, what, out, want)
		}
	}
	manifests := t.TempDir()
	for _, file := range []string{addons.First, "11-controller.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "images/rootfs"+addons.Dir, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(manifests, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	containerd, err := os.ReadFile(filepath.Join(root, "images/rootfs/etc/containerd/config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	machineRoot := imagestest.Root(t, map[string]string{role.Masters.File(): m.text(t, role.Masters.File()), "/etc/containerd/config.toml": string(containerd)})
	for _, when := range []string{"in a new cluster", "without the binding"} {
		may("no", pki.DirAdmin, "*", "*")
		if out, err := m.run(t, "hardtack-agent", "addons", "-v", "--root="+machineRoot, "--dir="+manifests, "--extra="+t.TempDir()); err != nil ||
			!strings.Contains(out, "applied as a superuser") {
			t.Fatalf("%s: %v\n%s", when, err, out)
		}
		may("yes", pki.DirAdmin, "*", "*")
		m.mustKubectl(t, "delete", "clusterrolebinding", pki.UserAddons)
	}
	may("yes", pki.DirController, "delete", "leases/hardtack-restart", "-n", "kube-system")
	may("no", pki.DirController, "delete", "leases/hardtack-evict", "-n", "kube-system")
	may("no", pki.DirController, "delete", "leases/kube-scheduler", "-n", "kube-system")
}

// kubeletServing has the real controller manager sign a node's request for the API server's name, approved by hand, which
// the controller would not do: nobody who looks for an API server takes it.
func (m *master) kubeletServing(t *testing.T) {
	cert := m.signed(t, "evil")
	for ca, want := range map[string]bool{machine.CAPath: false, pki.Dir + "/kube-apiserver/ca.crt": false, pki.Dir + "/kube-apiserver/kubelet-ca.crt": true} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, ca), DNSName: "masters.demo.k8s"})
		if (err == nil) != want {
			t.Errorf("by %s: %v, want that it verifies: %v", ca, err, want)
		}
	}
}

// signed is a serving certificate with the API server's name, which the controller manager signs for a node.
func (m *master) signed(t *testing.T, node string) *x509.Certificate {
	t.Helper()
	user := "system:node:" + node
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{Organization: []string{"system:nodes"}, CommonName: user}, DNSNames: []string{"masters.demo.k8s"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": node},
		"spec": map[string]any{"signerName": "kubernetes.io/kubelet-serving", "usages": []string{"digital signature", "server auth"},
			"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "csr.json")
	if err := os.WriteFile(file, object, 0o600); err != nil {
		t.Fatal(err)
	}
	m.mustKubectl(t, "create", "-f", file, "--as="+user, "--as-group=system:nodes")
	m.mustKubectl(t, "certificate", "approve", node)
	var text string
	if pending := eventually(time.Minute, func() []string {
		if text = m.mustKubectl(t, "get", "csr", node, "-o", "jsonpath={.status.certificate}"); text == "" {
			return []string{m.mustKubectl(t, "get", "csr", node, "-o", "jsonpath={.status}")}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatalf("it is not signed: %v", pending)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCertificate(data)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
