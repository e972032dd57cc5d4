package spec_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"gotest.tools/v3/assert"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	documents "github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/publish"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

const (
	bucketIssuer = "https://demo-tokens.s3.us-west-2.amazonaws.com"
	atSTS        = "sts.amazonaws.com"
)

// cloud is an account whose STS takes the tokens of a cluster: its provider, a public bucket, and a role for one service account.
type cloud struct {
	account *awsfake.Account
	clock   *awsfake.VirtualClock
	url     string
	issuer  publish.Issuer
}

// anybody reads the account's bucket as a stranger does.
type anybody struct{ s3 *awsfake.S3 }

func (a anybody) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	bucket, ours := strings.CutSuffix(r.URL.Host, ".s3.us-west-2.amazonaws.com")
	data, err := a.s3.Public(bucket, strings.TrimPrefix(r.URL.Path, "/"))
	if !ours || err != nil {
		w.WriteHeader(http.StatusForbidden)
	}
	_, _ = w.Write(data) // a recorder takes everything
	return w.Result(), nil
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{clock: awsfake.NewVirtualClock(time.Now())}
	c.account = awsfake.New(awsfake.Options{Clock: c.clock, Closed: true})
	server := httptest.NewServer(c.account.Handler())
	t.Cleanup(server.Close)
	c.url = server.URL
	assert.NilError(t, c.account.S3().Create(awsfake.Bucket{Name: "demo-tokens"}))
	assert.NilError(t, c.account.S3().SetPolicy("demo-tokens", []byte(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
		"Resource": ["arn:aws:s3:::demo-tokens/.well-known/openid-configuration", "arn:aws:s3:::demo-tokens/openid/v1/jwks"]}]}`)))
	provider, err := c.account.AddOIDCProvider(bucketIssuer, atSTS)
	assert.NilError(t, err)
	c.account.AddRole("uploader")
	name := strings.TrimPrefix(bucketIssuer, "https://")
	assert.NilError(t, c.account.SetTrust("uploader", fmt.Appendf(nil, `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Federated": %q}, "Action": "sts:AssumeRoleWithWebIdentity",
		"Condition": {"StringEquals": {"%s:aud": %q, "%s:sub": "system:serviceaccount:default:uploader"}}}]}`, provider, name, atSTS, name)))
	operator := c.account.AddUser("operator", awsfake.Administrator())
	place, err := publish.Open(t.Context(), "s3://demo-tokens?region=us-west-2", func(context.Context) (aws.Config, error) {
		return aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider(operator.AccessKey, operator.Secret, "")}, nil
	})
	assert.NilError(t, err)
	c.issuer = publish.Issuer{URL: bucketIssuer, Place: place, Client: &http.Client{Transport: anybody{c.account.S3()}}}
	return c
}

type fixedToken string

func (f fixedToken) GetIdentityToken() ([]byte, error) { return []byte(f), nil }

// take takes the role with a token, as the SDK of a pod does, and returns who it is then, or STS's error code and text.
func (c *cloud) take(t *testing.T, token string) string {
	t.Helper()
	client := sts.New(sts.Options{Region: "us-west-2", BaseEndpoint: &c.url, RetryMaxAttempts: 1})
	p := stscreds.NewWebIdentityRoleProvider(client, "arn:aws:iam::123456789012:role/uploader", fixedToken(token), func(o *stscreds.WebIdentityRoleOptions) { o.RoleSessionName = "pod" })
	keys, err := p.Retrieve(t.Context())
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode() + ": " + api.ErrorMessage()
	}
	assert.NilError(t, err)
	who, err := sts.New(sts.Options{Region: "us-west-2", BaseEndpoint: &c.url, Credentials: credentials.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken)}).
		GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	assert.NilError(t, err)
	return *who.Arn
}

// token has the API server mint a token for a service account; without audiences it is for the API server itself.
func (c *live) token(t *testing.T, account string, seconds int, audiences ...string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"audiences": audiences, "expirationSeconds": seconds}})
	assert.NilError(t, err)
	code, text := c.try(t.Context(), c.admin(), http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/"+account+"/token", "", string(body))
	assert.Equal(t, code, http.StatusCreated, text)
	var answer struct{ Status struct{ Token string } }
	assert.NilError(t, json.Unmarshal([]byte(text), &answer))
	return answer.Status.Token
}

// claims are a token's header and its claims.
func claims(t *testing.T, token string) (header struct{ Kid, Alg string }, body struct {
	Iss string
	Aud []string
}) {
	t.Helper()
	parts := strings.Split(token, ".")
	for i, into := range []any{&header, &body} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		assert.NilError(t, err)
		assert.NilError(t, json.Unmarshal(data, into))
	}
	return header, body
}

// takes asserts whether the API server takes a token.
func (c *live) takes(t *testing.T, what, token string, want int) {
	t.Helper()
	who := &rest.Config{Host: "https://127.0.0.1:" + c.api, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}}
	code, text := c.try(t.Context(), who, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", "", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	assert.Equal(t, code, want, "%s: %s", what, text)
}

// public are the public keys in the store.
func (c *live) public(t *testing.T) []byte {
	t.Helper()
	data, err := c.store.Get(t.Context(), pki.ServiceAccount+pki.Pub)
	assert.NilError(t, err)
	return data
}

// sameAsServed asserts that what is published is, byte for byte, what the API server serves.
func (c *live) sameAsServed(t *testing.T, objects map[string][]byte) {
	t.Helper()
	for _, path := range []string{documents.ConfigurationPath, documents.KeysPath} {
		code, text := c.try(t.Context(), c.admin(), http.MethodGet, "/"+path, "", "")
		assert.Equal(t, code, http.StatusOK, text)
		assert.Equal(t, string(objects[path]), text, "what is published at %s (left), and what the API server serves", path)
	}
}

// TestPodsTakeRoles runs the real etcd and API server. A cluster that runs gets an issuer that AWS can ask; then a pod's token is worth a
// role at STS, while others are not; and the key is replaced under both.
func TestPodsTakeRoles(t *testing.T) {
	c := liveCluster(t, realPrograms(t, spec.DefaultVersion), issuerDocument)
	for _, name := range []string{"uploader", "other"} {
		c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"`+name+`"}}`, http.StatusCreated, "")
	}
	before := c.token(t, "uploader", 7200)
	a := newCloud(t)
	document := issuerDocument + "serviceAccounts: {issuer: " + bucketIssuer + "}\n"
	const taken = "arn:aws:sts::123456789012:assumed-role/uploader/pod"

	// Several masters: the first accepts what the second will sign, before that does.
	first := issuerDocument + "serviceAccounts: {acceptedIssuers: [" + bucketIssuer + "]}\n"
	c.serve(t, c.machine(t, first))
	_, body := claims(t, c.token(t, "uploader", 3600))
	assert.Equal(t, body.Iss, "https://masters.demo.k8s")
	c.takes(t, "a token of before", before, http.StatusCreated)
	c.serve(t, c.machine(t, document))
	after := c.token(t, "uploader", 7200)
	_, body = claims(t, after)
	assert.Equal(t, body.Iss, bucketIssuer)
	assert.Assert(t, !slices.Contains(body.Aud, atSTS), "tokens for the API server are for %v", body.Aud)
	c.takes(t, "a token of before", before, http.StatusCreated)
	c.takes(t, "a token of after", after, http.StatusCreated)
	c.serve(t, c.machine(t, first)) // the other master
	c.takes(t, "the other's token", after, http.StatusCreated)
	c.serve(t, c.machine(t, document))

	forAWS := c.token(t, "uploader", 7200, atSTS)
	assert.Assert(t, strings.HasPrefix(a.take(t, forAWS), "IDPCommunicationError: "), "before the keys are published: %s", a.take(t, forAWS))
	assert.NilError(t, a.issuer.Publish(t.Context(), c.public(t)))
	assert.NilError(t, a.issuer.Check(t.Context(), c.public(t)))
	c.sameAsServed(t, a.account.S3().Objects("demo-tokens"))
	assert.Equal(t, a.take(t, forAWS), taken)
	c.takes(t, "a token for AWS", forAWS, http.StatusUnauthorized)
	short := c.token(t, "uploader", 600, atSTS)
	assert.Equal(t, a.take(t, short), taken)
	a.clock.Advance(11 * time.Minute)
	for _, tt := range []struct{ name, token, want string }{
		{"another service account", c.token(t, "other", 3600, atSTS), "AccessDenied: "},
		{"a token for the API server", after, "InvalidIdentityToken: Incorrect token audience"},
		{"a token for somebody else", c.token(t, "uploader", 3600, "vault"), "InvalidIdentityToken: Incorrect token audience"},
		{"the old issuer's", before, "InvalidIdentityToken: No OpenIDConnect provider found"},
		{"an expired one", short, "ExpiredTokenException: "},
	} {
		got := a.take(t, tt.token)
		assert.Assert(t, strings.HasPrefix(got, tt.want), "%s: %s, want %s", tt.name, got, tt.want)
	}
	t.Run("the documented pod", func(t *testing.T) { c.documentedPod(t, a, taken) })
	t.Run("rotation", func(t *testing.T) { c.rotatesKey(t, a, document, forAWS, taken) })
}

