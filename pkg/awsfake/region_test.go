package awsfake

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// bench is an account in virtual time with the real SDK's clients.
type bench struct {
	account     *Account
	clock       *VirtualClock
	autoscaling *autoscaling.Client
	ec2         *ec2.Client
	sqs         *sqs.Client
	ssm         *ssm.Client
	stacks      *cloudformation.Client
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	clock := NewVirtualClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	o.Clock = clock
	b := &bench{account: New(o), clock: clock}
	server := httptest.NewServer(b.account.Handler())
	t.Cleanup(server.Close)
	b.dial(server.URL)
	return b
}

// dial makes the clients for an endpoint; they do not retry.
func (b *bench) dial(url string) {
	config := aws.Config{
		Region: HomeRegion, BaseEndpoint: aws.String(url), Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
	}
	b.autoscaling, b.ec2, b.sqs = autoscaling.NewFromConfig(config), ec2.NewFromConfig(config), sqs.NewFromConfig(config)
	b.ssm, b.stacks = ssm.NewFromConfig(config), cloudformation.NewFromConfig(config)
}

// pass lets time pass, as much as nothing waits for a moment in between.
func (b *bench) pass(d time.Duration) {
	b.clock.Advance(d)
	b.account.Tick()
}
