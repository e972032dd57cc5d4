package spec_test

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
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

const uploaderRole = "serviceAccounts: {issuer: https://id.example.org}\naws: {podRoles: [{name: uploader, allow: [{actions: [s3:GetObject], resources: [\"*\"]}]}]}\n"

// TestPodRolesOfADocument: what a role leaves out follows from its name, a complete document says the same again, and what cannot work
// is refused.
func TestPodRolesOfADocument(t *testing.T) {
	c := complete(t, issuerDocument+uploaderRole)
	assert.Equal(t, c.Cluster.AWS.PodRoles[0].Subject(), "system:serviceaccount:default:uploader")
	assert.Equal(t, c.Origins["aws.podRoles[0].serviceAccount"].String(), "derived (aws.podRoles[0].name)")
	for _, tt := range []struct{ name, text, want string }{
		{"no issuer", strings.Replace(uploaderRole, "serviceAccounts: {issuer: https://id.example.org}\n", "", 1), "only the cluster knows"},
		{"a port", strings.Replace(uploaderRole, "id.example.org", "id.example.org:8443", 1), "no issuer with a port"},
		{"nothing allowed", strings.Replace(uploaderRole, `, allow: [{actions: [s3:GetObject], resources: ["*"]}]`, "", 1), "the role may do nothing"},
		{"an action", strings.Replace(uploaderRole, "s3:GetObject", "GetObject", 1), `"GetObject" is not an action`},
		{"a resource", strings.Replace(uploaderRole, `"*"`, "bucket", 1), `"bucket" is neither an ARN`},
		{"a policy", strings.Replace(uploaderRole, "allow:", "policies: [AdministratorAccess], allow:", 1), "is not the ARN of a managed policy"},
		{"one name for two", strings.Replace(uploaderRole, "podRoles: [", "podRoles: [{name: up-loader, policies: [\"arn:aws:iam::aws:policy/x\"]}, ", 1), "is already at aws.podRoles[0]"},
		{"a namespace", strings.Replace(uploaderRole, "name: uploader", "name: uploader, namespace: a.b", 1), "is not the name of a namespace"},
	} {
		text := refused(t, issuerDocument+tt.text)
		assert.Assert(t, strings.Contains(text, tt.want), "%s: %s", tt.name, text)
	}
}

// refused returns the findings of a document that is refused.
func refused(t *testing.T, text string) string {
	t.Helper()
	c, problems := spec.Parse("cluster.yaml", []byte(text))
	if problems.Err() == nil {
		_, problems = c.Complete(readImage(t))
	}
	assert.Assert(t, problems.Err() != nil, "it is taken:\n%s", text)
	return problems.Err().Error()
}
