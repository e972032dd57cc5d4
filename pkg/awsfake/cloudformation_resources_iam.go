package awsfake

import (
	"encoding/json"
	"slices"
	"strings"
)

type roleShape struct {
	Name     string      `cfn:"RoleName" update:"replace"`
	Path     string      `cfn:"Path" update:"replace"`
	Trust    any         `cfn:"AssumeRolePolicyDocument,required"`
	Text     string      `cfn:"Description"`
	Boundary string      `cfn:"PermissionsBoundary"`
	Policies []rolePart  `cfn:"Policies"`
	Managed  []string    `cfn:"ManagedPolicyArns"`
	Session  *int        `cfn:"MaxSessionDuration"`
	Tags     []LaunchTag `cfn:"Tags"`
}

type rolePart struct {
	Name     string `cfn:"PolicyName,required"`
	Document any    `cfn:"PolicyDocument,required"`
}

type rolePolicyShape struct {
	Name     string `cfn:"PolicyName,required" update:"replace"`
	Role     string `cfn:"RoleName,required" update:"replace"`
	Document any    `cfn:"PolicyDocument"`
}

type policyShape struct {
	Name     string   `cfn:"PolicyName,required"`
	Document any      `cfn:"PolicyDocument,required"`
	Roles    []string `cfn:"Roles,required"`
}

type managedShape struct {
	Name     string   `cfn:"ManagedPolicyName" update:"replace"`
	Path     string   `cfn:"Path" update:"replace"`
	Text     string   `cfn:"Description" update:"replace"`
	Document any      `cfn:"PolicyDocument,required"`
	Roles    []string `cfn:"Roles"`
}

type profileShape struct {
	Name  string   `cfn:"InstanceProfileName" update:"replace"`
	Path  string   `cfn:"Path" update:"replace"`
	Roles []string `cfn:"Roles,required"`
}

// document reads a policy of a template as IAM does.
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

// trust holds the policy that says who may take a role on to what IAM asks of one.
func trust(v any) error {
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

// fill gives a role what the template says, beside what policies of their own have attached to it.
func (p *provision) fill(r *role, want *roleShape, was []rolePart) error {
	if err := trust(want.Trust); err != nil {
		return err
	}
	named := map[string]Policy{}
	for _, part := range want.Policies {
		policy, err := document(part.Document)
		if err != nil {
			return err
		}
		named[part.Name] = policy
	}
	for _, arn := range append(slices.Clone(want.Managed), want.Boundary) {
		if _, ok := p.identities().managed[arn]; !ok && arn != "" {
			return refuse("NoSuchPolicy", "Policy %s does not exist or is not attachable.", arn)
		}
	}
	for _, part := range was {
		delete(r.named, part.Name)
	}
	for name, policy := range named {
		r.named[name] = policy
	}
	r.attached, r.boundary = want.Managed, want.Boundary
	p.identities().renew(r)
	return nil
}

func identityKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::IAM::Role":            roleKind(),
		"AWS::IAM::InstanceProfile": profileKind(),
		"AWS::IAM::RolePolicy": kind[rolePolicyShape]{
			make: func(p *provision, want *rolePolicyShape) error {
				p.is(want.Name)
				return p.attach([]string{want.Role}, want.Name, want.Document)
			},
			change: func(p *provision, want, _ *rolePolicyShape) error {
				return p.attach([]string{want.Role}, want.Name, want.Document)
			},
			drop: func(p *provision, was *rolePolicyShape) (bool, error) {
				return true, p.detach([]string{was.Role}, was.Name)
			},
		},
		"AWS::IAM::Policy": kind[policyShape]{
			make: func(p *provision, want *policyShape) error {
				p.is(p.or(""))
				return p.attach(want.Roles, want.Name, want.Document)
			},
			change: func(p *provision, want, was *policyShape) error {
				// The new one first: what is refused then has changed nothing.
				if err := p.attach(want.Roles, want.Name, want.Document); err != nil {
					return err
				}
				if err := p.detach(was.Roles, was.Name); err != nil {
					return err
				}
				return p.attach(want.Roles, want.Name, want.Document)
			},
			drop: func(p *provision, was *policyShape) (bool, error) { return true, p.detach(was.Roles, was.Name) },
		},
		"AWS::IAM::ManagedPolicy": managedKind(),
	}
}

