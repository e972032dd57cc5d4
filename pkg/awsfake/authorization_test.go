package awsfake

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asked is a call as its service sees it when it is authorized.
type asked struct {
	service, action string
	form            string // of Query protocols
	path, body      string
	headers         map[string]string
}

func (a asked) call(t *testing.T) *call {
	t.Helper()
	form, err := url.ParseQuery(a.form)
	noErr(t, err)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://aws.test"+a.path, nil)
	noErr(t, err)
	for name, value := range a.headers {
		r.Header.Set(name, value)
	}
	c := &call{Service: a.service, Action: a.action, Region: HomeRegion, Form: form, Path: r.URL.Path, Query: r.URL.Query(), Body: []byte(a.body)}
	c.Signature.request = r
	return c
}

// rich is an account with one of everything that a call can be about, and what its calls name.
func rich(t *testing.T) (*Account, map[string]string) {
	t.Helper()
	a := New(Options{})
	tags := map[string]string{"team": "a"}
	a.EC2().AddSubnet(Subnet{ID: "subnet-1", VPC: "vpc-1", Zone: "us-west-2a"})
	m, err := a.EC2().Run(Machine{Type: "t3.medium", Zone: "us-west-2a", Role: "demo", Tags: tags})
	noErr(t, err)
	names := map[string]string{"MACHINE": m.ID, "VOLUME": a.EC2().CreateVolume("us-west-2a", 20, tags).ID, "KEY": a.SSM().AddKey("alias/demo")}
	noErr(t, a.AutoScaling().Create(Group{Name: "demo", Max: 1, Tags: tags, Zones: []string{"us-west-2a"}}))
	a.locked(func() {
		s := a.Images().add(Snapshot{Size: 8, Tags: tags, State: SnapshotCompleted}, nil)
		names["SNAPSHOT"] = s.ID
		names["IMAGE"] = a.Images().addImage(Image{Name: "demo", Tags: tags, Disks: []Disk{{Snapshot: s.ID}}}).ID
		lt, err := a.regional.ec2.createTemplate("demo", "", LaunchData{Type: "t3.medium", Tags: []LaunchTags{{"network-interface", []LaunchTag{{"team", "a"}}}, {"volume", []LaunchTag{{"team", "a"}}}}}, tags)
		noErr(t, err)
		names["TEMPLATE"] = lt.ID
		a.CloudFormation().stacks = append(a.CloudFormation().stacks, &cfnStack{name: "demo", id: "arn:aws:cloudformation:us-west-2:" + owner + ":stack/demo/1", status: "CREATE_COMPLETE", stackState: stackState{tags: tags}})
	})
	return a, names
}

const tagForm = "&Tag.1.Key=team&Tag.1.Value=a"

