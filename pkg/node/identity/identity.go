// Package identity proves to a cluster's masters which EC2 instance a machine is, and verifies such proofs.
//
// Its rule: a proof is a presigned call of sts:GetCallerIdentity whose signed headers name the cluster and one certificate
// request. Whoever copies it can ask for nothing else with it, and the verifier sends it to its own region's endpoint
// and nowhere else.
package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// Life is how long a proof is good. The signer writes it into the proof, and the verifier holds it: STS ignores
// X-Amz-Expires, and answers a presigned call for 15 minutes (github.com/aws/aws-sdk-go/issues/2167).
const Life = 300 * time.Second

// The headers that a proof signs beside the host: the cluster's name, and the SHA-256 of the request's DER in
// hexadecimal.
const (
	headerCluster = "x-hardtack-cluster"
	headerRequest = "x-hardtack-csr"
	signedHeaders = "host;" + headerCluster + ";" + headerRequest
)

const (
	action     = "GetCallerIdentity"
	version    = "2011-06-15"
	service    = "sts"
	algorithm  = "AWS4-HMAC-SHA256"
	dateFormat = "20060102T150405Z"
)

// emptyPayload is the digest of the body, which a GET does not have.
var emptyPayload = hex.EncodeToString(sha256.New().Sum(nil))

// Prove returns the proof that whoever has the configuration's credentials made the certificate request, for this
// cluster: a URL that holds a session token, but no secret key.
func Prove(ctx context.Context, c aws.Config, cluster string, request []byte, now time.Time) (string, error) {
	endpoint, err := endpointOf(ctx, c)
	if err != nil {
		return "", err
	}
	keys, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("looking for the credentials of the instance's role: %w", err)
	}
	endpoint.RawQuery = url.Values{"Action": {action}, "Version": {version}, "X-Amz-Expires": {strconv.Itoa(int(Life.Seconds()))}}.Encode()
	r, err := newRequest(ctx, endpoint, cluster, request)
	if err != nil {
		return "", err
	}
	proof, _, err := v4.NewSigner().PresignHTTP(ctx, keys, r, emptyPayload, service, c.Region, now)
	if err != nil {
		return "", fmt.Errorf("signing the proof of identity: %w", err)
	}
	return proof, nil
}

// newRequest returns the call with the headers that belong to the cluster and the certificate request.
func newRequest(ctx context.Context, target *url.URL, cluster string, request []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(request)
	r.Header.Set(headerCluster, cluster)
	r.Header.Set(headerRequest, hex.EncodeToString(sum[:]))
	return r, nil
}

// endpointOf returns STS's endpoint in the configuration's region and partition, or the one that replaces every
// endpoint in a lab.
func endpointOf(ctx context.Context, c aws.Config) (*url.URL, error) {
	if c.BaseEndpoint != nil {
		u, err := url.Parse(*c.BaseEndpoint)
		if err != nil {
			return nil, fmt.Errorf("reading the endpoint: %w", err)
		}
		u.Path = "/"
		// The signer leaves the scheme's own port out of the header that it signs, and Go's client sends what the URL has.
		u.Host = strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
		return u, nil
	}
	// The SDK knows the partitions' domains. EC2's table is in the agent anyway, and STS's differs in the first label.
	found, err := ec2.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, ec2.EndpointParameters{Region: aws.String(c.Region)})
	if err != nil {
		return nil, fmt.Errorf("looking for STS's endpoint in region %q: %w", c.Region, err)
	}
	rest, ok := strings.CutPrefix(found.URI.Host, "ec2."+c.Region+".")
	if !ok {
		return nil, fmt.Errorf("looking for STS's endpoint in region %q: EC2's is %s, which has another form", c.Region, found.URI.Host)
	}
	return &url.URL{Scheme: "https", Host: service + "." + c.Region + "." + rest, Path: "/"}, nil
}
