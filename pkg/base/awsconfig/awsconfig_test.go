package awsconfig

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
)

// region is that of one instance, whose service is asked through pipes: in a bubble its delays cost nothing, and
// every bound of time is met exactly.
type region struct {
	role string
	pipe chan net.Conn
}

const instanceID = "i-0123456789abcdef0"

func (r region) Instance(netip.Addr) (metadata.Instance, bool) {
	return metadata.Instance{ID: instanceID, Role: r.role, Placement: metadata.Placement{Account: "123456789012", Region: "us-west-2", Zone: "us-west-2a"},
		Card: metadata.Card{Addr: netip.MustParseAddr("10.0.0.7")}}, true
}

func (r region) Credentials(context.Context, string, string) (metadata.Credentials, error) {
	now := time.Now()
	return metadata.Credentials{AccessKeyID: "AKIAX", SecretAccessKey: "secret", Token: "token", Updated: now, Expires: now.Add(time.Hour)}, nil
}

// conn is the machine's end as the service sees it.
type conn struct{ net.Conn }

func (conn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.7:1"))
}

func (r region) Accept() (net.Conn, error) {
	c, ok := <-r.pipe
	if !ok {
		return nil, net.ErrClosed
	}
	return conn{c}, nil
}
func (r region) Close() error   { return nil }
func (r region) Addr() net.Addr { return conn{}.RemoteAddr() }

func (r region) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case r.pipe <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve starts a service in the test's bubble.
func serve(t *testing.T, role string, faults ...metadata.Fault) (*metadata.Service, Machine) {
	t.Helper()
	r := region{role, make(chan net.Conn)}
	s := metadata.New(r, nil)
	s.SetFaults(instanceID, faults...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(ctx, r) // ends with the test
	}()
	t.Cleanup(func() {
		cancel()
		close(r.pipe)
		<-ended
	})
	return s, Machine{dial: r.dial}
}

// alone leaves the instance as the only source.
func alone(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"} {
		t.Setenv(name, "")
	}
}

// find loads a configuration and its credentials, and says how long that took by the bubble's clock.
func find(t *testing.T, m Machine) (region, key string, took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	conf, err := m.Load(t.Context())
	if err != nil {
		return "", "", time.Since(began), err
	}
	c, err := conf.Credentials.Retrieve(t.Context())
	return conf.Region, c.AccessKeyID, time.Since(began), err
}

// TestPatience has services that answer late, and ones that fail once: each gives region and credentials, by one token.
func TestPatience(t *testing.T) {
	alone(t)
	const late = imds.DefaultAttempt - time.Millisecond
	for name, tt := range map[string]struct {
		faults []metadata.Fault
		took   time.Duration // at least; four requests
	}{
		"at once":           {nil, 0},
		"three seconds":     {[]metadata.Fault{{Delay: 3 * time.Second}}, 12 * time.Second},
		"as late as it may": {[]metadata.Fault{{Delay: late}}, 4 * late},
		"silent once":       {[]metadata.Fault{{Delay: time.Minute, Times: 1}}, imds.DefaultAttempt},
		"fails once":        {[]metadata.Fault{{Status: http.StatusServiceUnavailable, Times: 1}, {Cut: true, Times: 1}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := serve(t, "demo", tt.faults...)
				region, key, took, err := find(t, m)
				if region != "us-west-2" || key != "AKIAX" || err != nil {
					t.Errorf("%q, %q, %v", region, key, err)
				}
				if took < tt.took || took > tt.took+5*time.Second {
					t.Errorf("took %v", took)
				}
				var tokens int
				for _, r := range s.Requests() {
					if r.Method == http.MethodPut && r.Status == http.StatusOK {
						tokens++
					}
				}
				if tokens != 1 {
					t.Errorf("%d tokens: %+v", tokens, s.Requests())
				}
			})
		})
	}
}

// TestErrors says which thing is missing, and soon.
func TestErrors(t *testing.T) {
	alone(t)
	for name, tt := range map[string]struct {
		role   string
		fault  metadata.Fault
		region string
		want   error
		says   string
		within time.Duration
	}{
		"refuses":               {"demo", metadata.Fault{Status: http.StatusServiceUnavailable}, "", ErrMetadata, "503", 5 * time.Second},
		"turned off":            {"demo", metadata.Fault{Status: http.StatusForbidden}, "", ErrMetadata, "403", 0},
		"not version 2":         {"demo", metadata.Fault{Path: "/latest/api/token", Status: http.StatusNotFound}, "us-west-2", ErrMetadata, "404", 0},
		"hangs up":              {"demo", metadata.Fault{Cut: true}, "us-west-2", ErrMetadata, "EOF", 5 * time.Second},
		"silent":                {"demo", metadata.Fault{Delay: time.Hour}, "us-west-2", ErrMetadata, "deadline exceeded", 3*imds.DefaultAttempt + 5*time.Second},
		"no role":               {"", metadata.Fault{}, "", ErrNoRole, "not found", 0},
		"role's credentials":    {"demo", metadata.Fault{Path: "/latest/meta-data/iam/security-credentials/demo", Status: http.StatusInternalServerError}, "", ErrMetadata, "500", 5 * time.Second},
		"half of what is asked": {"demo", metadata.Fault{Path: "/latest/meta-data", Half: true}, "", ErrMetadata, "unexpected EOF", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := serve(t, tt.role, tt.fault)
				m.Region = tt.region
				_, _, took, err := find(t, m)
				if !errors.Is(err, tt.want) || errors.Is(err, ErrMetadata) == errors.Is(err, ErrNoRole) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want %q and %q", err, tt.want, tt.says)
				}
				if took > tt.within {
					t.Errorf("took %v", took)
				}
				if slices.ContainsFunc(s.Requests(), func(r metadata.Request) bool { return r.Status == http.StatusUnauthorized }) {
					t.Errorf("asked without a token: %+v", s.Requests())
				}
			})
		})
	}
}

// TestEnvironment is of a machine that is none of EC2's: nothing is asked.
func TestEnvironment(t *testing.T) {
	alone(t)
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "token")
	conf, err := Machine{Metadata: "http://127.0.0.1:1", Endpoint: "http://127.0.0.1:2", Attempts: 7}.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := conf.Credentials.Retrieve(t.Context())
	if conf.Region != "us-east-1" || c.AccessKeyID != "AKIAENV" || c.SessionToken != "token" || err != nil {
		t.Errorf("%q, %+v, %v", conf.Region, c, err)
	}
	if *conf.BaseEndpoint != "http://127.0.0.1:2" || conf.RetryMaxAttempts != 7 {
		t.Errorf("%+v", conf)
	}
}

// TestRefusedConnection is of a machine whose service is not there at all.
func TestRefusedConnection(t *testing.T) {
	alone(t)
	_, err := Machine{Metadata: "http://127.0.0.1:1"}.Load(t.Context())
	if !errors.Is(err, ErrMetadata) || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}
