package template_test

import (
	"encoding/json"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// managedInstanceCore is AmazonSSMManagedInstanceCore as AWS publishes it ("AWS managed policy reference guide"): with it a machine reads
// every parameter that no other policy keeps from it.
const managedInstanceCore = `{"Version": "2012-10-17", "Statement": [
 {"Effect": "Allow", "Resource": "*", "Action": ["ssm:DescribeAssociation", "ssm:GetDeployablePatchSnapshotForInstance", "ssm:GetDocument", "ssm:DescribeDocument",
  "ssm:GetManifest", "ssm:GetParameter", "ssm:GetParameters", "ssm:ListAssociations", "ssm:ListInstanceAssociations", "ssm:PutInventory", "ssm:PutComplianceItems",
  "ssm:PutConfigurePackageResult", "ssm:UpdateAssociationStatus", "ssm:UpdateInstanceAssociationStatus", "ssm:UpdateInstanceInformation"]},
 {"Effect": "Allow", "Resource": "*", "Action": ["ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"]},
 {"Effect": "Allow", "Resource": "*", "Action": ["ec2messages:AcknowledgeMessage", "ec2messages:DeleteMessage", "ec2messages:FailMessage", "ec2messages:GetEndpoint", "ec2messages:GetMessages", "ec2messages:SendReply"]}]}`

// rolePolicies are the inline policies of a group's role, as they are in the account of the tests.
func rolePolicies(t *testing.T, document, group string) (list []awsfake.Policy) {
	t.Helper()
	for _, p := range render(t, complete(t, document)).Resources["Role"+groupID(group)].Properties["Policies"].([]any) {
		text, err := json.Marshal(localised(p.(map[string]any)["PolicyDocument"]))
		assert.NilError(t, err)
		policy, err := awsfake.ParsePolicy(text)
		assert.NilError(t, err)
		list = append(list, policy)
	}
	return list
}

// A machine with sessions, and even one with all that AWS's own policy for its agent allows, reads no secret that its role does not read
// anyway: the role's denial stands above.
func TestSessionsReadNoSecrets(t *testing.T) {
	core, err := awsfake.ParsePolicy([]byte(managedInstanceCore))
	assert.NilError(t, err)
	const head = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\ngroups:\n- {name: masters, roles: [masters, etcd]}\n"
	arn := func(object string) string {
		return "arn:aws:ssm:" + region + ":" + accountID + ":parameter" + root + object
	}
	without := rolePolicies(t, head+"- {name: minions, roles: [minions]}\n", "minions")
	for name, policies := range map[string][]awsfake.Policy{
		"sessionManager": rolePolicies(t, head+"- {name: minions, roles: [minions], aws: {sessionManager: true}}\n", "minions"),
		"AWS's policy":   append([]awsfake.Policy{core}, without...),
		"a rule for all": rolePolicies(t, head+"- {name: minions, roles: [minions], aws: {sessionManager: true, allow: [{actions: [\"ssm:*\"], resources: [\"*\"]}]}}\n", "minions"),
	} {
		may := func(action, resource string) bool {
			return awsfake.Decision(policies, action, resource, nil) == "allowed"
		}
		for _, action := range []string{"ssm:UpdateInstanceInformation", "ssmmessages:OpenDataChannel", "ssmmessages:CreateControlChannel"} {
			assert.Assert(t, may(action, "*"), "%s: %s", name, action)
		}
		for _, object := range []string{pki.KubernetesCA + pki.Key, pki.ServiceAccount + pki.Key, pki.EtcdClientCA + pki.Key, pki.EncryptionKey} {
			for _, action := range []string{"ssm:GetParameter", "ssm:GetParameters", "ssm:GetParameterHistory"} {
				assert.Assert(t, !may(action, arn(object)), "%s: %s of %s", name, action, object)
			}
		}
		assert.Assert(t, may("ssm:GetParameter", arn(pki.BootstrapToken)), "%s: what the role reads", name)
	}
	assert.Assert(t, awsfake.Decision([]awsfake.Policy{core}, "ssm:GetParameter", arn(pki.KubernetesCA+pki.Key), nil) == "allowed", "AWS's policy alone reads the secrets")
	assert.Assert(t, awsfake.Decision(without, "ssmmessages:OpenDataChannel", "*", nil) != "allowed", "without the field there are no sessions")
}
