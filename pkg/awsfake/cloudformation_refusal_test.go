package awsfake

import (
	"bufio"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"
)

const emptyGroup = "  A: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: a, VpcId: vpc-00000000000000001}}\n"

// templateRefusals are templates that CloudFormation refuses before it makes anything.
var templateRefusals = []struct{ name, body, message string }{
	{"no YAML", "Resources: [", "Template format error: YAML not well-formed."},
	{"a list", "- a", "Template format error: unsupported structure."},
	{"no resources", "Description: x", "Template format error: At least one Resources member must be defined."},
	{"a transform", "Transform: AWS::Serverless-2016-10-31\nResources:\n" + emptyGroup, "Template format error: awsfake does not model the section Transform"},
	{"a type that is none", "Resources:\n  A: {Type: AWS::EC2::Cupboard}\n", "Template format error: Unrecognized resource types: [AWS::EC2::Cupboard]"},
	{"no type", "Resources:\n  A: {Properties: {}}\n", "Template format error: [/Resources/A] Every Resources object must contain a Type member."},
	{"null", "Resources:\n  A: {Type: AWS::EC2::SecurityGroup, Properties: {VpcId: null}}\n", "Template format error: [/Resources/A/Properties/VpcId] 'null' values are not allowed in templates"},
	{"a name that nothing has", "Resources:\n  A: {Type: AWS::EC2::SecurityGroup, Properties: {VpcId: !Ref B}}\n", "Template format error: Unresolved resource dependencies [B] in the Resources block of the template"},
	{"an output of nothing", "Resources:\n" + emptyGroup + "Outputs:\n  O: {Value: !Ref B}\n", "Template format error: Unresolved resource dependencies [B] in the Outputs block of the template"},
	{"an attribute of nothing", "Resources:\n  A: {Type: AWS::EC2::SecurityGroup, Properties: {VpcId: !GetAtt B.Id}}\n", "Template error: instance of Fn::GetAtt references undefined resource B"},
	{"an attribute that is none", "Resources:\n" + emptyGroup + "Outputs:\n  O: {Value: !GetAtt A.Arn}\n", "Template error: resource A does not support attribute type Arn in Fn::GetAtt"},
	{"a circle", "Resources:\n  A: {Type: AWS::EC2::SecurityGroup, Properties: {VpcId: !Ref B}}\n  B: {Type: AWS::EC2::SecurityGroup, Properties: {VpcId: !Ref A}}\n", "Circular dependency between resources: [A, B]"},
	{"a condition that is none", "Resources:\n  A: {Type: AWS::EC2::SecurityGroup, Condition: C}\n", "Template format error: Unresolved condition dependencies [C] in the Resources block of the template"},
	{"a function that is none", "Resources:\n  A: {Type: AWS::EC2::SecurityGroup, Properties: {VpcId: !Cidr [a, 1]}}\n", "Template error: awsfake does not model the function Fn::Cidr"},
	{"51,201 bytes", "Resources:\n" + emptyGroup + "#" + strings.Repeat("x", 51_201), "1 validation error detected: Value '...' at 'templateBody' failed to satisfy constraint: Member must have length less than or equal to 51200"},
	{"a snapshot of a group", "Resources:\n  A: {Type: AWS::EC2::SecurityGroup, DeletionPolicy: Snapshot}\n", "Template error: resource type AWS::EC2::SecurityGroup does not support deletion policy Snapshot"},
	{"an update that retains on creation", "Resources:\n  A: {Type: AWS::EC2::Volume, UpdateReplacePolicy: RetainExceptOnCreate}\n", "Template format error: Unrecognized DeletionPolicy or UpdateReplacePolicy for resource A"},
	{"an update policy", "Resources:\n  A: {Type: AWS::AutoScaling::AutoScalingGroup, UpdatePolicy: {}}\n", "Template format error: [/Resources/A] Invalid template member UpdatePolicy"},
}

func TestTemplateRefusals(t *testing.T) {
	b := stackBench(t, Options{})
	for _, tt := range templateRefusals {
		t.Run(tt.name, func(t *testing.T) {
			_, err := b.stacks.CreateChangeSet(t.Context(), &cloudformation.CreateChangeSetInput{
				StackName: aws.String("demo"), ChangeSetName: aws.String("c"), ChangeSetType: types.ChangeSetTypeCreate, TemplateBody: &tt.body,
			})
			wantBeginning(t, err, tt.message)
		})
	}
	if n := len(b.account.CloudFormation().stacks); n != 0 {
		t.Errorf("%d stacks were begun by calls that were refused", n)
	}
}

// wantBeginning checks the beginning of a ValidationError's message: the rest is the YAML library's.
func wantBeginning(t *testing.T, err error, message string) {
	t.Helper()
	var api interface{ ErrorMessage() string }
	if outcome(err) != "ValidationError" || !errors.As(err, &api) || !strings.HasPrefix(api.ErrorMessage(), message) {
		t.Errorf("got  %v\nwant %s", err, message)
	}
}

