package cluster_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

const (
	testVPC    = "vpc-00000000000000001"
	testSubnet = "subnet-0000000000000000a"
)

// signed is an account in which everybody signs: of an administrator, and of a user with these policies.
func signed(t *testing.T, account *awsfake.Account, name string, policies ...awsfake.Policy) aws.Config {
	t.Helper()
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	keys := account.AddUser(name, policies...)
	return aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), Credentials: credentials.NewStaticCredentialsProvider(keys.AccessKey, keys.Secret, "")}
}

func checksOf(list doctor.List, prefix string, state doctor.State) (out []string) {
	for _, c := range list {
		if strings.HasPrefix(c.Name, prefix) && c.State == state {
			out = append(out, c.Name+": "+c.Text)
		}
	}
	return out
}

// Before anything is made, the doctor finds what apply would stumble over, each with a next step; once all of it is put right, it finds
// nothing, and the policy that it prints is enough for itself and for apply.
func TestDoctor(t *testing.T) {
	_, account, _, _ := newCluster(t)
	admin := signed(t, account, "admin", awsfake.Administrator())
	deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: testVPC, template.ParameterSubnets: testSubnet}}
	as := func(conf aws.Config) *cluster.Cluster {
		return cluster.New(cluster.Config{Document: complete(t), AWS: conf, Poll: time.Millisecond})
	}
	calls := account.Calls()["cloudformation:CreateChangeSet"]
	list := as(admin).Doctor(t.Context(), deploy)
	for _, want := range []string{
		"secrets: there are no authorities", "image: reading the image of channel stable: there is none", "quotas.vcpus.standard: virtual processors of on-demand instances of the types A, C, D, H, I, M, R, T and Z: 0 of 5 are used",
		"network.dns: " + testVPC + " has enableDnsHostnames off", "network.reach." + testSubnet + ": it has no route to everywhere, and there is no way to autoscaling (no endpoint), ec2 (no endpoint), s3 (no endpoint), ssm (no endpoint), sts (no endpoint)",
	} {
		assert.Assert(t, slices.ContainsFunc(checksOf(list, "", doctor.Error), func(have string) bool { return strings.HasPrefix(have, want) }), "%s\nis not in\n%s", want, strings.Join(checksOf(list, "", doctor.Error), "\n"))
	}
	assert.ErrorContains(t, list.Err(), "5 of ")
	for _, c := range list {
		assert.Assert(t, c.State == doctor.OK || c.Next != "", "%+v", c)
	}
	assert.Assert(t, len(checksOf(list, "permissions", doctor.OK)) > 6)

	createAuthorities(t, admin)
	put := func(id string) {
		_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: id}, true)
		assert.NilError(t, err)
	}
	put("ami-0000000000000000f")
	assert.DeepEqual(t, checksOf(as(admin).Doctor(t.Context(), deploy), "image", doctor.Error),
		[]string{"image: starting machines from image ami-0000000000000000f of channel stable: EC2 shows these credentials no such image in us-west-2"})
	put("ami-0000000000000000a")
	account.SetQuota("L-1216C47A", 64)
	account.EC2().SetVPC(testVPC, awsfake.VPCAttributes{Support: true, Hostnames: true})
	account.EC2().AddRouteTable(awsfake.RouteTable{ID: "rtb-00000000000000001", VPC: testVPC, Main: true, Way: "nat-00000000000000001"})
	list = as(admin).Doctor(t.Context(), deploy)
	assert.NilError(t, list.Err(), "%+v", list)
	assert.Equal(t, list.Count(doctor.Warning), 0, "%+v", list)
	assert.Equal(t, account.Calls()["cloudformation:CreateChangeSet"], calls, "it has made something")

	// The VPC's own addresses are those of its local routes, one for each of its blocks.
	account.EC2().SetVPC(testVPC, awsfake.VPCAttributes{Support: true, Hostnames: true, Ranges: []string{"10.0.0.0/16", "10.247.128.0/17"}})
	assert.DeepEqual(t, checksOf(as(admin).Doctor(t.Context(), deploy), "network.ranges", doctor.Error),
		[]string{"network.ranges: network.podCIDR 10.244.0.0/14 overlaps 10.247.128.0/17 of " + testVPC + ": what machines send to each other there would go to pods or Services"})
	account.EC2().SetVPC(testVPC, awsfake.VPCAttributes{Support: true, Hostnames: true})
	assert.DeepEqual(t, checksOf(as(admin).Doctor(t.Context(), deploy), "network.ranges", doctor.OK),
		[]string{"network.ranges: pods and Services have no addresses of " + testVPC + " (10.0.0.0/16)"})

	// Who may not simulate is told so; who lacks a permission, which one.
	text, err := as(admin).Permissions(t.Context(), deploy)
	assert.NilError(t, err)
	policy, err := awsfake.ParsePolicy(text)
	assert.NilError(t, err)
	enough := signed(t, account, "operator", policy)
	list = as(enough).Doctor(t.Context(), deploy)
	assert.Equal(t, len(checksOf(list, "", doctor.Error))+len(checksOf(list, "", doctor.Warning)), 0, "%+v", list)
	blind := append(slices.Clone(policy), awsfake.Statement{Deny: true, Actions: []string{"iam:SimulatePrincipalPolicy"}, Resources: []string{"*"}})
	list = as(signed(t, account, "blind", blind)).Doctor(t.Context(), deploy)
	assert.Equal(t, len(checksOf(list, "permissions", doctor.Warning)), 1, "%+v", list)
	assert.NilError(t, list.Err())
	less := append(slices.Clone(policy), awsfake.Statement{Deny: true, Actions: []string{"autoscaling:PutLifecycleHook"}, Resources: []string{"*"}})
	list = as(signed(t, account, "less", less)).Doctor(t.Context(), deploy)
	for _, have := range checksOf(list, "permissions.groups", doctor.Error) {
		assert.Assert(t, strings.Contains(have, "autoscaling:PutLifecycleHook on ") && strings.HasSuffix(have, ": an explicit denial"), "%s", have)
	}
	assert.Equal(t, len(checksOf(list, "permissions.groups", doctor.Error)), 2)
	_, err = as(enough).Apply(t.Context(), cluster.ApplyOptions{Deployment: deploy})
	assert.NilError(t, err)
	list = as(enough).Doctor(t.Context(), cluster.Deployment{})
	assert.NilError(t, list.Err(), "%+v", list)
	assert.DeepEqual(t, checksOf(list, "stack", doctor.OK), []string{"stack: stack hardtack-demo is CREATE_COMPLETE"})

	// Strangers are asked nothing more.
	stranger := enough.Copy()
	stranger.Credentials = credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")
	list = as(stranger).Doctor(t.Context(), deploy)
	assert.Assert(t, len(list) == 1 && list[0].Name == "credentials" && list[0].State == doctor.Error && list[0].Next != "", "%+v", list)
}

