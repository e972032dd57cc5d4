package backup

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// client sends signed requests to one bucket, and repeats what may succeed later.
type client struct {
	url    string // of the bucket, without a slash at its end
	region string
	keys   aws.CredentialsProvider
	http   aws.HTTPClient

	mu   sync.Mutex
	skew time.Duration // how far S3's clock is ahead
}

// emptySHA256 is the SHA-256 of nothing.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// answerTime bounds the wait for the first byte of an answer: S3 answers an upload within seconds of its last byte.
const (
	answerTime = time.Minute
	attempts   = 5
)

func newClient(at machine.Backups, conf aws.Config, through aws.HTTPClient) (*client, error) {
	c := &client{region: cmp.Or(at.Region, conf.Region), keys: conf.Credentials, http: through}
	if c.region == "" || c.keys == nil {
		return nil, errors.New("nothing says in which region, or with which credentials")
	}
	switch endpoint := cmp.Or(at.Endpoint, aws.ToString(conf.BaseEndpoint)); {
	case endpoint != "":
		c.url = strings.TrimSuffix(endpoint, "/") + "/" + at.Bucket
	case strings.HasPrefix(c.region, "cn-"):
		c.url = "https://" + at.Bucket + ".s3." + c.region + ".amazonaws.com.cn"
	default:
		c.url = "https://" + at.Bucket + ".s3." + c.region + ".amazonaws.com"
	}
	if through != nil {
		return c, nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTime
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// request is a request to a bucket.
type request struct {
	method string
	path   string // empty is the bucket itself
	query  url.Values
	header http.Header
	body   *content // nil is none
	needs  string   // the permission
}

// answerError is an answer that is an error. It has the form of the SDK's, for pkg/base/awserr.
type answerError struct {
	Status  int    `xml:"-"`
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
	date    string
	region  string
}

func (e *answerError) Error() string {
	text := fmt.Sprintf("S3 answers %d %s: %s", e.Status, e.Code, e.Message)
	if e.region != "" {
		text += "; the bucket is in " + e.region + ": add ?region=" + e.region + " to its location"
	}
	return text
}

// ErrorCode is S3's code.
func (e *answerError) ErrorCode() string { return e.Code }

// unclearError is an error after an attempt of which nobody knows whether it succeeded.
type unclearError struct{ error }

func (e *unclearError) Unwrap() error { return e.error }

// send sends a request until it succeeds or cannot. The caller closes the answer's body.
func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	unclear := false
	out, err := backoff.Retry(ctx, func() (*http.Response, error) {
		out, err := c.once(ctx, r)
		var a *answerError
		switch {
		case err == nil:
			return out, nil
		case !errors.As(err, &a):
			unclear = unclear || r.body != nil
			return nil, err
		case c.corrected(a), a.Status >= http.StatusInternalServerError, a.Code == "ConditionalRequestConflict", a.Code == "RequestTimeout", a.Code == "SlowDown":
			unclear = unclear || a.Status == http.StatusInternalServerError
			return nil, err
		}
		return nil, backoff.Permanent(err)
	}, backoff.WithMaxTries(attempts), backoff.WithBackOff(&backoff.ExponentialBackOff{InitialInterval: 200 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 3, MaxInterval: 10 * time.Second}))
	if err != nil && unclear {
		err = &unclearError{err}
	}
	return out, err
}

// corrected notes S3's time if the request was refused for its own.
func (c *client) corrected(a *answerError) bool {
	at, err := http.ParseTime(a.date)
	if a.Code != "RequestTimeTooSkewed" || err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = time.Until(at)
	return true
}

// once sends a request.
func (c *client) once(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.signed(ctx, r)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	out, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking S3: %w", err)
	}
	if out.StatusCode == http.StatusOK {
		return out, nil
	}
	defer func() { _ = out.Body.Close() }()
	a := &answerError{Status: out.StatusCode, date: out.Header.Get("Date")}
	text, err := io.ReadAll(io.LimitReader(out.Body, most))
	if err != nil {
		return nil, fmt.Errorf("asking S3: %w", err)
	}
	if err := xml.Unmarshal(text, a); err != nil { // an answer to HEAD has no body
		a.Code, a.Message = strings.ReplaceAll(http.StatusText(out.StatusCode), " ", ""), strings.TrimSpace(string(text))
	}
	if r.method == http.MethodHead && out.StatusCode == http.StatusNotFound {
		a.Code = "NoSuchKey"
	}
	if found := out.Header.Get("X-Amz-Bucket-Region"); found != c.region {
		a.region = found
	}
	return nil, a
}

// signed makes a request and signs it.
func (c *client) signed(ctx context.Context, r request) (*http.Request, error) {
	keys, err := c.keys.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	at := c.url + "/" + (&url.URL{Path: r.path}).EscapedPath()
	if len(r.query) > 0 {
		at += "?" + strings.ReplaceAll(r.query.Encode(), "+", "%20")
	}
	req, err := http.NewRequestWithContext(ctx, r.method, at, nil)
	if err != nil {
		return nil, err
	}
	sum := emptySHA256
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.body != nil {
		if req.Body, err = r.body.open(); err != nil {
			return nil, err
		}
		sum, req.ContentLength = r.body.sha256, r.body.size
		req.Header.Set("Expect", "100-continue") // a refusal comes before the snapshot is sent
	}
	req.Header.Set("X-Amz-Content-Sha256", sum)
	c.mu.Lock()
	now := time.Now().Add(c.skew)
	c.mu.Unlock()
	err = v4.NewSigner().SignHTTP(ctx, keys, req, sum, "s3", c.region, now.UTC(), func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil && req.Body != nil {
		err = errors.Join(err, req.Body.Close())
	}
	return req, err
}
