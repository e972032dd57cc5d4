package awsfake

import (
	"regexp"
	"strings"
)

// maxParameterName counts the ARN before the name too (API reference, PutParameter, Name).
const (
	maxParameterName  = 1011
	maxParameterParts = 15
)

func (s *SSM) arn(name string) string {
	return "arn:aws:ssm:" + s.region + ":" + owner + ":parameter/" + strings.TrimPrefix(name, "/")
}

const nameRule = "Parameter name: can't be prefixed with \"ssm\" (case-insensitive). If formed as a path, it can consist of sub-paths divided by slash symbol; each sub-path can be formed as a mix of letters, numbers and the following 3 symbols .-_"

var parameterName = regexp.MustCompile(`^(/?[a-zA-Z0-9_.-]+|(/[a-zA-Z0-9_.-]+)+)$`)

// checkName holds a new parameter's name to the rules of PutParameter and of "Parameter name
// requirements and constraints" in the user guide.
func (s *SSM) checkName(name string) error {
	parts := strings.Split(strings.TrimPrefix(name, "/"), "/")
	first := strings.ToLower(parts[0])
	switch {
	case strings.HasPrefix(first, "aws") && len(parts) > 1:
		return refuse("AccessDeniedException", "No access to reserved parameter name: %s.", name)
	case strings.HasPrefix(first, "aws"):
		return invalidParameter("Parameter name: can't be prefixed with \"aws\" or \"ssm\" (case-insensitive).")
	case strings.HasPrefix(first, "ssm"):
		return invalidParameter(nameRule)
	case len(parts) > 1 && !strings.HasPrefix(name, "/"):
		return invalidParameter("Parameter name must be a fully qualified name.")
	case !parameterName.MatchString(name):
		return invalidParameter(nameRule)
	case len(parts) > maxParameterParts:
		return refuse("HierarchyLevelLimitExceededException", "A hierarchy can have a maximum of %d levels, %s has %d.", maxParameterParts, name, len(parts))
	case len(s.arn(name)) > maxParameterName:
		return invalidParameter("Parameter name with its ARN must not be longer than %d characters.", maxParameterName)
	}
	return nil
}

// split takes an ARN and a selector ("name:3") apart.
func (s *SSM) split(name string) (plain, selector string) {
	name = strings.TrimSpace(name)
	if rest, isARN := strings.CutPrefix(name, "arn:aws:ssm:"+s.region+":"+owner+":parameter/"); isARN {
		name = rest
		if plain, _, _ := strings.Cut(rest, ":"); strings.Contains(plain, "/") {
			name = "/" + rest
		}
	}
	plain, selector, _ = strings.Cut(name, ":")
	return plain, selector
}

// checkParameterPath holds the path of GetParametersByPath to its rules.
func checkParameterPath(path string) error {
	if !strings.HasPrefix(path, "/") || path != "/" && !parameterName.MatchString(strings.TrimSuffix(path, "/")) {
		return invalidParameter("The parameter doesn't meet the parameter name requirements. The parameter name must begin with a forward slash \"/\". It can't be prefixed with \"aws\" or \"ssm\" (case-insensitive). It must use only letters, numbers, or the following symbols: . (period), - (hyphen), _ (underscore). Special characters are not allowed. All sub-paths, if specified, must use the forward slash symbol \"/\". Valid example: /get/parameters2-/by1./path0_.")
	}
	return nil
}
