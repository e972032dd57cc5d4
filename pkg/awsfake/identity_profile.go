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
