package template_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The region and the account of both moto and the stand-in.
const (
	region    = "us-west-2"
	accountID = "123456789012"
)

// call is a request by a machine of a group, and whether the group's role allows it.
type call struct {
	group, action string
	// subject is the name of a parameter or a group, or empty.
	subject string
	allowed bool
}

const (
	get      = "ssm:GetParameter"
	put      = "ssm:PutParameter"
	remove   = "ssm:DeleteParameter"
	finish   = "autoscaling:CompleteLifecycleAction"
	beat     = "autoscaling:RecordLifecycleActionHeartbeat"
	scale    = "autoscaling:SetDesiredCapacity"
	state    = "autoscaling:DescribeAutoScalingInstances"
	groups   = "autoscaling:DescribeAutoScalingGroups"
	hooks    = "autoscaling:DescribeLifecycleHooks"
	machines = "ec2:DescribeInstances"
	volumes  = "ec2:DescribeVolumes"
	end      = "ec2:TerminateInstances"
	store    = "s3:PutObject"
	load     = "s3:GetObject"
	list     = "s3:ListBucket"
	drop     = "s3:DeleteObject"
	zoneRead = "route53:ListResourceRecordSets"
	records  = "route53:ChangeResourceRecordSets"
)

const (
	root  = "/hardtack/demo/"
	other = "/hardtack/other/"
	// private has the credentials of a registry, whose port is behind an underscore.
	private = "minions/registries/registry.example.org_5000"
)

// calls are the requests that each role needs, and those that it must not make. The stand-in and moto both judge them.
var calls = []call{
	{"demo-minions", get, root + pki.BootstrapToken, true}, {"demo-minions", get, root + pki.PublicKubernetes, true},
	{"demo-minions", finish, "demo-minions", false}, {"demo-minions", beat, "demo-minions", false}, {"demo-minions", state, "", true},
	{"demo-minions", get, root + pki.KubernetesCA + pki.Key, false}, {"demo-minions", get, root + pki.KubernetesCA + pki.Crt, false},
	{"demo-minions", get, root + pki.ServiceAccount + pki.Key, false}, {"demo-minions", get, root + pki.EtcdClientCA + pki.Key, false},
	{"demo-minions", get, other + pki.BootstrapToken, false}, {"demo-minions", put, root + pki.BootstrapToken, false},
	{"demo-minions", remove, root + pki.BootstrapToken, false}, {"demo-minions", finish, "demo-masters", false},
	{"demo-minions", beat, "demo-masters", false}, {"demo-minions", finish, "other-minions", false}, {"demo-minions", scale, "demo-minions", false},
	{"demo-minions", groups, "", false}, {"demo-minions", machines, "", false}, {"demo-minions", end, "", false},
	{"demo-minions", zoneRead, "", false}, {"demo-minions", records, "", false},

	{"demo-minions", get, root + private, true}, {"demo-minions", put, root + private, false}, {"demo-minions", remove, root + private, false},
	{"demo-minions", get, other + private, false}, {"demo-masters", get, root + private, false}, {"demo-etcd-a", get, root + private, false},

	{"demo-masters", get, root + pki.KubernetesCA + pki.Key, true}, {"demo-masters", get, root + pki.EncryptionKey, true},
	{"demo-masters", get, root + pki.EtcdClientCA + pki.Key, true}, {"demo-masters", get, root + pki.BootstrapToken, true},
	{"demo-masters", put, root + pki.BootstrapToken, true}, {"demo-masters", finish, "demo-masters", true}, {"demo-masters", beat, "demo-masters", true},
	{"demo-masters", state, "", true}, {"demo-masters", machines, "", true}, {"demo-masters", groups, "", true},
	{"demo-masters", get, root + pki.EtcdPeerCA + pki.Key, false}, {"demo-masters", get, other + pki.KubernetesCA + pki.Key, false},
	{"demo-masters", get, root + pki.KubeletServingCA + pki.Key, true}, {"demo-masters", put, root + pki.KubeletServingCA + pki.Key, false},
	{"demo-minions", get, root + pki.KubeletServingCA + pki.Key, false}, {"demo-etcd-a", get, root + pki.KubeletServingCA + pki.Key, false},
	{"demo-masters", put, root + pki.KubernetesCA + pki.Key, false}, {"demo-masters", remove, root + pki.KubernetesCA + pki.Key, false},
	{"demo-masters", finish, "demo-minions", true}, {"demo-masters", beat, "demo-minions", true}, {"demo-masters", hooks, "", true},
	{"demo-masters", finish, "demo-etcd-a", false}, {"demo-masters", beat, "demo-etcd-a", false}, {"demo-masters", finish, "other-minions", false},
	{"demo-minions", hooks, "", false}, {"demo-etcd-a", hooks, "", false}, {"demo-etcd-a", finish, "demo-minions", false},
	{"demo-masters", scale, "demo-masters", false}, {"demo-masters", end, "", false},
	{"demo-masters", zoneRead, "", false}, {"demo-masters", records, "", false},

	{"demo-etcd-a", get, root + pki.EtcdPeerCA + pki.Key, true}, {"demo-etcd-a", get, root + pki.EtcdClientCA + pki.Crt, true},
	{"demo-etcd-a", get, root + pki.PublicKubernetes, true}, {"demo-etcd-a", finish, "demo-etcd-a", true}, {"demo-etcd-a", state, "", true},
	{"demo-etcd-a", get, root + pki.KubernetesCA + pki.Key, false}, {"demo-etcd-a", get, root + pki.BootstrapToken, false},
	{"demo-etcd-a", finish, "demo-etcd-b", false}, {"demo-etcd-a", machines, "", true}, {"demo-etcd-a", groups, "", false}, {"demo-etcd-a", volumes, "", true},
	{"demo-masters", volumes, "", false}, {"demo-minions", volumes, "", false}, {"demo-etcd-a", end, "", false}, {"demo-etcd-a", records, "", false},
}

