package template

import "github.com/hardtack/packer-plugin-hardtack/pkg/spec"

// OutputKey is the ARN of the key, an output of Key's template.
const OutputKey = "KeyArn"

// Key renders the template of the key that encrypts a cluster's secrets (aws.secretsKey: stack). It has a stack of its own,
// since the secrets are there before the cluster's stack and after it. The key and its alias stay when that stack is
// deleted: without them the secrets are lost. Its policy names the account's root alone, so that IAM policies decide.
func Key(c *spec.Complete) *Template {
	kept := func(kind string, properties object) Resource {
		return Resource{Type: kind, DeletionPolicy: "RetainExceptOnCreate", UpdateReplacePolicy: "Retain", Properties: properties}
	}
	name := c.Cluster.Name
	return &Template{
		Version: "2010-09-09", Description: "Hardtack: the key of the secrets of the cluster " + name + " in Parameter Store.",
		Resources: map[string]Resource{
			"Key": kept("AWS::KMS::Key", object{
				"Description":       "the secrets of the cluster " + name + " in Parameter Store",
				"EnableKeyRotation": true,
				"KeyPolicy": object{"Version": "2012-10-17", "Statement": []any{object{
					"Sid": "PoliciesOfTheAccountDecide", "Effect": "Allow", "Principal": object{"AWS": sub("arn:${AWS::Partition}:iam::${AWS::AccountId}:root")},
					"Action": "kms:*", "Resource": "*",
				}}},
				"Tags": named(name, "", c.Cluster.AWS.Tags),
			}),
			"Alias": kept("AWS::KMS::Alias", object{"AliasName": c.SecretsKey(), "TargetKeyId": ref("Key")}),
		},
		Outputs: map[string]Output{OutputKey: {Description: "The key.", Value: attribute("Key", "Arn")}},
	}
}