// samples are calls that together have every part of a request that gives a condition key.
func samples() []asked {
	query := func(service, action, form string) asked { return asked{service: service, action: action, form: form} }
	var list []asked
	for _, action := range []string{"CancelInstanceRefresh", "CompleteLifecycleAction", "RecordLifecycleActionHeartbeat", "RollbackInstanceRefresh", "SetDesiredCapacity", "StartInstanceRefresh", "TerminateInstanceInAutoScalingGroup",
		"DescribeAccountLimits", "DescribeAutoScalingGroups", "DescribeAutoScalingInstances", "DescribeInstanceRefreshes", "DescribeLaunchConfigurations", "DescribeLifecycleHooks", "DescribeScalingActivities"} {
		list = append(list, query("autoscaling", action, "AutoScalingGroupName=demo"))
	}
	for _, action := range []string{"CreateAutoScalingGroup", "UpdateAutoScalingGroup"} {
		list = append(list, query("autoscaling", action, "AutoScalingGroupName=demo&MaxSize=1&MinSize=1&VPCZoneIdentifier=subnet-1,subnet-2&TargetGroupARNs.member.1=arn&LaunchTemplate.LaunchTemplateName=demo&LaunchConfigurationName=old&Tags.member.1.Key=team&Tags.member.1.Value=a"))
	}
	for _, action := range []string{"DescribeImages", "DescribeInstances", "DescribeInstanceTypes", "DescribeLaunchTemplateVersions", "DescribeLaunchTemplates", "DescribeRouteTables", "DescribeVpcEndpoints", "DescribeSnapshots", "DescribeSubnets", "DescribeVolumes", "DescribeVolumesModifications"} {
		list = append(list, query("ec2", action, ""))
	}
	spec := "&TagSpecification.1.ResourceType=KIND&TagSpecification.1.Tag.1.Key=team&TagSpecification.1.Tag.1.Value=a"
	as := func(kind string) string { return strings.ReplaceAll(spec, "KIND", kind) }
	two := as("image") + strings.ReplaceAll(as("snapshot"), "Specification.1", "Specification.2")
	list = append(list,
		query("ec2", "AttachVolume", "VolumeId=VOLUME&InstanceId=MACHINE"), query("ec2", "DetachVolume", "VolumeId=VOLUME&InstanceId=MACHINE"),
		query("ec2", "CopyImage", "SourceImageId=IMAGE&SourceRegion="+HomeRegion+two), query("ec2", "CreateLaunchTemplate", "LaunchTemplateName=new"+as("launch-template")),
		query("ec2", "CreateLaunchTemplateVersion", "LaunchTemplateId=TEMPLATE"), query("ec2", "ModifyLaunchTemplate", "LaunchTemplateId=TEMPLATE&SetDefaultVersion=1"), query("ec2", "DeleteLaunchTemplateVersions", "LaunchTemplateId=TEMPLATE&LaunchTemplateVersion.1=1"),
		query("ec2", "CreateVolume", "AvailabilityZone=us-west-2a&Size=20&VolumeType=gp3&Encrypted=true&KmsKeyId=KEY"+as("volume")),
		query("ec2", "DeleteSnapshot", "SnapshotId=SNAPSHOT"), query("ec2", "DeleteVolume", "VolumeId=VOLUME"), query("ec2", "DeregisterImage", "ImageId=IMAGE"), query("ec2", "DisableImage", "ImageId=IMAGE"), query("ec2", "EnableImage", "ImageId=IMAGE"),
		query("ec2", "DescribeImageAttribute", "ImageId=IMAGE"), query("ec2", "ModifyImageAttribute", "ImageId=IMAGE"), query("ec2", "ModifyVolume", "VolumeId=VOLUME&Size=30"),
		query("ec2", "RegisterImage", "Name=new&BlockDeviceMapping.1.Ebs.SnapshotId=SNAPSHOT"+two), query("ec2", "RunInstances", "ImageId=IMAGE&InstanceType=t3.medium&SubnetId=subnet-1"+as("instance")),
		query("ec2", "TerminateInstances", "InstanceId.1=MACHINE"))
	for _, id := range []string{"IMAGE", "SNAPSHOT", "VOLUME", "MACHINE", "TEMPLATE"} {
		list = append(list, query("ec2", "CreateTags", "ResourceId.1="+id+tagForm), query("ec2", "DeleteTags", "ResourceId.1="+id+tagForm))
	}
	for _, action := range []string{"PutSnapshotBlock", "GetSnapshotBlock", "ListSnapshotBlocks"} {
		list = append(list, asked{service: "ebs", action: action, path: "/snapshots/SNAPSHOT/blocks"})
	}
	list = append(list, asked{service: "ebs", action: "CompleteSnapshot", path: "/snapshots/completion/SNAPSHOT"},
		asked{service: "ebs", action: "StartSnapshot", path: "/snapshots", body: `{"VolumeSize": 8, "Description": "d", "ParentSnapshotId": "SNAPSHOT", "Tags": [{"Key": "team", "Value": "a"}]}`})
	list = append(list, query("ec2", "DescribeVpcAttribute", "VpcId=vpc-1&Attribute=enableDnsSupport"), query("elasticloadbalancing", "DescribeLoadBalancers", ""), query("elasticloadbalancing", "DescribeTargetGroups", ""),
		query("iam", "GetAccountSummary", ""), query("iam", "GetRole", "RoleName=demo"),
		query("iam", "SimulatePrincipalPolicy", "PolicySourceArn="+roleARN("demo")), query("iam", "SimulatePrincipalPolicy", "PolicySourceArn=arn:aws:iam::"+owner+":user/anna"),
		asked{service: "servicequotas", action: "GetServiceQuota", body: "{}"}, asked{service: "servicequotas", action: "GetAWSDefaultServiceQuota", body: "{}"},
		asked{service: "route53", action: "GetAccountLimit", path: "/2013-04-01/accountlimit/MAX_HOSTED_ZONES_BY_OWNER"}, asked{service: "route53", action: "ListHostedZonesByVPC", path: "/2013-04-01/hostedzonesbyvpc?vpcid=vpc-1&vpcregion=us-west-2"})
	for _, action := range []string{"GetHostedZone", "ListResourceRecordSets", "ListHostedZones", "ListHostedZonesByName"} {
		list = append(list, asked{service: "route53", action: action, path: "/2013-04-01/hostedzone/Z1"})
	}
	list = append(list,
		asked{service: "route53", action: "CreateHostedZone", body: "<CreateHostedZoneRequest><VPC><VPCRegion>us-west-2</VPCRegion><VPCId>vpc-1</VPCId></VPC></CreateHostedZoneRequest>"},
		asked{service: "route53", action: "ChangeResourceRecordSets", path: "/2013-04-01/hostedzone/Z1/rrset", body: `<ChangeResourceRecordSetsRequest xmlns="` + route53Namespace + `"><ChangeBatch><Changes><Change><Action>CREATE</Action><ResourceRecordSet><Name>a.k8s.</Name><Type>A</Type><TTL>5</TTL><ResourceRecords><ResourceRecord><Value>10.0.0.1</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></Change></Changes></ChangeBatch></ChangeResourceRecordSetsRequest>`},
		asked{service: "s3", action: "GetObject", path: "/b/k"}, asked{service: "s3", action: "HeadObject", path: "/b/k"}, asked{service: "s3", action: "ListObjectsV2", path: "/b?prefix=k"},
		asked{service: "s3", action: "PutObject", path: "/b/k", headers: map[string]string{"If-None-Match": "*"}},
		asked{service: "sqs", action: "ListQueues", body: "{}"}, asked{service: "sqs", action: "CreateQueue", body: `{"QueueName": "q", "tags": {"team": "a"}}`})
	for _, action := range []string{"DeleteMessage", "GetQueueAttributes", "GetQueueUrl", "ReceiveMessage", "SendMessage", "SetQueueAttributes"} {
		list = append(list, asked{service: "sqs", action: action, body: `{"QueueName": "q"}`})
	}
	for _, action := range []string{"CreateChangeSet", "DeleteChangeSet", "DeleteStack", "DescribeChangeSet", "DescribeStackEvents", "DescribeStackResources", "DescribeStacks", "ExecuteChangeSet", "ListChangeSets", "ListStackResources", "UpdateTerminationProtection"} {
		list = append(list, query("cloudformation", action, "StackName=demo&ChangeSetName=set&TemplateURL=https://b/t&Tags.member.1.Key=team&Tags.member.1.Value=a"))
	}
	list = append(list, query("cloudformation", "DescribeStacks", ""))
	for _, action := range []string{"DeleteParameter", "GetParameter", "GetParameterHistory", "PutParameter"} {
		list = append(list, asked{service: "ssm", action: action, body: `{"Name": "/a"}`})
	}
	return append(list, asked{service: "ssm", action: "DescribeParameters", body: "{}"}, asked{service: "ssm", action: "DeleteParameters", body: `{"Names": ["/a"]}`}, asked{service: "ssm", action: "GetParameters", body: `{"Names": ["/a"]}`}, asked{service: "ssm", action: "GetParametersByPath", body: `{"Path": "/a"}`})
}

