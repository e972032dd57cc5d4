package lab

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

const issuerCluster = testCluster + `serviceAccounts: {issuer: "https://demo-tokens.s3.us-west-2.amazonaws.com/a"}
aws:
  podRoles:
  - {name: uploader, allow: [{actions: ["s3:PutObject"], resources: ["arn:aws:s3:::demo-data/*"]}]}
`

type podToken string

func (p podToken) GetIdentityToken() ([]byte, error) { return []byte(p), nil }

// TestIssuerOfLab asks a lab's STS for a pod's role, with tokens as the cluster's API server signs them: nobody has published the
// cluster's keys but the lab.
func TestIssuerOfLab(t *testing.T) {
	t.Parallel()
	plan, err := planOf(issuerCluster)
	if err != nil {
		t.Fatal(err)
	}
	_, c := up(t, plan)
	at, err := c.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := ownerOf(at)
	owner.RetryMaxAttempts = 1
	secrets := store.NewSSM(plan.Store, func(context.Context) (aws.Config, error) { return owner, nil })
	data, err := secrets.Get(t.Context(), pki.PublicIssuer)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := issuer.ParseRecord(data); err != nil || r.Issuer != plan.PublicIssuer() || r.To != plan.Cluster.ServiceAccounts.PublishTo {
		t.Errorf("for a rotation of the keys is written down %s, %v", data, err)
	}
	secret, err := secrets.Get(t.Context(), pki.ServiceAccount+pki.Key)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	id, err := issuer.KeyID(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	arn := roleOf(t, owner, "uploader")
	for account, want := range map[string]string{"uploader": "", "other": "AccessDenied"} {
		now := time.Now()
		text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: plan.PublicIssuer(), Subject: "system:serviceaccount:default:" + account,
			Audience: jwt.Audience{"sts.amazonaws.com"}, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Hour))}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		_, err = stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(owner), arn, podToken(text)).Retrieve(t.Context())
		var said smithy.APIError
		switch {
		case want == "" && err != nil:
			t.Errorf("the pods of %s get no role: %v", account, err)
		case want != "" && (!errors.As(err, &said) || said.ErrorCode() != want):
			t.Errorf("the pods of %s: %v, want %s", account, err, want)
		}
	}
}

// roleOf is the ARN of a role for pods, as the stack of the cluster demo tells it.
func roleOf(t *testing.T, owner aws.Config, name string) string {
	t.Helper()
	out, err := cloudformation.NewFromConfig(owner).DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: aws.String(cluster.StackName("demo"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out.Stacks[0].Outputs {
		if aws.ToString(o.OutputKey) == template.PodRoleOutput(name) {
			return aws.ToString(o.OutputValue)
		}
	}
	t.Fatalf("the stack has no role %s: %+v", name, out.Stacks[0].Outputs)
	return ""
}

// TestBucketOfLab tells the lab's buckets from other places.
func TestBucketOfLab(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"none", "dir:/srv/tokens", "s3://tokens?region=eu-central-1", "s3://tokens?endpoint=https://minio.example.org"} {
		if bucket, _, ok := bucketOfLab(to); ok {
			t.Errorf("%s is the lab's bucket %s", to, bucket)
		}
	}
	for to, want := range map[string][]string{"s3://tokens": {"tokens", ""}, "s3://tokens/a/b?region=us-west-2": {"tokens", "a/b/"}} {
		if bucket, prefix, ok := bucketOfLab(to); !ok || !slices.Equal([]string{bucket, prefix}, want) {
			t.Errorf("%s is %s, %s, %v; want %v", to, bucket, prefix, ok, want)
		}
	}
}
