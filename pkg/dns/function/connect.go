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
	scaling, mu := autoscaling.NewFromConfig(c), new(sync.Mutex)
	connect := func(id string, policy record.Policy, hooks reconcile.Hooks, log *slog.Logger) (syncer, error) {
		dns, err := zone.NewRoute53(route53.NewFromConfig(c), id, policy)
		if err != nil {
			return nil, err
		}
		return reconcile.New(reconcile.Config{
			Zone:  dns,
			Fleet: &fleet.AWS{Scaling: scaling, Machines: ec2.NewFromConfig(c), Allowed: s.Scope.Groups},
			Hooks: hooks, Policy: policy, Log: log,
			Metrics: metrics{out: out, now: time.Now, log: log, mu: mu},
		})
	}
	private := record.DefaultPolicy()
	private.Suffix, private.Outputs.APIInternal = s.Suffix, s.APIInternal
	own, err := connect(s.Zone, private, &fleet.Hooks{API: scaling, Name: s.Hook}, log)
	if err != nil {
		return nil, err
	}
	h := &Handler{scope: s.Scope, syncer: own, now: clock.System{}.Now, log: log}
	if s.APIZone != "" {
		public := record.DefaultPolicy()
		public.Suffix, public.Outputs = s.APISuffix, record.Outputs{APIPublic: true}
		api, err := connect(s.APIZone, public, nil, log.With("zone", s.APISuffix))
		if err != nil {
			return nil, err
		}
		h.syncer = twoZones{own, api}
	}
	if s.Queue != "" {
		h.reminder = queue{client: sqs.NewFromConfig(c), url: s.Queue}
	}
	return h, nil
}

// aws returns the configuration of the SDK. The SDK's config package would find the same, but also reads files and
// imports other services' clients, which would slow down every start of the function.
func (s Settings) aws() aws.Config {
	key := aws.Credentials{AccessKeyID: s.Key.ID, SecretAccessKey: s.Key.Secret, SessionToken: s.Key.Session}
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