// backups are requests about the bucket of etcd's backups. They are the stand-in's to judge by pkg/etcd/backup, and moto's here.
var backups = []call{
	{"demo-etcd-a", store, "/demo/1/x.db", true}, {"demo-etcd-a", load, "/demo/1/x.db", true}, {"demo-etcd-a", drop, "/demo/1/x.db", false},
	{"demo-etcd-a", store, "/other/1/x.db", false}, {"demo-etcd-a", load, "/other/1/x.db", false},
	{"demo-masters", load, "/demo/1/x.db", false}, {"demo-masters", list, "", false}, {"demo-minions", store, "/demo/1/x.db", false},
}

// resource is the ARN of the call's subject.
func (c call) resource() string {
	switch service, _, _ := strings.Cut(c.action, ":"); {
	case service == "ssm":
		return "arn:aws:ssm:" + region + ":" + accountID + ":parameter" + c.subject
	case service == "autoscaling" && c.subject != "":
		return "arn:aws:autoscaling:" + region + ":" + accountID + ":autoScalingGroup:00000000-0000-0000-0000-000000000000:autoScalingGroupName/" + c.subject
	case service == "s3":
		return "arn:aws:s3:::hardtack-" + accountID + "-" + region + "-demo" + c.subject
	case c.action == end:
		return "arn:aws:ec2:" + region + ":" + accountID + ":instance/i-0123456789abcdef0"
	case service == "route53":
		return "arn:aws:route53:::hostedzone/Z0123456789ABC"
	}
	return "*"
}

// keyOf is the key that a parameter's author names: the first cluster's, or for the other one AWS's.
func keyOf(parameter string) string {
	if strings.HasPrefix(parameter, root) {
		return "alias/hardtack-demo"
	}
	return "alias/aws/ssm"
}

// testAccount is an account with the groups and secrets of two clusters, of which the first has a key, and with each
// group's role as deployed.
type testAccount struct {
	*awsfake.Account
	url, zone string
}

func account(t *testing.T, d deployment) testAccount {
	t.Helper()
	a := awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm": 0, "ssm:PutParameter": 0, "route53": 0}})
	zone, err := a.Route53().CreateHostedZone(t.Context(), awsfake.HostedZone{Name: "k8s", CallerReference: "1"})
	assert.NilError(t, err)
	for name, g := range d.Groups {
		assert.NilError(t, a.AutoScaling().Create(awsfake.Group{Name: name, Max: 3, Desired: 1}))
		policy, err := awsfake.ParsePolicy(g.Policies[0])
		assert.NilError(t, err, "what IAM would say of the policy of %s", name)
		a.AddRole(name, policy)
	}
	assert.NilError(t, a.AutoScaling().Create(awsfake.Group{Name: "other-minions", Max: 3, Desired: 1}))
	a.Tick()
	a.SSM().AddKey(keyOf(root))
	for _, c := range calls {
		if c.action == get && !strings.HasPrefix(c.subject, root+role.Public) {
			_, err := a.SSM().Put(awsfake.Parameter{Name: c.subject, Value: "secret", Type: awsfake.ParameterSecure, Key: keyOf(c.subject)}, true)
			assert.NilError(t, err)
		} else if c.action == get {
			_, err := a.SSM().Put(awsfake.Parameter{Name: c.subject, Value: "public"}, true)
			assert.NilError(t, err)
		}
	}
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	return testAccount{a, server.URL, zone.ID}
}

