package awsfake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/google/go-cmp/cmp"
)

// TestKeysAgainstMoto compares what both stand-ins tell of the keys of parameters. moto asks for no permission, does not
// know which keys there are, and keeps a version's key for the next one without a key, of which AWS says that it gets the
// default key (PutParameter, KeyId).
func TestKeysAgainstMoto(t *testing.T) {
	theirs, ours := motoBench(t), newBench(t, Options{Rates: freely})
	ours.account.SSM().AddKey("alias/mine")
	if diff := cmp.Diff(theirs.keyStory(t), ours.keyStory(t)); diff != "" {
		t.Errorf("moto (-) and awsfake (+) differ:\n%s", diff)
	}
}

func (b *bench) keyStory(t *testing.T) (said []string) {
	t.Helper()
	name := aws.String("/demo/keyed")
	for _, key := range []*string{nil, aws.String("alias/mine")} {
		in := put(*name, "x", ssmtypes.ParameterTypeSecureString)
		in.KeyId, in.Overwrite = key, aws.Bool(true)
		_, err := b.ssm.PutParameter(t.Context(), in)
		said = append(said, outcome(err))
	}
	out, err := b.ssm.GetParameterHistory(t.Context(), &ssm.GetParameterHistoryInput{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range out.Parameters {
		said = append(said, fmt.Sprint(v.Version, aws.ToString(v.KeyId)))
	}
	return said
}

const keyTemplate = `AWSTemplateFormatVersion: "2010-09-09"
Resources:
  Key:
    Type: AWS::KMS::Key
    DeletionPolicy: <fate>
    Properties:
      EnableKeyRotation: true
      KeyPolicy: {Version: "2012-10-17", Statement: [{Effect: Allow, Principal: {AWS: <principal>}, Action: "kms:*", Resource: "*"}]}
  Alias: {Type: AWS::KMS::Alias, DeletionPolicy: <fate>, Properties: {AliasName: <alias>, TargetKeyId: !Ref Key}}
Outputs: {Key: {Value: !GetAtt Key.Arn}}
`

// TestKeyStacks makes keys, and deletes their stacks: with the key or without, as its DeletionPolicy says.
func TestKeyStacks(t *testing.T) {
	const root = "arn:aws:iam::" + owner + ":root"
	for _, tt := range []struct{ fate, principal, alias, want, left string }{
		{"Delete", root, "alias/mine", "CREATE_COMPLETE", KeyDeletion}, {"RetainExceptOnCreate", root, "alias/mine", "CREATE_COMPLETE", KeyEnabled},
		{"Delete", `"*"`, "alias/mine", "ROLLBACK_COMPLETE", ""}, {"RetainExceptOnCreate", root, "alias/aws/mine", "ROLLBACK_COMPLETE", KeyDeletion},
		{"RetainExceptOnCreate", root, "alias/taken", "ROLLBACK_COMPLETE", KeyDeletion},
	} {
		b := newBench(t, Options{})
		taken := b.account.SSM().AddKey("alias/taken")
		body := strings.NewReplacer("<fate>", tt.fate, "<principal>", tt.principal, "<alias>", tt.alias).Replace(keyTemplate)
		stack := b.deploy(t, types.ChangeSetTypeCreate, body, nil)
		wantStatus(t, b, stack, types.StackStatus(tt.want))
		made := ""
		for arn, k := range b.account.SSM().vault.keys {
			if arn != taken && !k.shared {
				made = arn
			}
		}
		if tt.want == "CREATE_COMPLETE" {
			if state, rotates := b.account.SSM().KeyState(tt.alias); state != KeyEnabled || !rotates || made != *stack.Outputs[0].OutputValue {
				t.Errorf("%+v: %s, rotates %v, %s", tt, state, rotates, made)
			}
			if _, err := b.stacks.DeleteStack(t.Context(), &cloudformation.DeleteStackInput{StackName: stack.StackId}); err != nil {
				t.Fatal(err)
			}
			b.end(t)
		}
		if state, _ := b.account.SSM().KeyState(made); state != tt.left {
			t.Errorf("%+v: the key is %q in the end", tt, state)
		}
		if state, _ := b.account.SSM().KeyState(tt.alias); tt.alias == "alias/mine" && (state == KeyEnabled) != (tt.left == KeyEnabled) {
			t.Errorf("%+v: the alias's key is %q in the end", tt, state)
		}
	}
}
