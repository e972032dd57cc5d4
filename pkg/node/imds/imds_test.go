package imds_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds/imdstest"
)

const (
	pathToken    = "/latest/api/token"
	pathUserData = "/latest/user-data"
)

// client makes one with times that suit a test.
func client(t *testing.T, endpoint string) *imds.Client {
	t.Helper()
	c, err := imds.New(imds.Options{Endpoint: endpoint, Attempt: 300 * time.Millisecond, MinWait: time.Millisecond, MaxWait: 20 * time.Millisecond, MaxBody: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serve(t *testing.T, s http.Handler) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

// TestUserData meets every fault that passes: each costs attempts, none the user data.
func TestUserData(t *testing.T) {
	tests := []struct {
		name   string
		path   string
		faults []imdstest.Fault
		served int // requests in all
	}{
		{"no fault", "", nil, 2},
		{"token expired", pathUserData, []imdstest.Fault{{Status: 401}}, 4},
		{"internal errors", pathUserData, []imdstest.Fault{{Status: 500}, {Status: 503}, {Status: 502}}, 5},
		{"not in time for the service", pathUserData, []imdstest.Fault{{Status: 408}}, 3},
		{"throttled", pathUserData, []imdstest.Fault{{Status: 429}}, 3},
		{"half a body", pathUserData, []imdstest.Fault{{Half: true}, {Half: true}}, 4},
		{"hangs up", pathUserData, []imdstest.Fault{{Cut: true}}, 3},
		{"slow", pathUserData, []imdstest.Fault{{Delay: 100 * time.Millisecond}}, 2},
		{"too slow once", pathUserData, []imdstest.Fault{{Delay: time.Second}}, -1},
		{"token with faults", pathToken, []imdstest.Fault{{Status: 500}, {Half: true}, {Cut: true}, {Status: 503}}, 6},
		{"token refused once", pathToken, []imdstest.Fault{{Status: 401}}, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := &imdstest.Service{UserData: []byte("#cloud-config\n"), Faults: map[string][]imdstest.Fault{test.path: test.faults}}
			got, err := client(t, serve(t, s)).UserData(t.Context())
			if err != nil || string(got) != "#cloud-config\n" {
				t.Errorf("%q, %v", got, err)
			}
			if served := s.Served(); test.served >= 0 && len(served) != test.served {
				t.Errorf("%d requests, want %d: %q", len(served), test.served, served)
			}
		})
	}
}

// TestTokenIsKept asks twice with one token.
func TestTokenIsKept(t *testing.T) {
	s := &imdstest.Service{UserData: []byte("x"), InstanceID: "i-0123456789abcdef0"}
	c := client(t, serve(t, s))
	id, err := c.InstanceID(t.Context())
	if err != nil || id != "i-0123456789abcdef0" {
		t.Fatalf("%q, %v", id, err)
	}
	if _, err := c.UserData(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "PUT /latest/api/token 200, GET /latest/meta-data/instance-id 200, GET /latest/user-data 200"
	if got := strings.Join(s.Served(), ", "); got != want {
		t.Errorf("served %s, want %s", got, want)
	}
}

// TestPackedUserData gets gzip as it is, not unpacked by the transport.
func TestPackedUserData(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, "#cloud-config\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := client(t, serve(t, &imdstest.Service{UserData: b.Bytes()})).UserData(t.Context())
	if err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAnswers meets the answers that are believed at once.
func TestAnswers(t *testing.T) {
	redirect := http.RedirectHandler("http://192.0.2.1/", http.StatusFound)
	tests := []struct {
		name     string
		service  http.Handler
		want     string
		notFound bool
	}{
		{"no user data", &imdstest.Service{}, "not found", true},
		{"forbidden", &imdstest.Service{UserData: []byte("x"), Faults: map[string][]imdstest.Fault{pathUserData: {{Status: 403}}}}, "turned off?", false},
		{"turned off", &imdstest.Service{Tokens: 403}, "getting a token: status 403 Forbidden: the metadata service of the instance is turned off", false},
		{"version 1 only", &imdstest.Service{Tokens: 404}, "not version 2", false},
		{"not allowed", &imdstest.Service{Tokens: 405}, "not version 2", false},
		{"bad request", &imdstest.Service{Tokens: 400}, "getting a token: status 400", false},
		{"a bad path", &imdstest.Service{UserData: []byte("x"), Faults: map[string][]imdstest.Fault{pathUserData: {{Status: 400}}}}, "status 400", false},
		{"redirect", redirect, "status 302", false},
		{"too long", &imdstest.Service{UserData: make([]byte, 1<<10+1)}, "over the bound of 1024", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := client(t, serve(t, test.service)).UserData(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, imds.ErrNotFound) != test.notFound {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestDeadline ends with the context, whatever the service does, and says what it met.
func TestDeadline(t *testing.T) {
	gone := errors.New("no answer within a moment")
	refused := "http://" + unused(t)
	silent := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Second):
		}
	}))
	broken := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	for endpoint, want := range map[string]string{refused: syscall.ECONNREFUSED.Error(), silent: "deadline exceeded", broken: "status 500"} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 700*time.Millisecond, gone)
		defer cancel()
		began := time.Now()
		_, err := client(t, endpoint).UserData(ctx)
		if !errors.Is(err, gone) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q and %q", err, gone, want)
		}
		if took := time.Since(began); took < 600*time.Millisecond || took > 3*time.Second {
			t.Errorf("%s: took %v", endpoint, took)
		}
	}
}