func TestChangeSetRefusals(t *testing.T) {
	b := smallStack(t)
	ctx := t.Context()
	call := func(change func(*cloudformation.CreateChangeSetInput)) error {
		in := &cloudformation.CreateChangeSetInput{
			StackName: aws.String("demo"), ChangeSetName: aws.String("c"), TemplateBody: aws.String(small), Capabilities: []types.Capability{types.CapabilityCapabilityIam},
		}
		change(in)
		_, err := b.stacks.CreateChangeSet(ctx, in)
		return err
	}
	for _, tt := range []struct {
		name, code, message string
		change              func(*cloudformation.CreateChangeSetInput)
	}{
		{"an import", "ValidationError", "awsfake does not model change sets of the type IMPORT", func(in *cloudformation.CreateChangeSetInput) { in.ChangeSetType = types.ChangeSetTypeImport }},
		{"a stack twice", "ValidationError", "Stack [demo] already exists and cannot be created again with the changeSet [c].", func(in *cloudformation.CreateChangeSetInput) { in.ChangeSetType = types.ChangeSetTypeCreate }},
		{"an update of nothing", "ValidationError", "Stack [other] does not exist", func(in *cloudformation.CreateChangeSetInput) { in.StackName = aws.String("other") }},
		{"a name with a dot", "ValidationError", "", func(in *cloudformation.CreateChangeSetInput) { in.ChangeSetName = aws.String("a.b") }},
		{"no template", "ValidationError", "Either Template URL or Template Body must be specified.", func(in *cloudformation.CreateChangeSetInput) { in.TemplateBody = nil }},
		{"an object that is not there", "ValidationError", "S3 error: The specified key does not exist.", func(in *cloudformation.CreateChangeSetInput) {
			in.TemplateBody, in.TemplateURL = nil, aws.String("https://bucket.s3.amazonaws.com/t.yaml")
		}},
		{"roles without a word", "InsufficientCapabilitiesException", "Requires capabilities : [CAPABILITY_IAM]", func(in *cloudformation.CreateChangeSetInput) { in.Capabilities = nil }},
		{"named roles without a word", "InsufficientCapabilitiesException", "Requires capabilities : [CAPABILITY_NAMED_IAM]", func(in *cloudformation.CreateChangeSetInput) {
			in.TemplateBody = aws.String(strings.Replace(small, "AssumeRolePolicyDocument:", "RoleName: me\n      AssumeRolePolicyDocument:", 1))
		}},
		{"a parameter of another", "ValidationError", "Parameters: [Colour] do not exist in the template", func(in *cloudformation.CreateChangeSetInput) { in.Parameters = given("Colour", "red") }},
		{"a parameter too few", "ValidationError", "Parameters: [Text] must have values", func(in *cloudformation.CreateChangeSetInput) {
			in.TemplateBody = aws.String(strings.Replace(small, "Text: {Type: String, Default: one}", "Text: {Type: String}", 1))
		}},
		{"a value that is not allowed", "ValidationError", "Parameter 'Opened' must be one of AllowedValues", func(in *cloudformation.CreateChangeSetInput) { in.Parameters = given("Opened", "maybe") }},
		{"against its pattern", "ValidationError", "Parameter Size failed to satisfy constraint: Member must satisfy regular expression pattern: [0-3]", func(in *cloudformation.CreateChangeSetInput) { in.Parameters = given("Size", "many") }},
		{"no such image parameter", "ValidationError", "Unable to fetch parameters [/none] from parameter store for this account.", func(in *cloudformation.CreateChangeSetInput) { in.Parameters = given("ImageId", "/none") }},
		{"a parameter that was not there", "ValidationError", "", func(in *cloudformation.CreateChangeSetInput) {
			in.TemplateBody = aws.String(strings.Replace(small, "  Size:", "  New: {Type: String}\n  Size:", 1))
			in.Parameters = []types.Parameter{{ParameterKey: aws.String("New"), UsePreviousValue: aws.Bool(true)}}
		}},
		{"nested stacks", "ValidationError", "awsfake does not model the field IncludeNestedStacks of this call", func(in *cloudformation.CreateChangeSetInput) { in.IncludeNestedStacks = aws.Bool(true) }},
	} {
		t.Run(tt.name, func(t *testing.T) { wantCode(t, call(tt.change), tt.code, tt.message) })
	}
	if err := call(func(*cloudformation.CreateChangeSetInput) {}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, call(func(*cloudformation.CreateChangeSetInput) {}), "AlreadyExistsException", "ChangeSet c already exists")
	_, err := b.stacks.ExecuteChangeSet(ctx, &cloudformation.ExecuteChangeSetInput{StackName: aws.String("demo"), ChangeSetName: aws.String("none")})
	wantCode(t, err, "ChangeSetNotFound", "ChangeSet [none] does not exist")
	_, err = b.stacks.DescribeStackEvents(ctx, &cloudformation.DescribeStackEventsInput{StackName: aws.String("other")})
	wantCode(t, err, "ValidationError", "Stack [other] does not exist")
}

