package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	// metalRefuses is the line of a master that gives no name without a token for it.
	metalRefuses = "FIRST_COME=no\n"
	// metalDocument is the operator's.
	metalDocument = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: " + metalCluster + "\nstore: dir:" + clusterStore + "\n"
)

// identity lets the minions join in the two ways that a site without a cloud has. The first has user data with a token of
// its own. The second is refused, and prints why, as long as masters refuse who comes first: without a token, with a copy
// of the other's, and with one that somebody else has used. Then the masters refuse nobody, and it joins by its name alone.
func (m *metal) identity(ctx context.Context, t *testing.T) {
	t.Helper()
	first, second := m.minions[0], m.minions[1]
	m.says(ctx, t, second, "the cluster has FIRST_COME=no, and the machine has no token of its own: hardtack userdata --machine metal-2 makes one")

	files := m.userData(ctx, t, "metal-1")
	copied := files[pki.MachineTokenPath]
	files[role.Minions.File()] += nameLine("metal-1")
	m.powerOn(ctx, t, first, "metal-1", 1536, files)
	m.given(ctx, t, second, copied)
	m.says(ctx, t, second, "the token is for the machine of [system:bootstrappers:hardtack:node:metal-1], which asks for the node metal-2")

	own, err := pki.ParseToken([]byte(m.userData(ctx, t, "metal-2")[pki.MachineTokenPath]))
	if err != nil {
		t.Fatal(err)
	}
	thief, err := kube.NewJoiner(m.master.admin.Host, m.master.admin.CAData, own.Bearer())
	if err != nil {
		t.Fatal(err)
	}
	askFor(t, thief, "thief", "metal-2")
	m.master.await(ctx, t, "the thief's certificate", func() (bool, string) {
		got, err := thief.Answer(ctx, "thief")
		return len(got.Certificate) > 0, fmt.Sprint(got.Why, err)
	})
	text, err := own.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m.given(ctx, t, second, string(text))
	m.says(ctx, t, second, "the token "+own.ID+" was used by another request: hardtack userdata --machine metal-2 makes another")

	// The name waits for a token's machine for as long as the token is there.
	const secrets = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-"
	if code, body, err := m.master.do(ctx, m.master.admin, http.MethodDelete, secrets+own.ID, "", ""); err != nil || code != http.StatusOK {
		t.Fatal(code, body, err)
	}
	m.master.shell(ctx, t, "sed -i /^FIRST_COME=/d "+role.Masters.File()+" && systemctl restart hardtack-controller")
	second.shell(ctx, t, "rm -r "+filepath.Dir(pki.MachineTokenPath)+" && systemctl restart --no-block hardtack-bootstrap")
	m.joined(ctx, t)

	tokens, err := m.master.kube.Tokens(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Unless it has expired already, and was deleted.
	i := slices.IndexFunc(tokens, func(o controller.MachineToken) bool { return strings.Contains(copied, o.ID) })
	if i >= 0 && tokens[i].User == "" {
		t.Errorf("metal-1 is a node, and its token is not used: %+v", tokens[i])
	}
}

// nameLine is the line of a minion's role file with the node's name.
func nameLine(name string) string { return "KUBELET_HOSTNAME=--hostname-override=" + name + "\n" }

// says waits until a machine's console has the text.
func (m *metal) says(ctx context.Context, t *testing.T, c *cluster, text string) {
	t.Helper()
	c.await(ctx, t, text, func() (bool, string) { return strings.Contains(c.machine.Console().String(), text), "is waited for" })
}

// given writes a token into a machine, as new user data and a reboot would.
func (m *metal) given(ctx context.Context, t *testing.T, c *cluster, token string) {
	t.Helper()
	c.shell(ctx, t, fmt.Sprintf("umask 077; mkdir -p %s; echo %s | base64 -d >%s; systemctl restart --no-block hardtack-bootstrap",
		filepath.Dir(pki.MachineTokenPath), base64.StdEncoding.EncodeToString([]byte(token)), pki.MachineTokenPath))
}

// userData are the files that the command prints for one machine, after it has made a token for it.
func (m *metal) userData(ctx context.Context, t *testing.T, name string) map[string]string {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	document, kubeconfig := filepath.Join(dir, "cluster.yaml"), filepath.Join(dir, "admin.kubeconfig")
	admin := pki.Kubeconfig{Server: m.master.admin.Host, ServerName: mastersName, CA: m.master.admin.CAData, User: "e2e",
		Pair: pki.Pair{Certificate: m.master.admin.CertData, Key: m.master.admin.KeyData}}
	for file, text := range map[string][]byte{document: []byte(metalDocument), kubeconfig: admin.Render()} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := run.Output(ctx, bin, "userdata", "-f", document, "--group", "minions", "--machine", name, "--kubeconfig", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	result, problems := userdata.Parse(out, nil)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range result.Files {
		files[f.Path] = string(f.Content)
	}
	return files
}
