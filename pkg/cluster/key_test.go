package cluster_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// with is the cluster with this aws.secretsKey in its document.
func with(t *testing.T, conf aws.Config, key string) *cluster.Cluster {
	t.Helper()
	return cluster.New(cluster.Config{Document: keyed(t, key), AWS: conf, Poll: time.Millisecond})
}

func keyed(t *testing.T, key string) *spec.Complete {
	t.Helper()
	image, err := spec.ReadImage(units.FS, images.FS)
	assert.NilError(t, err)
	doc, problems := spec.Parse("cluster.yaml", []byte(document+"aws: {secretsKey: "+key+"}\n"))
	assert.NilError(t, problems.Err())
	out, problems := doc.Complete(image)
	assert.NilError(t, problems.Err())
	return out
}

// A running cluster takes its secrets under a key and back, and is never told to do what takes them from its machines.
func TestSecretsKey(t *testing.T) {
	plain, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	deploy := cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}}
	_, err = plain.Apply(t.Context(), deploy)
	assert.NilError(t, err)
	as := func(conf aws.Config) *store.SSM {
		return store.NewSSM("/hardtack/demo", func(context.Context) (aws.Config, error) { return conf, nil })
	}
	stacks := &cloudformation.Stacks{API: sdk.NewFromConfig(conf), Clock: clock.System{}}
	machine := func(role string) *store.SSM {
		made, err := stacks.Resources(t.Context(), "hardtack-demo")
		assert.NilError(t, err)
		c, err := account.Issue(made["Role"+role].ID, "i-0123456789abcdef0", time.Hour)
		assert.NilError(t, err)
		own := conf
		own.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)
		return as(own)
	}
	reads := func() {
		t.Helper()
		_, err := machine("Masters").Get(t.Context(), pki.KubernetesCA+pki.Key)
		assert.NilError(t, err)
		_, err = machine("Minions").Get(t.Context(), pki.KubernetesCA+pki.Key)
		assert.ErrorIs(t, err, pki.ErrForbidden)
		assert.NilError(t, machine("Masters").Put(t.Context(), pki.BootstrapToken, []byte("a token")))
		_, err = machine("Minions").Get(t.Context(), pki.BootstrapToken)
		assert.NilError(t, err)
	}
	reads()

	keyed, operator := with(t, conf, spec.SecretsKeyStack), as(conf)
	arn, err := keyed.MakeKey(t.Context())
	assert.NilError(t, err)
	state, rotates := account.SSM().KeyState("alias/hardtack-demo")
	assert.Assert(t, state == awsfake.KeyEnabled && rotates && strings.HasPrefix(arn, "arn:aws:kms:us-west-2:"), "%s %v %s", state, rotates, arn)
	again, err := keyed.MakeKey(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, again, arn)

	assert.Equal(t, typed[*cluster.KeyNotAppliedError](t, keyed.Rekey(t.Context(), operator, nil)).Key, "alias/hardtack-demo")
	reads()
	_, err = keyed.Apply(t.Context(), cluster.ApplyOptions{})
	assert.NilError(t, err)
	reads()
	assert.NilError(t, keyed.Rekey(t.Context(), operator, nil))
	reads()
	p, _ := account.SSM().Parameter("/hardtack/demo/" + pki.BootstrapToken)
	assert.Equal(t, p.Key, "alias/hardtack-demo", "the token that a master has written")

	_, err = plain.Apply(t.Context(), cluster.ApplyOptions{})
	assert.Equal(t, typed[*cluster.KeyChangeError](t, err).Want, store.DefaultKey)
	account.SSM().AddKey("alias/other")
	other := with(t, conf, "alias/other")
	_, err = other.Apply(t.Context(), cluster.ApplyOptions{})
	assert.Equal(t, typed[*cluster.KeyChangeError](t, err).Want, "alias/other")
	assert.Equal(t, typed[*cluster.KeyChangeError](t, other.Rekey(t.Context(), operator, nil)).Have, "alias/hardtack-demo")
	reads()

	left, err := keyed.Left(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, slices.Contains(left, cluster.Left{Kind: cluster.LeftKey, Name: "hardtack-key-demo", Count: 1}), "%v", left)
	assert.NilError(t, (&cloudformation.Stacks{API: stacks.API, Clock: clock.System{}, Poll: time.Millisecond}).Delete(t.Context(), "hardtack-key-demo"))
	reads() // the key and its alias stay
	_, err = keyed.MakeKey(t.Context())
	assert.Equal(t, typed[*cluster.KeptKeyError](t, err).Alias, "alias/hardtack-demo")
	reads()

	assert.NilError(t, plain.Rekey(t.Context(), operator, nil))
	reads()
	_, err = plain.Apply(t.Context(), cluster.ApplyOptions{})
	assert.NilError(t, err)
	reads()
}

