package imds_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
)

// values answers the request for a token, and then paths below /latest/ with their values. A value "!403" is that status.
func values(t *testing.T, of map[string]string) *imds.Client {
	t.Helper()
	return client(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, ok := of[strings.TrimPrefix(r.URL.Path, "/latest/")]
		switch {
		case r.Method == http.MethodPut:
			_, _ = io.WriteString(w, "token")
		case value == "!403":
			w.WriteHeader(http.StatusForbidden)
		case !ok:
			http.NotFound(w, r)
		default:
			_, _ = io.WriteString(w, value)
		}
	})))
}

// TestIdentity reads the document as AWS publishes its form.
func TestIdentity(t *testing.T) {
	const path = "dynamic/instance-identity/document"
	got, err := values(t, map[string]string{path: `{
  "accountId" : "111122223333",
  "availabilityZone" : "eu-central-1b",
  "instanceId" : "i-0123456789abcdef0",
  "instanceType" : "m7g.large",
  "marketplaceProductCodes" : null,
  "region" : "eu-central-1",
  "version" : "2017-09-30"
}`}).Identity(t.Context())
	want := imds.Identity{
		InstanceID: "i-0123456789abcdef0", AvailabilityZone: "eu-central-1b", Region: "eu-central-1",
		InstanceType: "m7g.large", AccountID: "111122223333",
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := values(t, map[string]string{path: "<html>"}).Identity(t.Context()); err == nil {
		t.Error("a document that is none is read")
	}
	if _, err := values(t, nil).Identity(t.Context()); !errors.Is(err, imds.ErrNotFound) {
		t.Errorf("no document: %v", err)
	}
}

// TestLaunchIndex tells the instances of one launch apart; what is no number must not be 0, which is one of them.
func TestLaunchIndex(t *testing.T) {
	const path = "meta-data/ami-launch-index"
	if got, err := values(t, map[string]string{path: "3\n"}).LaunchIndex(t.Context()); err != nil || got != 3 {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := values(t, map[string]string{path: ""}).LaunchIndex(t.Context()); err == nil {
		t.Error("an empty answer is an index")
	}
	if _, err := values(t, nil).LaunchIndex(t.Context()); !errors.Is(err, imds.ErrNotFound) {
		t.Errorf("no index: %v", err)
	}
}

// TestInstanceID takes no empty id: two machines would be the same one.
func TestInstanceID(t *testing.T) {
	if got, err := values(t, map[string]string{"meta-data/instance-id": " \n"}).InstanceID(t.Context()); err == nil {
		t.Errorf("the id is %q", got)
	}
	if _, err := values(t, nil).InstanceID(t.Context()); !errors.Is(err, imds.ErrNotFound) {
		t.Errorf("no id: %v", err)
	}
}

// TestTagRefused does not take a service that refuses for an instance without tags.
func TestTagRefused(t *testing.T) {
	for name, of := range map[string]map[string]string{
		"the tag":  {"meta-data/tags/instance/Group": "!403"},
		"the list": {"meta-data/tags/instance": "!403"},
	} {
		if value, why, err := values(t, of).Tag(t.Context(), "Group"); err == nil {
			t.Errorf("%s: %q, %q", name, value, why)
		}
	}
}

// TestEmptyToken asks again for a token that is none.
func TestEmptyToken(t *testing.T) {
	var asked atomic.Int32
	c := client(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && asked.Add(1) > 1:
			_, _ = io.WriteString(w, "token")
		case r.Method == http.MethodGet && r.Header.Get("X-aws-ec2-metadata-token") != "token":
			w.WriteHeader(http.StatusBadRequest)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, "x")
		}
	})))
	if got, err := c.UserData(t.Context()); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestPace waits between tries, also with nothing set, and longer each time up to a bound: the service throttles an instance that
// floods it, and a boot waits for it.
func TestPace(t *testing.T) {
	endpoint := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	for name, tt := range map[string]struct {
		options  imds.Options
		min, max time.Duration
	}{
		"nothing set": {imds.Options{Tries: 8}, imds.DefaultMinWait, imds.DefaultMaxWait},
		"short":       {imds.Options{Tries: 8, MinWait: time.Millisecond, MaxWait: 4 * time.Millisecond}, time.Millisecond, 4 * time.Millisecond},
	} {
		var waits []time.Duration
		tt.options.Endpoint = endpoint
		tt.options.Log = slog.New(waited{&waits, t})
		c, err := imds.New(tt.options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.UserData(t.Context()); err == nil {
			t.Errorf("%s: an answer from nowhere", name)
		}
		// Each wait is spread by half to either side.
		if len(waits) != 7 || slices.Min(waits) < tt.min/2 || waits[0] > tt.min*3/2 || slices.Max(waits) > tt.max*3/2 || waits[6] < tt.max/2 {
			t.Errorf("%s: the waits are %v", name, waits)
		}
	}
}

// waited is a log that keeps the waits, and looks at the number of each try.
type waited struct {
	waits *[]time.Duration
	t     *testing.T
}

func (waited) Enabled(context.Context, slog.Level) bool { return true }
func (w waited) WithAttrs([]slog.Attr) slog.Handler     { return w }
func (w waited) WithGroup(string) slog.Handler          { return w }
func (w waited) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "wait":
			*w.waits = append(*w.waits, a.Value.Duration())
		case "try":
			if a.Value.Int64() != int64(len(*w.waits)+1) {
				w.t.Errorf("try %v after %d waits", a.Value, len(*w.waits))
			}
		}
		return true
	})
	return nil
}

