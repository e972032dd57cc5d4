package awsfake_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// presigned is the SDK's own presigned call, with one more header that is signed.
func presigned(t *testing.T, endpoint string, c awsfake.Credentials, at time.Time) (string, http.Header) {
	t.Helper()
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)}
	client := sts.NewPresignClient(sts.NewFromConfig(conf), func(o *sts.PresignOptions) {
		o.Presigner = signedAt{v4.NewSigner(), at}
		o.ClientOptions = append(o.ClientOptions, func(o *sts.Options) {
			o.APIOptions = append(o.APIOptions, smithyhttp.AddHeaderValue("x-hardtack-cluster", "demo"), func(s *middleware.Stack) error {
				return s.Build.Add(middleware.BuildMiddlewareFunc("expires", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
					r := in.Request.(*smithyhttp.Request)
					q := r.URL.Query()
					q.Set("X-Amz-Expires", "300")
					r.URL.RawQuery = q.Encode()
					return next.HandleBuild(ctx, in)
				}), middleware.After)
			})
		})
	})
	r, err := client.PresignGetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		t.Fatal(err)
	}
	return r.URL, r.SignedHeader
}

// signedAt signs as if it were another time.
type signedAt struct {
	*v4.Signer
	at time.Time
}

func (s signedAt) PresignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payload, service, region string, _ time.Time, o ...func(*v4.SignerOptions)) (string, http.Header, error) {
	return s.Signer.PresignHTTP(ctx, c, r, payload, service, region, s.at, o...)
}

// TestPresigned has what STS answers to a presigned GetCallerIdentity of the SDK, and to each change of it.
func TestPresigned(t *testing.T) {
	a := awsfake.New(awsfake.Options{})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	a.AddRole("demo-minions")
	machine, err := a.Issue("demo-minions", "i-0123456789abcdef0", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	short, err := a.Issue("demo-minions", "i-0123456789abcdef0", time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		who    awsfake.Credentials
		age    time.Duration
		change func(q url.Values, h http.Header)
		want   string // in the answer
	}{
		"as it is":              {machine, 0, nil, ":assumed-role/demo-minions/i-0123456789abcdef0<"},
		"past its own expiry":   {machine, 14 * time.Minute, nil, ":assumed-role/demo-minions/"}, // which STS ignores
		"after fifteen minutes": {machine, 16 * time.Minute, nil, "Signature expired"},
		"from the future":       {machine, -6 * time.Minute, nil, "Signature not yet current"},
		"expired credentials":   {short, 0, nil, "<Code>ExpiredToken<"},
		"another header's value": {machine, 0, func(_ url.Values, h http.Header) {
			h.Set("X-Hardtack-Cluster", "other")
		}, "<Code>SignatureDoesNotMatch<"},
		"without the header":  {machine, 0, func(_ url.Values, h http.Header) { h.Del("X-Hardtack-Cluster") }, "<Code>SignatureDoesNotMatch<"},
		"a header less":       {machine, 0, func(q url.Values, _ http.Header) { q.Set("X-Amz-SignedHeaders", "host") }, "<Code>SignatureDoesNotMatch<"},
		"one parameter more":  {machine, 0, func(q url.Values, _ http.Header) { q.Set("DurationSeconds", "900") }, "<Code>SignatureDoesNotMatch<"},
		"another action":      {machine, 0, func(q url.Values, _ http.Header) { q.Set("Action", "GetSessionToken") }, "<Code>SignatureDoesNotMatch<"},
		"a longer life":       {machine, 0, func(q url.Values, _ http.Header) { q.Set("X-Amz-Expires", "900") }, "<Code>SignatureDoesNotMatch<"},
		"too long a life":     {machine, 0, func(q url.Values, _ http.Header) { q.Set("X-Amz-Expires", "604801") }, "<Code>IncompleteSignature<"},
		"no life":             {machine, 0, func(q url.Values, _ http.Header) { q.Del("X-Amz-Expires") }, "<Code>IncompleteSignature<"},
		"without its session": {machine, 0, func(q url.Values, _ http.Header) { q.Del("X-Amz-Security-Token") }, "<Code>InvalidClientTokenId<"},
		"another's key": {machine, 0, func(q url.Values, _ http.Header) {
			q.Set("X-Amz-Credential", strings.Replace(q.Get("X-Amz-Credential"), "ASIA", "ASIB", 1))
		}, "<Code>InvalidClientTokenId<"},
		"another signature": {machine, 0, func(q url.Values, _ http.Header) { q.Set("X-Amz-Signature", strings.Repeat("0", 64)) }, "<Code>SignatureDoesNotMatch<"},
	} {
		t.Run(name, func(t *testing.T) {
			text, header := presigned(t, server.URL, tt.who, time.Now().Add(-tt.age))
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			if tt.change != nil {
				tt.change(q, header)
			}
			u.RawQuery = q.Encode()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			header.Del("Host")
			r.Header = header
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			good := answer.StatusCode == http.StatusOK
			if err != nil || good != strings.Contains(tt.want, "assumed-role") || !strings.Contains(string(body), tt.want) {
				t.Errorf("%d %s, %v, want %q", answer.StatusCode, body, err, tt.want)
			}
		})
	}
}