// plain takes the name off a key that is a prefix.
var plainKey = regexp.MustCompile(`^(aws:requesttag/|aws:resourcetag/|ec2:resourcetag/|autoscaling:resourcetag/|kms:encryptioncontext:).*$`)

// handed asks every sample, and returns the keys of each row of the table that was asked for, and how often.
func handed(t *testing.T) (keys map[string]map[string]bool, calls, asks map[string]int) {
	t.Helper()
	a, names := rich(t)
	keys, calls, asks = map[string]map[string]bool{}, map[string]int{}, map[string]int{}
	record := func(n need) {
		q, err := n.question()
		noErr(t, err)
		row := n.action + " " + kindOfARN(n.arn)
		if keys[row] == nil {
			keys[row] = map[string]bool{}
		}
		for key := range q.values {
			keys[row][plainKey.ReplaceAllString(key, "$1")] = true
		}
		asks[row]++
	}
	for _, s := range samples() {
		for name, id := range names {
			s.form, s.path, s.body = strings.ReplaceAll(s.form, name, url.QueryEscape(id)), strings.ReplaceAll(s.path, name, id), strings.ReplaceAll(s.body, name, id)
		}
		c := s.call(t)
		action := map[string]string{"HeadObject": "GetObject", "ListObjectsV2": "ListBucket"}[s.action]
		if action == "" {
			action = s.action
		}
		calls[s.service+":"+action]++
		a.locked(func() {
			for _, n := range a.services[s.service].service.(resourced).needs(c) {
				record(n)
			}
		})
	}
	a.locked(func() { // what services ask of KMS in their callers' names
		for _, action := range []string{"Encrypt", "Decrypt"} {
			record(a.regional.ssm.vault.need(a.regional.ssm.vault.find("alias/demo"), action, "arn"))
		}
		record(directAPI{a.Images()}.keyNeed("kms:GenerateDataKeyWithoutPlaintext", names["KEY"]))
		for _, n := range a.regional.ec2.grantNeeds(names["KEY"]) {
			record(n)
		}
	})
	return keys, calls, asks
}