// as returns the SDK configuration of a machine with the group's role.
func (a testAccount) as(t *testing.T, group string) aws.Config {
	t.Helper()
	c, err := a.Issue(group, "i-0123456789abcdef0", time.Hour)
	assert.NilError(t, err)
	return aws.Config{Region: region, BaseEndpoint: &a.url, RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)}
}

// ask sends the request over HTTP.
func (a testAccount) ask(ctx context.Context, conf aws.Config, c call) (err error) {
	secrets, scaling, ec := ssm.NewFromConfig(conf), autoscaling.NewFromConfig(conf), ec2.NewFromConfig(conf)
	instance, hook := aws.String("i-0123456789abcdef0"), aws.String("hardtack-ready")
	switch c.action {
	case get:
		_, err = secrets.GetParameter(ctx, &ssm.GetParameterInput{Name: &c.subject, WithDecryption: aws.Bool(true)})
	case put:
		_, err = secrets.PutParameter(ctx, &ssm.PutParameterInput{Name: &c.subject, Value: aws.String("x"), Type: ssmtypes.ParameterTypeSecureString, Overwrite: aws.Bool(true), KeyId: aws.String(keyOf(c.subject))})
	case remove:
		_, err = secrets.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: &c.subject})
	case finish:
		_, err = scaling.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{AutoScalingGroupName: &c.subject, LifecycleHookName: hook, InstanceId: instance, LifecycleActionResult: aws.String("CONTINUE")})
	case beat:
		_, err = scaling.RecordLifecycleActionHeartbeat(ctx, &autoscaling.RecordLifecycleActionHeartbeatInput{AutoScalingGroupName: &c.subject, LifecycleHookName: hook, InstanceId: instance})
	case scale:
		_, err = scaling.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: &c.subject, DesiredCapacity: aws.Int32(2)})
	case state:
		_, err = scaling.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{})
	case hooks:
		_, err = scaling.DescribeLifecycleHooks(ctx, &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String("demo-minions")})
	case groups:
		_, err = scaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{})
	case machines:
		_, err = ec.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	case volumes:
		_, err = ec.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{})
	case end:
		_, err = ec.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*instance}})
	case zoneRead:
		_, err = route53.NewFromConfig(conf).ListResourceRecordSets(ctx, &route53.ListResourceRecordSetsInput{HostedZoneId: &a.zone})
	case records:
		_, err = route53.NewFromConfig(conf).ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{HostedZoneId: &a.zone, ChangeBatch: &r53types.ChangeBatch{
			Changes: []r53types.Change{{Action: r53types.ChangeActionCreate, ResourceRecordSet: &r53types.ResourceRecordSet{Name: aws.String("masters.demo.k8s"),
				Type: r53types.RRTypeA, TTL: aws.Int64(5), ResourceRecords: []r53types.ResourceRecord{{Value: aws.String("10.0.0.1")}}}}}}})
	default:
		err = errors.New("the test does not know " + c.action)
	}
	return err
}

// refused reports whether the error is that of a caller without permission.
func refused(t *testing.T, err error) bool {
	t.Helper()
	var api smithy.APIError
	if err == nil {
		return false
	}
	if !errors.As(err, &api) {
		t.Fatalf("no answer of a service: %v", err)
	}
	code := api.ErrorCode()
	return strings.HasPrefix(code, "AccessDenied") || code == "UnauthorizedOperation"
}

