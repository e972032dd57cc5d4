// Package imds asks the instance metadata service of EC2, version 2.
//
// Its rule: a passing fault is waited out until the caller's context ends, and a definite answer is
// believed at once. A machine asks while its network is still coming up, so "connection refused", "no
// route", silence, 5xx, half a body and a token that is no longer valid are passing; "not found" and
// "forbidden" are answers.
package imds

import (
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
	"time"

	"github.com/cenkalti/backoff/v5"
)

// DefaultEndpoint is where every EC2 instance reaches its metadata; http://[fd00:ec2::254] is the same
// by IPv6.
const DefaultEndpoint = "http://169.254.169.254"

// The defaults of Options.
const (
	// DefaultAttempt is how long one request may take. The service answers in a few milliseconds; a
	// loaded one takes seconds, and a packet lost while the network comes up must not cost more.
	DefaultAttempt = 5 * time.Second
	// DefaultMinWait and DefaultMaxWait bound the wait between two attempts. It begins short, since a
	// boot waits for it, and two a second are far from what the service throttles.
	DefaultMinWait = 50 * time.Millisecond
	DefaultMaxWait = 500 * time.Millisecond
	// DefaultMaxBody bounds an answer, in bytes; EC2's user data is 16 KiB at most.
	DefaultMaxBody = 1 << 20
)

// tokenLife is how long a token is asked for, in seconds: longer than any boot waits.
const tokenLife = 600

// ErrNotFound says that the service answered and has no such thing: for user data, that the instance
// was started without any.
var ErrNotFound = errors.New("not found")

// Options of a Client. Zero values mean the defaults above; a nil Log discards.
type Options struct {
	// Endpoint is a URL without a path.
	Endpoint         string
	Attempt          time.Duration
	MinWait, MaxWait time.Duration
	MaxBody          int64
	Log              *slog.Logger
}

// Client asks one metadata service. It is not safe for concurrent use.
type Client struct {
	options Options
	http    *http.Client
	token   string
}

// New checks the options and returns a client; it asks nothing yet.
func New(o Options) (*Client, error) {
	def(&o.Endpoint, DefaultEndpoint)
	def(&o.Attempt, DefaultAttempt)
	def(&o.MinWait, DefaultMinWait)
	def(&o.MaxWait, DefaultMaxWait)
	def(&o.MaxBody, DefaultMaxBody)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("metadata endpoint %q: not of the form http://address[:port]", o.Endpoint)
	}
	o.Endpoint = "http://" + u.Host
	return &Client{options: o, http: &http.Client{
		Transport: &http.Transport{
			// The token's answer may travel one hop only, so neither a proxy nor a redirect can be right.
			Proxy:       nil,
			DialContext: (&net.Dialer{Timeout: min(o.Attempt, 2*time.Second)}).DialContext,
			// User data that is gzip must arrive as it is.
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Close gives the connection back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// UserData returns the user data of the instance as it was given, and ErrNotFound where there is none.
func (c *Client) UserData(ctx context.Context) ([]byte, error) { return c.Get(ctx, "user-data") }

// InstanceID returns the id of the instance: "i-" and 17 hex digits.
func (c *Client) InstanceID(ctx context.Context) (string, error) {
	body, err := c.Get(ctx, "meta-data/instance-id")
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(body))
	if id == "" {
		return "", fmt.Errorf("reading the instance id from %s: empty answer", c.options.Endpoint)
	}
	return id, nil
}

// Get returns what stands under /latest/<path>. It tries until it has an answer or ctx ends; the error
// then says what the last attempt met.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = c.options.MinWait, c.options.MaxWait
	var last error
	tries := 0
	body, err := backoff.Retry(ctx, func() ([]byte, error) {
		tries++
		body, err := c.attempt(ctx, path)
		if err != nil && (last == nil || ctx.Err() == nil) {
			last = err // what the end of ctx cuts short says less than what came before it
		}
		return body, err
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, next time.Duration) {
			c.options.Log.DebugContext(ctx, "asking again", "path", path, "try", tries, "wait", next, "error", err)
		}))
	if err == nil {
		return body, nil
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return nil, fmt.Errorf("asking %s for %s, %d tries: %w; the last one: %w", c.options.Endpoint, path, tries, err, last)
	}
	return nil, fmt.Errorf("asking %s for %s: %w", c.options.Endpoint, path, err)
}

// attempt gets a token when there is none, and then the path.
func (c *Client) attempt(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Attempt)
	defer cancel()
	if c.token == "" {
		token, err := c.do(ctx, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", strconv.Itoa(tokenLife))
		if err != nil {
			return nil, tokenError(err)
		}
		c.token = strings.TrimSpace(string(token))
		if c.token == "" {
			return nil, errors.New("an empty token")
		}
	}
	body, err := c.do(ctx, http.MethodGet, "/latest/"+path, "X-aws-ec2-metadata-token", c.token)
	var status statusError
	switch {
	case !errors.As(err, &status):
		return body, err // done, or a fault of the network
	case status == http.StatusUnauthorized:
		c.token = ""
		return nil, err
	case status == http.StatusNotFound:
		return nil, backoff.Permanent(ErrNotFound)
	case passing(status):
		return nil, err
	case status == http.StatusForbidden:
		return nil, backoff.Permanent(fmt.Errorf("%w: is the metadata service of the instance turned off?", err))
	}
	return nil, backoff.Permanent(err)
}

// tokenError tells what an answer to the request for a token means.
func tokenError(err error) error {
	err = fmt.Errorf("getting a token: %w", err)
	var status statusError
	switch {
	case !errors.As(err, &status) || passing(status):
		return err
	case status == http.StatusForbidden:
		err = fmt.Errorf("%w: the metadata service of the instance is turned off (HttpEndpoint)", err)
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		err = fmt.Errorf("%w: what answers there is not version 2 of the metadata service", err)
	}
	return backoff.Permanent(err)
}

// passing reports whether a status is worth another attempt.
func passing(status statusError) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
		status == http.StatusUnauthorized
}

// statusError is an answer other than 200.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("status %d %s", int(s), http.StatusText(int(s)))
}

// do makes one request and returns its whole body.
func (c *Client) do(ctx context.Context, method, path, header, value string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.options.Endpoint+path, nil)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	req.Header.Set(header, value)
	res, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the caller says what was asked for
		}
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or given up
	if res.StatusCode != http.StatusOK {
		return nil, statusError(res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, c.options.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err) // half a body is an unexpected EOF
	}
	if int64(len(body)) > c.options.MaxBody {
		return nil, backoff.Permanent(fmt.Errorf("answer over the bound of %d bytes", c.options.MaxBody))
	}
	return body, nil
}
