// Package ami is pkg/publish's way to AWS: the EBS direct APIs, EC2's images and snapshots, and the parameters that
// are channels, of one account in one region.
//
// Its rule: every attempt of a call has a deadline, and an attempt that may succeed later is made again, here and
// nowhere above; what cannot succeed is told with what a person has to do.
package ami

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awshttp"
)

// Options say how patient a client is. Every zero field has a use.
type Options struct {
	// Attempt is how long one attempt of a call may take, from the connection to the last byte of the answer;
	// zero: a minute, in which 64 blocks at once still pass a line of 5 Mbit/s.
	Attempt time.Duration
	// Attempts is how often a call is made; zero: 12, which takes some two minutes. So long AWS may say of a new
	// snapshot that there is none (that is what coldsnap's 132 s are for), and so long a throttled call waits.
	Attempts int
	// Pause is the longest wait between two attempts; zero: 20 s.
	Pause time.Duration
	// Poll is the first wait between two looks at a snapshot or an image that is in the making, and grows to ten
	// times as long; zero: 2 s. Patience is how long they are looked at; zero: two hours, since copies between
	// regions are slow.
	Poll, Patience time.Duration
	// Connections is how many are kept open to one host; zero: 64.
	Connections int
}

func (o Options) complete() Options {
	fill := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	fill(&o.Attempt, time.Minute)
	fill(&o.Pause, 20*time.Second)
	fill(&o.Poll, 2*time.Second)
	fill(&o.Patience, 2*time.Hour)
	if o.Attempts <= 0 {
		o.Attempts = 12
	}
	if o.Connections <= 0 {
		o.Connections = 64
	}
	return o
}

// Client calls AWS in one region. It may be used by several goroutines.
type Client struct {
	// Region is where it calls.
	Region  string
	options Options
	blocks  *ebs.Client
	machine *ec2.Client
	params  *ssm.Client
	groups  *autoscaling.Client
}

// New makes a client of a region, which the configuration must name.
func New(conf aws.Config, o Options) *Client {
	o = o.complete()
	// Of our own: the configuration's client knows neither the deadline nor how many connections there will be.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, o.Connections
	// One connection would carry all blocks one after another where there is HTTP/2.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	conf.HTTPClient = awshttp.Client(&http.Client{Transport: transport, Timeout: o.Attempt})
	conf.Retryer = func() aws.Retryer { return retryer(o) }
	return &Client{
		Region: conf.Region, options: o, blocks: ebs.NewFromConfig(conf), machine: ec2.NewFromConfig(conf),
		params: ssm.NewFromConfig(conf), groups: autoscaling.NewFromConfig(conf),
	}
}

// retryer waits longer and longer, at random, and does not give up early because other calls had to be made again,
// as the SDK does by default: with many blocks under way, that is what throttling is.
func retryer(o Options) aws.Retryer {
	return retry.NewStandard(func(s *retry.StandardOptions) {
		s.MaxAttempts, s.MaxBackoff = o.Attempts, o.Pause
		s.RateLimiter = ratelimit.None
		s.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(again)}, s.Retryables...)
	})
}

// again knows what the SDK does not: which of these services' own errors pass.
func again(err error) aws.Ternary {
	var invalid *types.ValidationException
	switch {
	case is(err, "ConcurrentLimitExceededException", "InternalServerException"):
		return aws.TrueTernary
	case errors.As(err, &invalid) && invalid.Reason == types.ValidationExceptionReasonConflictingBlockUpdate:
		// An attempt that was given up is still being carried out.
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// code is AWS's of an error; empty: it is not AWS's.
func code(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

// explain adds what a person has to do.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch code(err) {
	case "AccessDeniedException", "UnauthorizedOperation", "AccessDenied":
		hint = "\nthe credentials do not allow it; hardtack image policy prints what is needed"
	case "ExpiredToken", "ExpiredTokenException", "RequestExpired":
		hint = "\nthe credentials have expired: log in again; the same command goes on from there with --keep"
	case "ServiceQuotaExceededException", "SnapshotCreationPerVolumeRateExceeded", "ResourceLimitExceeded":
		hint = "\na quota of the account is used up: wait until other snapshots are done, or have it raised"
	}
	return fmt.Errorf("%s: %w%s", doing, err, hint)
}
