package awsfake_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
)

const (
	tokenIssuer = "https://id.example.org/demo"
	podSubject  = "system:serviceaccount:default:uploader"
	uploader    = "arn:aws:iam::123456789012:role/uploader"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// trustOf is a role's trust policy as IRSA has it.
func trustOf(provider, subject string) []byte {
	name := strings.TrimPrefix(tokenIssuer, "https://")
	return fmt.Appendf(nil, `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Federated": %q}, "Action": "sts:AssumeRoleWithWebIdentity",
		"Condition": {"StringEquals": {"%s:aud": "sts.amazonaws.com", "%s:sub": %q}}}]}`, provider, name, name, subject)
}

// idp is an identity provider that publishes what it is told to.
type idp struct {
	keys      []*ecdsa.PrivateKey
	documents map[string][]byte
	status    int
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	p := &idp{status: http.StatusOK}
	for range 2 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		p.keys = append(p.keys, key)
	}
	p.publish(t, tokenIssuer, &p.keys[0].PublicKey)
	return p
}

func (p *idp) publish(t *testing.T, url string, keys ...*ecdsa.PublicKey) {
	t.Helper()
	documents, err := issuer.Documents(url, keys)
	must(t, err)
	p.documents = map[string][]byte{}
	for _, d := range documents {
		p.documents["/demo/"+d.Path] = d.Content
	}
}

// RoundTrip answers STS in the place of the Internet.
func (p *idp) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	data, ok := p.documents[r.URL.Path]
	if !ok || r.URL.Scheme != "https" || r.URL.Host != "id.example.org" {
		return nil, errors.New("there is no such host")
	}
	w.WriteHeader(p.status)
	_, err := w.Write(data)
	return w.Result(), err
}

// token signs claims with one of the keys; edits replace or, with nil, remove some.
func (p *idp) token(t *testing.T, key int, now time.Time, edits map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": tokenIssuer, "sub": podSubject, "aud": []string{"sts.amazonaws.com"}, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(claims, edits)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	id, err := issuer.KeyID(&p.keys[key].PublicKey)
	must(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.keys[key], KeyID: id}}, nil)
	must(t, err)
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	must(t, err)
	return text
}

