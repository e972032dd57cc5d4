package awsfake

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const parameterOfImage = "/hardtack/stable/image-id"

// stackBench is an account with the prerequisites of the stack's template: a VPC with three subnets, and an image.
func stackBench(t *testing.T, o Options) *bench {
	t.Helper()
	b := newBench(t, o)
	for _, zone := range []string{"a", "b", "c"} {
		b.account.EC2().AddSubnet(Subnet{ID: "subnet-0000000000000000" + zone, VPC: "vpc-00000000000000001", Zone: HomeRegion + zone})
	}
	for _, channel := range []string{"stable", "candidate"} {
		if _, err := b.account.SSM().Put(Parameter{Name: "/hardtack/" + channel + "/image-id", Value: imageA}, true); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// rendered is a template as `hardtack stack render` writes it: that package's golden file.
func rendered(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../cluster/template/testdata/" + name + ".template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// asSent is a template as a request carries it, which has a limit: one that is too large goes as JSON without white space.
func asSent(t *testing.T, body string) string {
	t.Helper()
	if len(body) <= 51200 {
		return body
	}
	var document any
	err := yaml.Unmarshal([]byte(body), &document)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func given(pairs ...string) []types.Parameter {
	var list []types.Parameter
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, types.Parameter{ParameterKey: &pairs[i], ParameterValue: &pairs[i+1]})
	}
	return list
}

// vpcParameters are those that every rendered template takes.
func vpcParameters(more ...string) []types.Parameter {
	return given(append([]string{"VpcId", "vpc-00000000000000001", "SubnetIds", "subnet-0000000000000000a,subnet-0000000000000000b"}, more...)...)
}

// propose makes a change set and waits until it has been compared.
func (b *bench) propose(t *testing.T, kind types.ChangeSetType, body string, parameters []types.Parameter) *cloudformation.DescribeChangeSetOutput {
	t.Helper()
	name := fmt.Sprintf("c%d", b.account.Calls()["cloudformation:CreateChangeSet"])
	_, err := b.stacks.CreateChangeSet(t.Context(), &cloudformation.CreateChangeSetInput{
		StackName: aws.String("demo"), ChangeSetName: &name, ChangeSetType: kind, TemplateBody: &body, Parameters: parameters,
		Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam},
	})
	if err != nil {
		t.Fatalf("creating a change set: %v", err)
	}
	b.pass(time.Second)
	out, err := b.stacks.DescribeChangeSet(t.Context(), &cloudformation.DescribeChangeSetInput{StackName: aws.String("demo"), ChangeSetName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// deploy carries a change set out to its end, and returns the stack's state.
func (b *bench) deploy(t *testing.T, kind types.ChangeSetType, body string, parameters []types.Parameter) types.Stack {
	t.Helper()
	set := b.propose(t, kind, body, parameters)
	if set.ExecutionStatus != types.ExecutionStatusAvailable {
		t.Fatalf("the change set is %s: %s", set.Status, aws.ToString(set.StatusReason))
	}
	if _, err := b.stacks.ExecuteChangeSet(t.Context(), &cloudformation.ExecuteChangeSetInput{StackName: aws.String("demo"), ChangeSetName: set.ChangeSetId}); err != nil {
		t.Fatalf("executing a change set: %v", err)
	}
	return b.end(t)
}

// end lets time pass until nothing is being done to the stack.
func (b *bench) end(t *testing.T) types.Stack {
	t.Helper()
	for range 1000 {
		s := b.stackNow(t)
		if !strings.HasSuffix(string(s.StackStatus), "IN_PROGRESS") {
			return s
		}
		b.pass(time.Second)
	}
	t.Fatalf("the stack never ends: %s", b.stackStory())
	return types.Stack{}
}

func (b *bench) stackNow(t *testing.T) types.Stack {
	t.Helper()
	id := b.account.CloudFormation().stacks[len(b.account.CloudFormation().stacks)-1].id
	out, err := b.stacks.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: &id})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stacks[0]
}

// stackStory is the stack's events so far, the oldest first.
func (b *bench) stackStory() string {
	var lines []string
	for _, e := range b.account.CloudFormation().stacks[0].events {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.logical, e.status, e.reason)))
	}
	return strings.Join(lines, "\n")
}

