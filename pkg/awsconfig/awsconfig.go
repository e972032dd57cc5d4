// Package awsconfig finds the region and the credentials of a machine for the AWS SDK.
//
// Its rule: it asks the instance metadata service as patiently as pkg/imds does, and an error says which of both is
// missing, an answer or the role. The SDK (feature/ec2/imds 1.20.7) is made for programs that may run elsewhere: it gives
// a connection 250 ms, an answer's header 500 ms and an operation, its token included, 5 s, and then asks version 1. A
// machine that is starting knows where it is, and a service that is busy or throttles answers later than that.
//
// It is not the SDK's package config, which is for people: their files, profiles and single sign-on are four more clients,
// whose tables were a fifth of what an emulated processor did for the first line of each of a boot's dozen starts.
package awsconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdkhttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awshttp"
)

var (
	// ErrMetadata says that the instance metadata service did not answer, or not as it should. Trying again may help.
	ErrMetadata = errors.New("no answer from the instance metadata service")
	// ErrNoRole says that the service answers, and the instance has no role.
	ErrNoRole = errors.New("the instance has no role: give it an instance profile")
)

const (
	// callTimeout bounds one try of a call: the services answer in milliseconds, and an address from which nothing comes
	// back is to be told of before a minute is over.
	callTimeout = 10 * time.Second
	// metadataTimeout bounds one request to the metadata service, and is imds.DefaultAttempt; dialTimeout is its part for
	// the connection. The SDK makes three such tries.
	metadataTimeout = 5 * time.Second
	dialTimeout     = 2 * time.Second
	// idleTimeout is shorter than any service's: what it would close is not used again.
	idleTimeout = 15 * time.Second
	// renewal is how long before their end credentials are asked for again; it is the SDK's.
	renewal = 5 * time.Minute
)

// Machine says where a machine looks. Zero values are the usual places: the environment (AWS_REGION, AWS_ACCESS_KEY_ID and their
// kin, for a machine that is none of EC2's), and the instance.
type Machine struct {
	// Endpoint stands in for all of AWS. Only such an endpoint may be plain http.
	Endpoint string
	// Metadata is the endpoint of the instance metadata service.
	Metadata string
	Region   string
	// Attempts is how often the SDK tries a call before its error is told; 0 is its default, three times.
	Attempts int

	dial dialer // nil is the network
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Load finds the region now, and the role's credentials when they are needed.
func (m Machine) Load(ctx context.Context) (aws.Config, error) {
	service := imds.New(imds.Options{Endpoint: m.Metadata}, patient(m.dial))
	conf := aws.Config{
		Region:           cmp.Or(m.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		Credentials:      provider(service),
		RetryMaxAttempts: m.Attempts,
		HTTPClient:       awshttp.Client(sdkhttp.NewBuildableClient().WithTimeout(callTimeout)),
	}
	if m.Endpoint != "" {
		conf.BaseEndpoint = &m.Endpoint
	}
	if conf.Region == "" {
		found, err := service.GetRegion(ctx, nil)
		if err != nil {
			return aws.Config{}, fmt.Errorf("looking for the region: %w: %w", ErrMetadata, err)
		}
		conf.Region = found.Region
	}
	return conf, nil
}

// provider gives the environment's credentials, or those of the instance's role.
func provider(service *imds.Client) aws.CredentialsProvider {
	if key, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"); key != "" && secret != "" {
		return credentials.NewStaticCredentialsProvider(key, secret, os.Getenv("AWS_SESSION_TOKEN"))
	}
	role := ec2rolecreds.New(func(r *ec2rolecreds.Options) { r.Client = instanceRole{service} })
	return aws.NewCredentialsCache(role, func(c *aws.CredentialsCacheOptions) { c.ExpiryWindow = renewal })
}

// Metadata is the SDK's client of the metadata service at an endpoint, "" being the usual one, with Load's patience.
func Metadata(endpoint string) *imds.Client {
	return imds.New(imds.Options{Endpoint: endpoint}, patient(nil))
}

// patient takes the SDK's haste away. Its bounds of a connection and of a header are only put on a client of its own, and
// the one of an operation where the caller has no deadline: signing never has one.
func patient(dial dialer) func(*imds.Options) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	client := awshttp.Client(&http.Client{
		Timeout: metadataTimeout,
		// Neither a proxy nor a redirect can be right: a token travels one hop only.
		Transport:     &http.Transport{DialContext: dial, IdleConnTimeout: idleTimeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	return func(o *imds.Options) {
		o.HTTPClient = client
		o.DisableDefaultTimeout = true
		o.EnableFallback = aws.FalseTernary
	}
}

// instanceRole asks for the role's credentials, and says which thing is missing.
type instanceRole struct{ service *imds.Client }

func (r instanceRole) GetMetadata(ctx context.Context, in *imds.GetMetadataInput, options ...func(*imds.Options)) (*imds.GetMetadataOutput, error) {
	out, err := r.service.GetMetadata(ctx, in, options...)
	if err == nil {
		return out, nil
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusNotFound {
		return nil, fmt.Errorf("%w (%w)", ErrNoRole, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrMetadata, err)
}