func roleKind() resourceKind {
	return kind[roleShape]{
		attributes: []string{"Arn", "RoleId"}, name: "RoleName",
		make: func(p *provision, want *roleShape) error {
			name := p.or(want.Name)
			if p.identities().roles["role/"+name] != nil {
				return refuse("EntityAlreadyExists", "Role with name %s already exists.", name)
			}
			r := p.identities().add(name, false, nil)
			r.made, r.named = true, map[string]Policy{}
			if err := p.fill(r, want, nil); err != nil {
				delete(p.identities().roles, "role/"+name)
				return err
			}
			p.is(name, "Arn", "arn:aws:iam::"+owner+":role"+pathOf(want.Path)+name, "RoleId", r.id)
			return nil
		},
		change: func(p *provision, want, was *roleShape) error {
			r, err := p.identities().role(p.physical)
			if err != nil {
				return err
			}
			return p.fill(r, want, was.Policies)
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

func pathOf(path string) string {
	if path == "" {
		return "/"
	}
	return path
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
			name := p.or(want.Name)
			if _, ok := p.identities().profiles[name]; ok {
				return refuse("EntityAlreadyExists", "Instance Profile %s already exists.", name)
			}
			p.is(name, "Arn", "arn:aws:iam::"+owner+":instance-profile"+pathOf(want.Path)+name)
			return set(p, want)
		},
		change: func(p *provision, want, _ *profileShape) error { return set(p, want) },
		drop: func(p *provision, _ *profileShape) (bool, error) {
			delete(p.identities().profiles, p.physical)
			return true, nil
		},
	}
}

func managedKind() resourceKind {
	set := func(p *provision, want *managedShape) error {
		policy, err := document(want.Document)
		if err != nil {
			return err
		}
		for _, name := range want.Roles {
			if _, err := p.identities().role(name); err != nil {
				return err
			}
		}
		p.identities().managed[p.physical] = policy
		for _, r := range p.identities().roles {
			r.attached = slices.DeleteFunc(r.attached, func(arn string) bool { return arn == p.physical })
			if slices.Contains(want.Roles, r.name) && !r.user {
				r.attached = append(r.attached, p.physical)
			}
			p.identities().renew(r)
		}
		return nil
	}
	return kind[managedShape]{
		attributes: []string{"PolicyArn"}, name: "ManagedPolicyName",
		make: func(p *provision, want *managedShape) error {
			arn := "arn:aws:iam::" + owner + ":policy" + pathOf(want.Path) + p.or(want.Name)
			if _, ok := p.identities().managed[arn]; ok {
				return refuse("EntityAlreadyExists", "A policy called %s already exists. Duplicate names are not allowed.", arn[strings.LastIndexByte(arn, '/')+1:])
			}
			p.is(arn, "PolicyArn", arn)
			return set(p, want)
		},
		change: func(p *provision, want, _ *managedShape) error { return set(p, want) },
		drop: func(p *provision, was *managedShape) (bool, error) {
			was.Roles = nil
			if err := set(p, was); err != nil {
				return true, err
			}
			delete(p.identities().managed, p.physical)
			return true, nil
		},
	}
}

// attach gives roles an inline policy.
func (p *provision) attach(roles []string, name string, v any) error {
	policy, err := document(v)
	if err != nil {
		return err
	}
	for _, one := range roles {
		if _, err := p.identities().role(one); err != nil {
			return err
		}
	}
	for _, one := range roles {
		r := p.identities().roles["role/"+one]
		if r.named == nil {
			r.named = map[string]Policy{"": slices.Concat(r.policies...)}
		}
		r.named[name] = policy
		p.identities().renew(r)
	}
	return nil
}

func (p *provision) detach(roles []string, name string) error {
	for _, one := range roles {
		r, err := p.identities().role(one)
		if err != nil {
			return err
		}
		delete(r.named, name)
		p.identities().renew(r)
	}
	return nil
}