// documentedPod creates the pod of cmd/hardtack/README.md, and does what its kubelet and its SDK do: the volume's token, for the pod, in the
// file that the SDK's variables name.
func (c *live) documentedPod(t *testing.T, a *cloud, taken string) {
	t.Helper()
	text, err := os.ReadFile("../../cmd/hardtack/README.md")
	assert.NilError(t, err)
	_, block, ok := strings.Cut(string(text), "```yaml\napiVersion: v1\nkind: Pod\n")
	assert.Assert(t, ok, "the README has no pod")
	block, _, _ = strings.Cut("apiVersion: v1\nkind: Pod\n"+block, "```")
	code, said := c.try(t.Context(), c.admin(), http.MethodPost, "/api/v1/namespaces/default/pods", "application/yaml", block)
	assert.Equal(t, code, http.StatusCreated, said)
	var pod corev1.Pod
	assert.NilError(t, json.Unmarshal([]byte(said), &pod))
	env := map[string]string{}
	for _, v := range pod.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	var file, token string
	for _, v := range pod.Spec.Volumes {
		for _, m := range pod.Spec.Containers[0].VolumeMounts {
			if v.Name != "aws" || m.Name != v.Name {
				continue
			}
			source := v.Projected.Sources[0].ServiceAccountToken
			file = path.Join(m.MountPath, source.Path)
			token = c.podToken(t, pod, source)
		}
	}
	assert.Equal(t, file, env["AWS_WEB_IDENTITY_TOKEN_FILE"])
	assert.Equal(t, env["AWS_ROLE_ARN"], "arn:aws:iam::123456789012:role/uploader")
	assert.Equal(t, a.take(t, token), taken)
	// The usual token of the same pod is worth nothing there.
	assert.Assert(t, strings.HasPrefix(a.take(t, c.podToken(t, pod, &corev1.ServiceAccountTokenProjection{})), "InvalidIdentityToken: "))
}