// The policy that the doctor prints is enough to read what etcd's members report, under that key and in that store alone; without it the
// doctor says what is missing.
func TestPermissionsOfSecretsKey(t *testing.T) {
	for _, by := range []string{"alias", "ARN"} {
		t.Run(by, func(t *testing.T) {
			_, account, _, _ := newCluster(t)
			admin := signed(t, account, "admin", awsfake.Administrator())
			key, other := account.SSM().AddKey("alias/hardtack-demo"), account.SSM().AddKey("alias/other")
			if by == "alias" {
				key = spec.SecretsKeyStack
			}
			put := func(root, key, object string) {
				s := store.NewSSM(root, func(context.Context) (aws.Config, error) { return admin, nil })
				assert.NilError(t, s.SetKey(t.Context(), key))
				assert.NilError(t, s.Put(t.Context(), object, []byte("x")))
			}
			put("/hardtack/demo", other, etcd.StatusObject("b"))
			put("/hardtack/demo", keyed(t, key).SecretsKey(), etcd.StatusObject("a"))
			put("/hardtack/demo2", keyed(t, key).SecretsKey(), etcd.StatusObject("a"))
			text, err := with(t, admin, key).Permissions(t.Context(), cluster.Deployment{})
			assert.NilError(t, err)
			policy, err := awsfake.ParsePolicy(text)
			assert.NilError(t, err)
			read := func(conf aws.Config, root, object string) error {
				_, err := store.NewSSM(root, func(context.Context) (aws.Config, error) { return conf, nil }).Get(t.Context(), object)
				return err
			}
			enough := signed(t, account, "operator", policy)
			assert.NilError(t, read(enough, "/hardtack/demo", etcd.StatusObject("a")))
			assert.ErrorIs(t, read(enough, "/hardtack/demo", etcd.StatusObject("b")), pki.ErrForbidden)
			open := append(slices.Clone(policy), awsfake.Statement{Actions: []string{"ssm:GetParameter"}, Resources: []string{"*"}})
			assert.ErrorContains(t, read(signed(t, account, "open", open), "/hardtack/demo2", etcd.StatusObject("a")), "kms:Decrypt")

			deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: testVPC, template.ParameterSubnets: testSubnet}}
			assert.Equal(t, len(checksOf(with(t, enough, key).Doctor(t.Context(), deploy), "permissions.secrets", doctor.OK)), 1)
			less := append(slices.Clone(policy), awsfake.Statement{Deny: true, Actions: []string{"kms:Decrypt"}, Resources: []string{"*"}})
			refused := checksOf(with(t, signed(t, account, "less", less), key).Doctor(t.Context(), deploy), "permissions.secrets", doctor.Error)
			assert.Assert(t, len(refused) == 1 && strings.Contains(refused[0], "decrypting what etcd's members report: kms:Decrypt on "), "%q", refused)
		})
	}
}

// moto makes the key's stack, too, without its tags: it takes those only as KMS itself writes them (5.2.1).
func TestSecretsKeyOnMoto(t *testing.T) {
	url := moto.Start(t)
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &url, HTTPClient: awshttp.Client(nil), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
	stacks := &cloudformation.Stacks{API: sdk.NewFromConfig(conf), Clock: clock.System{}}
	key := template.Key(keyed(t, spec.SecretsKeyStack))
	delete(key.Resources["Key"].Properties, "Tags")
	body, err := key.YAML()
	assert.NilError(t, err)
	_, err = stacks.API.CreateStack(t.Context(), &sdk.CreateStackInput{StackName: aws.String("key"), TemplateBody: aws.String(string(body))})
	assert.NilError(t, err)
	made, err := stacks.Describe(t.Context(), "key")
	assert.NilError(t, err)
	assert.Assert(t, strings.HasPrefix(made.Outputs[template.OutputKey], "arn:aws:kms:us-west-2:"), "%v", made)
}

// TestKeyThatVolumesHave: the volumes of a stack without etcd.key have the account's own key, and to write that is a change all the same.
func TestKeyThatVolumesHave(t *testing.T) {
	account, apply := applied(t)
	const balanced = "aws: {loadBalancer: internal}\n"
	assert.NilError(t, apply(balanced))
	err := apply(balanced + "etcd: {key: '" + account.EC2().Volumes()[0].Key + "'}\n")
	var refused *cluster.VolumesError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "write etcd.key as it was") {
		t.Errorf("got %v", err)
	}
	assert.NilError(t, apply(balanced))
}
