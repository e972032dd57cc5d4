package function

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	transport "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// Connect returns a handler that uses AWS. It makes no request.
func Connect(s Settings, out io.Writer, log *slog.Logger) (*Handler, error) {
	c := s.aws()
	policy := record.DefaultPolicy()
	policy.Suffix = s.Suffix
	dns, err := zone.NewRoute53(route53.NewFromConfig(c), s.Zone, policy)
	if err != nil {
		return nil, err
	}
	scaling := autoscaling.NewFromConfig(c)
	syncer, err := reconcile.New(reconcile.Config{
		Zone:    dns,
		Fleet:   &fleet.AWS{Scaling: scaling, Machines: ec2.NewFromConfig(c), Allowed: s.Scope.Groups},
		Hooks:   &fleet.Hooks{API: scaling, Name: s.Hook},
		Policy:  policy,
		Metrics: metrics{out: out, now: time.Now, log: log, mu: new(sync.Mutex)},
		Log:     log,
	})
	if err != nil {
		return nil, err
	}
	h := &Handler{scope: s.Scope, syncer: syncer, now: clock.System{}.Now, log: log}
	if s.Queue != "" {
		h.reminder = queue{client: sqs.NewFromConfig(c), url: s.Queue}
	}
	return h, nil
}

// aws returns the configuration of the SDK. The SDK's config package would find the same, but also reads files and
// imports other services' clients, which would slow down every start of the function.
func (s Settings) aws() aws.Config {
	key := aws.Credentials{AccessKeyID: s.Key.ID, SecretAccessKey: s.Key.Secret, SessionToken: s.Key.Session, Source: "environment"}
	c := aws.Config{
		Region:      s.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return key, nil }),
	}
	next := awshttp.Doer(s.Client)
	if s.Client == nil {
		next = transport.NewBuildableClient()
	}
	c.HTTPClient = awshttp.Client(next)
	if s.Endpoint != "" {
		c.BaseEndpoint = &s.Endpoint
	}
	return c
}
