package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/version"
)

// How often a request is tried before it has failed. A try that brought bytes does not count.
const (
	statusTries  = 6 // about 8 s of waiting where the server does not say for how long
	connectTries = 3
)

// maxRetryAfter is the longest wait that a server can ask for; beyond it, the request has failed.
const maxRetryAfter = 2 * time.Minute

// client sends requests, with retries. It remembers the hosts that cannot be reached, so that the next
// request to them fails at once.
type client struct {
	http     *http.Client
	progress Progress
	log      *slog.Logger
	// mirror is who is asked in place of every host; "" is nobody.
	mirror string
	// wait is the first wait between two tries; it grows by half each time.
	wait time.Duration

	mu   sync.Mutex
	down map[string]error
}

func newClient(transport http.RoundTripper, mirror string, p Progress, log *slog.Logger) *client {
	return &client{
		http: &http.Client{Transport: transport}, mirror: mirror, progress: p, log: log,
		wait: backoff.DefaultInitialInterval, down: map[string]error{},
	}
}

// unreachable returns why the host could not be reached before, or nil.
func (c *client) unreachable(host string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down[host]
}

// retry calls try until it succeeds or cannot any more. A failure to get the file at address is an
// *unavailableError; every other error of try is final and returned as it is.
func (c *client) retry(ctx context.Context, address string, try func() error) error {
	host := cmp.Or(c.mirror, hostOf(address))
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = c.wait
	var last error
	left := statusTries
	once := func() (struct{}, error) {
		if last = c.unreachable(host); last != nil {
			last = &unavailableError{address, fmt.Errorf("not tried: %w", last)}
			return struct{}{}, backoff.Permanent(last)
		}
		err := try()
		if err == nil || ctx.Err() != nil {
			last = context.Cause(ctx)
			return struct{}{}, last
		}
		again, progress := c.judge(host, err, &left)
		if progress {
			b.Reset()
		}
		if last = err; isTransfer(err) {
			last = &unavailableError{address, err}
		}
		if !again {
			return struct{}{}, backoff.Permanent(last)
		}
		var status *statusError
		if errors.As(err, &status) && status.after > 0 {
			return struct{}{}, errors.Join(last, &backoff.RetryAfterError{Duration: status.after})
		}
		return struct{}{}, last
	}
	_, err := backoff.Retry(ctx, once, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(_ error, wait time.Duration) {
			c.log.Info("trying again", "url", address, "after", wait.Round(time.Millisecond), "why", last)
		}))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return last
}

// isTransfer reports whether the error is about getting bytes from a server, as opposed to what they
// were or to keeping them.
func isTransfer(err error) bool {
	var (
		status  *statusError
		connect *connectError
		cut     *cutError
	)
	return errors.As(err, &status) || errors.As(err, &connect) || errors.As(err, &cut)
}

// judge decides whether a failed try is worth another one, counting down left, and whether the try
// brought us further. It notes a host that cannot be reached.
func (c *client) judge(host string, err error, left *int) (again, progress bool) {
	var (
		status  *statusError
		connect *connectError
		cut     *cutError
	)
	*left--
	switch {
	case errors.As(err, &status):
		return status.temporary() && status.after <= maxRetryAfter && *left > 0, false
	case errors.As(err, &connect):
		if !connect.final && *left > statusTries-connectTries {
			return true, false
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.down[host] = fmt.Errorf("%s cannot be reached: %w", host, connect)
		return false, false
	case errors.As(err, &cut):
		if cut.n > 0 {
			*left = statusTries
		}
		return *left > 0, cut.n > 0
	}
	return false, false
}

// do sends one request and returns the answer, whatever its status. No answer is a *connectError.
func (c *client) do(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "hardtack/"+version.String())
	resp, err := c.http.Do(req)
	if err == nil {
		return resp, nil
	}
	// The caller names the address already.
	var wrapped *url.Error
	for errors.As(err, &wrapped) {
		err = wrapped.Err
		wrapped = nil
	}
	var (
		dns     *net.DNSError
		refused *proxyError
	)
	final := errors.As(err, &dns) && dns.IsNotFound || errors.As(err, &refused)
	return nil, &connectError{err, final}
}

// proxyError is a proxy that does not let a request through.
type proxyError struct{ proxy, status string }

func (e *proxyError) Error() string { return fmt.Sprintf("the proxy %s answers %s", e.proxy, e.status) }

// status returns the error that an answer without the file is.
func status(resp *http.Response) error {
	e := &statusError{code: resp.StatusCode}
	value := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && seconds > 0 {
		e.after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		e.after = max(0, time.Until(at))
	}
	return e
}

// small gets a file of at most limit bytes into memory.
func (c *client) small(ctx context.Context, address string, limit int64) ([]byte, error) {
	var data []byte
	err := c.retry(ctx, address, func() error {
		ctx, cancel := context.WithTimeout(ctx, stallTimeout)
		defer cancel()
		resp, err := c.do(ctx, address, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return status(resp)
		}
		if data, err = io.ReadAll(io.LimitReader(resp.Body, limit+1)); err != nil {
			return &cutError{err: err}
		}
		if int64(len(data)) > limit {
			return fmt.Errorf("%s is larger than the %d bytes that are expected", address, limit)
		}
		return nil
	})
	return data, err
}
