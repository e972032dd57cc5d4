package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"
)

// proposed returns the changes of a change set as lines.
func proposed(set *cloudformation.DescribeChangeSetOutput) []string {
	lines := []string{}
	for _, c := range set.Changes {
		r := c.ResourceChange
		line := fmt.Sprintf("%s %s %s", r.Action, *r.LogicalResourceId, r.Replacement)
		for _, d := range r.Details {
			line += fmt.Sprintf(" [%s %s %s %s %s]", d.Evaluation, aws.ToString(d.Target.Name), d.Target.RequiresRecreation, d.ChangeSource, aws.ToString(d.CausingEntity))
		}
		lines = append(lines, strings.TrimSpace(strings.ReplaceAll(line, " ]", "]")))
	}
	return lines
}

// smallStack is a bench with the stack small, of two machines.
func smallStack(t *testing.T) *bench {
	t.Helper()
	b := stackBench(t, Options{CloudFormation: CloudFormationOptions{Step: time.Second}, Rates: map[string]float64{"route53": 0}})
	wantStatus(t, b, b.deploy(t, types.ChangeSetTypeCreate, small, given("Size", "2")), types.StackStatusCreateComplete)
	return b
}

func TestChangeSetSaysWhatChanges(t *testing.T) {
	for _, tt := range []struct {
		name       string
		change     func(string) string
		parameters []types.Parameter
		want       []string
	}{
		{"a parameter", nil, given("Size", "3"), []string{"Modify Group False [Static DesiredCapacity Never ParameterReference Size]"}},
		{"what the group launches from", nil, given("Size", "2", "Text", "two"), []string{
			"Modify Group Conditional [Dynamic LaunchTemplate Conditionally ResourceAttribute Template.LatestVersionNumber]",
			"Modify Template False [Static VersionDescription Never ParameterReference Text]",
		}},
		{"a name", func(s string) string { return strings.Replace(s, "GroupName: small", "GroupName: other", 1) }, given("Size", "2"),
			[]string{"Modify Group True [Static AutoScalingGroupName Always DirectModification]"}},
		{"a group that others name", func(s string) string { return strings.Replace(s, "the door", "another door", 1) }, given("Size", "2"), []string{
			"Modify Door True [Static GroupDescription Always DirectModification]",
			"Modify Group Conditional [Dynamic LaunchTemplate Conditionally ResourceAttribute Template.LatestVersionNumber]",
			"Modify Rule Conditional [Dynamic GroupId Always ResourceAttribute Door.GroupId] [Dynamic SourceSecurityGroupId Always ResourceAttribute Door.GroupId]",
			"Modify Template False [Dynamic LaunchTemplateData Never ResourceReference Door]",
		}},
		{"a condition", nil, given("Size", "2", "Opened", "no"), []string{"Remove Rule"}},
		{"another resource", func(s string) string {
			return strings.Replace(s, "Resources:\n", "Resources:\n  Other: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: b, VpcId: vpc-00000000000000001}}\n", 1)
		}, given("Size", "2"), []string{"Add Other"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := smallStack(t)
			body := small
			if tt.change != nil {
				body = tt.change(small)
			}
			set := b.propose(t, types.ChangeSetTypeUpdate, body, tt.parameters)
			if diff := cmp.Diff(tt.want, proposed(set)); diff != "" {
				t.Errorf("the changes (-want +got):\n%s", diff)
			}
			before := len(b.account.EC2().visible())
			if _, err := b.stacks.ExecuteChangeSet(t.Context(), &cloudformation.ExecuteChangeSetInput{ChangeSetName: set.ChangeSetId}); err != nil {
				t.Fatal(err)
			}
			wantStatus(t, b, b.end(t), types.StackStatusUpdateComplete)
			if running := b.running(); tt.name != "a parameter" && len(running) != before {
				t.Errorf("%d machines run after the update, %d before", len(running), before)
			}
		})
	}
}

// running lists the machines that run.
func (b *bench) running() []Machine {
	return slices.DeleteFunc(b.account.EC2().visible(), func(m Machine) bool { return m.State != MachineRunning })
}

