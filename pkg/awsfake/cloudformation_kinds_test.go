package awsfake

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"
)

// rest is a stack of the types that a rendered template has no use for, and of a balancer.
const rest = `Parameters:
  Path: {Type: String, Default: one}
  Interval: {Type: Number, Default: 10}
Resources:
  Inside:
    Type: AWS::EC2::SecurityGroup
    Properties:
      GroupName: inside
      GroupDescription: inside
      VpcId: vpc-00000000000000001
      SecurityGroupIngress: [{IpProtocol: tcp, FromPort: 80, ToPort: 80, CidrIp: 10.0.0.0/8, Description: !Ref Path}]
      SecurityGroupEgress: [{IpProtocol: "-1", CidrIp: 10.0.0.0/8}]
  Out: {Type: AWS::EC2::SecurityGroupEgress, Properties: {GroupId: !Ref Inside, IpProtocol: udp, FromPort: 53, ToPort: 53, CidrIp: 10.0.0.2/32, Description: !Ref Path}}
  Parameter: {Type: AWS::SSM::Parameter, Properties: {Name: /stack/path, Type: String, Value: !Ref Path}}
  Role:
    Type: AWS::IAM::Role
    Properties:
      RoleName: reader
      AssumeRolePolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: "sts:AssumeRole", Principal: {Service: ec2.amazonaws.com}}]}
  Managed:
    Type: AWS::IAM::ManagedPolicy
    Properties:
      ManagedPolicyName: reading
      Roles: [!Ref Role]
      PolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: "ssm:GetParameter", Resource: !Sub "arn:aws:ssm:*:*:parameter/managed/${Path}"}]}
  Policy:
    Type: AWS::IAM::Policy
    Properties:
      PolicyName: inline
      Roles: [!Ref Role]
      PolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: "ssm:GetParameter", Resource: !Sub "arn:aws:ssm:*:*:parameter/inline/${Path}"}]}
  RolePolicy:
    Type: AWS::IAM::RolePolicy
    Properties:
      PolicyName: own
      RoleName: !Ref Role
      PolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: "ssm:GetParameter", Resource: !Sub "arn:aws:ssm:*:*:parameter/own/${Path}"}]}
  Balancer:
    Type: AWS::ElasticLoadBalancingV2::LoadBalancer
    Properties: {Type: network, Scheme: internal, Subnets: [subnet-0000000000000000a], SecurityGroups: [!Ref Inside]}
  Targets:
    Type: AWS::ElasticLoadBalancingV2::TargetGroup
    Properties: {Protocol: TCP, Port: 443, VpcId: vpc-00000000000000001, HealthCheckProtocol: HTTPS, HealthCheckPath: /readyz, HealthCheckIntervalSeconds: !Ref Interval}
  Listener:
    Type: AWS::ElasticLoadBalancingV2::Listener
    Properties: {LoadBalancerArn: !Ref Balancer, Protocol: TCP, Port: 443, DefaultActions: [{Type: forward, TargetGroupArn: !Ref Targets}]}
Outputs:
  Name: {Value: !GetAtt Balancer.DNSName}
  Policy: {Value: !Ref Managed}
  Parameter: {Value: !GetAtt Parameter.Value}
`