func wantStatus(t *testing.T, b *bench, s types.Stack, want types.StackStatus) {
	t.Helper()
	if s.StackStatus != want {
		t.Fatalf("the stack is %s, want %s:\n%s", s.StackStatus, want, b.stackStory())
	}
}

func TestRenderedStack(t *testing.T) {
	for _, name := range []string{"default", "three", "large"} {
		t.Run(name, func(t *testing.T) {
			b := stackBench(t, Options{CloudFormation: CloudFormationOptions{Step: time.Second}, Rates: map[string]float64{"route53": 0}})
			body := rendered(t, name)
			body = strings.ReplaceAll(body, "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab", b.account.SSM().AddKey("alias/volumes"))
			parameters := vpcParameters("Machines", "yes")
			for _, p := range []string{"MemberSubnetIds", "BalancerSubnetIds", "LoadBalancerSubnetIds", "EtcdSubnetIds"} {
				if strings.Contains(body, "  "+p+":\n") {
					parameters = append(parameters, given(p, "subnet-0000000000000000a,subnet-0000000000000000b,subnet-0000000000000000c,subnet-0000000000000000a,subnet-0000000000000000b")...)
				}
			}
			if strings.Contains(body, "ApiCidr:\n    Type: String") {
				parameters = append(parameters, given("ApiCidr", "192.0.2.0/24")...)
			}
			if strings.Contains(body, "  EtcdZones:\n") {
				parameters = append(parameters, given("EtcdZones", "us-west-2a,us-west-2b,us-west-2c,us-west-2a,us-west-2b")...)
			}
			s := b.deploy(t, types.ChangeSetTypeCreate, asSent(t, body), parameters)
			wantStatus(t, b, s, types.StackStatusCreateComplete)
			b.pass(time.Second)
			made := b.account.CloudFormation().stacks[0]
			for _, g := range made.resources {
				if g.kind == "AWS::AutoScaling::AutoScalingGroup" {
					for _, i := range b.account.AutoScaling().Instances(g.physical) {
						if i.Tokens["hardtack-ready"] == "" {
							continue
						}
						if err := b.account.AutoScaling().Complete(g.physical, "hardtack-ready", i.ID, Continue); err != nil {
							t.Error(err)
						}
					}
					group := b.describe(t, g.physical)
					if len(group.Instances) != int(*group.DesiredCapacity) {
						t.Errorf("group %s has %d machines of %d", g.physical, len(group.Instances), *group.DesiredCapacity)
					}
				}
			}
			machines := b.account.EC2().visible()
			for _, m := range machines {
				if m.Image != imageA || m.Role == "" || !strings.HasPrefix(m.UserData, "#cloud-config") || *m.Launch.Metadata.HopLimit != 1 {
					t.Errorf("a machine is %+v", m)
				}
			}
			if len(machines) == 0 {
				t.Error("there are no machines")
			}
			if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: aws.String("demo")}); err != nil {
				t.Fatal(err)
			}
			s = b.end(t)
			// The placeholders stay, and with them the zone.
			wantStatus(t, b, s, types.StackStatusDeleteFailed)
			if left := sortedKeys(made.resources); !slices.Equal(left, []string{"Zone"}) {
				t.Errorf("the stack has left %q:\n%s", left, b.stackStory())
			}
			if n := len(b.account.EC2().LaunchTemplates()) + len(b.account.EC2().SecurityGroups()) + len(b.account.Roles()); n != 0 {
				t.Errorf("%d launch templates, groups and roles are left", n)
			}
		})
	}
}

