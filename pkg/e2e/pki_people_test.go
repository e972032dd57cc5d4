package e2e

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// people gets certificates for people from the real API server and controller manager: for an administrator, who approves
// at once, for somebody who has to wait for one, and for somebody who is refused.
func (m *master) people(t *testing.T) {
	m.mustKubectl(t, "create", "clusterrolebinding", "platform", "--clusterrole=view", "--group=platform")
	admin, jane := filepath.Join(m.dir, "admin.kubeconfig"), filepath.Join(t.TempDir(), "jane.kubeconfig")
	out, err := m.person(t, "--kubeconfig", admin, "--user", "jane@example.org", "--group", "platform", "--life", "1h", "--out", jane).wait()
	if err != nil || !strings.Contains(out, "jane@example.org may log in until 2") {
		t.Fatalf("for an administrator: %v\n%s", err, out)
	}
	m.personFile(t, jane, admin)
	may := func(question string) string {
		out, _ := m.run(t, "kubectl", append([]string{"--kubeconfig", jane, "auth", "can-i"}, strings.Fields(question)...)...)
		return strings.TrimSpace(out)
	}
	// The controller manager composes the role view once it runs.
	if open := eventually(answerWithin, func() (open []string) {
		if got := may("get pods"); got != "yes" {
			open = append(open, got)
		}
		return open
	}); len(open) > 0 {
		t.Errorf("jane, get pods: %q, want yes", open)
	}
	for _, question := range []string{"get secrets", "create pods"} {
		if got := may(question); got != "no" {
			t.Errorf("jane, %s: %q, want no", question, got)
		}
	}

	// She may not even ask, then she may, and not approve.
	joe := filepath.Join(t.TempDir(), "joe.kubeconfig")
	asJane := []string{"--kubeconfig", jane, "--user", "joe", "--out", joe}
	if out, err := m.person(t, asJane...).wait(); err == nil || !strings.Contains(out, "creating the request") || !strings.Contains(out, "forbidden") {
		t.Errorf("by somebody without the right to ask: %v\n%s", err, out)
	}
	m.mustKubectl(t, "create", "clusterrole", "asks", "--verb=create,get,delete", "--resource=certificatesigningrequests.certificates.k8s.io")
	m.mustKubectl(t, "create", "clusterrolebinding", "asks", "--clusterrole=asks", "--group=platform")
	// Each waits for its own request, and takes it away.
	for verdict, want := range map[string]string{"deny": "is denied: ", "approve": "joe may log in until"} {
		asking := m.person(t, asJane...)
		m.mustKubectl(t, "certificate", verdict, m.pendingPerson(t))
		out, err := asking.wait()
		if (err == nil) != (verdict == "approve") || !strings.Contains(out, want) || !strings.Contains(out, "you may not approve it") {
			t.Errorf("%s: %v\n%s", verdict, err, out)
		}
	}
	if out, err := m.run(t, "kubectl", "--kubeconfig", joe, "auth", "whoami", "-o", "jsonpath={.status.userInfo}"); err != nil || !strings.Contains(out, `"groups":["system:authenticated"]`) {
		t.Errorf("joe is %s, %v", out, err)
	}
	if out := m.mustKubectl(t, "get", "csr", "-o", "name"); out != "" {
		t.Errorf("requests stay: %s", out)
	}
	m.noMasters(t)
}

// personFile checks a person's kubeconfig: its mode, who it is, until when, and that nothing of the administrator's is in it.
func (m *master) personFile(t *testing.T, file, admin string) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%s: %v, %v", file, info, err)
	}
	out, err := m.run(t, "kubectl", "--kubeconfig", file, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
	if err != nil || out != `jane@example.org ["platform","system:authenticated"]` {
		t.Errorf("she is %q, %v", out, err)
	}
	theirs, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	hers, err := clientcmd.LoadFromFile(file)
	if err != nil || len(hers.AuthInfos) != 1 || len(theirs.AuthInfos) != 1 {
		t.Fatalf("%v: %v", err, hers)
	}
	cert, err := pki.ParseCertificate(hers.AuthInfos["jane@example.org"].ClientCertificateData)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(cert.NotAfter); left > time.Hour || left < 50*time.Minute {
		t.Errorf("her certificate ends in %v, want an hour", left)
	}
	for _, a := range theirs.AuthInfos {
		if strings.Contains(string(hers.AuthInfos["jane@example.org"].ClientKeyData), string(a.ClientKeyData)) {
			t.Error("she has the administrator's key")
		}
	}
}

// pendingPerson waits for the one request for a person that nobody has decided.
func (m *master) pendingPerson(t *testing.T) string {
	t.Helper()
	name := ""
	if pending := eventually(time.Minute, func() []string {
		name = strings.TrimSpace(m.mustKubectl(t, "get", "csr", "-o", "jsonpath={.items[*].metadata.name}"))
		if !strings.HasPrefix(name, "hardtack-person-") || strings.Contains(name, " ") {
			return []string{name}
		}
		return nil
	}); len(pending) > 0 {
		t.Fatalf("want one request: %v", pending)
	}
	return name
}

// noMasters asks for the group that has all rights past our command: the API server refuses it to an administrator.
func (m *master) noMasters(t *testing.T) {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "eve", Organization: []string{pki.GroupAdmins}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": "eve"},
		"spec": map[string]any{"signerName": "kubernetes.io/kube-apiserver-client", "usages": []string{"client auth"},
			"request": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := m.kubectl(t, "create", "-f", m.file(t, "eve.json", string(object))); err == nil || !strings.Contains(out, pki.GroupAdmins) {
		t.Errorf("a request for %s: %v\n%s", pki.GroupAdmins, err, out)
	}
}

// asking is a running hardtack pki kubeconfig.
type asking struct {
	cmd *exec.Cmd
	out *run.Log
}

func (m *master) person(t *testing.T, args ...string) asking {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	a := asking{exec.CommandContext(t.Context(), file, append([]string{"pki", "kubeconfig", "--timeout", "1m"}, args...)...), &run.Log{}}
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a asking) wait() (string, error) {
	err := a.cmd.Wait()
	return a.out.String(), err
}
