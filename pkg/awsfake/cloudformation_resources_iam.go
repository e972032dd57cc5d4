package awsfake

import (
	"encoding/json"
)

type roleShape struct {
	Name     string     `cfn:"RoleName" update:"replace"`
	Trust    any        `cfn:"AssumeRolePolicyDocument,required"`
	Text     string     `cfn:"Description"`
	Boundary string     `cfn:"PermissionsBoundary"`
	Policies []rolePart `cfn:"Policies"`
	Managed  []string   `cfn:"ManagedPolicyArns"`
	Session  int        `cfn:"MaxSessionDuration"`
	Tags     any        `cfn:"Tags"`
}

type rolePart struct {
	Name     string `cfn:"PolicyName,required"`
	Document any    `cfn:"PolicyDocument,required"`
}

type profileShape struct {
	Name  string   `cfn:"InstanceProfileName" update:"replace"`
	Roles []string `cfn:"Roles,required"`
}

// document parses a policy in a template as IAM does.
func document(v any) (Policy, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, refuse("MalformedPolicyDocument", "%v", err)
	}
	p, err := ParsePolicy(raw)
	if err != nil {
		return nil, refuse("MalformedPolicyDocument", "%v", err)
	}
	return p, nil
}

// checkTrust checks a role's trust policy.
func checkTrust(v any) error {
	tree, _ := v.(map[string]any)
	list, ok := tree["Statement"].([]any)
	if !ok {
		list = []any{tree["Statement"]}
	}
	for _, item := range list {
		statement, _ := item.(map[string]any)
		switch {
		case statement["Principal"] == nil:
			return refuse("MalformedPolicyDocument", "AssumeRole policy must contain a Principal")
		case statement["Resource"] != nil:
			return refuse("MalformedPolicyDocument", "Has prohibited field Resource")
		case statement["Action"] == nil:
			return refuse("MalformedPolicyDocument", "AssumeRole policy may only specify STS AssumeRole actions.")
		}
	}
	return nil
}

func (p *provision) identities() *identities { return &p.cf.account.identities }

// setPolicies sets a role's policies from the template.
func (p *provision) setPolicies(r *role, want *roleShape) error {
	if err := r.setTrust(want.Trust); err != nil {
		return err
	}
	if want.Session != 0 && (want.Session < roleSession || want.Session > 12*roleSession) {
		return refuse("ValidationError", "Value '%d' at 'maxSessionDuration' failed to satisfy constraint: Member must have value between 3600 and 43200", want.Session)
	}
	r.session = want.Session
	var policies []Policy
	for _, part := range want.Policies {
		policy, err := document(part.Document)
		if err != nil {
			return err
		}
		policies = append(policies, policy)
	}
	for _, arn := range want.Managed {
		policy, ok := p.identities().managed[arn]
		if !ok {
			return refuse("NoSuchEntity", "Policy %s does not exist or is not attachable.", arn)
		}
		policies = append(policies, policy)
	}
	if want.Boundary != "" { // the account has no managed policies
		return refuse("NoSuchPolicy", "Policy %s does not exist or is not attachable.", want.Boundary)
	}
	r.policies = policies
	return nil
}

func identityKinds() map[string]resourceKind {
	return map[string]resourceKind{"AWS::IAM::Role": roleKind(), "AWS::IAM::InstanceProfile": profileKind(), "AWS::IAM::OIDCProvider": providerKind()}
}

func roleKind() resourceKind {
	return kind[roleShape]{
		attributes: []string{"Arn"}, name: "RoleName",
		make: func(p *provision, want *roleShape) error {
			name := p.nameOr(want.Name)
			if p.identities().roles["role/"+name] != nil {
				return refuse("EntityAlreadyExists", "Role with name %s already exists.", name)
			}
			r := p.identities().add(name, false, nil)
			r.made = true
			if err := p.setPolicies(r, want); err != nil {
				delete(p.identities().roles, "role/"+name)
				return err
			}
			p.setID(name, "Arn", "arn:aws:iam::"+owner+":role/"+name)
			return nil
		},
		change: func(p *provision, want, _ *roleShape) error {
			r, err := p.identities().role(p.physical)
			if err != nil {
				return err
			}
			return p.setPolicies(r, want)
		},
		drop: func(p *provision, _ *roleShape) (bool, error) {
			r, err := p.identities().role(p.physical)
			switch {
			case err != nil:
				return true, err
			case p.identities().inProfile(p.physical):
				return true, refuse("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
			}
			p.identities().forget(r)
			return true, nil
		},
	}
}

// providerShape are the properties of AWS::IAM::OIDCProvider that are modelled: thumbprints are for issuers whose certificate no public
// authority has signed.
type providerShape struct {
	URL     string   `cfn:"Url" update:"replace"`
	Clients []string `cfn:"ClientIdList"`
	Tags    any      `cfn:"Tags"`
}

func providerKind() resourceKind {
	return kind[providerShape]{
		attributes: []string{"Arn"},
		make: func(p *provision, want *providerShape) error {
			arn, err := p.identities().addProvider(want.URL, want.Clients)
			if err == nil {
				p.setID(arn, "Arn", arn)
			}
			return err
		},
		change: func(p *provision, want, _ *providerShape) error {
			one, ok := p.identities().providers[p.physical]
			if !ok {
				return refuse("NoSuchEntity", "OpenIDConnect Provider not found for arn %s", p.physical)
			}
			one.clients = want.Clients
			p.identities().providers[p.physical] = one
			return nil
		},
		drop: func(p *provision, _ *providerShape) (bool, error) {
			delete(p.identities().providers, p.physical)
			return true, nil
		},
	}
}

func profileKind() resourceKind {
	set := func(p *provision, want *profileShape) error {
		if len(want.Roles) != 1 {
			return refuse("LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
		}
		if _, err := p.identities().role(want.Roles[0]); err != nil {
			return err
		}
		p.identities().profiles[p.physical] = want.Roles[0]
		return nil
	}
	return kind[profileShape]{
		attributes: []string{"Arn"}, name: "InstanceProfileName",
		make: func(p *provision, want *profileShape) error {
			name := p.nameOr(want.Name)
			if _, ok := p.identities().profiles[name]; ok {
				return refuse("EntityAlreadyExists", "Instance Profile %s already exists.", name)
			}
			p.setID(name, "Arn", "arn:aws:iam::"+owner+":instance-profile/"+name)
			return set(p, want)
		},
		change: func(p *provision, want, _ *profileShape) error { return set(p, want) },
		drop: func(p *provision, _ *profileShape) (bool, error) {
			delete(p.identities().profiles, p.physical)
			return true, nil
		},
	}
}
