package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// run runs the program, and returns what it has printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := dispatch(t.Context(), args, streams{&out, io.Discard})
	return out.String(), err
}

func TestServeAndFetch(t *testing.T) {
	t.Setenv("POD_NAME", "hello-1")
	t.Setenv("NODE_NAME", "node-1")
	var log bytes.Buffer
	server := httptest.NewServer(greeter(&log))
	defer server.Close()
	out, err := run(t, "fetch", server.URL+"/x")
	if err != nil || !strings.HasPrefix(out, "hello from hello-1 on node-1 to 127.0.0.1:") {
		t.Errorf("fetched %q, %v", out, err)
	}
	if !strings.HasPrefix(log.String(), "GET /x from 127.0.0.1:") {
		t.Errorf("logged %q", log.String())
	}
	server.Config.Handler = http.NotFoundHandler()
	if _, err := run(t, "fetch", server.URL); err == nil {
		t.Error("an answer of 404 is taken for one")
	}
}

func TestListenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- listen(ctx, "127.0.0.1:0", nil, http.NotFoundHandler()) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestResolve(t *testing.T) {
	if out, err := run(t, "resolve", "localhost"); err != nil || !strings.Contains(out, "localhost 127.0.0.1\n") {
		t.Errorf("resolved %q, %v", out, err)
	}
	if _, err := run(t, "resolve", "nobody.invalid"); err == nil {
		t.Error("a name that there is not has an address")
	}
}

func TestWords(t *testing.T) {
	for _, args := range [][]string{nil, {"sing"}, {"fetch"}, {"resolve"}, {"serve", "now"}, {"serve", "--port=1"}, {"apiservice"}} {
		if _, err := run(t, args...); err == nil || fmt.Sprintf("%T", err) != "main.usageError" {
			t.Errorf("%q is %v, want a usage error", args, err)
		}
	}
	if out, err := run(t, "help"); err != nil || out != usage {
		t.Errorf("help is %q, %v", out, err)
	}
}

func TestJudge(t *testing.T) {
	for labels, want := range map[string]bool{`{}`: true, `{"hello.hardtack.dev/refuse":"x"}`: false} {
		var in review
		text := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","object":{"metadata":{"name":"x","labels":` + labels + `}}}}`
		if err := json.Unmarshal([]byte(text), &in); err != nil {
			t.Fatal(err)
		}
		out := judge(in)
		if out.Response.UID != "u-1" || out.Response.Allowed != want || out.Kind != in.Kind || out.APIVersion != in.APIVersion {
			t.Errorf("%s: %+v", labels, out.Response)
		}
	}
}

// TestAPINeedsTheFrontProxy asks the aggregated API with and without a certificate of the authority that it is told.
func TestAPINeedsTheFrontProxy(t *testing.T) {
	dir := t.TempDir()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewAuthority("front-proxy", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	served, err := ca.Issue(pki.Profile{Name: "hello", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Usage: pki.Server, Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	shown, err := ca.Issue(pki.Profile{Name: "front-proxy-client", Usage: pki.Client, Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	authority := pki.EncodeCertificate(ca.Certificate)
	p := pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
	for file, text := range map[string][]byte{p.cert: served.Certificate, p.key: served.Key, p.clientCA: authority} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := p.config()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(api())
	server.Listener = tls.NewListener(server.Listener, config)
	server.Start()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	mine, err := tls.X509KeyPair(shown.Certificate, shown.Key)
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + server.Listener.Addr().(*net.TCPAddr).String()
	// ask returns an answer's body; "" without one.
	ask := func(path string, certificates ...tls.Certificate) string {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS13}}}
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Remote-User", "alice")
		answer, err := client.Do(request)
		if err != nil {
			return ""
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for path, want := range map[string]string{
		apiPath + "/greetings/hello": `"to":"alice"`, apiPath + "/greetings": `"kind":"GreetingList"`, apiPath: `"name":"greetings"`,
	} {
		if got := ask(path, mine); !strings.Contains(got, want) {
			t.Errorf("the front proxy gets %q for %s, want %s", got, path, want)
		}
	}
	if got := ask(apiPath + "/greetings/hello"); got != "" {
		t.Errorf("somebody unknown gets %s", got)
	}
	// The authority is replaced while the server runs.
	nextKey, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	next, err := pki.NewAuthority("front-proxy", nextKey, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.clientCA, pki.EncodeCertificate(next.Certificate), 0o600); err != nil {
		t.Fatal(err)
	}
	renewed, err := next.Issue(pki.Profile{Name: "front-proxy-client", Usage: pki.Client, Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(renewed.Certificate, renewed.Key)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(apiPath, pair); !strings.Contains(got, `"name":"greetings"`) {
		t.Errorf("the front proxy of the next authority gets %q", got)
	}
	if got := ask(apiPath, mine); got != "" {
		t.Errorf("the front proxy of the last authority gets %s", got)
	}
}
