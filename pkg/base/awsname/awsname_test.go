package awsname_test

import (
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsname"
)

func TestForms(t *testing.T) {
	for _, tt := range []struct {
		name string
		is   func(string) bool
		yes  []string
		no   []string
	}{
		{"region", awsname.IsRegion, []string{"eu-central-1", "us-gov-west-1", "ap-southeast-5", "cn-north-1"}, []string{"", "eu", "eu-central", "eu-central-1a", "EU-central-1"}},
		{"partition", awsname.IsPartition, []string{"aws", "aws-cn", "aws-us-gov", "aws-iso-b"}, []string{"", "foo", "AWS", "aws:", "aws*"}},
		{"account", awsname.IsAccount, []string{"123456789012"}, []string{"", "12345678901", "1234567890123", "12345678901a"}},
		{"key", awsname.IsKey,
			[]string{"arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab", "arn:aws-cn:kms:cn-north-1:123456789012:key/mrk-1", "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/a"},
			[]string{"", "alias/x", "arn:aws:kms:eu-central-1:123456789012:alias/x", "arn:other:kms:eu-central-1:123456789012:key/a"}},
		{"organisation", awsname.IsOrganisation,
			[]string{"arn:aws:organizations::123456789012:organization/o-abcdefghij", "arn:aws:organizations::123456789012:ou/o-abcdefghij/ou-abcd-abcdefgh"},
			[]string{"", "o-abcdefghij", "arn:aws:organizations::123456789012:account/o-abcdefghij/123456789012"}},
	} {
		for _, text := range tt.yes {
			if !tt.is(text) {
				t.Errorf("%q is no %s", text, tt.name)
			}
		}
		for _, text := range tt.no {
			if tt.is(text) {
				t.Errorf("%q is a %s", text, tt.name)
			}
		}
	}
}
