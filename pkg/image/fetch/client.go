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

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
)

// The number of attempts for a request. An attempt that received more of the file than those before does not count.
const (
	statusTries  = 6 // about 8 s of waiting, unless the server sends Retry-After
	connectTries = 3
)

// maxRetryAfter is the longest Retry-After that is obeyed; a longer one fails the request.
const maxRetryAfter = 2 * time.Minute

// client sends requests with retries. It remembers unreachable hosts, so that further requests to them fail at once.
type client struct {
	http     *http.Client
	progress Progress
	log      *slog.Logger
	// mirror receives the requests to every host, if set.
	mirror string
	// wait is the first delay between attempts; it grows by half each time.
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

// unreachable returns the earlier error if the host is known to be unreachable, or nil.
func (c *client) unreachable(host string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down[host]
}

// retry calls try until it succeeds or fails for good. A failed transfer from address becomes an *UnavailableError;
// every other error of try is final and returned unchanged.
func (c *client) retry(ctx context.Context, address string, try func() error) error {
	host := cmp.Or(c.mirror, hostOf(address))
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = c.wait
	var last error
	made := 0
	once := func() (struct{}, error) {
		if last = c.unreachable(host); last != nil {
			last = &UnavailableError{address, fmt.Errorf("not tried: %w", last)}
			return struct{}{}, backoff.Permanent(last)
		}
		err := try()
		if err == nil || ctx.Err() != nil {
			last = context.Cause(ctx)
			return struct{}{}, last
		}
		again, progress := c.judge(host, err, &made)
		if progress {
			b.Reset()
		}
		if last = err; isTransfer(err) {
			last = &UnavailableError{address, err}
		}
		if !again {
			return struct{}{}, backoff.Permanent(last)
		}
		var failed *tryError
		if errors.As(err, &failed) && failed.after > 0 {
			return struct{}{}, errors.Join(last, &backoff.RetryAfterError{Duration: failed.after})
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

// isTransfer reports whether the error is about the transfer, and not about the content or about storing it.
func isTransfer(err error) bool {
	var failed *tryError
	return errors.As(err, &failed)
}

// judge decides whether to retry after a failed attempt, counts it in made, and reports whether the attempt made
// progress. It records unreachable hosts.
func (c *client) judge(host string, err error, made *int) (again, progress bool) {
	var failed *tryError
	if !errors.As(err, &failed) {
		return false, false
	}
	*made++
	if progress = failed.got > 0; progress {
		*made = 0
	}
	if again = *made < failed.limit; !again && failed.unreachable {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.down[host] = fmt.Errorf("%s cannot be reached: %w", host, failed)
	}
	return again, progress
}

// do sends one request and returns the response, whatever its status.
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
		dns   *net.DNSError
		proxy *proxyError
		plain *plainError
	)
	if errors.As(err, &plain) {
		return nil, plain
	}
	final := errors.As(err, &dns) && dns.IsNotFound || errors.As(err, &proxy)
	return nil, unanswered(err, final)
}

// proxyError is a proxy's refusal to forward a request.
type proxyError struct{ proxy, status string }

func (e *proxyError) Error() string { return fmt.Sprintf("the proxy %s answers %s", e.proxy, e.status) }

// status returns the error for a response without the file.
func status(resp *http.Response) error {
	var after time.Duration
	value := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && seconds > 0 {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		after = max(0, time.Until(at))
	}
	return refused(resp.StatusCode, after)
}

// small downloads a file of at most limit bytes into memory.
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
			return lost(err, 0)
		}
		if int64(len(data)) > limit {
			return fmt.Errorf("%s is larger than the %d bytes that are expected", address, limit)
		}
		return nil
	})
	return data, err
}