// beside are actions that a call of another name needs, and that are no calls here.
var beside = []string{"ec2:DescribeVpcs", "cloudformation:ListStacks", "kms:CreateGrant", "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKeyWithoutPlaintext"}

// TestConditionKeys: every action of the stand-in has its rows in the table of the Service Authorization Reference, asks for the
// resources that every call of it is about, and hands exactly the keys of the row.
func TestConditionKeys(t *testing.T) {
	keys, calls, asks := handed(t)
	for action, rows := range authorizations() {
		if calls[action] == 0 && !slices.Contains(beside, action) {
			t.Errorf("no sample calls %s", action)
		}
		for _, row := range rows {
			name := row.action + " " + row.kind
			if row.always && asks[name] < calls[action] {
				t.Errorf("%s: asked for in %d of %d calls", name, asks[name], calls[action])
			}
			if asks[name] == 0 {
				t.Errorf("%s: never asked for", name)
			}
			want := slices.Sorted(slices.Values(row.keys))
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(keys[name])), cmpEmpty); diff != "" {
				t.Errorf("%s (-AWS hands, +awsfake hands):\n%s", name, diff)
			}
		}
	}
	a := New(Options{})
	for _, action := range implemented(a) {
		if len(authorizations()[action]) == 0 {
			t.Errorf("authorization.txt has no row for %s", action)
		}
	}
}

var cmpEmpty = cmp.Transformer("empty", func(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
})

// implemented lists the actions that the stand-in carries out; those of services without a table of their own are tried.
func implemented(a *Account) (names []string) {
	add := func(service string, actions ...string) {
		for _, action := range actions {
			names = append(names, service+":"+action)
		}
	}
	add("autoscaling", sortedKeys(a.regional.autoscaling.actions())...)
	add("cloudformation", sortedKeys(a.regional.cloudformation.actions())...)
	add("ec2", sortedKeys(a.regional.ec2.actions())...)
	add("ec2", sortedKeys(a.regional.ec2.volumeCalls())...)
	add("ec2", sortedKeys(a.Images().calls())...)
	add("elasticloadbalancing", sortedKeys(balancing{a}.actions())...)
	add("iam", sortedKeys(iamService{a}.actions())...)
	add("ssm", sortedKeys(a.regional.ssm.actions())...)
	add("ebs", sortedKeys(directAPI{a.Images()}.actions())...)
	add("sqs", append(sortedKeys(a.regional.sqs.actions()), "CreateQueue", "GetQueueUrl", "ListQueues")...)
	return names
}

// TestUnknownKeys: of a key that AWS hands and the stand-in has no value for, no allowance holds and every denial does, and a key that
// AWS does not hand for an action is not there.
func TestUnknownKeys(t *testing.T) {
	a, names := rich(t)
	n := a.regional.ec2.machineNeed("ec2:TerminateInstances", names["MACHINE"])
	q, err := inRegion(n, HomeRegion).question()
	noErr(t, err)
	for _, tt := range []struct {
		statement string
		want      verdict
	}{
		{`"Effect": "Allow", "Condition": {"StringEquals": {"aws:ResourceTag/team": "a"}}`, allowed},
		{`"Effect": "Allow", "Condition": {"Null": {"ec2:EbsOptimized": "true"}}`, notAllowed},
		{`"Effect": "Allow", "Condition": {"StringNotEquals": {"ec2:InstanceMarketType": "spot"}}`, notAllowed},
		{`"Effect": "Deny", "Condition": {"StringEquals": {"ec2:EbsOptimized": "true"}}`, denied},
		{`"Effect": "Allow", "Condition": {"StringEquals": {"aws:RequestTag/team": "a"}}`, notAllowed},
		{`"Effect": "Allow", "Condition": {"Null": {"aws:RequestTag/team": "true"}}`, allowed},
		{`"Effect": "Allow", "Condition": {"StringEquals": {"ec2:Region": "us-west-2"}}`, allowed},
	} {
		p, err := ParsePolicy([]byte(`{"Version": "2012-10-17", "Statement": [{"Action": "*", "Resource": "*", ` + tt.statement + `}]}`))
		noErr(t, err)
		if got := judge([]Policy{p}, n.action, n.arn, q); got != tt.want {
			t.Errorf("%s: %v, not %v", tt.statement, got, tt.want)
		}
	}
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
