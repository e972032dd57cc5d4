package awsfake

import "strings"

// AddInstanceProfile makes an instance profile that gives machines a role.
func (a *Account) AddInstanceProfile(name, role string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identities.profiles[name] = role
}

// profileRole is the role that a launch gives its machines; empty where it names no profile.
func (a *Account) profileRole(p *LaunchProfile) (string, error) {
	if p == nil {
		return "", nil
	}
	name, parameter := p.Name, "iamInstanceProfile.name"
	if p.ARN != "" {
		parameter = "iamInstanceProfile.arn"
		prefix, last, ok := strings.Cut(p.ARN, ":instance-profile/")
		if !ok || prefix != "arn:aws:iam::"+owner {
			return "", refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Invalid IAM Instance Profile ARN", p.ARN, parameter)
		}
		name = last[strings.LastIndexByte(last, '/')+1:]
	}
	role, ok := a.identities.profiles[name]
	if !ok {
		return "", refuse("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Invalid IAM Instance Profile name", p.Name+p.ARN, parameter)
	}
	return role, nil
}

// AddManagedPolicy makes a managed policy that roles can name, as a policy of theirs or as their permissions
// boundary, and returns its ARN.
func (a *Account) AddManagedPolicy(name string, p Policy) (arn string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	arn = "arn:aws:iam::" + owner + ":policy/" + name
	a.identities.managed[arn] = p
	return arn
}

// Roles lists the names of the account's roles.
func (a *Account) Roles() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, key := range sortedKeys(a.identities.roles) {
		if r := a.identities.roles[key]; !r.user {
			names = append(names, r.name)
		}
	}
	return names
}

func (i *identities) role(name string) (*role, error) {
	r, ok := i.roles["role/"+name]
	if !ok {
		return nil, &Error{Status: 404, Code: "NoSuchEntity", Message: "The role with name " + name + " cannot be found."}
	}
	return r, nil
}

func (i *identities) inProfile(name string) bool {
	for _, role := range i.profiles {
		if role == name {
			return true
		}
	}
	return false
}

// renew settles a role's policies from its parts, where it has them.
func (i *identities) renew(r *role) {
	if r.named == nil {
		return
	}
	r.policies = nil
	for _, name := range sortedKeys(r.named) {
		r.policies = append(r.policies, r.named[name])
	}
	for _, arn := range r.attached {
		r.policies = append(r.policies, i.managed[arn])
	}
}

// forget deletes a role; its credentials are worth nothing from then on.
func (i *identities) forget(r *role) {
	delete(i.roles, "role/"+r.name)
	for id, k := range i.keys {
		if k.role == r {
			delete(i.keys, id)
		}
	}
}