// TestStackOrderAndOutputs looks at one stack's events and outputs closely.
func TestStackOrderAndOutputs(t *testing.T) {
	b := stackBench(t, Options{CloudFormation: CloudFormationOptions{Step: time.Second}})
	s := b.deploy(t, types.ChangeSetTypeCreate, small, given("Size", "2"))
	wantStatus(t, b, s, types.StackStatusCreateComplete)
	want := `demo REVIEW_IN_PROGRESS User Initiated
demo CREATE_IN_PROGRESS User Initiated
Role CREATE_IN_PROGRESS
Role CREATE_COMPLETE
Profile CREATE_IN_PROGRESS
Profile CREATE_COMPLETE
Door CREATE_IN_PROGRESS
Door CREATE_COMPLETE
Template CREATE_IN_PROGRESS
Template CREATE_COMPLETE
Group CREATE_IN_PROGRESS
Group CREATE_COMPLETE
Rule CREATE_IN_PROGRESS
Rule CREATE_COMPLETE
demo CREATE_COMPLETE`
	if diff := cmp.Diff(sortedLines(want), sortedLines(b.stackStory())); diff != "" {
		t.Errorf("the events (-want +got):\n%s", diff)
	}
	outputs := map[string]string{}
	for _, o := range s.Outputs {
		outputs[*o.OutputKey] = *o.OutputValue
	}
	group := b.account.CloudFormation().stacks[0].resources["Door"].physical
	wantOut := map[string]string{"Door": group, "Where": "hello us-west-2", "Picked": "subnet-0000000000000000b"}
	if diff := cmp.Diff(wantOut, outputs); diff != "" {
		t.Errorf("the outputs (-want +got):\n%s", diff)
	}
	rule := b.account.EC2().SecurityGroups()[0].Ingress[0]
	if rule.From != 443 || rule.Group != group {
		t.Errorf("the rule is %+v", rule)
	}
	// The role's policies decide what its machines may do.
	machine := b.account.EC2().visible()[0]
	if machine.Tags["aws:cloudformation:stack-name"] != "demo" || machine.Tags["Role"] != "minions" {
		t.Errorf("the machine's tags are %v", machine.Tags)
	}
}

func sortedLines(text string) []string {
	return slices.Sorted(strings.Lines(text + "\n"))
}

// small is a stack with a resource of most kinds, in short forms.
const small = `AWSTemplateFormatVersion: "2010-09-09"
Parameters:
  Size: {Type: String, Default: "1", AllowedPattern: "[0-3]"}
  SubnetIds: {Type: "List<AWS::EC2::Subnet::Id>", Default: "subnet-0000000000000000a,subnet-0000000000000000b"}
  Text: {Type: String, Default: one}
  ImageId: {Type: "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", Default: /hardtack/stable/image-id}
  Opened: {Type: String, Default: "yes", AllowedValues: ["yes", "no"]}
Conditions:
  Open: !Equals [!Ref Opened, "yes"]
  Both: !Not [!Equals [!Ref Opened, "no"]]
Resources:
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: "sts:AssumeRole", Principal: {Service: ec2.amazonaws.com}}]}
      Policies:
        - PolicyName: machine
          PolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: "ssm:GetParameter", Resource: !Sub "arn:${AWS::Partition}:ssm:${AWS::Region}:${AWS::AccountId}:parameter/hardtack/*"}]}
  Profile: {Type: AWS::IAM::InstanceProfile, Properties: {Roles: [!Ref Role]}}
  Door:
    Type: AWS::EC2::SecurityGroup
    Properties: {GroupDescription: the door, VpcId: vpc-00000000000000001}
  Rule:
    Type: AWS::EC2::SecurityGroupIngress
    Condition: Both
    Properties: {GroupId: !GetAtt Door.GroupId, IpProtocol: tcp, FromPort: 443, ToPort: 443, SourceSecurityGroupId: !GetAtt [Door, GroupId]}
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateName: small
      VersionDescription: !Ref Text
      LaunchTemplateData:
        ImageId: !Ref ImageId
        InstanceType: t3.small
        IamInstanceProfile: {Arn: !GetAtt Profile.Arn}
        SecurityGroupIds: [!Ref Door]
        MetadataOptions: {HttpTokens: required, HttpPutResponseHopLimit: 1}
        UserData: aGVsbG8=
  Group:
    Type: AWS::AutoScaling::AutoScalingGroup
    Properties:
      AutoScalingGroupName: small
      MinSize: "0"
      MaxSize: "3"
      DesiredCapacity: !Ref Size
      LaunchTemplate: {LaunchTemplateId: !Ref Template, Version: !GetAtt Template.LatestVersionNumber}
      VPCZoneIdentifier: !Ref SubnetIds
      Tags: [{Key: Role, Value: minions, PropagateAtLaunch: true}]
Outputs:
  Door: {Value: !Ref Door}
  Where: {Value: !Sub "hello ${AWS::Region}"}
  Picked: {Value: !Select [1, !Ref SubnetIds]}
`

// read is how a call for a parameter ends that is made with a role's credentials.
func (b *bench) read(t *testing.T, c Credentials, name string) string {
	t.Helper()
	_, err := b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name}, func(o *ssm.Options) {
		o.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)
	})
	return outcome(err)
}
