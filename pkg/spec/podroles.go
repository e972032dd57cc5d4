package spec

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// PodRole is one role for the pods of a service account.
type PodRole struct {
	// Name is the role's name in the document and in the stack's outputs, a DNS label.
	Name string `yaml:"name"`
	// Namespace is the namespace of the service account.
	Namespace string `yaml:"namespace"`
	// ServiceAccount is the service account whose pods, and nobody else, take the role.
	ServiceAccount string `yaml:"serviceAccount"`
	// Policies are the ARNs of managed policies that the role has.
	Policies []string `yaml:"policies"`
	// Allow is what the role may do beside these policies.
	Allow []PodRoleRule `yaml:"allow"`
}

// PodRoleRule is a rule of a role's own policy: of pods, or of a group's machines.
type PodRoleRule struct {
	// Actions are actions of AWS, such as s3:GetObject.
	Actions []string `yaml:"actions"`
	// Resources are the ARNs that the actions are allowed on, or "*".
	Resources []string `yaml:"resources"`
}

// Subject is whom tokens of the role's pods are about.
func (r PodRole) Subject() string {
	return "system:serviceaccount:" + r.Namespace + ":" + r.ServiceAccount
}

const defaultNamespace = "default"

var (
	policyForm = regexp.MustCompile(`^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[\w+=,.@/-]+$`)
	actionForm = regexp.MustCompile(`^[a-z0-9-]+:[A-Za-z0-9*?]+$`)
	arnForm    = regexp.MustCompile(`^arn:[a-z-]+:[a-z0-9-]+:[^:]*:[^:]*:.+$`)
)

// podRoles completes the roles. They need an issuer that IAM takes.
func (f *completer) podRoles() {
	f.out.Cluster.AWS.PodRoles = []PodRole{}
	if len(f.in.AWS.PodRoles) == 0 {
		f.out.Origins["aws.podRoles"] = byHardtack
		return
	}
	f.rolesIssuer("aws.podRoles", "pods take roles with their tokens")
	for i, r := range f.in.AWS.PodRoles {
		field := at("aws.podRoles", i)
		f.podRole(field, r)
		if first := slices.IndexFunc(f.in.AWS.PodRoles, func(o PodRole) bool { return logicalName(o.Name) == logicalName(r.Name) }); first < i {
			f.errorf(field+".name", "%q is already at %s", r.Name, at("aws.podRoles", first))
		}
		out := PodRole{Name: r.Name, ServiceAccount: r.ServiceAccount}
		f.out.Origins[field+".name"] = Origin{Kind: User}
		out.Namespace = orDefault(f, field+".namespace", r.Namespace, defaultNamespace, byHardtack)
		out.ServiceAccount = orDefault(f, field+".serviceAccount", r.ServiceAccount, r.Name, Origin{Derived, field + ".name"})
		out.Policies = listOrDefault(f, field+".policies", r.Policies, nil, byHardtack)
		out.Allow = f.allRules(field+".allow", r.Allow)
		f.out.Cluster.AWS.PodRoles = append(f.out.Cluster.AWS.PodRoles, out)
	}
}

// hasPort reports whether a URL names a port.
func hasPort(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Port() != ""
}

// logicalName is a name as far as a template tells names apart.
func logicalName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "")) }

// podRole checks one role.
func (f *completer) podRole(field string, r PodRole) {
	if !labelForm.MatchString(r.Name) {
		f.errorf(field+".name", "%q is not a DNS label: small letters, digits and -, at most 63", r.Name)
	}
	if r.Namespace != "" && !labelForm.MatchString(r.Namespace) {
		f.errorf(field+".namespace", "%q is not the name of a namespace", r.Namespace)
	}
	if r.ServiceAccount != "" && !domainForm.MatchString(r.ServiceAccount) {
		f.errorf(field+".serviceAccount", "%q is not the name of a service account", r.ServiceAccount)
	}
	if len(r.Policies)+len(r.Allow) == 0 {
		f.hint(field, "give it policies or allow", "the role may do nothing")
	}
	f.managed(field+".policies", r.Policies)
	f.rules(field+".allow", r.Allow)
}
