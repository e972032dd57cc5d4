package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/publish"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

const podDocument = `serviceAccounts: {issuer: "https://demo-tokens.s3.us-west-2.amazonaws.com"}
aws:
  podRoles:
  - {name: uploader, allow: [{actions: [s3:GetObject], resources: ["arn:aws:s3:::demo-data/*"]}]}
  - {name: other, namespace: kube-system, allow: [{actions: [s3:GetObject], resources: ["arn:aws:s3:::demo-tokens/*"]}]}
`

type podToken string

func (f podToken) GetIdentityToken() ([]byte, error) { return []byte(f), nil }

// TestPodRoles has the stack make the roles of the document's pods. A token of the cluster's key is worth just the role of its service
// account, and that is worth just what the document allows.
func TestPodRoles(t *testing.T) {
	_, account, conf, _ := newCluster(t)
	doc := complete(t, podDocument)
	c := cluster.New(cluster.Config{Document: doc, AWS: conf, Poll: time.Millisecond})
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	applied, err := c.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}})
	assert.NilError(t, err)

	for _, name := range []string{"demo-tokens", "demo-data"} {
		assert.NilError(t, account.S3().Create(awsfake.Bucket{Name: name}))
		account.S3().Set(name, "x", []byte("x"))
	}
	assert.NilError(t, account.S3().SetPolicy("demo-tokens", []byte(`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::demo-tokens/*"}]}`)))
	load := func(context.Context) (aws.Config, error) { return conf, nil }
	secrets, err := store.Open(t.Context(), store.Location{Kind: store.KindSSM, Root: "/hardtack/demo"}, load)
	assert.NilError(t, err)
	public, err := secrets.Get(t.Context(), pki.ServiceAccount+pki.Pub)
	assert.NilError(t, err)
	place, err := publish.Open(t.Context(), doc.Cluster.ServiceAccounts.PublishTo, load)
	assert.NilError(t, err)
	assert.NilError(t, publish.Issuer{URL: doc.PublicIssuer(), Place: place}.Publish(t.Context(), public))

	secret, err := secrets.Get(t.Context(), pki.ServiceAccount+pki.Key)
	assert.NilError(t, err)
	key, err := pki.ParseKey(secret)
	assert.NilError(t, err)
	id, err := issuer.KeyID(&key.PublicKey)
	assert.NilError(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	assert.NilError(t, err)
	take := func(role, namespace, account string) aws.Config {
		now := time.Now()
		text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: doc.PublicIssuer(), Subject: "system:serviceaccount:" + namespace + ":" + account, Audience: jwt.Audience{"sts.amazonaws.com"},
			IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Hour))}).Serialize()
		assert.NilError(t, err)
		arn := applied.PodRoles[role]
		assert.Assert(t, strings.HasPrefix(arn, "arn:aws:iam::"), "%s: %v", role, applied.PodRoles)
		as := conf
		as.RetryMaxAttempts = 1
		as.Credentials = stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(as), arn, podToken(text))
		return as
	}
	read := func(as aws.Config, bucket string) string {
		_, err := s3.NewFromConfig(as, func(o *s3.Options) { o.UsePathStyle = true }).GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("x")})
		var api smithy.APIError
		if errors.As(err, &api) {
			return api.ErrorCode()
		}
		assert.NilError(t, err)
		return "ok"
	}
	for _, tt := range []struct{ role, namespace, account, bucket, want string }{
		{"uploader", "default", "uploader", "demo-data", "ok"},
		{"uploader", "default", "uploader", "demo-tokens", "AccessDenied"},
		{"other", "kube-system", "other", "demo-tokens", "ok"},
		{"other", "kube-system", "other", "demo-data", "AccessDenied"},
	} {
		assert.Equal(t, read(take(tt.role, tt.namespace, tt.account), tt.bucket), tt.want, "%+v", tt)
	}
	for _, tt := range []struct{ role, namespace, account string }{
		{"uploader", "default", "other"}, {"uploader", "kube-system", "uploader"}, {"other", "default", "other"},
	} {
		_, err := take(tt.role, tt.namespace, tt.account).Credentials.Retrieve(t.Context())
		assert.ErrorContains(t, err, "AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity", "%+v", tt)
	}
	// What the document names no more is gone, with the credentials that were given out.
	as := take("uploader", "default", "uploader")
	assert.Equal(t, read(as, "demo-data"), "ok")
	without := cluster.New(cluster.Config{Document: complete(t), AWS: conf, Poll: time.Millisecond})
	_, err = without.Apply(t.Context(), cluster.ApplyOptions{})
	assert.NilError(t, err)
	_, err = take("uploader", "default", "uploader").Credentials.Retrieve(t.Context())
	assert.ErrorContains(t, err, "No OpenIDConnect provider found")
}
