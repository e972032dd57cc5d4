package cloudformation_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
)

// One change set in two pages, in the words of the API reference (DescribeChangeSet, ResourceChange, ResourceChangeDetail): a property
// that changes is there once for each evaluation of it, a tag has no name, a detail may have no target, and a change may be of no resource.
const (
	firstPage = `<Status>CREATE_COMPLETE</Status><NextToken>more</NextToken><Changes>
<member><Type>Resource</Type><ResourceChange>
  <Action>Modify</Action><LogicalResourceId>Guard</LogicalResourceId><PhysicalResourceId>sg-1</PhysicalResourceId>
  <ResourceType>AWS::EC2::SecurityGroup</ResourceType><Replacement>Conditional</Replacement>
  <Details>
    <member><Target><Attribute>Properties</Attribute><Name>GroupDescription</Name><RequiresRecreation>Always</RequiresRecreation></Target>
      <Evaluation>Static</Evaluation><ChangeSource>ParameterReference</ChangeSource><CausingEntity>Note</CausingEntity></member>
    <member><Target><Attribute>Properties</Attribute><Name>GroupDescription</Name><RequiresRecreation>Always</RequiresRecreation></Target>
      <Evaluation>Dynamic</Evaluation><ChangeSource>ParameterReference</ChangeSource><CausingEntity>Note</CausingEntity></member>
    <member><Evaluation>Static</Evaluation><ChangeSource>Automatic</ChangeSource></member>
    <member><Target><Attribute>Tags</Attribute><RequiresRecreation>Never</RequiresRecreation></Target>
      <Evaluation>Static</Evaluation><ChangeSource>DirectModification</ChangeSource></member>
  </Details>
</ResourceChange></member>
<member><HookInvocationCount>1</HookInvocationCount></member>
</Changes>`
	secondPage = `<Status>CREATE_COMPLETE</Status><Changes>
<member><Type>Resource</Type><ResourceChange>
  <Action>Remove</Action><PolicyAction>Retain</PolicyAction><LogicalResourceId>Zone</LogicalResourceId>
  <PhysicalResourceId>Z1</PhysicalResourceId><ResourceType>AWS::Route53::HostedZone</ResourceType>
</ResourceChange></member>
<member><Type>Resource</Type><ResourceChange>
  <Action>Remove</Action><PolicyAction>Snapshot</PolicyAction><LogicalResourceId>Volume</LogicalResourceId>
  <PhysicalResourceId>vol-1</PhysicalResourceId><ResourceType>AWS::EC2::Volume</ResourceType>
</ResourceChange></member>
</Changes>`
)

func TestChangesAreRead(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.answers["DescribeChangeSet"] = func(form url.Values) string {
		switch asked++; {
		case asked > 2: // the account's own answer has an end
			return ""
		case form.Get("NextToken") == "more":
			return secondPage
		}
		return firstPage
	}
	w.asleep = func() { t.Error("waits for a change set that is made") }
	plan := w.propose(t, proposal(template("k8s", "one")))
	want := []cloudformation.Change{
		{
			Action: "Modify", Resource: "Guard", Type: "AWS::EC2::SecurityGroup", ID: "sg-1", Replacement: "Conditional",
			Properties: []cloudformation.Property{
				{Name: "GroupDescription", Recreates: "Always", Cause: "Note"}, {Name: "Tags", Recreates: "Never"},
			},
		},
		{Action: "Remove", Resource: "Zone", Type: "AWS::Route53::HostedZone", ID: "Z1", Kept: true},
		{Action: "Remove", Resource: "Volume", Type: "AWS::EC2::Volume", ID: "vol-1"},
	}
	if diff := cmp.Diff(want, plan.Changes); diff != "" {
		t.Errorf("the changes (-want +got):\n%s", diff)
	}
}

func TestReplaces(t *testing.T) {
	const group, volume = cloudformation.TypeGroup, cloudformation.TypeVolume
	for _, tt := range []struct {
		kind, property, recreates string
		replaces, certain         bool
	}{
		{group, "AutoScalingGroupName", "Always", true, true},
		{group, "LaunchTemplate", "Always", true, true},
		{group, "LaunchTemplate", "Conditionally", false, false},
		{group, "Something", "Conditionally", true, false},
		{group, "MaxSize", "Never", false, false},
		{volume, "LaunchTemplate", "Conditionally", true, false},
		{volume, "Size", "Never", false, false},
		{volume, "Size", "", false, false},
	} {
		c := cloudformation.Change{Action: cloudformation.Modify, Type: tt.kind}
		replaces, certain := c.Replaces(cloudformation.Property{Name: tt.property, Recreates: tt.recreates})
		if replaces != tt.replaces || certain != tt.certain {
			t.Errorf("%s of %s, %s: %v, certainly %v", tt.property, tt.kind, tt.recreates, replaces, certain)
		}
	}
}
