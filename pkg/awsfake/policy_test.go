package awsfake_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// TestPolicy holds calls against a policy like the Lambda's: one zone, and only the cluster's names
// and types.
func TestPolicy(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: unlimited})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	admin, lambda := client(server.URL, "ADMIN", 1), client(server.URL, "LAMBDA", 1)
	zone, other := createZone(t, admin, "k8s"), createZone(t, admin, "other.k8s")
	arn := "arn:aws:route53:::" + zone[1:]
	const key, all = "route53:ChangeResourceRecordSets", "ForAllValues:StringLike"
	account.SetPolicy("LAMBDA", awsfake.Policy{
		{Actions: []string{"route53:List*"}, Resources: []string{arn}},
		{Actions: []string{key}, Resources: []string{arn}, Conditions: []awsfake.Condition{
			{Operator: all, Key: key + "NormalizedRecordNames", Patterns: []string{"*.demo.k8s"}},
			{Operator: all, Key: key + "RecordTypes", Patterns: []string{"A", "TXT"}},
			{Operator: all, Key: key + "Actions", Patterns: []string{"CREATE", "DELETE"}},
		}},
		{Deny: true, Actions: []string{key}, Resources: []string{"*"}, Conditions: []awsfake.Condition{
			{Operator: all, Key: key + "NormalizedRecordNames", Patterns: []string{"api.demo.k8s"}}, {Operator: all, Key: key + "Actions", Patterns: []string{"DELETE"}},
		}},
	})
	account.SetPolicy("LAMBDA2", nil)
	tests := []struct {
		name    string
		zone    string
		changes []types.Change
		allowed bool
	}{
		{"the cluster's record", zone, []types.Change{address("Masters.demo.k8s.", "10.0.0.1")}, true},
		{"another cluster's record", zone, []types.Change{address("masters.other.k8s", "10.0.0.1")}, false},
		{"one of each", zone, []types.Change{address("a.demo.k8s", "10.0.0.1"), address("a.prod.k8s", "10.0.0.1")}, false},
		{"a type that is not allowed", zone, []types.Change{create(set("x.demo.k8s", "CNAME", 5, "y.k8s"))}, false},
		{"an action that is not allowed", zone, []types.Change{upsert(set("x.demo.k8s", "A", 5, "10.0.0.1"))}, false},
		{"another zone", other, []types.Change{address("x.demo.k8s", "10.0.0.1")}, false},
		{"what is denied", zone, []types.Change{remove(set("api.demo.k8s", "A", 5, "10.0.0.1"))}, false},
	}
	for _, tt := range tests {
		_, err := change(t.Context(), lambda, tt.zone, tt.changes...)
		if tt.allowed && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		why := " because no identity-based policy allows the route53:ChangeResourceRecordSets action"
		if tt.name == "what is denied" {
			why = " with an explicit deny in an identity-based policy"
		}
		if !tt.allowed {
			wantRefusal(t, err, "AccessDenied", "User: arn:aws:iam::123456789012:user/LAMBDA is not authorized to perform: route53:ChangeResourceRecordSets on resource: arn:aws:route53:::"+tt.zone[1:]+why)
		}
	}
	if sets, _ := listAll(t, lambda, zone, 300); len(sets) != 3 {
		t.Errorf("the zone has %d sets, want its own two and the one allowed", len(sets))
	}
	_, err := lambda.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{Name: aws.String("x"), CallerReference: aws.String("x")})
	wantRefusal(t, err, "AccessDenied", "User: arn:aws:iam::123456789012:user/LAMBDA is not authorized to perform: route53:CreateHostedZone on resource: * because no identity-based policy allows the route53:CreateHostedZone action")
	if _, err = client(server.URL, "LAMBDA2", 1).ListHostedZonesByName(t.Context(), &route53.ListHostedZonesByNameInput{}); err == nil {
		t.Error("a key with an empty policy may list zones")
	}
}

// TestPolicyGrowth wants what widens a policy found through wildcards, and not where it is denied.
func TestPolicyGrowth(t *testing.T) {
	if got := (awsfake.Policy{{Actions: []string{"ec2:*tags"}}, {Deny: true, Actions: []string{"iam:*"}}, {Actions: []string{"ssm:Get*"}}}).Growth(); !slices.Equal(got, []string{"ec2:CreateTags", "ec2:DeleteTags"}) {
		t.Errorf("it grows by %q", got)
	}
	if got := awsfake.Administrator().Growth(); len(got) < 20 {
		t.Errorf("an administrator's grows by %q", got)
	}
}
