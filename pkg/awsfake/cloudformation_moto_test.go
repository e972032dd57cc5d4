package awsfake

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/google/go-cmp/cmp"
)

// plain is a stack of the resources that both stand-ins model.
const plain = `AWSTemplateFormatVersion: "2010-09-09"
Description: a group and what it launches from
Parameters:
  Kind: {Type: String, Default: t3.small, AllowedValues: [t3.small, t3.large]}
  ImageId: {Type: "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", Default: /image}
Conditions:
  Large: !Equals [!Ref Kind, t3.large]
Resources:
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateName: plain
      LaunchTemplateData:
        ImageId: !Ref ImageId
        InstanceType: !Ref Kind
        UserData: aGVsbG8=
  Role:
    Type: AWS::IAM::Role
    Properties:
      RoleName: plain
      AssumeRolePolicyDocument: {Version: "2012-10-17", Statement: [{Effect: Allow, Action: "sts:AssumeRole", Principal: {Service: ec2.amazonaws.com}}]}
  Profile: {Type: AWS::IAM::InstanceProfile, Properties: {InstanceProfileName: plain, Roles: [!Ref Role]}}
Outputs:
  Where: {Value: !Sub "${AWS::Region}-${Kind}"}
  RoleName: {Value: !Ref Role, Description: the role}
  Latest: {Value: !GetAtt Template.LatestVersionNumber}
`

// TestTemplatesAgainstMoto compares both stand-ins as far as moto is right. moto does not check the contents of launch
// templates (TestLaunchTemplateRefusals does). With stacks it does not refuse invalid templates, show the changes of
// an update, answer a change set's outputs and description, tell a parameter's value from the one resolved from
// Parameter Store, encode the result of Fn::Sub, replace, roll back, or take time.
func TestTemplatesAgainstMoto(t *testing.T) {
	theirs, ours := motoBench(t), newBench(t, Options{})
	for name, story := range map[string]func(*bench, *testing.T) []string{"launch templates": (*bench).templateStory, "stacks": (*bench).plainStory} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(story(theirs, t), story(ours, t)); diff != "" {
				t.Errorf("moto (-) and awsfake (+) differ:\n%s", diff)
			}
		})
	}
}

func (b *bench) plainStory(t *testing.T) (lines []string) {
	t.Helper()
	ctx := t.Context()
	b.put(t, "/image", imageA)
	for _, step := range []struct {
		kind       types.ChangeSetType
		name       string
		parameters []types.Parameter
	}{{types.ChangeSetTypeCreate, "one", nil}, {types.ChangeSetTypeUpdate, "two", given("Kind", "t3.large")}} {
		_, err := b.stacks.CreateChangeSet(ctx, &cloudformation.CreateChangeSetInput{
			StackName: aws.String("plain"), ChangeSetName: &step.name, ChangeSetType: step.kind, TemplateBody: aws.String(plain), Parameters: step.parameters,
			Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = cloudformation.NewChangeSetCreateCompleteWaiter(b.stacks).Wait(ctx, &cloudformation.DescribeChangeSetInput{StackName: aws.String("plain"), ChangeSetName: &step.name}, time.Minute)
		lines = append(lines, step.name+" is ready: "+outcome(err))
		set, err := b.stacks.DescribeChangeSet(ctx, &cloudformation.DescribeChangeSetInput{StackName: aws.String("plain"), ChangeSetName: &step.name})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", *set.StackName, set.Status, set.ExecutionStatus))
		var changes []string
		for _, c := range set.Changes {
			changes = append(changes, fmt.Sprintf("%s %s %s", c.ResourceChange.Action, *c.ResourceChange.LogicalResourceId, *c.ResourceChange.ResourceType))
		}
		if slices.Sort(changes); step.kind == types.ChangeSetTypeCreate {
			lines = append(lines, changes...) // moto's updates are of everything
		}
		if _, err := b.stacks.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{StackName: aws.String("plain"), ChangeSetName: &step.name}); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, b.plainNow(t)...)
	}
	_, err := b.stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: aws.String("plain")})
	lines = append(lines, "delete: "+outcome(err))
	_, err = b.stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: aws.String("plain")})
	return append(lines, "gone: "+outcome(err))
}

// plainNow returns the answers of describe calls about the stack.
func (b *bench) plainNow(t *testing.T) (lines []string) {
	t.Helper()
	out, err := b.stacks.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: aws.String("plain")})
	if err != nil {
		t.Fatal(err)
	}
	s := out.Stacks[0]
	lines = append(lines, string(s.StackStatus))
	for _, p := range s.Parameters {
		if *p.ParameterKey == "Kind" {
			lines = append(lines, "Kind is "+*p.ParameterValue)
		}
	}
	resources, err := b.stacks.DescribeStackResources(t.Context(), &cloudformation.DescribeStackResourcesInput{StackName: aws.String("plain")})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.StackResources {
		line := fmt.Sprintf("resource %s %s", *r.LogicalResourceId, *r.ResourceType)
		if *r.ResourceType != "AWS::EC2::LaunchTemplate" {
			line += " " + *r.PhysicalResourceId
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// put makes a parameter by its API.
func (b *bench) put(t *testing.T, name, value string) {
	t.Helper()
	if _, err := b.ssm.PutParameter(t.Context(), &ssm.PutParameterInput{Name: &name, Value: &value, Type: ssmtypes.ParameterTypeString}); err != nil {
		t.Fatal(err)
	}
}
