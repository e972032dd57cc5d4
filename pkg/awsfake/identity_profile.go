package awsfake

import "strings"

// profileRole returns the role that a launch gives its machines; empty if it names no profile.
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

// forget deletes a role and its credentials.
func (i *identities) forget(r *role) {
	delete(i.roles, "role/"+r.name)
	for id, k := range i.keys {
		if k.role == r {
			delete(i.keys, id)
		}
	}
}