// podToken is the token of a volume's source, as the kubelet asks for it.
func (c *live) podToken(t *testing.T, pod corev1.Pod, source *corev1.ServiceAccountTokenProjection) string {
	t.Helper()
	request := authv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, Spec: authv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds, BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	body, err := json.Marshal(request)
	assert.NilError(t, err)
	code, text := c.try(t.Context(), c.admin(), http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/"+pod.Spec.ServiceAccountName+"/token", "", string(body))
	assert.Equal(t, code, http.StatusCreated, text)
	assert.NilError(t, json.Unmarshal([]byte(text), &request))
	return request.Status.Token
}

// rotatesKey replaces the key step by step. Tokens of both keys are good while both are published, and the old one's no longer.
func (c *live) rotatesKey(t *testing.T, a *cloud, document, old, taken string) {
	t.Helper()
	rotate := func(i authority.Issuer) (authority.Rotation, error) {
		return authority.RotateAuthority(t.Context(), c.store, "demo", pki.ServiceAccount, authority.RotateOptions{Now: time.Now(), Taken: true, Issuer: i})
	}
	var replaced string
	for _, step := range []string{pki.StepAdded, pki.StepUsed, pki.StepNone} {
		state, err := rotate(a.issuer)
		assert.NilError(t, err)
		assert.Equal(t, state.Step, step)
		c.serve(t, c.machine(t, document))
		c.sameAsServed(t, a.account.S3().Objects("demo-tokens"))
		now := c.token(t, "uploader", 7200, atSTS)
		assert.Equal(t, a.take(t, now), taken, "a new token at the step %s", step)
		oldHeader, _ := claims(t, old)
		header, _ := claims(t, now)
		assert.Equal(t, header.Kid != oldHeader.Kid, step != pki.StepAdded, "which key signs at the step %s", step)
		if step != pki.StepNone {
			assert.Equal(t, a.take(t, old), taken, "the old token at the step %s", step)
			continue
		}
		got := a.take(t, old)
		assert.Assert(t, strings.HasPrefix(got, "InvalidIdentityToken: Couldn't retrieve verification key"), "a token of the retired key: %s", got)
		replaced = now
	}
	// The fault that the check is there for: without it the next key signs tokens that nobody outside can verify.
	unpublished := a.issuer
	unpublished.Place = nil
	_, err := rotate(unpublished)
	assert.NilError(t, err)
	_, err = rotate(unpublished)
	var unverifiable *publish.UnverifiableError
	assert.Assert(t, errors.As(err, &unverifiable), "%v", err)
	assert.Equal(t, len(unverifiable.Problems), 1, "%v", err)
	_, err = rotate(nil)
	assert.NilError(t, err)
	c.serve(t, c.machine(t, document))
	got := a.take(t, c.token(t, "uploader", 3600, atSTS))
	assert.Assert(t, strings.HasPrefix(got, "InvalidIdentityToken: Couldn't retrieve verification key"), "%s", got)
	assert.NilError(t, a.issuer.Publish(t.Context(), c.public(t)))
	for _, token := range []string{replaced, c.token(t, "uploader", 3600, atSTS)} {
		assert.Equal(t, a.take(t, token), taken)
	}
}
