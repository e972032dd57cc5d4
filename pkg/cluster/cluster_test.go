package cluster_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

const document = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"

func complete(t *testing.T) *spec.Complete {
	t.Helper()
	image, err := spec.ReadImage(units.FS, images.FS)
	assert.NilError(t, err)
	doc, problems := spec.Parse("cluster.yaml", []byte(document))
	assert.NilError(t, problems.Err())
	out, problems := doc.Complete(image)
	assert.NilError(t, problems.Err())
	return out
}

// newCluster is a cluster in an account with a subnet, and nothing else. It counts CloudFormation's events.
func newCluster(t *testing.T) (c *cluster.Cluster, account *awsfake.Account, conf aws.Config, events *int) {
	t.Helper()
	account = awsfake.New(awsfake.Options{Rates: map[string]float64{"route53": 0, "ssm:PutParameter": 0}})
	account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000a", VPC: "vpc-00000000000000001", Zone: "us-west-2a"})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	conf = aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil),
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}
	events = new(int)
	c = cluster.New(cluster.Config{Document: complete(t), AWS: conf, Poll: time.Millisecond, OnEvent: func(cloudformation.Event) { *events++ }})
	return c, account, conf, events
}

func createAuthorities(t *testing.T, conf aws.Config) {
	t.Helper()
	doc := complete(t)
	at, err := store.ParseLocation(doc.Cluster.Store)
	assert.NilError(t, err)
	secrets, err := store.Open(t.Context(), at, func(context.Context) (aws.Config, error) { return conf, nil })
	assert.NilError(t, err)
	_, err = authority.Create(t.Context(), secrets, doc.Info(), time.Now())
	assert.NilError(t, err)
}

// TestCluster runs a stack from its creation to its deletion through the package's API: missing resources are typed
// errors, a dry run changes nothing, and Delete removes everything.
func TestCluster(t *testing.T) {
	c, account, conf, events := newCluster(t)
	deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a"}}
	apply := func(o cluster.ApplyOptions) (*cluster.Applied, error) { return c.Apply(t.Context(), o) }

	_, err := apply(cluster.ApplyOptions{Deployment: deploy})
	assert.ErrorIs(t, err, pki.ErrNotFound)
	createAuthorities(t, conf)
	_, err = apply(cluster.ApplyOptions{})
	wrong := typed[*template.ParameterError](t, err)
	assert.Assert(t, slices.ContainsFunc(wrong.Wrong, func(w template.WrongParameter) bool { return w.Name == template.ParameterVPC }), "%v", wrong)
	_, err = apply(cluster.ApplyOptions{Deployment: deploy})
	assert.Equal(t, typed[*cluster.NoImageError](t, err).Channel, "stable")
	_, err = account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	_, err = apply(cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{template.ParameterMachines: template.MachinesYes}}})
	assert.Equal(t, typed[*cluster.TooEarlyError](t, err).Stack, "hardtack-demo")
	_, err = c.Status(t.Context())
	assert.ErrorIs(t, err, cloudformation.ErrNoStack)
	_, err = c.Refresh(t.Context(), cluster.RefreshOptions{})
	assert.ErrorIs(t, err, cloudformation.ErrNoStack)

	dry, err := apply(cluster.ApplyOptions{Deployment: deploy, DryRun: true})
	assert.NilError(t, err)
	assert.Assert(t, dry.Changed && len(dry.Changes) > 0 && dry.Zone == nil && *events == 0)
	deleted, err := c.Delete(t.Context(), cluster.DeleteOptions{})
	assert.NilError(t, err)
	assert.Assert(t, !deleted.Found, "a dry run made a stack")

	shown := 0
	applied, err := apply(cluster.ApplyOptions{Deployment: deploy, Protect: new(true), OnDiff: func(d *cluster.Diff) { shown = len(d.Changes) }})
	assert.NilError(t, err)
	assert.Assert(t, applied.Changed && applied.Empty && applied.Zone.Lowered && applied.ZoneID != "" && *events > 0)
	assert.Equal(t, shown, len(applied.Changes))
	same, err := c.Diff(t.Context(), cluster.Deployment{})
	assert.NilError(t, err)
	assert.Assert(t, same.Empty())
	status, err := c.Status(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(status.Groups), len(c.Groups()))

	_, err = c.Delete(t.Context(), cluster.DeleteOptions{})
	assert.Equal(t, typed[*cloudformation.ProtectedError](t, err).Stack, "hardtack-demo")
	_, err = apply(cluster.ApplyOptions{Protect: new(false)})
	assert.NilError(t, err)
	deleted, err = c.Delete(t.Context(), cluster.DeleteOptions{DryRun: true})
	assert.NilError(t, err)
	assert.Assert(t, deleted.Found && !deleted.Done && deleted.Zone != "" && len(deleted.Records) > 0)
	deleted, err = c.Delete(t.Context(), cluster.DeleteOptions{})
	assert.NilError(t, err)
	assert.Assert(t, deleted.Found && deleted.Done)
	assert.Assert(t, slices.ContainsFunc(deleted.Stays, func(l cluster.Left) bool { return l.Kind == cluster.LeftSecrets && l.Count > 0 }), "%v", deleted.Stays)
}

// typed returns the error as the wanted type. The text of the error must not name our commands or flags.
func typed[E error](t *testing.T, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("%v is no %T", err, e)
	}
	if text := err.Error(); strings.Contains(text, "hardtack stack") || strings.Contains(text, " --") {
		t.Errorf("words a command: %s", text)
	}
	return e
}
