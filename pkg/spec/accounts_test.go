package spec_test

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const issuerDocument = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"

// TestIssuer: the first issuer signs, and a running cluster's tokens stay good when it changes.
func TestIssuer(t *testing.T) {
	const own = "--service-account-issuer=https://masters.demo.k8s"
	for _, tt := range []struct {
		name, text, to string
		want           []string
	}{
		{"nothing", "", "none", []string{own}},
		{"a bucket by its host", "serviceAccounts: {issuer: https://demo-tokens.s3.eu-central-1.amazonaws.com/demo}", "s3://demo-tokens/demo?region=eu-central-1",
			[]string{"--service-account-issuer=https://demo-tokens.s3.eu-central-1.amazonaws.com/demo", own,
				"--service-account-jwks-uri=https://demo-tokens.s3.eu-central-1.amazonaws.com/demo/openid/v1/jwks"}},
		{"a bucket by its path", "serviceAccounts: {issuer: https://s3.cn-north-1.amazonaws.com.cn/tokens/a/b}", "s3://tokens/a/b?region=cn-north-1",
			[]string{"--service-account-issuer=https://s3.cn-north-1.amazonaws.com.cn/tokens/a/b", own,
				"--service-account-jwks-uri=https://s3.cn-north-1.amazonaws.com.cn/tokens/a/b/openid/v1/jwks"}},
		{"another server", "serviceAccounts: {issuer: https://id.example.org, publishTo: dir:/srv/www}", "dir:/srv/www",
			[]string{"--service-account-issuer=https://id.example.org", own, "--service-account-jwks-uri=https://id.example.org/openid/v1/jwks"}},
		{"only accepted yet", "serviceAccounts: {acceptedIssuers: [https://tokens.s3.us-west-2.amazonaws.com]}", "s3://tokens?region=us-west-2",
			[]string{own, "--service-account-issuer=https://tokens.s3.us-west-2.amazonaws.com"}},
		{"the old one no longer", "serviceAccounts: {issuer: https://id.example.org, acceptedIssuers: []}", "none",
			[]string{"--service-account-issuer=https://id.example.org", "--service-account-jwks-uri=https://id.example.org/openid/v1/jwks"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := complete(t, issuerDocument+tt.text+"\n")
			assert.Equal(t, c.Cluster.ServiceAccounts.PublishTo, tt.to)
			group, err := c.Group("masters")
			assert.NilError(t, err)
			got := newGuest(t, c, group).arguments(t, "kube-apiserver.service", "kube-apiserver")
			got = slices.DeleteFunc(got, func(a string) bool {
				return !strings.HasPrefix(a, "--service-account-issuer=") && !strings.HasPrefix(a, "--service-account-jwks-uri=")
			})
			assert.DeepEqual(t, got, tt.want)
		})
	}
}
