package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// documentedPorts are the ports that a machine with all roles listens on, by role.Ports and the table of
// cmd/hardtack/README.md: protocol, address unless it is all, port, program.
func documentedPorts() []string {
	// systemd-resolved's stub and networkd's DHCP client.
	list := []string{"tcp 127.0.0.53 53 systemd-resolve", "tcp 127.0.0.54 53 systemd-resolve", "udp 127.0.0.53 53 systemd-resolve",
		"udp 127.0.0.54 53 systemd-resolve", "udp 10.1.0.10 68 systemd-network"}
	for _, r := range role.All() {
		for _, p := range r.Ports() {
			address, program := "*", p.Program
			if len(p.From) == 0 || r == role.Etcd { // the one member listens for the API server beside it alone
				address = "127.0.0.1"
			}
			if program == "" {
				program = "-" // the kernel itself
			}
			// The kernel keeps 15 bytes of a program's name.
			list = append(list, fmt.Sprintf("%s %s %d %s", p.Protocol, address, p.Number, program[:min(len(program), 15)]))
		}
	}
	return list
}

// keep writes a file for people to build/, where the figures are.
func keep(t *testing.T, name string, content []byte) {
	t.Helper()
	file := filepath.Join(root, "build", name)
	if err := os.WriteFile(file, append(content, '\n'), 0o600); err != nil {
		t.Error(err)
	}
}

// anonymous asserts that clients without a certificate can only read the API server's health.
func (c *cluster) anonymous(ctx context.Context, t *testing.T) {
	t.Helper()
	anybody := c.as(nil, nil)
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/readyz": http.StatusOK, "/healthz": http.StatusOK,
		"/": http.StatusUnauthorized, "/version": http.StatusUnauthorized, "/api": http.StatusUnauthorized,
		"/metrics": http.StatusUnauthorized, "/openapi/v3": http.StatusUnauthorized, "/.well-known/openid-configuration": http.StatusUnauthorized,
		"/api/v1/namespaces/kube-public/configmaps": http.StatusUnauthorized,
	} {
		if code, body, err := c.get(ctx, anybody, path); err != nil || code != want {
			t.Errorf("anybody gets %d for %s, want %d: %s %v", code, path, want, firstLine(body), err)
		}
	}
	kubelet := c.as(nil, nil)
	kubelet.Host = "https://" + clusterNode + ":10250"
	kubelet.ServerName = clusterNode
	kubelet.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return c.network.Dial(ctx, netip.AddrPortFrom(c.addr, 10250))
	}
	// The kubelet's certificate is signed by the authority that only API servers trust, and names the node; otherwise the
	// requests fail with another error.
	if _, _, err := c.get(ctx, kubelet, "/healthz"); err == nil {
		t.Error("who trusts the cluster's authority trusts a kubelet too")
	}
	kubelet.CAData = []byte(c.shell(ctx, t, "cat "+clusterStore+"/"+pki.KubeletServingCA+pki.Crt))
	for _, path := range []string{"/pods", "/metrics", "/healthz", "/logs/"} {
		if code, body, err := c.get(ctx, kubelet, path); err != nil || code != http.StatusUnauthorized {
			t.Errorf("anybody gets %d from the kubelet for %s: %s %v", code, path, firstLine(body), err)
		}
	}
}

// restricted asserts the limits of a kubelet's rights, with the kubelet's own certificate.
func (c *cluster) restricted(ctx context.Context, t *testing.T) {
	t.Helper()
	pem := []byte(c.shell(ctx, t, "cat /var/lib/kubelet/pki/kubelet-client-current.pem"))
	kubelet := c.as(pem, pem)
	if code, body, err := c.get(ctx, kubelet, "/api/v1/nodes/"+clusterNode); err != nil || code != http.StatusOK {
		t.Fatalf("the kubelet does not see its own node: %d %s %v", code, body, err)
	}
	token := strings.Trim(c.shell(ctx, t, `sed -n 's/.*"token":"\([a-z0-9]*\)\..*/\1/p' `+clusterStore+"/minions/bootstrap-token"), "\n")
	if len(token) != 6 {
		t.Fatalf("the bootstrap token's id is %q", token)
	}
	label := `{"metadata":{"labels":{"%s":""}}}`
	for _, try := range []struct{ what, method, path, kind, body string }{
		{"to label itself a master", http.MethodPatch, "/api/v1/nodes/" + clusterNode, "application/merge-patch+json", fmt.Sprintf(label, "node-role.kubernetes.io/etcd")},
		{"to label itself isolated", http.MethodPatch, "/api/v1/nodes/" + clusterNode, "application/merge-patch+json", fmt.Sprintf(label, "node-restriction.kubernetes.io/x")},
		{"to take its own taint off", http.MethodPatch, "/api/v1/nodes/" + clusterNode, "application/merge-patch+json", `{"spec":{"taints":[]}}`},
		{"to make another node", http.MethodPost, "/api/v1/nodes", "application/json", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"another"}}`},
		{"to delete a node", http.MethodDelete, "/api/v1/nodes/another", "", ""},
		{"to read the bootstrap token", http.MethodGet, "/api/v1/namespaces/kube-system/secrets/bootstrap-token-" + token, "", ""},
		{"to list all secrets", http.MethodGet, "/api/v1/secrets", "", ""},
		{"to make a pod that uses a secret", http.MethodPost, "/api/v1/namespaces/kube-system/pods", "application/json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"nodeName":"` + clusterNode + `","containers":[{"name":"x","image":"x","envFrom":[{"secretRef":{"name":"x"}}]}]}}`},
		{"to bind a role", http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "application/json", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`},
	} {
		code, body, err := c.do(ctx, kubelet, try.method, try.path, try.kind, try.body)
		if err != nil || code != http.StatusForbidden {
			t.Errorf("a kubelet tries %s: %d %s %v, want 403", try.what, code, body, err)
		}
	}
}

// encrypted looks at a Secret in etcd itself.
func (c *cluster) encrypted(ctx context.Context, t *testing.T) {
	t.Helper()
	const known = "ship's biscuit"
	code, body, err := c.do(ctx, c.admin, http.MethodPost, "/api/v1/namespaces/default/secrets", "application/json",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"hardtack"},"stringData":{"known":"`+known+`"}}`)
	if err != nil || code != http.StatusCreated {
		t.Fatal(code, body, err)
	}
	const pki = "/run/hardtack/pki/kube-apiserver/"
	raw := c.shell(ctx, t, "etcdctl --endpoints=https://127.0.0.1:2379 --cacert="+pki+"etcd-ca.crt --cert="+pki+"etcd-client.crt --key="+pki+
		"etcd-client.key --dial-timeout=1m --command-timeout=1m get --print-value-only /registry/secrets/default/hardtack | tr -c '[:print:]' .")
	if !strings.HasPrefix(raw, "k8s:enc:") || strings.Contains(raw, known) {
		t.Errorf("etcd has %q", raw)
	}
	if code, body, err := c.get(ctx, c.admin, "/api/v1/namespaces/default/secrets/hardtack"); err != nil || code != http.StatusOK || !strings.Contains(body, "c2hpcCdzIGJpc2N1aXQ=") {
		t.Errorf("the API server reads it as %d %s %v", code, body, err)
	}
}

