// Package cloud implements pkg/ami's interfaces on AWS: the EBS direct APIs, EC2's images and snapshots, and channels
// in Parameter Store, for one account and region.
//
// Its rule: every attempt of a call has a deadline, and only this package retries attempts that may succeed later.
// Errors that cannot pass say what the operator has to do.
package cloud

import (
	"context"
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
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// Options are the timeouts and retries of a client. Every field may be 0.
type Options struct {
	// Attempt bounds one attempt of a call, from the connection to the last byte of the answer; 0 is a minute, in which
	// 64 blocks in parallel still pass a line of 5 Mbit/s.
	Attempt time.Duration
	// Attempts is the maximum number of attempts of a call; 0 is 12, which takes some two minutes. A throttled call may
	// wait as long, and so may a snapshot that was just started and is not found yet (coldsnap waits 132 s for that).
	Attempts int
	// Pause is the longest wait between two attempts; 0 is 20 s.
	Pause time.Duration
	// Poll is the first interval between two polls of an unfinished snapshot or image, and grows to ten times as long;
	// 0 is 2 s. Patience is how long they are polled; 0 is two hours, since copies between regions are slow.
	Poll, Patience time.Duration
	// Connections is the maximum number of idle connections to one host; 0 is 64.
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
	who     *sts.Client
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
		params: ssm.NewFromConfig(conf), groups: autoscaling.NewFromConfig(conf), who: sts.NewFromConfig(conf),
	}
}

// account is the number of the account. Nobody needs a permission to ask for it.
func (c *Client) account(ctx context.Context) (string, error) {
	out, err := c.who.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return "", explain("asking for the number of the account", err)
	}
	return aws.ToString(out.Account), nil
}

// retryer waits longer and longer, at random, and does not give up early because other calls had to be made again,
// as the SDK does by default: with many blocks under way, that is what throttling is.
func retryer(o Options) aws.Retryer {
	return retry.NewStandard(func(s *retry.StandardOptions) {
		s.MaxAttempts, s.MaxBackoff = o.Attempts, o.Pause
		s.RateLimiter = ratelimit.None
		s.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(retryable)}, s.Retryables...)
	})
}

// retryable reports which of these services' errors are worth a retry, beyond those that the SDK knows.
func retryable(err error) aws.Ternary {
	var invalid *types.ValidationException
	switch {
	case hasCode(err, "ConcurrentLimitExceededException", "InternalServerException"):
		return aws.TrueTernary
	case errors.As(err, &invalid) && invalid.Reason == types.ValidationExceptionReasonConflictingBlockUpdate:
		// An attempt that was given up is still being carried out.
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// explain adds what a person has to do.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch what := awserr.KindOf(err); {
	case what == awserr.Denied:
		hint = "\nthe credentials do not allow it; hardtack image policy prints what is needed"
	case what.Credentials():
		hint = "\n" + awserr.SignIn + "; the same command goes on from there with --keep"
	}
	switch awserr.Code(err) {
	case "ServiceQuotaExceededException", "SnapshotCreationPerVolumeRateExceeded", "ResourceLimitExceeded":
		hint = "\na quota of the account is used up: wait until other snapshots are done, or have it raised"
	}
	return fmt.Errorf("%s: %w%s", doing, err, hint)
}