// TestAppearsLate has nobody listening at first, which is how a network looks that is not up yet.
func TestAppearsLate(t *testing.T) {
	address := unused(t)
	server := &http.Server{Handler: &imdstest.Service{UserData: []byte("late")}, ReadHeaderTimeout: time.Second}
	t.Cleanup(func() { _ = server.Close() })
	time.AfterFunc(400*time.Millisecond, func() {
		var config net.ListenConfig
		l, err := config.Listen(context.WithoutCancel(t.Context()), "tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		_ = server.Serve(l) // ends with Close
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := client(t, "http://"+address).UserData(ctx)
	if err != nil || string(got) != "late" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNoProxy names a proxy in the environment that would answer for an address that nobody has. Go reads these variables
// once a process, so that the client is in one of its own.
func TestNoProxy(t *testing.T) {
	const child = "HARDTACK_TEST_PROXY"
	// The environment would send it there: loopback addresses it never does, and this one it would.
	const endpoint = "http://192.0.2.1"
	if os.Getenv(child) != "" {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if got, err := client(t, endpoint).UserData(ctx); err == nil {
			t.Errorf("an answer from nowhere: %q", got)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if by, err := http.ProxyFromEnvironment(request); by == nil {
			t.Errorf("the environment names no proxy, so that this test shows nothing: %v", err)
		}
		return
	}
	proxy := &imdstest.Service{UserData: []byte("x")}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoProxy$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1", "http_proxy="+serve(t, proxy), "HTTP_PROXY=", "no_proxy=", "NO_PROXY=")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestNoProxy")) {
		t.Errorf("%v\n%s", err, out)
	}
	if served := proxy.Served(); len(served) > 0 {
		t.Errorf("the proxy was asked: %q", served)
	}
}

func TestNewRefusesEndpoints(t *testing.T) {
	for _, endpoint := range []string{"169.254.169.254", "https://169.254.169.254", "http://", "http://x/latest", "http://[::1"} {
		if _, err := imds.New(imds.Options{Endpoint: endpoint}); err == nil {
			t.Errorf("%s: accepted", endpoint)
		}
	}
}

// unused returns an address on which nobody listens.
func unused(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestTag says why there is no tag, where there is none.
func TestTag(t *testing.T) {
	const group, tags = "/latest/meta-data/tags/instance/Group", "/latest/meta-data/tags/instance"
	for name, tt := range map[string]struct {
		shown      map[string]string
		value, why string
	}{
		"a tag":       {map[string]string{group: "minions", tags: "Group"}, "minions", ""},
		"another tag": {map[string]string{tags: "Name"}, "", "it has no tag Group"},
		"no tags":     {nil, "", "its metadata show no tags"},
	} {
		t.Run(name, func(t *testing.T) {
			c := client(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch value, ok := tt.shown[r.URL.Path]; {
				case r.Method == http.MethodPut:
					w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
					_, _ = io.WriteString(w, "token")
				case ok:
					_, _ = io.WriteString(w, value)
				default:
					http.NotFound(w, r)
				}
			})))
			if value, why, err := c.Tag(t.Context(), "Group"); value != tt.value || why != tt.why || err != nil {
				t.Errorf("%q, %q, %v; want %q, %q", value, why, err, tt.value, tt.why)
			}
		})
	}
}
