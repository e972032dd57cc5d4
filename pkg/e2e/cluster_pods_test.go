package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
)

// podList is the part of a list of pods that is read.
type podList struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Status struct {
			Phase string `json:"phase"`
			PodIP string `json:"podIP"`
		} `json:"status"`
	} `json:"items"`
}

// pods requests a Deployment through its Service by name, runs a command, reads logs and forwards a port.
func (c *cluster) pods(ctx context.Context, t *testing.T) {
	t.Helper()
	c.apply(ctx, t, "hello", nil)
	c.rolledOut(ctx, t, "default", "hello")
	c.await(ctx, t, "the pod that asks", func() (bool, string) {
		phase := c.phase(ctx, t, "asks")
		return phase == "Running", phase
	})
	answered := map[string]bool{}
	c.await(ctx, t, "both pods through the Service, by its name", func() (bool, string) {
		out, err := c.exec(ctx, "asks", "/hello", "fetch", "http://hello.default.svc.cluster.local")
		if err != nil {
			return false, err.Error()
		}
		if _, rest, ok := strings.Cut(out, "hello from "); ok {
			answered[strings.Fields(rest)[0]] = true
		}
		return len(answered) == 2, fmt.Sprint(len(answered), " have answered")
	})
	t.Run("resolve", func(t *testing.T) {
		var out string
		var err error
		// A resolver gives up after ten seconds, which an emulated machine under load may take: a late answer is no wrong one.
		c.await(ctx, t, "both names", func() (bool, string) {
			out, err = c.exec(ctx, "asks", "/hello", "resolve", "kubernetes.default", "masters."+clusterName+".k8s")
			return err == nil, fmt.Sprint(out, err)
		})
		if err != nil || !strings.Contains(out, "kubernetes.default 10.96.0.1\n") || !strings.Contains(out, " "+c.addr.String()) {
			t.Errorf("resolved %q, %v", out, err)
		}
	})
	t.Run("logs", func(t *testing.T) {
		for name := range answered {
			code, body, err := c.get(ctx, c.admin, "/api/v1/namespaces/default/pods/"+name+"/log")
			if err != nil || code != http.StatusOK || !strings.Contains(body, "GET / from ") {
				t.Errorf("the log of %s: %d %q %v", name, code, body, err)
			}
		}
	})
	t.Run("port-forward", func(t *testing.T) { c.forward(ctx, t, "asks") })
	t.Run("host to pod", func(t *testing.T) {
		out := c.shell(ctx, t, "exec 3<>/dev/tcp/"+c.podIP(ctx, t, "asks").String()+"/8080; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3")
		if !strings.Contains(out, "hello from asks") {
			t.Errorf("the machine itself gets %q", out)
		}
	})
}

// taint asserts that a pod without a toleration is not scheduled on the control plane.
func (c *cluster) taint(ctx context.Context, t *testing.T) {
	t.Helper()
	c.await(ctx, t, "the scheduler's word about a pod without a toleration", func() (bool, string) {
		_, body, err := c.get(ctx, c.admin, "/api/v1/namespaces/default/pods/stays-out")
		return strings.Contains(body, "Unschedulable") && strings.Contains(body, "untolerated taint"), fmt.Sprint(err, " ", strings.Contains(body, "Unschedulable"))
	})
}

func (c *cluster) list(ctx context.Context, t *testing.T) podList {
	t.Helper()
	_, body, err := c.get(ctx, c.admin, "/api/v1/namespaces/default/pods")
	if err != nil {
		t.Fatal(err)
	}
	var list podList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func (c *cluster) phase(ctx context.Context, t *testing.T, pod string) string {
	t.Helper()
	for _, p := range c.list(ctx, t).Items {
		if p.Metadata.Name == pod {
			return p.Status.Phase
		}
	}
	return "missing"
}

func (c *cluster) podIP(ctx context.Context, t *testing.T, pod string) netip.Addr {
	t.Helper()
	for _, p := range c.list(ctx, t).Items {
		if p.Metadata.Name == pod {
			return netip.MustParseAddr(p.Status.PodIP)
		}
	}
	t.Fatalf("no pod %s", pod)
	return netip.Addr{}
}

// exec runs a command in a pod of the namespace default.
func (c *cluster) exec(ctx context.Context, pod string, command ...string) (string, error) {
	return c.execIn(ctx, "default", pod, command...)
}

// execIn runs a command in a pod, as kubectl does: over a WebSocket, through the API server to the kubelet.
func (c *cluster) execIn(ctx context.Context, namespace, pod string, command ...string) (string, error) {
	q := url.Values{"stdout": {"true"}, "stderr": {"true"}, "command": command}
	e, err := remotecommand.NewWebSocketExecutor(c.admin, http.MethodGet, c.admin.Host+"/api/v1/namespaces/"+namespace+"/pods/"+pod+"/exec?"+q.Encode())
	if err != nil {
		return "", err
	}
	var out, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &stderr})
	if err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, stderr.String())
	}
	return out.String(), nil
}

// forward asks a pod over a port of this computer.
func (c *cluster) forward(ctx context.Context, t *testing.T, pod string) {
	t.Helper()
	where, err := url.Parse(c.admin.Host + "/api/v1/namespaces/default/pods/" + pod + "/portforward")
	if err != nil {
		t.Fatal(err)
	}
	dialer, err := portforward.NewSPDYOverWebsocketDialer(where, c.admin)
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	defer func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("forwarding ends with %v", err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	code, body, err := c.get(ctx, &rest.Config{Host: fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local)}, "/")
	if err != nil || code != http.StatusOK || !strings.Contains(body, "hello from "+pod) {
		t.Errorf("through the forwarded port: %d %q %v", code, body, err)
	}
}

// readAll reads an answer, up to a limit.
func readAll(r io.Reader) (string, error) {
	const most = 4 << 20
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if len(text) > most {
		err = errors.Join(err, fmt.Errorf("the answer has more than %d bytes", most))
	}
	return string(text), err
}

// sorted is a list without repetitions, in order.
func sorted(lines []string) []string {
	slices.Sort(lines)
	return slices.Compact(lines)
}