// TestPreviousValues updates with the previous parameter values, which differ from the defaults.
func TestPreviousValues(t *testing.T) {
	b := smallStack(t)
	_, err := b.stacks.CreateChangeSet(t.Context(), &cloudformation.CreateChangeSetInput{
		StackName: aws.String("demo"), ChangeSetName: aws.String("same"), UsePreviousTemplate: aws.Bool(true), Capabilities: []types.Capability{types.CapabilityCapabilityIam},
		Parameters: []types.Parameter{{ParameterKey: aws.String("Size"), UsePreviousValue: aws.Bool(true)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.pass(time.Second)
	out, err := b.stacks.DescribeChangeSet(t.Context(), &cloudformation.DescribeChangeSetInput{StackName: aws.String("demo"), ChangeSetName: aws.String("same")})
	if err != nil || out.Status != types.ChangeSetStatusFailed {
		t.Errorf("with previous values the change set is %v, %v", out.Status, err)
	}
}

// TestRolesOfStacks checks that a stack's role may make the calls that its policies allow, and no others.
func TestRolesOfStacks(t *testing.T) {
	b := smallStack(t)
	role := b.account.CloudFormation().stacks[0].resources["Role"].physical
	issued, err := b.account.Issue(role, "i-00000000000000001", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/hardtack/stable/image-id", "/hardtack/candidate/image-id"} {
		if got := b.read(t, issued, name); got != "ok" {
			t.Errorf("reading %s: %s", name, got)
		}
	}
	if got := b.read(t, issued, "/other"); got != "AccessDeniedException" {
		t.Errorf("reading /other: %s", got)
	}
}

// cfnSchemas are the properties that cfn-lint's copy of CloudFormation's registry has of a type, and those whose
// change replaces it, for certain or on a condition.
type cfnSchema struct{ Properties, CreateOnly, Conditional, Required, ReadOnly []string }

// schemaScript reads cfn-lint's files without loading cfn-lint, which takes many seconds.
const schemaScript = `
import importlib.util, json, os, runpy, sys
folder = os.path.join(importlib.util.find_spec("cfnlint").submodule_search_locations[0], "data", "schemas")
types = runpy.run_path(os.path.join(folder, "providers", "us_west_2.py"))["types"]
short = lambda names: sorted(n.removeprefix("/properties/") for n in names or [])
for line in sys.stdin:
    s = json.load(open(os.path.join(folder, "resources", types[line.strip()] + ".json")))
    print(json.dumps({"Properties": sorted(s["properties"]), "CreateOnly": short(s.get("createOnlyProperties")),
                      "Conditional": short(s.get("conditionalCreateOnlyProperties")),
                      "Required": sorted(s.get("required") or []), "ReadOnly": short(s.get("readOnlyProperties"))}))
`

// TestKindsAgainstSchemas compares each type with AWS's own schema: it has no other properties, the same ones cause
// replacement, required ones are required here, and attributes are those that the schema has.
func TestKindsAgainstSchemas(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	if exec.CommandContext(t.Context(), python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('cfnlint') is None)").Run() != nil {
		t.Skip("cfn-lint is not installed (run scripts/setup --judges)")
	}
	names := sortedKeys(resourceKinds())
	cmd := exec.CommandContext(t.Context(), python, "-c", schemaScript)
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reading cfn-lint's schemas: %v", err)
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for _, name := range names {
		if !lines.Scan() {
			t.Fatalf("cfn-lint says nothing of %s", name)
		}
		var schema cfnSchema
		if err := json.Unmarshal(lines.Bytes(), &schema); err != nil {
			t.Fatal(err)
		}
		facts := resourceKinds()[name].facts()
		for _, property := range sortedKeys(facts.replace) {
			if !slices.Contains(schema.Properties, property) {
				t.Errorf("%s has no property %s", name, property)
			}
			if want := slices.Contains(schema.CreateOnly, property); facts.replace[property] != want {
				t.Errorf("%s: a change of %s replaces: %v, want %v", name, property, facts.replace[property], want)
			}
			if want := slices.Contains(schema.Conditional, property); facts.perhaps[property] != want {
				t.Errorf("%s: a change of %s replaces, perhaps: %v, want %v", name, property, facts.perhaps[property], want)
			}
		}
		var unknown []string
		for _, attribute := range facts.attributes {
			if !slices.Contains(schema.ReadOnly, attribute) && !slices.Contains(schema.Properties, attribute) {
				unknown = append(unknown, attribute)
			}
		}
		if diff := cmp.Diff([]string(nil), unknown); diff != "" {
			t.Errorf("%s has no such attributes:\n%s", name, diff)
		}
	}
}