func TestUpdateLeavesMachinesAlone(t *testing.T) {
	b := smallStack(t)
	before := b.running()
	// The parameter names another image: the stack says so once it is updated, with nothing else changed.
	if _, err := b.account.SSM().Put(Parameter{Name: parameterOfImage, Value: imageB}, true); err != nil {
		t.Fatal(err)
	}
	s := b.deploy(t, types.ChangeSetTypeUpdate, small, given("Size", "2"))
	wantStatus(t, b, s, types.StackStatusUpdateComplete)
	if got := b.running(); !slices.EqualFunc(got, before, func(a, b Machine) bool { return a.ID == b.ID }) {
		t.Errorf("the update has replaced machines: %v, before %v", got, before)
	}
	for _, p := range s.Parameters {
		if *p.ParameterKey == "ImageId" && aws.ToString(p.ResolvedValue) != imageB {
			t.Errorf("the image is %v", aws.ToString(p.ResolvedValue))
		}
	}
	if v := *b.describe(t, "small").LaunchTemplate.Version; v != "2" {
		t.Errorf("the group launches version %s", v)
	}
	templates := b.account.EC2().LaunchTemplates()
	if len(templates) != 1 || templates[0].Default != 1 || len(templates[0].Versions) != 2 {
		t.Errorf("the launch template is %+v", templates)
	}
	if err := b.account.AutoScaling().SetDesired("small", 3); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Second)
	if list := b.running(); len(list) != 3 || list[2].Image != imageB {
		t.Errorf("the new machine is %+v", list[len(list)-1])
	}
}

func TestNothingToChange(t *testing.T) {
	b := smallStack(t)
	set := b.propose(t, types.ChangeSetTypeUpdate, small, given("Size", "2"))
	if set.Status != types.ChangeSetStatusFailed || set.ExecutionStatus != types.ExecutionStatusUnavailable || *set.StatusReason != "The submitted information didn't contain changes. Submit different information to create a change set." {
		t.Errorf("the change set is %s, %s: %s", set.Status, set.ExecutionStatus, aws.ToString(set.StatusReason))
	}
	_, err := b.stacks.ExecuteChangeSet(t.Context(), &cloudformation.ExecuteChangeSetInput{ChangeSetName: set.ChangeSetId})
	wantCode(t, err, "InvalidChangeSetStatus", fmt.Sprintf("ChangeSet [%s] cannot be executed in its current execution status of [UNAVAILABLE]", *set.ChangeSetId))
	if _, err := b.stacks.DeleteChangeSet(t.Context(), &cloudformation.DeleteChangeSetInput{ChangeSetName: set.ChangeSetId}); err != nil {
		t.Fatal(err)
	}
	_, err = b.stacks.DescribeChangeSet(t.Context(), &cloudformation.DescribeChangeSetInput{ChangeSetName: set.ChangeSetId})
	wantCode(t, err, "ChangeSetNotFound", "")
}

func TestCreationRollsBack(t *testing.T) {
	b := stackBench(t, Options{CloudFormation: CloudFormationOptions{Step: time.Second}})
	broken := strings.Replace(small, "InstanceType: t3.small", "InstanceType: t3.small\n        KernelName: linux", 1)
	s := b.deploy(t, types.ChangeSetTypeCreate, broken, nil)
	wantStatus(t, b, s, types.StackStatusRollbackComplete)
	for _, line := range []string{
		"Template CREATE_FAILED Encountered unsupported property KernelName",
		"demo ROLLBACK_IN_PROGRESS The following resource(s) failed to create: [Template].", "Profile DELETE_COMPLETE", "Role DELETE_COMPLETE",
	} {
		if !slices.Contains(strings.Split(b.stackStory(), "\n"), line) {
			t.Errorf("no event says %q:\n%s", line, b.stackStory())
		}
	}
	if n := len(b.account.Roles()) + len(b.account.EC2().SecurityGroups()) + len(b.account.EC2().LaunchTemplates()); n != 0 {
		t.Errorf("%d resources are left", n)
	}
	// Such a stack can only be deleted.
	_, err := b.stacks.CreateChangeSet(t.Context(), &cloudformation.CreateChangeSetInput{StackName: aws.String("demo"), ChangeSetName: aws.String("next"), TemplateBody: aws.String(small)})
	wantCode(t, err, "ValidationError", fmt.Sprintf("Stack:%s is in ROLLBACK_COMPLETE state and can not be updated.", *s.StackId))
	if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: aws.String("demo")}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, b, b.end(t), types.StackStatusDeleteComplete)
	_, err = b.stacks.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{StackName: aws.String("demo")})
	wantCode(t, err, "ValidationError", "Stack with id demo does not exist")
}