// Load balancers are counted where the stack has one, and its own not against it; a policy of an endpoint that keeps machines' calls back is
// found also where there is another way out.
func TestDoctorCountsBalancers(t *testing.T) {
	_, account, _, _ := newCluster(t)
	admin := signed(t, account, "admin", awsfake.Administrator())
	c := cluster.New(cluster.Config{Document: complete(t, "aws: {loadBalancer: internal}\n"), AWS: admin, Poll: time.Millisecond})
	deploy := cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: testVPC, template.ParameterSubnets: testSubnet, template.ParameterBalancer: testSubnet}}
	createAuthorities(t, admin)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	account.SetQuota("L-1216C47A", 64)
	account.SetQuota("L-69A177A2", 0)
	account.EC2().SetVPC(testVPC, awsfake.VPCAttributes{Support: true, Hostnames: true})
	account.EC2().AddRouteTable(awsfake.RouteTable{ID: "rtb-00000000000000001", VPC: testVPC, Main: true, Way: "nat-00000000000000001"})
	account.EC2().AddEndpoint(awsfake.Endpoint{ID: "vpce-00000000000000001", VPC: testVPC, Service: "com.amazonaws.us-west-2.ssm", Type: "Interface", State: "available", PrivateNames: true,
		Policy: `{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "ssm:Describe*", "Resource": "*"}]}`})
	account.EC2().AddEndpoint(awsfake.Endpoint{ID: "vpce-00000000000000002", VPC: testVPC, Service: "com.amazonaws.us-west-2.ec2", Type: "Interface", State: "available", PrivateNames: true})
	list := c.Doctor(t.Context(), deploy)
	assert.DeepEqual(t, checksOf(list, "quotas.", doctor.Error), []string{"quotas.balancers: network load balancers of the region: 0 of 0 are used, and the cluster has up to 1: 1 too few"})
	assert.DeepEqual(t, checksOf(list, "quotas.targets", doctor.OK), []string{"quotas.targets: target groups of the region: 0 of 3000 are used, and the cluster has up to 1"})
	refused := checksOf(list, "network.endpoint", doctor.Error)
	assert.Assert(t, len(refused) == 1 && strings.HasPrefix(refused[0], "network.endpoint.vpce-00000000000000001: its policy lets no call of ssm:GetParameter"), "%q", refused)
	assert.Equal(t, len(checksOf(list, "network.endpoint.vpce-00000000000000002", doctor.OK)), 1)

	account.SetQuota("L-69A177A2", 1)
	_, err = c.Apply(t.Context(), cluster.ApplyOptions{Deployment: deploy})
	assert.NilError(t, err)
	assert.DeepEqual(t, checksOf(c.Doctor(t.Context(), cluster.Deployment{}), "quotas.balancers", doctor.OK),
		[]string{"quotas.balancers: network load balancers of the region: 0 of 1 are used, and the cluster has up to 1"})
}

// One apply reads the channel's image once: what it needs, and its version, are of the same answer.
func TestApplyReadsTheImageOnce(t *testing.T) {
	c, account, conf, _ := newCluster(t)
	createAuthorities(t, conf)
	_, err := account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true)
	assert.NilError(t, err)
	_, err = c.Apply(t.Context(), cluster.ApplyOptions{Deployment: cluster.Deployment{Parameters: map[string]string{template.ParameterVPC: testVPC, template.ParameterSubnets: testSubnet}}})
	assert.NilError(t, err)
	assert.Equal(t, account.Calls()["ec2:DescribeImages"], 1)
}
