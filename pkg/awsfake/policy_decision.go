package awsfake

import "strings"

// Decision is what IAM's simulator says of one action on one resource by several policies of one principal:
// "allowed", "explicitDeny" or "implicitDeny". The context has a call's condition keys, in any case, with their values.
func Decision(policies []Policy, action, arn string, context map[string][]string) string {
	keys := make(map[string][]string, len(context))
	for k, v := range context {
		keys[strings.ToLower(k)] = v
	}
	switch judge(policies, action, arn, keys) {
	case allowed:
		return "allowed"
	case denied:
		return "explicitDeny"
	}
	return "implicitDeny"
}