// TestWebIdentity: a role's credentials are for who has a token of the provider, signed with a published key, of the right audience and
// subject, in its time. Everybody else gets STS's refusal.
func TestWebIdentity(t *testing.T) {
	p := newIDP(t)
	clock := awsfake.NewVirtualClock(start)
	account := awsfake.New(awsfake.Options{Clock: clock, Closed: true, Web: &http.Client{Transport: p}})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	account.AddRole("uploader")
	account.AddRole("machine")
	provider, err := account.AddOIDCProvider(tokenIssuer, "sts.amazonaws.com")
	must(t, err)
	must(t, account.SetTrust("uploader", trustOf(provider, podSubject)))
	must(t, account.SetTrust("machine", []byte(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}`)))
	client := sts.New(sts.Options{Region: "us-west-2", BaseEndpoint: &server.URL, RetryMaxAttempts: 1})
	ask := func(role, token string, edit func(*sts.AssumeRoleWithWebIdentityInput)) (*sts.AssumeRoleWithWebIdentityOutput, error) {
		in := &sts.AssumeRoleWithWebIdentityInput{RoleArn: &role, RoleSessionName: aws.String("pod"), WebIdentityToken: &token}
		if edit != nil {
			edit(in)
		}
		return client.AssumeRoleWithWebIdentity(t.Context(), in)
	}
	now := clock.Now()
	good := p.token(t, 0, now, nil)
	out, err := ask(uploader, good, nil)
	must(t, err)
	equal(t, *out.AssumedRoleUser.Arn, "arn:aws:sts::123456789012:assumed-role/uploader/pod")
	equal(t, *out.SubjectFromWebIdentityToken, podSubject)
	equal(t, *out.Audience, "sts.amazonaws.com")
	equal(t, *out.Provider, provider)
	equal(t, *out.Credentials.Expiration, now.Add(time.Hour))
	who, err := sts.NewFromConfig(config(server.URL, awsfake.Credentials{AccessKey: *out.Credentials.AccessKeyId, Secret: *out.Credentials.SecretAccessKey, Token: *out.Credentials.SessionToken}, nil)).
		GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	must(t, err)
	equal(t, *who.Arn, *out.AssumedRoleUser.Arn)

	unsigned, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(strings.Repeat("k", 32))}, nil)
	must(t, err)
	symmetric, err := jwt.Signed(unsigned).Claims(jwt.Claims{Issuer: tokenIssuer}).Serialize()
	must(t, err)
	for _, tt := range []struct {
		name, role, token, want string
		edit                    func(*sts.AssumeRoleWithWebIdentityInput)
		published               func()
	}{
		{name: "another subject", token: p.token(t, 0, now, map[string]any{"sub": "system:serviceaccount:default:default"}), want: "AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity"},
		{name: "another namespace", token: p.token(t, 0, now, map[string]any{"sub": "system:serviceaccount:kube-system:uploader"}), want: "AccessDenied: Not authorized"},
		{name: "another audience", token: p.token(t, 0, now, map[string]any{"aud": []string{tokenIssuer}}), want: "InvalidIdentityToken: Incorrect token audience"},
		{name: "another issuer", token: p.token(t, 0, now, map[string]any{"iss": "https://id.example.org"}), want: "InvalidIdentityToken: No OpenIDConnect provider found in your account for https://id.example.org"},
		{name: "an expired token", token: p.token(t, 0, now.Add(-time.Hour), nil), want: "ExpiredTokenException: Token expired"},
		{name: "a token of tomorrow", token: p.token(t, 0, now.Add(24*time.Hour), nil), want: "InvalidIdentityToken: Token is not yet valid"},
		{name: "without an end", token: p.token(t, 0, now, map[string]any{"exp": nil}), want: "InvalidIdentityToken: Missing a required claim"},
		{name: "a key that is not published", token: p.token(t, 1, now, nil), want: "InvalidIdentityToken: Couldn't retrieve verification key"},
		{name: "a signature of another text", token: forge(good), want: "InvalidIdentityToken: Provided Token signature is invalid"},
		{name: "a shared secret", token: symmetric, want: "InvalidIdentityToken: The ID Token provided is not a valid JWT"},
		{name: "no token", token: "nonsense", want: "InvalidIdentityToken: The ID Token provided is not a valid JWT"},
		{name: "a machine's role", role: "arn:aws:iam::123456789012:role/machine", token: good, want: "AccessDenied: Not authorized"},
		{name: "no role", role: "arn:aws:iam::123456789012:role/none", token: good, want: "AccessDenied: Not authorized"},
		{name: "another account's", role: "arn:aws:iam::210987654321:role/uploader", token: good, want: "AccessDenied: Not authorized"},
		{name: "no ARN", role: "the-uploader-of-the-account", token: good, want: "ValidationError: Request ARN is invalid"},
		{name: "longer than the role's", token: good, want: "ValidationError: The requested DurationSeconds exceeds", edit: func(in *sts.AssumeRoleWithWebIdentityInput) { in.DurationSeconds = aws.Int32(7200) }},
		{name: "shorter than a session", token: good, want: "ValidationError: 1 validation error", edit: func(in *sts.AssumeRoleWithWebIdentityInput) { in.DurationSeconds = aws.Int32(60) }},
		{name: "a session's name", token: good, want: "ValidationError: 1 validation error", edit: func(in *sts.AssumeRoleWithWebIdentityInput) { in.RoleSessionName = aws.String("a b") }},
		{name: "nothing published", token: good, want: "IDPCommunicationError: ", published: func() { p.documents = nil }},
		{name: "published for who may", token: good, want: "IDPCommunicationError: ", published: func() { p.status = http.StatusForbidden }},
		{name: "another's documents", token: good, want: "InvalidIdentityToken: Couldn't retrieve", published: func() { p.publish(t, "https://id.example.org", &p.keys[0].PublicKey) }},
		{name: "the issuer's documents for another host's keys", token: good, want: "IDPCommunicationError: ", published: func() {
			path := "/demo/" + issuer.ConfigurationPath
			p.documents[path] = []byte(strings.ReplaceAll(string(p.documents[path]), "id.example.org/demo/openid", "else.example.org/openid"))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.published != nil {
				tt.published()
				defer func() {
					p.publish(t, tokenIssuer, &p.keys[0].PublicKey)
					p.status = http.StatusOK
				}()
			}
			role := tt.role
			if role == "" {
				role = uploader
			}
			_, err := ask(role, tt.token, tt.edit)
			var api smithy.APIError
			if !errors.As(err, &api) {
				t.Fatal(err)
			}
			if said := api.ErrorCode() + ": " + api.ErrorMessage(); !strings.HasPrefix(said, tt.want) {
				t.Errorf("%s, want %s", said, tt.want)
			}
		})
	}
	// The table leaves nothing behind; and both keys are good while both are published.
	p.publish(t, tokenIssuer, &p.keys[0].PublicKey, &p.keys[1].PublicKey)
	for i := range p.keys {
		_, err := ask(uploader, p.token(t, i, now, nil), nil)
		must(t, err)
	}
	// A denial wins.
	must(t, account.SetTrust("uploader", []byte(strings.Replace(string(trustOf(provider, podSubject)), `"Statement": [`,
		`"Statement": [{"Effect": "Deny", "Principal": {"Federated": "`+provider+`"}, "Action": "sts:AssumeRoleWithWebIdentity"}, `, 1))))
	_, err = ask(uploader, good, nil)
	equal(t, codeOf(err), "AccessDenied")
}

// forge replaces the claims of a token, and keeps its signature.
func forge(token string) string {
	parts := strings.Split(token, ".")
	claims := fmt.Sprintf(`{"iss":%q,"sub":%q,"aud":["sts.amazonaws.com"],"iat":%d,"exp":%d}`, tokenIssuer, podSubject, start.Unix(), start.Add(2*time.Hour).Unix())
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + parts[2]
}

// TestPublicBucket: STS reads an issuer's documents from a bucket, as far as everybody may.
func TestPublicBucket(t *testing.T) {
	const url = "https://demo-tokens.s3.us-west-2.amazonaws.com"
	p := newIDP(t)
	clock := awsfake.NewVirtualClock(start)
	account := awsfake.New(awsfake.Options{Clock: clock, Closed: true})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	must(t, account.S3().Create(awsfake.Bucket{Name: "demo-tokens"}))
	documents, err := issuer.Documents(url, []*ecdsa.PublicKey{&p.keys[0].PublicKey})
	must(t, err)
	for _, d := range documents {
		account.S3().Set("demo-tokens", d.Path, d.Content)
	}
	provider, err := account.AddOIDCProvider(url, "sts.amazonaws.com")
	must(t, err)
	account.AddRole("uploader")
	must(t, account.SetTrust("uploader", []byte(strings.ReplaceAll(string(trustOf(provider, podSubject)), strings.TrimPrefix(tokenIssuer, "https://"), strings.TrimPrefix(url, "https://")))))
	token := p.token(t, 0, clock.Now(), map[string]any{"iss": url})
	client := sts.New(sts.Options{Region: "us-west-2", BaseEndpoint: &server.URL, RetryMaxAttempts: 1})
	_, err = stscreds.NewWebIdentityRoleProvider(client, uploader, fixed(token)).Retrieve(t.Context())
	equal(t, codeOf(err), "IDPCommunicationError")
	must(t, account.S3().SetPolicy("demo-tokens", []byte(`{"Version": "2012-10-17", "Statement": [{"Sid": "Read", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
		"Resource": ["arn:aws:s3:::demo-tokens/.well-known/openid-configuration", "arn:aws:s3:::demo-tokens/openid/v1/jwks"]}]}`)))
	_, err = stscreds.NewWebIdentityRoleProvider(client, uploader, fixed(token)).Retrieve(t.Context())
	must(t, err)
}

type fixed string

func (f fixed) GetIdentityToken() ([]byte, error) { return []byte(f), nil }

// TestWebIdentityAgainstMoto: moto looks at no signature, and at no time, audience or session's name; what it answers to a good token is of the same form.
func TestWebIdentityAgainstMoto(t *testing.T) {
	theirs := moto.Start(t)
	p := newIDP(t)
	account := awsfake.New(awsfake.Options{Web: &http.Client{Transport: p}})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	account.AddRole("uploader")
	provider, err := account.AddOIDCProvider(tokenIssuer, "sts.amazonaws.com")
	must(t, err)
	must(t, account.SetTrust("uploader", trustOf(provider, podSubject)))
	token := p.token(t, 0, time.Now(), nil)
	said := map[string]string{}
	for name, url := range map[string]string{"moto": theirs, "awsfake": server.URL} {
		client := sts.New(sts.Options{Region: "us-west-2", BaseEndpoint: &url, RetryMaxAttempts: 1})
		out, err := client.AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{RoleArn: aws.String(uploader), RoleSessionName: aws.String("pod"), WebIdentityToken: &token})
		must(t, err)
		left := time.Until(*out.Credentials.Expiration).Round(time.Minute)
		said[name] = fmt.Sprint(*out.AssumedRoleUser.Arn, (*out.Credentials.AccessKeyId)[:4], left, strings.Contains(*out.AssumedRoleUser.AssumedRoleId, ":pod"))
	}
	equal(t, said["awsfake"], said["moto"])
}
