// Package imds is a client of EC2's instance metadata service, version 2.
//
// Its rule: temporary errors are retried until the caller's context or its number of tries ends, and definite answers are returned at once. A
// machine asks while its network is still coming up, so that "connection refused", "no route", timeouts, 5xx,
// incomplete bodies and invalid tokens are temporary; "not found" and "forbidden" are answers.
package imds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
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

// ErrNotFound means that the service has no such value. For user data: the instance was started without any.
var ErrNotFound = errors.New("not found")

// Options of a Client. Zero values mean the defaults above; a nil Log discards.
type Options struct {
	// Endpoint is a URL without a path.
	Endpoint         string
	Attempt          time.Duration
	MinWait, MaxWait time.Duration
	MaxBody          int64
	// Tries is the maximum number of attempts of a request; 0 is no limit but the context.
	Tries uint
	// Dial makes connections; nil is the network, with 2 s for each.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger
}

// Client is a client of one metadata service. It is safe for concurrent use.
type Client struct {
	options Options
	// host is the endpoint's as the service hears it, address what is dialled.
	host, address string

	mu    sync.Mutex
	token string
}

// New checks the options and returns a client. It sends no request.
func New(o Options) (*Client, error) {
	setDefault(&o.Endpoint, DefaultEndpoint)
	setDefault(&o.Attempt, DefaultAttempt)
	setDefault(&o.MinWait, DefaultMinWait)
	setDefault(&o.MaxWait, DefaultMaxWait)
	setDefault(&o.MaxBody, DefaultMaxBody)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: min(o.Attempt, 2*time.Second)}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("metadata endpoint %q: not of the form http://address[:port]", o.Endpoint)
	}
	o.Endpoint = "http://" + u.Host
	return &Client{options: o, host: u.Host, address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

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

// LaunchIndex returns the instance's number among those that one request has launched, from 0.
func (c *Client) LaunchIndex(ctx context.Context) (int, error) {
	body, err := c.Get(ctx, "meta-data/ami-launch-index")
	if err != nil {
		return 0, err
	}
	index, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		return 0, fmt.Errorf("reading the launch index from %s: %w", c.options.Endpoint, err)
	}
	return index, nil
}

// Identity is the part of the instance's identity document that Hardtack uses.
type Identity struct {
	InstanceID       string `json:"instanceId"`
	AvailabilityZone string `json:"availabilityZone"`
	Region           string `json:"region"`
	InstanceType     string `json:"instanceType"`
	// AccountID is the number of the AWS account.
	AccountID string `json:"accountId"`
}

// Identity returns the instance's identity document.
func (c *Client) Identity(ctx context.Context) (i Identity, err error) {
	body, err := c.Get(ctx, "dynamic/instance-identity/document")
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal(body, &i); err != nil {
		return i, fmt.Errorf("reading the identity document from %s: %w", c.options.Endpoint, err)
	}
	return i, nil
}

// Get returns the value at /latest/<path>. It tries until it has an answer or ctx ends; the error then is the last
// attempt's.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = c.options.MinWait, c.options.MaxWait
	var last error
	tries := 0
	body, err := backoff.Retry(ctx, func() ([]byte, error) {
		tries++
		body, err := c.attempt(ctx, path)
		if err != nil && (last == nil || !over(ctx)) {
			last = err // what the end of ctx cuts short says less than what came before it
		}
		return body, err
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(0), backoff.WithMaxTries(c.options.Tries),
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

// over reports whether ctx has ended, or is past its deadline: a dial keeps the same deadline with a timer of its own, which
// on a busy machine is heard before ctx's.
func over(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(deadline)
}

// attempt gets a token when there is none, and then the path.
func (c *Client) attempt(ctx context.Context, path string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token == "" {
		token, err := c.do(ctx, methodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", strconv.Itoa(tokenLife))
		if err != nil {
			return nil, tokenError(err)
		}
		c.token = strings.TrimSpace(string(token))
		if c.token == "" {
			return nil, errors.New("an empty token")
		}
	}
	body, err := c.do(ctx, methodGet, "/latest/"+path, "X-aws-ec2-metadata-token", c.token)
	var status statusError
	switch {
	case !errors.As(err, &status):
		return body, err // done, or a fault of the network
	case status == statusUnauthorized:
		c.token = ""
		return nil, err
	case status == statusNotFound:
		return nil, backoff.Permanent(ErrNotFound)
	case isTemporary(status):
		return nil, err
	case status == statusForbidden:
		return nil, backoff.Permanent(fmt.Errorf("%w: is the metadata service of the instance turned off?", err))
	}
	return nil, backoff.Permanent(err)
}

// tokenError explains an error of the request for a token.
func tokenError(err error) error {
	err = fmt.Errorf("getting a token: %w", err)
	var status statusError
	switch {
	case !errors.As(err, &status) || isTemporary(status):
		return err
	case status == statusForbidden:
		err = fmt.Errorf("%w: the metadata service of the instance is turned off (HttpEndpoint)", err)
	case status == statusNotFound || status == statusMethodNotAllowed:
		err = fmt.Errorf("%w: what answers there is not version 2 of the metadata service", err)
	}
	return backoff.Permanent(err)
}

// isTemporary reports whether a status is worth another attempt.
func isTemporary(status statusError) bool {
	return status >= 500 || status == statusTooManyRequests || status == statusRequestTimeout ||
		status == statusUnauthorized
}

// The methods and the statuses that mean something here (RFC 9110).
const (
	methodGet, methodPut = "GET", "PUT"

	statusSwitching        = 101
	statusOK               = 200
	statusUnauthorized     = 401
	statusForbidden        = 403
	statusNotFound         = 404
	statusMethodNotAllowed = 405
	statusRequestTimeout   = 408
	statusTooManyRequests  = 429
)

// statusError is an answer other than 200.
type statusError int

func (s statusError) Error() string {
	text := fmt.Sprintf("status %d", int(s))
	switch s {
	case statusUnauthorized:
		text += " Unauthorized"
	case statusForbidden:
		text += " Forbidden"
	case statusNotFound:
		text += " Not Found"
	case statusMethodNotAllowed:
		text += " Method Not Allowed"
	case statusTooManyRequests:
		text += " Too Many Requests"
	}
	return text
}

// do makes one request and returns its whole body.
func (c *Client) do(ctx context.Context, method, path, header, value string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Attempt)
	defer cancel()
	u, err := url.Parse(c.options.Endpoint + path)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	status, body, err := c.exchange(ctx, method, u.RequestURI(), header, value)
	switch {
	case err != nil:
		return nil, err
	case status != statusOK:
		return nil, statusError(status)
	case int64(len(body)) > c.options.MaxBody:
		return nil, backoff.Permanent(fmt.Errorf("answer over the bound of %d bytes", c.options.MaxBody))
	}
	return body, nil
}
