package awsfake

import (
	"strings"
)

// iamService is the part of IAM that tells what an account has, and what a principal may do.
type iamService struct{ account *Account }

// The quotas of an account's roles and instance profiles ("IAM and AWS STS quotas", IAM User Guide: the defaults).
const iamRoles, iamProfiles = 1000, 1000

func (s iamService) actions() actions {
	return actions{
		"GetAccountSummary": s.summary, "GetRole": s.role,
		"SimulatePrincipalPolicy": strict(s.simulate, "PolicySourceArn", "ActionNames", "ResourceArns", "ContextEntries", "MaxItems", "Marker"),
	}
}

// serve carries out one call of its Query protocol (version 2010-05-08).
func (s iamService) serve(c *call) (any, error) { return s.actions().serve(c) }

// needs of IAM: a summary is about no resource, the others about the user or the role.
func (s iamService) needs(c *call) []need {
	arn := "*"
	switch c.Action {
	case "GetRole":
		arn = roleARN(c.Form.Get("RoleName"))
	case "SimulatePrincipalPolicy":
		arn = c.Form.Get("PolicySourceArn")
	}
	return []need{{action: "iam:" + c.Action, arn: arn}}
}

func roleARN(name string) string { return "arn:aws:iam::" + owner + ":role/" + name }

type iamEntry struct {
	Key   string `xml:"key"`
	Value int    `xml:"value"`
}

func (s iamService) summary(params) (any, error) {
	roles := 0
	for _, r := range s.account.identities.roles {
		if !r.user {
			roles++
		}
	}
	return struct {
		Entries []iamEntry `xml:"SummaryMap>entry"`
	}{[]iamEntry{{"Roles", roles}, {"RolesQuota", iamRoles}, {"InstanceProfiles", len(s.account.identities.profiles)}, {"InstanceProfilesQuota", iamProfiles}}}, nil
}

func (s iamService) role(p params) (any, error) {
	r, ok := s.account.identities.roles["role/"+p.get("RoleName")]
	if !ok {
		return nil, &Error{Status: 404, Code: "NoSuchEntity", Message: "The role with name " + p.get("RoleName") + " cannot be found."}
	}
	type role struct{ Path, RoleName, RoleId, Arn, CreateDate string }
	return struct{ Role role }{role{"/", r.name, r.id, roleARN(r.name), "2026-01-01T00:00:00Z"}}, nil
}

type simulated struct {
	Action   string   `xml:"EvalActionName"`
	Resource string   `xml:"EvalResourceName"`
	Decision string   `xml:"EvalDecision"`
	Missing  []string `xml:"MissingContextValues>member"`
}

// simulate decides by the policies of a user or a role. A condition on a key that the call has no value for is reported (API reference,
// EvaluationResult, MissingContextValues). Boundaries and organizations are not modelled.
func (s iamService) simulate(p params) (any, error) {
	kind, name, _ := strings.Cut(strings.TrimPrefix(p.get("PolicySourceArn"), "arn:aws:iam::"+owner+":"), "/")
	who, ok := s.account.identities.roles[kind+"/"+name]
	if !ok {
		return nil, &Error{Status: 404, Code: "NoSuchEntity", Message: "The entity with ARN " + p.get("PolicySourceArn") + " cannot be found."}
	}
	resources := p.list("ResourceArns.member")
	if len(resources) == 0 {
		resources = []string{"*"}
	}
	names := p.list("ActionNames.member")
	if len(names) == 0 {
		return nil, malformed("1 validation error detected: Value at 'actionNames' failed to satisfy constraint: Member must not be null")
	}
	values := map[string][]string{}
	for _, e := range p.structs("ContextEntries.member") {
		values[e.get("ContextKeyName")] = e.list("ContextKeyValues.member")
	}
	var out struct {
		Results   []simulated `xml:"EvaluationResults>member"`
		Truncated bool        `xml:"IsTruncated"`
	}
	for _, action := range names {
		if strings.Contains(action, "*") || !strings.Contains(action, ":") {
			return nil, refuse("InvalidInput", "Invalid Action: %s", action)
		}
		for _, arn := range resources {
			out.Results = append(out.Results, simulated{action, arn, Decision(who.policies, action, arn, values), missing(who.policies, action, values)})
		}
	}
	return out, nil
}

// missing are the condition keys of statements about an action that a call has no value for.
func missing(policies []Policy, action string, values map[string][]string) (keys []string) {
	has := map[string]bool{}
	for key := range values {
		has[strings.ToLower(key)] = true
	}
	for _, p := range policies {
		for _, s := range p {
			for _, c := range s.Conditions {
				if likeAny(lower(s.Actions), strings.ToLower(action)) && !has[strings.ToLower(c.Key)] {
					keys = append(keys, c.Key)
					has[strings.ToLower(c.Key)] = true
				}
			}
		}
	}
	return keys
}
