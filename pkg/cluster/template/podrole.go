package template

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// issuerID is the logical name of the identity provider of the cluster's tokens.
const issuerID = "PodIssuer"

// tokenAudience is whom tokens for STS are for: who has one for the API server, or for anybody else, gets no role.
const tokenAudience = "sts.amazonaws.com"

// PodRoleOutput is the name of the output with the ARN of a role for pods.
func PodRoleOutput(name string) string { return "PodRole" + logical(name) }

// podRoles adds the identity provider of the cluster's tokens, and the roles that pods take with them.
func (b *builder) podRoles() {
	c := b.cluster.Cluster
	roles := b.rolesOfPods()
	if len(roles) == 0 {
		return
	}
	b.out.Resources[issuerID] = Resource{Type: "AWS::IAM::OIDCProvider", Properties: object{
		"Url": c.ServiceAccounts.Issuer, "ClientIdList": []any{tokenAudience}, "Tags": b.tags(c.Name + "-pods"),
	}}
	for _, r := range roles {
		name := PodRoleOutput(r.id)
		properties := object{
			"Description": podRoleText(r.PodRole),
			"AssumeRolePolicyDocument": object{"Version": "2012-10-17", "Statement": []any{object{
				"Effect": "Allow", "Principal": object{"Federated": ref(issuerID)}, "Action": "sts:AssumeRoleWithWebIdentity",
				"Condition": object{"StringEquals": podConditions(c.ServiceAccounts.Issuer, r.PodRole)},
			}}},
			"PermissionsBoundary": optional(hasBoundary, ParameterBoundary),
			"Tags":                b.tags(c.Name + "-pod-" + r.Name),
		}
		if r.name != "" {
			properties["RoleName"] = sub(r.name)
		}
		if len(r.Policies) > 0 {
			properties["ManagedPolicyArns"] = r.Policies
		}
		if len(r.statements) > 0 {
			properties["Policies"] = []any{object{"PolicyName": "pod", "PolicyDocument": policyDocument(r.statements)}}
		}
		b.out.Resources[name] = Resource{Type: "AWS::IAM::Role", Properties: properties}
		b.out.Outputs[name] = Output{Description: "The role " + r.Name + " of pods: AWS_ROLE_ARN of " + r.Namespace + "/" + r.ServiceAccount, Value: attribute(name, "Arn")}
	}
}

func podRoleText(r spec.PodRole) string {
	return fmt.Sprintf("what pods of the service account %s/%s may do", r.Namespace, r.ServiceAccount)
}

// podConditions are what a token has to say, by the keys that IAM makes of an issuer's URL: without sub every pod would have the role.
func podConditions(issuer string, r spec.PodRole) object {
	name := strings.TrimPrefix(issuer, "https://")
	return object{name + ":aud": tokenAudience, name + ":sub": r.Subject()}
}

func podStatements(r spec.PodRole) []Statement { return ruleStatements(r.Allow) }

// ruleStatements are the statements of a document's rules.
func ruleStatements(rules []spec.PodRoleRule) []Statement {
	statements := []Statement{}
	for i, rule := range rules {
		statements = append(statements, Statement{Sid: fmt.Sprintf("Allow%d", i+1), Effect: "Allow", Action: rule.Actions, Resource: rule.Resources})
	}
	return statements
}

// sorted are the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// modulePods are the roles for pods in a Terraform module. Issuer is empty, and Roles are none, where there are none.
type modulePods struct {
	Issuer   string                   `json:"issuer"`
	Audience string                   `json:"audience"`
	Roles    map[string]modulePodRole `json:"roles"`
}

type modulePodRole struct {
	// RoleName is empty for a role whose name IAM chooses.
	RoleName    string      `json:"role_name"`
	Description string      `json:"description"`
	Conditions  object      `json:"conditions"`
	Policies    []string    `json:"policies"`
	Statements  []Statement `json:"statements"`
}

func (b *builder) modulePods() modulePods {
	pods := modulePods{Audience: tokenAudience, Roles: map[string]modulePodRole{}}
	for _, r := range b.rolesOfPods() {
		pods.Issuer = b.cluster.Cluster.ServiceAccounts.Issuer
		pods.Roles[r.id] = modulePodRole{r.name, podRoleText(r.PodRole), podConditions(pods.Issuer, r.PodRole), r.Policies, append([]Statement{}, r.statements...)}
	}
	return pods
}