// ports compares the listening ports with the documented ones.
func (c *cluster) ports(ctx context.Context, t *testing.T) {
	t.Helper()
	want := documentedPorts()
	var got []string
	for line := range strings.Lines(c.shell(ctx, t, "ss -Hlntup")) {
		if one := listener(line); one != "" {
			got = append(got, one)
		}
	}
	got, want = sorted(got), sorted(want)
	for _, one := range got {
		if !slices.Contains(want, one) {
			t.Errorf("listens, and is not documented: %s", one)
		}
	}
	for _, one := range want {
		if !slices.Contains(got, one) {
			t.Errorf("is documented, and does not listen: %s", one)
		}
	}
}

// listener parses a line of ss: "tcp LISTEN 0 4096 127.0.0.1:10257 0.0.0.0:*
// users:(("kube-controller",pid=640,fd=3))". Sockets of the kernel have no users. Those of the test itself are left
// out, and those by which the time is asked.
func listener(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return "not understood: " + line
	}
	at := strings.LastIndex(fields[4], ":")
	address, port := fields[4][:at], fields[4][at+1:]
	address, _, _ = strings.Cut(address, "%")
	address = strings.Trim(address, "[]")
	if address == "0.0.0.0" || address == "::" {
		address = "*"
	}
	program := "-"
	if len(fields) > 6 {
		if _, rest, ok := strings.Cut(fields[6], `(("`); ok {
			program, _, _ = strings.Cut(rest, `"`)
		}
	}
	// A client's port, for as long as a time server has not answered.
	asksTime := fields[0] == "udp" && program == "systemd-timesyn"
	if port == fmt.Sprint(shellPort) || asksTime {
		return ""
	}
	return strings.Join([]string{fields[0], address, port, program}, " ")
}

// exposure lists systemd's exposure level of the sandbox of each Hardtack unit.
func (c *cluster) exposure(ctx context.Context, t *testing.T) {
	t.Helper()
	var all []map[string]any
	if err := json.Unmarshal([]byte(c.shell(ctx, t, "systemd-analyze security --json=short --no-pager")), &all); err != nil {
		t.Fatal(err)
	}
	ours := loadUnits(t)
	var found []map[string]any
	for _, one := range all {
		name, _ := one["unit"].(string)
		if _, ok := ours[name]; ok {
			found = append(found, one)
		}
	}
	text, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	keep(t, "security.json", text)
	t.Logf("exposure (0 is best, 10 worst):\n%s", text)
	for _, want := range []string{"kube-apiserver.service", "etcd.service", "kubelet.service", "hardtack-controller.service"} {
		if !strings.Contains(string(text), `"`+want+`"`) {
			t.Errorf("systemd says nothing of %s", want)
		}
	}
}

// memory lists the memory of each daemon.
func (c *cluster) memory(ctx context.Context, t *testing.T) {
	t.Helper()
	out := c.shell(ctx, t, "systemctl show --property=Id,MemoryCurrent,MemoryPeak,CPUUsageNSec 'kube*.service' etcd.service hardtack-member.service containerd.service flanneld.service hardtack-controller.service kubepods.slice; grep -E 'MemTotal|MemAvailable' /proc/meminfo; df -m --output=used / | tail -1")
	t.Logf("memory:\n%s", out)
	rows := map[string]map[string]string{}
	for block := range strings.SplitSeq(out, "\n\n") {
		row := map[string]string{}
		for line := range strings.Lines(block) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				row[key] = value
			}
		}
		if row["Id"] != "" {
			rows[row["Id"]] = row
		}
	}
	text, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	keep(t, "cluster-memory.json", text)
	if rows["kube-apiserver.service"]["MemoryCurrent"] == "" {
		t.Errorf("nothing is known of the API server's memory:\n%s", out)
	}
}
