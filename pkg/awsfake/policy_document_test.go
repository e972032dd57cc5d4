package awsfake

import (
	"strings"
	"testing"
)

// TestParsePolicyComplains wants everything that is wrong said at once.
func TestParsePolicyComplains(t *testing.T) {
	_, err := ParsePolicy([]byte(`{"Version": "2008-10-17", "Statement": {
		"Effect": "Maybe", "Principal": "*", "Action": ["GetObject", "*:Get"], "Resource": ["bucket", "arn:aws:*:::x"],
		"Condition": {"NumericLessThan": {"aws:MultiFactorAuthAge": 3600}, "ForSomeValues:StringLike": {"a": "b"}}}}`))
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		`the Version is "2008-10-17"`, `statement 1: Effect is "Maybe"`, "no Principal", `"GetObject" is no action`, `"*:Get" is no action`,
		`"bucket" is no ARN`, `"arn:aws:*:::x" is no ARN`, "NumericLessThan is not modelled", "ForSomeValues:StringLike is not modelled",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in\n%v", want, err)
		}
	}
	for name, document := range map[string]string{
		"no JSON": "{", "an unknown element": `{"Version": "2012-10-17", "Statements": []}`,
		"an unknown element of a statement": `{"Version": "2012-10-17", "Statement": [{"Efect": "Allow"}]}`,
		"neither action nor resource":       `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow"}]}`,
		"both of two":                       `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "NotAction": "*", "Resource": "*"}]}`,
	} {
		if _, err := ParsePolicy([]byte(document)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestPolicyEvaluation follows IAM's user guide, "IAM JSON policy elements reference".
func TestPolicyEvaluation(t *testing.T) {
	context := map[string][]string{
		"aws:username": {"anna"}, "aws:sourceip": {"10.1.2.3"}, "aws:currenttime": {"2026-03-01T12:00:00Z"}, "aws:resourcetag/role": {"masters"},
		"route53:names": {"a.demo.k8s", "b.demo.k8s"}, "aws:principalarn": {"arn:aws:iam::1:role/x/y"}, "aws:securetransport": {"false"},
	}
	tests := []struct {
		name, statement string
		want            bool
	}{
		{"a plain one", `"Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/k"`, true},
		{"an action in another case", `"Action": "S3:getobject", "Resource": "*"`, true},
		{"wildcards", `"Action": "s3:Get*", "Resource": "arn:*:s3:::?/*"`, true},
		{"another action", `"Action": "s3:Put*", "Resource": "*"`, false},
		{"another resource", `"Action": "*", "Resource": "arn:aws:s3:::b/K"`, false},
		{"not this action", `"NotAction": "s3:GetObject", "Resource": "*"`, false},
		{"not that action", `"NotAction": "iam:*", "Resource": "*"`, true},
		{"not this resource", `"Action": "*", "NotResource": "arn:aws:s3:::b/*"`, false},
		{"not that resource", `"Action": "*", "NotResource": "arn:aws:s3:::c/*"`, true},
		{"a variable of another value", `"Action": "*", "Resource": "arn:aws:s3:::${aws:username}/*"`, false},
		{"a variable without a value", `"Action": "*", "Resource": "arn:aws:s3:::b/${aws:none}*"`, false},
		{"equal", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"AWS:UserName": ["bert", "anna"]}}`, true},
		{"a wildcard where none is", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:username": "ann*"}}`, false},
		{"like", `"Action": "*", "Resource": "*", "Condition": {"StringLike": {"aws:username": "ann?"}}`, true},
		{"not equal", `"Action": "*", "Resource": "*", "Condition": {"StringNotEquals": {"aws:username": ["bert", "anna"]}}`, false},
		{"not equal, absent", `"Action": "*", "Resource": "*", "Condition": {"StringNotEquals": {"aws:none": "anna"}}`, true},
		{"equal, absent", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:none": "anna"}}`, false},
		{"equal if it exists, absent", `"Action": "*", "Resource": "*", "Condition": {"StringEqualsIfExists": {"aws:none": "anna"}}`, true},
		{"two conditions, one fails", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:username": "anna", "aws:ResourceTag/Role": "minions"}}`, false},
		{"all values", `"Action": "*", "Resource": "*", "Condition": {"ForAllValues:StringLike": {"route53:Names": "*.demo.k8s"}}`, true},
		{"all values, one fails", `"Action": "*", "Resource": "*", "Condition": {"ForAllValues:StringLike": {"route53:Names": "a.*"}}`, false},
		{"all values, absent", `"Action": "*", "Resource": "*", "Condition": {"ForAllValues:StringLike": {"route53:None": "a.*"}}`, true},
		{"any value", `"Action": "*", "Resource": "*", "Condition": {"ForAnyValue:StringLike": {"route53:Names": "a.*"}}`, true},
		{"any value, absent", `"Action": "*", "Resource": "*", "Condition": {"ForAnyValue:StringLike": {"route53:None": "*"}}`, false},
		{"null", `"Action": "*", "Resource": "*", "Condition": {"Null": {"route53:None": "true", "aws:username": false}}`, true},
		{"not null", `"Action": "*", "Resource": "*", "Condition": {"Null": {"route53:None": "false"}}`, false},
		{"an ARN", `"Action": "*", "Resource": "*", "Condition": {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/x/*"}}`, true},
		{"an ARN's wildcard over a colon", `"Action": "*", "Resource": "*", "Condition": {"ArnLike": {"aws:PrincipalArn": "arn:aws:*:role/x/y"}}`, false},
		{"an address", `"Action": "*", "Resource": "*", "Condition": {"IpAddress": {"aws:SourceIp": ["192.0.2.0/24", "10.0.0.0/8"]}}`, true},
		{"no such address", `"Action": "*", "Resource": "*", "Condition": {"NotIpAddress": {"aws:SourceIp": "10.1.2.3"}}`, false},
		{"a date", `"Action": "*", "Resource": "*", "Condition": {"DateLessThan": {"aws:CurrentTime": "2027-01-01T00:00:00Z"}}`, true},
		{"a date that is over", `"Action": "*", "Resource": "*", "Condition": {"DateGreaterThan": {"aws:CurrentTime": "2027-01-01T00:00:00Z"}}`, false},
		{"without TLS", `"Action": "*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": true}}`, false},
	}
	for _, tt := range tests {
		for effect, want := range map[string]verdict{"Allow": allowed, "Deny": denied} {
			p, err := ParsePolicy([]byte(`{"Version": "2012-10-17", "Statement": {"Effect": "` + effect + `", ` + tt.statement + `}}`))
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			policies := []Policy{p}
			if !tt.want {
				want = notAllowed
			}
			if effect == "Deny" {
				policies = append(policies, Administrator())
				if !tt.want {
					want = allowed
				}
			}
			if got := judge(policies, "s3:GetObject", "arn:aws:s3:::b/k", context); got != want {
				t.Errorf("%s, %s: %v, want %v", effect, tt.name, got, want)
			}
		}
	}
}
