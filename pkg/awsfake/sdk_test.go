package awsfake_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// unlimited is for tests that are not about the rate.
var unlimited = map[string]float64{"route53": 0}

// serve starts the account's handler and returns a real client of it that does not retry.
func serve(t *testing.T, o awsfake.Options) (*awsfake.Account, *route53.Client) {
	t.Helper()
	account := awsfake.New(o)
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	return account, client(server.URL, "AKIDEXAMPLE", 1)
}

func client(url, key string, attempts int) *route53.Client {
	return route53.New(route53.Options{
		Region: "eu-central-1", BaseEndpoint: &url, RetryMaxAttempts: attempts, HTTPClient: awshttp.Client(nil),
		Credentials: credentials.NewStaticCredentialsProvider(key, "secret", ""),
	})
}

// vpc is the one of the tests' private zones.
var vpc = types.VPC{VPCId: aws.String("vpc-0123456789abcdef0"), VPCRegion: types.VPCRegionEuCentral1}

func createZone(t *testing.T, c *route53.Client, name string) string {
	t.Helper()
	out, err := c.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{
		Name: &name, CallerReference: aws.String(t.Name() + name), VPC: &vpc,
		HostedZoneConfig: &types.HostedZoneConfig{Comment: aws.String("made by " + t.Name()), PrivateZone: true},
	})
	if err != nil {
		t.Fatalf("creating zone %s: %v", name, err)
	}
	return *out.HostedZone.Id
}

func set(name, kind string, ttl int64, values ...string) *types.ResourceRecordSet {
	s := &types.ResourceRecordSet{Name: &name, Type: types.RRType(kind), TTL: &ttl}
	for _, v := range values {
		s.ResourceRecords = append(s.ResourceRecords, types.ResourceRecord{Value: &v})
	}
	return s
}

func create(s *types.ResourceRecordSet) types.Change {
	return types.Change{Action: types.ChangeActionCreate, ResourceRecordSet: s}
}

func remove(s *types.ResourceRecordSet) types.Change {
	return types.Change{Action: types.ChangeActionDelete, ResourceRecordSet: s}
}

func upsert(s *types.ResourceRecordSet) types.Change {
	return types.Change{Action: types.ChangeActionUpsert, ResourceRecordSet: s}
}

func change(ctx context.Context, c *route53.Client, zone string, changes ...types.Change) (*types.ChangeInfo, error) {
	out, err := c.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: &zone, ChangeBatch: &types.ChangeBatch{Changes: changes},
	})
	if err != nil {
		return nil, err
	}
	return out.ChangeInfo, nil
}

// wantRefusal checks an API error's code and message.
func wantRefusal(t *testing.T, err error, code, message string) {
	t.Helper()
	var refusal smithy.APIError
	switch {
	case !errors.As(err, &refusal):
		t.Errorf("got %v, want a refusal with %s", err, code)
	case refusal.ErrorCode() != code || refusal.ErrorMessage() != message:
		t.Errorf("got  %s: %s\nwant %s: %s", refusal.ErrorCode(), refusal.ErrorMessage(), code, message)
	}
}
