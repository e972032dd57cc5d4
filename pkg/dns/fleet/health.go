package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	defaultCheckTimeout = 2 * time.Second
	defaultFailures     = 3
	defaultSuccesses    = 2
	// firstPause is between the tries of a machine of which nothing is known yet.
	firstPause = 500 * time.Millisecond
	// manyChecks is how many machines are asked at once.
	manyChecks = 64
)

// check is what a machine of one role must answer to be published. With a path it is a request by HTTPS, which must be
// answered with 200 by a server with a certificate of the CA; without one it is a TCP connection.
type check struct {
	Port int    `yaml:"port"`
	Path string `yaml:"path"`
	// CA, Cert and Key are files with PEM: the server's authority, and the client's certificate where it needs one.
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ServerName is the name that the server's certificate must have.
	ServerName string        `yaml:"server_name"`
	Timeout    time.Duration `yaml:"timeout"`
	// Failures in a row take a machine out of the records, Successes in a row bring it back.
	Failures  int `yaml:"failures"`
	Successes int `yaml:"successes"`
}

// complete returns the check with the role's defaults: what the role's machines serve.
func (c check) complete(r role.Role, cluster string) check {
	port, path, name := role.KubeletPort, "", ""
	switch {
	case r == role.Masters:
		port, path, name = role.DefaultAPIPort, "/readyz", role.Masters.Host(cluster)
	case r == role.Etcd && c.Cert != "":
		port, path, name = role.EtcdClientPort, "/health", role.Domain(cluster)
	case r == role.Etcd:
		port = role.EtcdClientPort
	}
	return check{
		Port: or(c.Port, port), Path: or(c.Path, path), CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: or(c.ServerName, name),
		Timeout: or(c.Timeout, defaultCheckTimeout), Failures: or(c.Failures, defaultFailures), Successes: or(c.Successes, defaultSuccesses),
	}
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// problems returns what of a completed check cannot be, by its field.
func (c check) problems() map[string]string {
	out := map[string]string{}
	if c.Port < 1 || c.Port > 65535 {
		out["port"] = fmt.Sprintf("%d is not a port", c.Port)
	}
	if c.Path != "" && c.Path[0] != '/' {
		out["path"] = fmt.Sprintf("%q does not begin with /", c.Path)
	}
	if c.Path != "" && c.CA == "" {
		out["ca"] = "a request by HTTPS needs the file of the server's CA"
	}
	if (c.Cert == "") != (c.Key == "") {
		out["cert"] = "cert and key go together"
	}
	if c.Timeout < 0 || c.Failures < 0 || c.Successes < 0 {
		out["timeout"] = "timeout, failures and successes are above 0"
	}
	return out
}

// Health checks the machines of an inventory, and remembers between readings how often each has failed. A nil Health
// remembers nothing: each reading decides for itself.
type Health struct {
	// Log tells about machines that change; nil is silent.
	Log *slog.Logger

	mu       sync.Mutex
	machines map[machineKey]vitals
}

type machineKey struct {
	role    role.Role
	id      string
	address netip.Addr
}

// vitals is what is known of a machine: its state, and how many answers in a row contradict it.
type vitals struct {
	well   bool
	streak int
}

// apply sets Healthy of every machine of the roles that have a check.
func (h *Health) apply(ctx context.Context, f *record.Fleet, checks map[role.Role]check) error {
	if h == nil {
		h = &Health{}
	}
	seen := map[machineKey]bool{}
	var many errgroup.Group
	many.SetLimit(manyChecks)
	for i := range f.Groups {
		g := &f.Groups[i]
		c, ok := checks[g.Role]
		if !ok {
			continue
		}
		client, err := c.client()
		if err != nil {
			return fmt.Errorf("checking the machines of %s: %w", g.Role, err)
		}
		g.Members = append([]record.Member(nil), g.Members...) // a group of several roles has one list
		for j := range g.Members {
			m := &g.Members[j]
			if m.Lifecycle != record.InService {
				continue
			}
			key := machineKey{g.Role, m.InstanceID, m.Private}
			if !key.address.IsValid() {
				key.address = m.Private6
			}
			seen[key] = true
			many.Go(func() error { m.Healthy = h.decide(ctx, key, c, client); return nil })
		}
	}
	_ = many.Wait() // it returns no error
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("checking the machines: %w", err)
	}
	h.forget(seen)
	return nil
}

// decide asks a machine, and returns whether it is to be published.
func (h *Health) decide(ctx context.Context, key machineKey, c check, client *http.Client) bool {
	h.mu.Lock()
	v, known := h.machines[key]
	h.mu.Unlock()
	err := c.ask(ctx, key.address, client)
	for n := 1; err != nil && !known && n < c.Failures && pause(ctx, firstPause); n++ {
		err = c.ask(ctx, key.address, client)
	}
	if ctx.Err() != nil {
		return v.well
	}
	before := v
	switch well := err == nil; {
	case !known:
		v = vitals{well: well}
	case well == v.well:
		v.streak = 0
	default:
		if v.streak++; v.streak >= map[bool]int{true: c.Failures, false: c.Successes}[v.well] {
			v = vitals{well: well}
		}
	}
	if h.Log != nil && (v.well != before.well || !known) {
		h.Log.InfoContext(ctx, "machine", "role", key.role, "id", key.id, "address", key.address, "well", v.well, "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machines == nil {
		h.machines = map[machineKey]vitals{}
	}
	h.machines[key] = v
	return v.well
}

// forget drops what is known of machines that are not there any more.
func (h *Health) forget(seen map[machineKey]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.machines {
		if !seen[key] {
			delete(h.machines, key)
		}
	}
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// client returns an HTTP client for the check, or nil for a TCP connection. It reads the files each time, so that renewed
// certificates are used.
func (c check) client() (*http.Client, error) {
	if c.Path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if !conf.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", c.CA)
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("reading %s and %s: %w", c.Cert, c.Key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// ask returns nil if the machine answers as it should.
func (c check) ask(ctx context.Context, at netip.Addr, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	host := net.JoinHostPort(at.String(), strconv.Itoa(c.Port))
	if client == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	target := url.URL{Scheme: "https", Host: host, Path: c.Path}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	reply, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(reply.Body, 1<<16))
	if err = errors.Join(err, reply.Body.Close()); err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", target.String(), reply.Status)
	}
	return err
}