func TestUpdateRollsBack(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		change       func(string) string
	}{
		{"a property that is none", "Group UPDATE_FAILED Encountered unsupported property Colour", func(s string) string {
			s = strings.Replace(s, "the door", "another door", 1) // replaced, with its rule, before the group fails
			return strings.Replace(s, "      MinSize:", "      Colour: red\n      MinSize:", 1)
		}},
		{"a custom name", "Template UPDATE_FAILED Launch template name already in use.", func(s string) string {
			return strings.Replace(s, "LaunchTemplateName: small", "LaunchTemplateName: taken", 1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := smallStack(t)
			b.createTemplate(t, "taken", launchRequest(imageA, ""))
			door := b.account.CloudFormation().stacks[0].resources["Door"].physical
			s := b.deploy(t, types.ChangeSetTypeUpdate, tt.change(small), given("Size", "2", "Text", "two"))
			wantStatus(t, b, s, types.StackStatusUpdateRollbackComplete)
			if !slices.Contains(strings.Split(b.stackStory(), "\n"), tt.reason) {
				t.Errorf("no event says %q:\n%s", tt.reason, b.stackStory())
			}
			groups := b.account.EC2().SecurityGroups()
			if len(groups) != 1 || groups[0].ID != door || len(groups[0].Ingress) != 1 {
				t.Errorf("the security groups are %+v", groups)
			}
			if !slices.ContainsFunc(s.Parameters, func(p types.Parameter) bool { return *p.ParameterKey == "Text" && *p.ParameterValue == "one" }) {
				t.Errorf("the parameters are %+v", s.Parameters)
			}
			v := b.describe(t, "small").LaunchTemplate
			for _, lt := range b.account.EC2().LaunchTemplates() {
				n := slices.IndexFunc(lt.Versions, func(version LaunchVersion) bool { return fmt.Sprint(version.Number) == *v.Version })
				if lt.Name == "small" && lt.Versions[n].Description != "one" {
					t.Errorf("the group launches %q", lt.Versions[n].Description)
				}
			}
			// It can be updated again.
			wantStatus(t, b, b.deploy(t, types.ChangeSetTypeUpdate, small, given("Size", "3")), types.StackStatusUpdateComplete)
		})
	}
}

// TestTagsOfStacks gives a stack tags: its resources have them, and their machines.
func TestTagsOfStacks(t *testing.T) {
	b := stackBench(t, Options{})
	_, err := b.stacks.CreateChangeSet(t.Context(), &cloudformation.CreateChangeSetInput{
		StackName: aws.String("demo"), ChangeSetName: aws.String("c"), ChangeSetType: types.ChangeSetTypeCreate, TemplateBody: aws.String(small),
		Capabilities: []types.Capability{types.CapabilityCapabilityIam}, Tags: []types.Tag{{Key: aws.String("Team"), Value: aws.String("platform")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.stacks.ExecuteChangeSet(t.Context(), &cloudformation.ExecuteChangeSetInput{StackName: aws.String("demo"), ChangeSetName: aws.String("c")}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, b, b.end(t), types.StackStatusCreateComplete)
	machine, group := b.running()[0], b.account.EC2().SecurityGroups()[0]
	if machine.Tags["Team"] != "platform" || group.Tags["Team"] != "platform" || group.Tags["aws:cloudformation:logical-id"] != "Door" {
		t.Errorf("the machine has %v, the security group %v", machine.Tags, group.Tags)
	}
}
