package awsfake

import (
	"strings"
	"testing"
)

// TestParsePolicyComplains wants everything that is wrong said at once.
func TestParsePolicyComplains(t *testing.T) {
	_, err := ParsePolicy([]byte(`{"Version": "2008-10-17", "Statement": {
		"Effect": "Maybe", "Action": ["GetObject", "*:Get"], "Resource": ["bucket", "arn:aws:*:::x"],
		"Condition": {"NumericLessThan": {"aws:MultiFactorAuthAge": 3600}, "ForSomeValues:StringLike": {"a": "b"}}}}`))
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		`the Version is "2008-10-17"`, `statement 1: Effect is "Maybe"`, `"GetObject" is no action`, `"*:Get" is no action`,
		`"bucket" is no ARN`, `"arn:aws:*:::x" is no ARN`, "NumericLessThan is not modelled", "ForSomeValues:StringLike is not modelled",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in\n%v", want, err)
		}
	}
	for name, document := range map[string]string{
		"no JSON": "{", "an unknown element": `{"Version": "2012-10-17", "Statements": []}`,
		"an unknown element of a statement": `{"Version": "2012-10-17", "Statement": [{"Efect": "Allow"}]}`,
		"a policy variable":                 `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "arn:aws:s3:::${aws:username}/*"}]}`,
		"a principal":                       `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]}`,
		"no action":                         `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "NotAction": "*", "Resource": "*"}]}`,
		"neither action nor resource":       `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow"}]}`,
	} {
		if _, err := ParsePolicy([]byte(document)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestPolicyEvaluation follows IAM's user guide, "IAM JSON policy elements reference".
func TestPolicyEvaluation(t *testing.T) {
	context := map[string][]string{
		"aws:username": {"anna"}, "ssm:recursive": {"true"}, "ssm:overwrite": {"false"}, "aws:resourcetag/role": {"masters"},
		"route53:names": {"a.demo.k8s", "b.demo.k8s"}, "aws:principalarn": {"arn:aws:iam::1:role/x/y"},
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
		{"equal", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"AWS:UserName": ["bert", "anna"]}}`, true},
		{"a wildcard where none is", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:username": "ann*"}}`, false},
		{"like", `"Action": "*", "Resource": "*", "Condition": {"StringLike": {"aws:username": "ann?"}}`, true},
		{"equal, absent", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:none": "anna"}}`, false},
		{"not equal", `"Action": "*", "Resource": "*", "Condition": {"StringNotEquals": {"aws:username": "bert"}}`, true},
		{"not equal, but is", `"Action": "*", "Resource": "*", "Condition": {"StringNotEquals": {"aws:username": ["bert", "anna"]}}`, false},
		{"not equal, absent", `"Action": "*", "Resource": "*", "Condition": {"StringNotEquals": {"aws:none": "anna"}}`, true},
		{"two conditions, one fails", `"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"aws:username": "anna", "aws:ResourceTag/Role": "minions"}}`, false},
		{"all values", `"Action": "*", "Resource": "*", "Condition": {"ForAllValues:StringLike": {"route53:Names": "*.demo.k8s"}}`, true},
		{"all values, one fails", `"Action": "*", "Resource": "*", "Condition": {"ForAllValues:StringLike": {"route53:Names": "a.*"}}`, false},
		{"all values, absent", `"Action": "*", "Resource": "*", "Condition": {"ForAllValues:StringLike": {"route53:None": "a.*"}}`, true},
		{"null", `"Action": "*", "Resource": "*", "Condition": {"Null": {"route53:None": "true", "aws:username": false}}`, true},
		{"true", `"Action": "*", "Resource": "*", "Condition": {"Bool": {"ssm:Recursive": true}}`, true},
		{"not true", `"Action": "*", "Resource": "*", "Condition": {"Bool": {"ssm:Overwrite": true}}`, false},
		{"not null", `"Action": "*", "Resource": "*", "Condition": {"Null": {"route53:None": "false"}}`, false},
		{"an ARN", `"Action": "*", "Resource": "*", "Condition": {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/x/*"}}`, true},
		{"an ARN's wildcard over a colon", `"Action": "*", "Resource": "*", "Condition": {"ArnLike": {"aws:PrincipalArn": "arn:aws:*:role/x/y"}}`, false},
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
			if got := judge(policies, "s3:GetObject", "arn:aws:s3:::b/k", question{values: context}); got != want {
				t.Errorf("%s, %s: %v, want %v", effect, tt.name, got, want)
			}
		}
	}
}
