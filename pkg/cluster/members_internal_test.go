package cluster

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// What members report is read from the cluster's store, with the newest epoch; what may not be read is said.
func TestReports(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm:PutParameter": 0}})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	keys := credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")
	m := &members{clock: clock.System{}, store: store.NewSSM("/hardtack/demo", func(context.Context) (aws.Config, error) {
		return aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), Credentials: keys}, nil
	})}
	put := func(object string, content []byte) {
		t.Helper()
		assert.NilError(t, m.store.Put(t.Context(), object, content))
	}
	got, err := m.Reports(t.Context(), []string{"a", "b"})
	assert.NilError(t, err)
	assert.Equal(t, got.Epoch, 0)
	assert.Equal(t, len(got.Members), 0)
	assert.Assert(t, time.Since(got.At).Abs() < time.Minute)

	begin := etcd.Begin{Token: "t", Members: []etcd.Peer{{Name: "a", URL: "https://a:2380"}}}
	status := etcd.Status{At: time.Now().UTC().Truncate(time.Second), Instance: "i-1", Volume: "vol-1", Epoch: 2, Row: etcd.SRuns}
	put(etcd.BeginObject(1), etcd.Encode(begin))
	put(etcd.BeginObject(2), etcd.Encode(begin.Next("u")))
	put(etcd.StatusObject("b"), etcd.Encode(status))
	got, err = m.Reports(t.Context(), []string{"a", "b"})
	assert.NilError(t, err)
	assert.Equal(t, got.Epoch, 2)
	assert.Equal(t, len(got.Members), 1)
	assert.DeepEqual(t, got.Members["b"], status)

	put(etcd.BeginObject(3), etcd.Encode(begin.Next("v")))
	put(etcd.StatusObject("b"), []byte(`{"format":99}`))
	_, err = m.Reports(t.Context(), []string{"b"})
	assert.ErrorIs(t, err, etcd.ErrNewer)
	assert.ErrorContains(t, err, "etcd's member b")
	assert.Equal(t, m.epoch, 3)

	account.SetPolicy("AKIDEXAMPLE", awsfake.Policy{})
	got, err = m.Reports(t.Context(), []string{"b"})
	assert.NilError(t, err)
	assert.Assert(t, got.Unread != "" && len(got.Members) == 0 && got.Epoch == 0, "%+v", got)
}