// TestLast tells the last answer that there was, which says more than that the time is over; and that alone where there was none.
func TestLast(t *testing.T) {
	for name, tt := range map[string]struct {
		answers []int
		want    string
	}{"some": {[]int{500, 503}, "503"}, "none": {nil, "deadline exceeded"}} {
		var asked atomic.Int32
		endpoint := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := int(asked.Add(1)); n <= len(tt.answers) {
				w.WriteHeader(tt.answers[n-1])
				return
			}
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		}))
		c, err := imds.New(imds.Options{Endpoint: endpoint, Attempt: time.Minute, MinWait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.UserData(ctx); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestDefaults reads user data of the largest size that EC2 gives, with nothing set but the address.
func TestDefaults(t *testing.T) {
	largest := strings.Repeat("x", 16<<10)
	endpoint := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case pathToken:
			_, _ = io.WriteString(w, "token")
		case pathUserData:
			_, _ = io.WriteString(w, largest)
		default:
			http.NotFound(w, r)
		}
	}))
	c, err := imds.New(imds.Options{Endpoint: endpoint + "/"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.UserData(t.Context()); err != nil || string(got) != largest {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// What is no EC2 may give more, up to the bound and no byte further.
	for size, good := range map[int]bool{imds.DefaultMaxBody: true, imds.DefaultMaxBody + 1: false} {
		largest = strings.Repeat("x", size)
		if got, err := c.UserData(t.Context()); (err == nil) != good || good && len(got) != size {
			t.Errorf("%d of %d bytes, %v", len(got), size, err)
		}
	}
}

// TestTries ends after the number of tries that is asked for, and tells each but the last.
func TestTries(t *testing.T) {
	for tries := range uint(4) {
		if tries == 0 {
			continue // without end
		}
		var asked, told atomic.Int32
		endpoint := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		log := slog.New(slog.NewTextHandler(counter{&told}, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c, err := imds.New(imds.Options{Endpoint: endpoint, MinWait: time.Millisecond, MaxWait: time.Millisecond, Tries: tries, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.UserData(t.Context())
		if err == nil || !strings.Contains(err.Error(), "503") || uint(asked.Load()) != tries || uint(told.Load()) != tries-1 {
			t.Errorf("%d tries: %d requests, %d told, %v", tries, asked.Load(), told.Load(), err)
		}
	}
}

// counter counts what is written.
type counter struct{ n *atomic.Int32 }

func (c counter) Write(p []byte) (int, error) { c.n.Add(1); return len(p), nil }

// TestAddresses dials what an endpoint means: EC2's by IPv4, the same by IPv6, and a port where one is named.
func TestAddresses(t *testing.T) {
	for endpoint, want := range map[string]string{
		"": "169.254.169.254:80", "http://[fd00:ec2::254]": "[fd00:ec2::254]:80", "http://127.0.0.1:8080": "127.0.0.1:8080",
	} {
		var dialled string
		down := errors.New("the network is down")
		c, err := imds.New(imds.Options{Endpoint: endpoint, Tries: 1, Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			dialled = address
			return nil, down
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.UserData(t.Context()); !errors.Is(err, down) {
			t.Errorf("%q: %v", endpoint, err)
		}
		if dialled != want {
			t.Errorf("%q: %s was dialled, not %s", endpoint, dialled, want)
		}
	}
}

// TestRequest holds the bytes of a request to RFC 9112 (a host, no second request on the connection) and RFC 9110, 8.6
// (a PUT without content says so, a GET says nothing).
func TestRequest(t *testing.T) {
	heard, closed := make(chan string, 2), make(chan error, 2)
	c, err := imds.New(imds.Options{Tries: 1, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			from := bufio.NewReader(theirs)
			var request strings.Builder
			for line := ""; line != "\r\n"; request.WriteString(line) {
				var err error
				if line, err = from.ReadString('\n'); err != nil {
					break
				}
			}
			heard <- request.String()
			_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntoken")
			_ = theirs.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, err := from.ReadByte()
			closed <- err
		}()
		return ours, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserData(t.Context()); err != nil {
		t.Fatal(err)
	}
	put, get := <-heard, <-heard
	for range 2 {
		if err := <-closed; !errors.Is(err, io.EOF) {
			t.Errorf("a connection is not closed after its answer: %v", err)
		}
	}
	for _, line := range []string{"PUT /latest/api/token HTTP/1.1\r\n", "\r\nHost: 169.254.169.254\r\n", "\r\nConnection: close\r\n", "\r\nContent-Length: 0\r\n"} {
		if !strings.Contains(put, line) {
			t.Errorf("the request for a token is %q, without %q", put, line)
		}
	}
	if !strings.HasPrefix(get, "GET /latest/user-data HTTP/1.1\r\n") || strings.Contains(get, "Content-Length") {
		t.Errorf("the request is %q", get)
	}
}

// TestTab sends a token with a blank and a tab as it is: a field's value may have both (RFC 9110, 5.5).
func TestTab(t *testing.T) {
	const token = "a b\tc"
	c := client(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			_, _ = io.WriteString(w, token)
		case r.Header.Get("X-aws-ec2-metadata-token") == token:
			_, _ = io.WriteString(w, "x")
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	})))
	if got, err := c.UserData(t.Context()); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestControlCharacters sends no token that would end its line: what follows would be a field of its own.
func TestControlCharacters(t *testing.T) {
	for _, token := range []string{"a\r\nX-Forwarded-For: b", "a\x00b", "a\x7fb"} {
		endpoint := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				t.Errorf("the token %q was sent", token)
			}
			_, _ = io.WriteString(w, token)
		}))
		c, err := imds.New(imds.Options{Endpoint: endpoint, Tries: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.UserData(t.Context()); err == nil || !strings.Contains(err.Error(), "control character") {
			t.Errorf("%q: %v", token, err)
		}
	}
}