// TestOtherKinds makes, changes and deletes what is in rest, and looks at what each change has done.
func TestOtherKinds(t *testing.T) {
	b := stackBench(t, Options{Rates: map[string]float64{"ssm": 0, "ssm:PutParameter": 0}})
	for _, path := range []string{"managed/", "inline/", "own/"} {
		for _, name := range []string{"one", "two"} {
			b.put(t, "/"+path+name, "x")
		}
	}
	var issued Credentials
	for _, name := range []string{"one", "two"} {
		kind, interval := types.ChangeSetTypeCreate, "10"
		if name == "two" {
			kind, interval = types.ChangeSetTypeUpdate, "20"
		}
		s := b.deploy(t, kind, rest, given("Path", name, "Interval", interval))
		if !slices.Contains([]types.StackStatus{types.StackStatusCreateComplete, types.StackStatusUpdateComplete}, s.StackStatus) {
			t.Fatalf("the stack is %s:\n%s", s.StackStatus, b.stackStory())
		}
		if issued.AccessKey == "" {
			var err error
			if issued, err = b.account.Issue("reader", "i-00000000000000001", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		may := map[string]string{}
		for _, path := range []string{"managed/", "inline/", "own/"} {
			for _, other := range []string{"one", "two"} {
				if got := b.read(t, issued, "/"+path+other); got != map[bool]string{true: "ok", false: "AccessDeniedException"}[other == name] {
					may[path+other] = got
				}
			}
		}
		if len(may) > 0 {
			t.Errorf("with %s the role's calls end with %v", name, may)
		}
		if p, _ := b.account.SSM().Parameter("/stack/path"); p.Value != name {
			t.Errorf("the parameter is %q", p.Value)
		}
		g := b.account.EC2().SecurityGroups()[0]
		want := []SecurityRule{{Protocol: "-1", From: -1, To: -1, CIDR: "10.0.0.0/8"}, {Protocol: "udp", From: 53, To: 53, CIDR: "10.0.0.2/32", Description: name}}
		slices.SortFunc(g.Egress, func(a, b SecurityRule) int { return strings.Compare(a.Protocol, b.Protocol) })
		if diff := cmp.Diff(want, g.Egress); diff != "" || g.Ingress[0].Description != name {
			t.Errorf("the security group is %+v:\n%s", g, diff)
		}
		balancers, targets, listeners := b.account.CloudFormation().Balancers()
		if len(balancers) != 1 || targets[0].Health["interval"] != interval || listeners[0].Target != targets[0].ARN || listeners[0].Balancer != balancers[0].ARN {
			t.Errorf("the balancer is %+v %+v %+v", balancers, targets, listeners)
		}
	}
	if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: aws.String("demo")}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, b, b.end(t), types.StackStatusDeleteComplete)
	balancers, targets, listeners := b.account.CloudFormation().Balancers()
	_, parameter := b.account.SSM().Parameter("/stack/path")
	if n := len(balancers) + len(targets) + len(listeners) + len(b.account.Roles()) + len(b.account.EC2().SecurityGroups()); n != 0 || parameter {
		t.Errorf("%d resources are left, the parameter: %v", n, parameter)
	}
}

// TestKindRefusals has one resource that cannot be made; nothing of it may be left.
func TestKindRefusals(t *testing.T) {
	for _, tt := range []struct{ name, from, to, reason string }{
		{"a rule without ports", "FromPort: 80, ToPort: 80, ", "", "Inside CREATE_FAILED Invalid value 'Invalid range: -1--1' for portRange."},
		{"a VPC that is not there", "VpcId: vpc-00000000000000001\n", "VpcId: vpc-00000000000000002\n", "Inside CREATE_FAILED The vpc ID 'vpc-00000000000000002' does not exist"},
		{"a policy that is none", "Effect: Allow, Action: \"ssm:GetParameter\", Resource: !Sub \"arn:aws:ssm:*:*:parameter/own", "Effect: Perhaps, Action: \"ssm:GetParameter\", Resource: !Sub \"arn:aws:ssm:*:*:parameter/own", "RolePolicy CREATE_FAILED statement 1: Effect is \"Perhaps\", not Allow or Deny"},
		{"nobody to trust", ", Principal: {Service: ec2.amazonaws.com}", "", "Role CREATE_FAILED AssumeRole policy must contain a Principal"},
		{"a path for TCP", "HealthCheckProtocol: HTTPS", "HealthCheckProtocol: TCP", "Targets CREATE_FAILED Health check path is not supported for health checks with protocol 'TCP'"},
		{"a missing property", "Type: network, Scheme: internal, Subnets: [subnet-0000000000000000a]", "Type: network", "Balancer CREATE_FAILED Property Subnets cannot be empty."},
		{"a list that is none", "Subnets: [subnet-0000000000000000a]", "Subnets: subnet-0000000000000000a", "Balancer CREATE_FAILED Value of property Subnets must be of type List"},
		{"a name that is taken", "RoleName: reader", "RoleName: taken", "Role CREATE_FAILED Role with name taken already exists."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := stackBench(t, Options{})
			b.account.identities.add("taken", false, nil).made = true
			body := strings.Replace(rest, tt.from, tt.to, 1)
			if body == rest {
				t.Fatalf("the template does not have %q", tt.from)
			}
			wantStatus(t, b, b.deploy(t, types.ChangeSetTypeCreate, body, nil), types.StackStatusRollbackComplete)
			if !strings.Contains(b.stackStory(), tt.reason) {
				t.Errorf("no event says %q:\n%s", tt.reason, b.stackStory())
			}
			balancers, targets, listeners := b.account.CloudFormation().Balancers()
			if n := len(balancers) + len(targets) + len(listeners) + len(b.account.EC2().SecurityGroups()); n != 0 || !slices.Equal(b.account.Roles(), []string{"taken"}) {
				t.Errorf("%d resources are left, and the roles %v", n, b.account.Roles())
			}
		})
	}
}