// TestInstanceRoles sends, for each role, the requests that it needs and those that it must not make. The answer that
// no hook is open, or that the machine does not exist, shows that the caller had the permission.
func TestInstanceRoles(t *testing.T) {
	d := deployed(t, "three=yes")
	a := account(t, d)
	for _, c := range calls {
		t.Run(strings.Join([]string{c.group, c.action, c.subject}, " "), func(t *testing.T) {
			err := a.ask(t.Context(), a.as(t, c.group), c)
			assert.Equal(t, !refused(t, err), c.allowed, "%v", err)
			verdict, asked := d.Verdicts[strings.Join([]string{c.group, c.action, c.resource()}, " ")]
			assert.Assert(t, asked)
			assert.Equal(t, verdict, c.allowed, "moto reads the policy otherwise")
		})
	}
	for _, c := range backups {
		verdict, asked := d.Verdicts[strings.Join([]string{c.group, c.action, c.resource()}, " ")]
		assert.Assert(t, asked)
		assert.Equal(t, verdict, c.allowed, "moto about %+v", c)
		policy, err := awsfake.ParsePolicy(d.Groups[c.group].Policies[0])
		assert.NilError(t, err)
		assert.Equal(t, awsfake.Decision([]awsfake.Policy{policy}, c.action, c.resource(), nil) == "allowed", c.allowed, "the stand-in about %+v", c)
	}
	for _, c := range calls { // again, after every call that is allowed
		if !c.allowed {
			assert.Assert(t, refused(t, a.ask(t.Context(), a.as(t, c.group), c)), "afterwards: %s %s %s", c.group, c.action, c.subject)
		}
	}
	more, err := awsfake.ParsePolicy([]byte(`{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ssm:Get*", "Resource": "*"}}`))
	assert.NilError(t, err)
	for name, g := range d.Groups {
		policy, err := awsfake.ParsePolicy(g.Policies[0])
		assert.NilError(t, err)
		assert.Equal(t, len(policy.Growth()), 0, "%s could widen its own policy by %q", name, policy.Growth())
		a.AddRole(name, policy, more) // as when people attach AmazonSSMManagedInstanceCore
	}
	for _, c := range calls {
		if own := strings.HasPrefix(c.subject, root); c.action == get && own {
			assert.Equal(t, !refused(t, a.ask(t.Context(), a.as(t, c.group), c)), c.allowed, "with another policy attached: %s %s", c.group, c.subject)
		}
	}
	for name, g := range d.Groups {
		for _, arn := range regexp.MustCompile(`"arn:[^"]*"`).FindAllString(string(g.Policies[0]), -1) {
			assert.Assert(t, strings.Contains(arn, ":"+region+":"+accountID+":") || strings.HasPrefix(arn, `"arn:aws:s3:::hardtack-`+accountID+"-"+region+"-demo"), "%s may do something in other regions or accounts: %s", name, arn)
		}
	}
}

// TestAttach: a member's machine attaches its member's volume to a machine of its member, and no other to any. It neither
// detaches, makes nor deletes a volume.
func TestAttach(t *testing.T) {
	a := account(t, deployed(t, "three=yes"))
	type owner struct{ cluster, member string }
	disks, hosts := map[owner]string{}, map[owner]string{}
	owners := []owner{{"demo", "a"}, {"demo", "b"}, {"other", "a"}, {"demo", ""}}
	for _, o := range owners {
		tags := map[string]string{"KubernetesCluster": o.cluster}
		if o.member != "" {
			tags["EtcdMember"] = o.member
		}
		disks[o] = a.EC2().CreateVolume(region+"a", 20, tags).ID
		m, err := a.EC2().Run(awsfake.Machine{Zone: region + "a", Tags: tags})
		assert.NilError(t, err)
		hosts[o] = m.ID
	}
	for _, group := range []string{"demo-etcd-a", "demo-etcd-b", "demo-etcd-c", "demo-masters", "demo-minions"} {
		ec := ec2.NewFromConfig(a.as(t, group))
		for _, disk := range owners {
			for _, host := range owners {
				_, err := ec.AttachVolume(t.Context(), &ec2.AttachVolumeInput{Device: aws.String("/dev/sdf"), VolumeId: aws.String(disks[disk]), InstanceId: aws.String(hosts[host])})
				own := disk == host && disk.member != "" && group == disk.cluster+"-etcd-"+disk.member
				assert.Equal(t, !refused(t, err), own, "%s attaches %v to %v: %v", group, disk, host, err)
			}
		}
		id, host := aws.String(disks[owners[0]]), hosts[owners[0]]
		_, err := ec.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: id})
		assert.Assert(t, refused(t, err), "%s detaches: %v", group, err)
		_, err = ec.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: id})
		assert.Assert(t, refused(t, err), "%s deletes: %v", group, err)
		_, err = ec.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: aws.String(region + "a"), Size: aws.Int32(20)})
		assert.Assert(t, refused(t, err), "%s makes one: %v", group, err)
		_, err = ec.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{host}})
		assert.Assert(t, refused(t, err), "%s ends the holder: %v", group, err)
	}
}
