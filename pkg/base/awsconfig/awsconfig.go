// Package awsconfig finds the region and the credentials of a machine for the AWS SDK.
//
// Its rule: it asks the instance metadata service through pkg/node/imds, with that package's retries, and an error
// says whether the answer or the instance's role is missing. The SDK's own client (feature/ec2/imds 1.20.7) is made for
// programs that may run outside EC2: it allows 250 ms for a connection, 500 ms for the header of an answer and 5 s for
// an operation including its token, and then falls back to version 1. A starting machine knows that it is on EC2, and a
// busy service answers later than that.
//
// It does not use the SDK's package config, which is made for people: shared files, profiles and single sign-on bring
// four more clients, whose tables took a fifth of the processor time of every agent start on an emulated machine.
package awsconfig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	sdkhttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	sdkimds "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
)

var (
	// ErrMetadata means that the instance metadata service did not answer, or answered wrongly. Retrying may help.
	ErrMetadata = errors.New("no answer from the instance metadata service")
	// ErrNoRole means that the metadata service answers, but the instance has no role.
	ErrNoRole = errors.New("the instance has no role: give it an instance profile")
)

const (
	// callTimeout bounds one attempt of a call. The services answer in milliseconds, and an address that drops packets
	// should be reported within a minute.
	callTimeout = 10 * time.Second
	// tries is the number of requests to the metadata service. Callers that can wait longer retry, and log why.
	tries = 3
	// renewal is how long before they expire credentials are fetched again; the SDK uses the same.
	renewal = 5 * time.Minute
)

// Machine says where to look. Zero values mean the usual places: the environment (AWS_REGION, AWS_ACCESS_KEY_ID
// and so on, for machines outside EC2), then the instance metadata.
type Machine struct {
	// Endpoint replaces every AWS endpoint, for tests and the lab. Plain http is allowed only here.
	Endpoint string
	// Metadata is the endpoint of the instance metadata service; empty means EC2's.
	Metadata string
	Region   string
	// Attempts is the number of attempts of each call; 0 means the SDK's default, three.
	Attempts int
	// Spread: a call that AWS refuses because of its rate is not tried again by the SDK, since the caller does it later.
	Spread bool

	dial func(ctx context.Context, network, address string) (net.Conn, error) // nil is the network
}

// Load finds the region now, and fetches the role's credentials when they are first needed. The error
// matches ErrMetadata if the region was looked up and the metadata service did not answer.
func (m Machine) Load(ctx context.Context) (aws.Config, error) {
	service, err := m.service()
	if err != nil {
		return aws.Config{}, err
	}
	conf := aws.Config{
		Region:           cmp.Or(m.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Credentials:      provider(service),
		RetryMaxAttempts: m.Attempts,
		HTTPClient:       awshttp.Client(sdkhttp.NewBuildableClient().WithTimeout(callTimeout)),
	}
	if m.Spread {
		conf.Retryer = Spread(m.Attempts)
	}
	if m.Endpoint != "" {
		conf.BaseEndpoint = &m.Endpoint
	}
	if conf.Region == "" {
		found, err := service.Identity(ctx)
		if err != nil {
			return aws.Config{}, fmt.Errorf("looking for the region: %w: %w", ErrMetadata, err)
		}
		conf.Region = found.Region
	}
	return conf, nil
}

// Spread returns what makes the SDK try a call again, but not one that AWS has refused because of its rate. attempts is as in
// Machine.
func Spread(attempts int) func() aws.Retryer {
	throttled := retry.IsErrorThrottles(retry.DefaultThrottles)
	once := retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
		if throttled.IsErrorThrottle(err) == aws.TrueTernary {
			return aws.FalseTernary
		}
		return aws.UnknownTernary
	})
	return func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = cmp.Or(attempts, retry.DefaultMaxAttempts)
			o.Retryables = append([]retry.IsErrorRetryable{once}, o.Retryables...)
		})
	}
}

// Identity returns the instance's identity from the metadata service.
func (m Machine) Identity(ctx context.Context) (imds.Identity, error) {
	service, err := m.service()
	if err != nil {
		return imds.Identity{}, err
	}
	return service.Identity(ctx)
}

func (m Machine) service() (*imds.Client, error) {
	return imds.New(imds.Options{Endpoint: m.Metadata, Tries: tries, Dial: m.dial})
}

// provider returns the credentials of the environment, or those of the instance's role.
func provider(service *imds.Client) aws.CredentialsProvider {
	if key, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"); key != "" && secret != "" {
		return credentials.NewStaticCredentialsProvider(key, secret, os.Getenv("AWS_SESSION_TOKEN"))
	}
	role := ec2rolecreds.New(func(r *ec2rolecreds.Options) { r.Client = instanceRole{service} })
	return aws.NewCredentialsCache(role, func(c *aws.CredentialsCacheOptions) { c.ExpiryWindow = renewal })
}

// instanceRole is the metadata client that the SDK fetches the role's credentials with; its errors match ErrNoRole
// or ErrMetadata.
type instanceRole struct{ service *imds.Client }

func (r instanceRole) GetMetadata(ctx context.Context, in *sdkimds.GetMetadataInput, _ ...func(*sdkimds.Options)) (*sdkimds.GetMetadataOutput, error) {
	body, err := r.service.Get(ctx, path.Join("meta-data", in.Path))
	switch {
	case errors.Is(err, imds.ErrNotFound):
		return nil, fmt.Errorf("%w (%w)", ErrNoRole, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return &sdkimds.GetMetadataOutput{Content: io.NopCloser(bytes.NewReader(body))}, nil
}
