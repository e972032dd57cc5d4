// Package probe checks whether servers work.
//
// Its rule: only the status 200 counts as an answer and, except for plain HTTP on the machine itself, only from a
// server whose certificate is signed by the given CA for the requested name. A redirect is no answer. Every other
// outcome is an error that names its reason.
package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// maxBody bounds the size of an answer, in bytes: a Node with many images and volumes has some tens
// of kilobytes.
const maxBody = 4 << 20

// Client opens a connection for every request, so that each is verified. CA and Certificate are read for each request,
// since both are renewed while programs run. The zero value only supports plain HTTP.
type Client struct {
	// CA is a PEM file with the only trusted certificates.
	CA string
	// Certificate and Key are PEM files with the client's identity; empty is no client certificate. They may be the
	// same file.
	Certificate, Key string
	// Now is the clock; nil is the machine's.
	Now func() time.Time
}

// Request is an HTTP request. Method "" is GET.
type Request struct {
	Method      string
	URL         *url.URL
	ContentType string
	Body        string
}

// Probe requests the URL from an address, and returns nil for an answer 200.
func (c *Client) Probe(ctx context.Context, target *url.URL, at netip.AddrPort) error {
	_, err := c.Do(ctx, Request{URL: target}, at)
	return err
}

// Do sends the request to an address, and returns the body of an answer 200.
func (c *Client) Do(ctx context.Context, r Request, at netip.AddrPort) ([]byte, error) {
	transport, err := c.transport(r.URL, at)
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL.String(), strings.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	req.Header.Set("Accept", "application/json, text/plain;q=0.9, */*;q=0.1")
	req.Header.Set("User-Agent", "hardtack-agent")
	// The transport itself, not a client: that would follow redirects.
	res, err := transport.RoundTrip(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or given up
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, reason.Errorf(reason.Unreachable, "reading the answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, reason.With(reason.NotReady, &StatusError{Code: res.StatusCode, Text: summary(string(body))})
	}
	return body, nil
}

func (c *Client) transport(target *url.URL, at netip.AddrPort) (*http.Transport, error) {
	t := &http.Transport{
		Proxy: nil, // the servers are inside the cluster
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", at.String())
		},
		DisableKeepAlives: true,
	}
	if target.Scheme == "http" {
		if !at.Addr().IsLoopback() {
			return nil, reason.Errorf(reason.Internal, "plain HTTP is for the machine itself, and %s is not", at.Addr())
		}
		return t, nil
	}
	config, err := c.tls(target.Hostname())
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig = config
	return t, nil
}

func (c *Client) tls(host string) (*tls.Config, error) {
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, reason.Errorf(reason.File, "reading the CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, reason.Errorf(reason.File, "%s has no certificate", c.CA)
	}
	now := c.now()
	if err := tooEarly(text, c.CA, now); err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: pool, ServerName: strings.TrimSuffix(host, "."), MinVersion: tls.VersionTLS12, Time: func() time.Time { return now }}
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, reason.Errorf(reason.File, "reading the client's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (c *Client) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// StatusError is an answer that is not 200.
type StatusError struct {
	Code int
	// Text is the explanation in the body, in one line; may be empty.
	Text string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("status %d %s", e.Code, http.StatusText(e.Code))
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// summary keeps of a body what says why: of a Kubernetes server's checks those that failed, else the
// beginning.
func summary(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			name, _, _ := strings.Cut(rest, " ")
			failed = append(failed, name)
		}
	}
	if len(failed) > 0 {
		return "these checks fail: " + strings.Join(failed, ", ")
	}
	var status struct{ Kind, Message string }
	if json.Unmarshal([]byte(body), &status) == nil && status.Kind == "Status" {
		body = status.Message // what an API server says
	}
	body = strings.Join(strings.Fields(body), " ")
	if len(body) > 300 {
		body = strings.ToValidUTF8(body[:300], "") + "..."
	}
	return body
}

// explain gives an error of the connection its reason, and a text that is the same at each try.
func (c *Client) explain(ctx context.Context, err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var op *net.OpError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return validity(invalid.Cert, "the server's certificate", c.now())
	case errors.As(err, &unknown):
		return reason.Errorf(reason.Untrusted, "its certificate %s is signed by %q, which is not the CA in %s", subject(unknown.Cert), issuer(unknown.Cert), c.CA)
	case errors.As(err, &hostname), errors.As(err, &invalid):
		return reason.With(reason.Untrusted, err)
	case ctx.Err() != nil:
		return reason.With(reason.Unreachable, context.Cause(ctx))
	case errors.As(err, &op):
		err = op.Err // without our own port, which is another one each time
	}
	return reason.With(reason.Unreachable, err)
}
