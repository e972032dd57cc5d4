package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// metadata asks for the machine's credentials: the machine gets them, and no pod does, in the host's network or its own. The
// daemons of the machine have what a pod in the host's network has but for its control group.
func (c *cluster) metadata(ctx context.Context, t *testing.T) {
	t.Helper()
	const metadataURL = "http://169.254.169.254/"
	const ask = "exec 3<>/dev/tcp/169.254.169.254/80; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
	if out := c.shell(ctx, t, ask); !strings.Contains(out, "the machine's credentials") {
		t.Fatalf("the machine itself gets %q", out)
	}
	c.apply(ctx, t, "metadata", nil)
	const host = "in-host-network"
	for pod, namespace := range map[string]string{host: "kube-system", "asks": "default"} {
		// A name is what each gets from the network.
		c.await(ctx, t, "the network of the pod "+pod, func() (bool, string) {
			out, err := c.execIn(ctx, namespace, pod, "/hello", "resolve", "masters."+clusterName+".k8s")
			return err == nil && strings.Contains(out, c.addr.String()), fmt.Sprint(out, err)
		})
		out, err := c.execIn(ctx, namespace, pod, "/hello", "fetch", "--timeout", "5s", metadataURL)
		if err == nil || strings.Contains(out, "credentials") {
			t.Errorf("the pod %s reaches the metadata service: %q %v", pod, out, err)
		}
	}
	out := c.shell(ctx, t, "systemctl show --property=IPAddressDeny,DropInPaths kubepods.slice; journalctl --boot --quiet --no-pager _PID=1 | grep -i -F bpf")
	if !strings.Contains(out, "169.254.169.254/32") || !strings.Contains(out, "/kubepods.slice.d/10-hardtack.conf") {
		t.Errorf("the pods' slice is %q", out)
	}
	t.Logf("the pods' slice: %s", out)
}

// confined looks at what confines a container that asks for nothing, and at the rules for pods' packets.
func (c *cluster) confined(ctx context.Context, t *testing.T) {
	t.Helper()
	for script, want := range map[string]string{
		"cat /proc/$(pgrep -x hello | head -1)/attr/current":            "cri-containerd.apparmor.d (enforce)",
		"grep -c cri-containerd /sys/kernel/security/apparmor/profiles": "1",
		"nft list table inet hardtack-pods | grep -c drop":              "4",
		"ps -o comm= -p $(pgrep -o -x kubelet)":                         "kubelet",
		// 2 is a filter (proc(5)).
		"awk '/^Seccomp:/ {print $2}' /proc/$(pgrep -x hello | head -1)/status": "2",
		// The limit is the pod's: its control group has the container's in it.
		"cat /sys/fs/cgroup$(dirname $(cut -d: -f3 /proc/$(pgrep -x hello | head -1)/cgroup))/pids.max": "4096",
		"systemctl show --property=NRestarts --value containerd":                                        "0",
	} {
		if out := c.shell(ctx, t, script); out != want {
			t.Errorf("%s: %q, want %q", script, out, want)
		}
	}
	// The kubelet speaks TLS 1.3 and nothing older.
	for newest, want := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		conn, err := c.network.Dial(ctx, netip.AddrPortFrom(c.addr, 10250))
		if err != nil {
			t.Fatal(err)
		}
		// Who it is does not matter here, only what it speaks.
		client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, MaxVersion: newest})
		if err := client.HandshakeContext(ctx); (err == nil) != want || (!want && !strings.Contains(err.Error(), "protocol version")) {
			t.Errorf("a client of the kubelet whose newest is %s: %v", tls.VersionName(newest), err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// networkPolicy asserts that who writes a NetworkPolicy is told that nothing enforces it.
func (c *cluster) networkPolicy(ctx context.Context, t *testing.T) {
	t.Helper()
	var warnings warnings
	me := rest.CopyConfig(c.admin)
	me.Wrap(func(next http.RoundTripper) http.RoundTripper { return warnings.of(next) })
	const path, object = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
		`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"deny"},"spec":{"podSelector":{}}}`
	code, body, err := c.do(ctx, me, http.MethodPost, path, "application/json", object)
	if err != nil || code != http.StatusCreated || !strings.Contains(strings.Join(warnings, "\n"), "this NetworkPolicy is stored and not enforced") {
		t.Errorf("a NetworkPolicy is answered with %d %s %v, warnings %q", code, body, err, warnings)
	}
	warnings = nil
	if code, _, err := c.do(ctx, me, http.MethodDelete, path+"/deny", "application/json", ""); err != nil || code != http.StatusOK || len(warnings) > 0 {
		t.Errorf("its deletion is answered with %d %v, warnings %q", code, err, warnings)
	}
}

// warnings are the API server's, of the answers that pass.
type warnings []string

func (w *warnings) of(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil {
			*w = append(*w, answer.Header.Values("Warning")...)
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
