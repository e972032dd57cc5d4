package awsfake

import "strings"

// Decision returns the result of IAM's policy simulator for one action on one resource by the policies of one
// principal: "allowed", "explicitDeny" or "implicitDeny". context has the values of the call's condition keys; the
// case of keys does not matter.
func Decision(policies []Policy, action, arn string, context map[string][]string) string {
	keys := make(map[string][]string, len(context))
	for k, v := range context {
		keys[strings.ToLower(k)] = v
	}
	switch judge(policies, action, arn, question{values: keys}) {
	case allowed:
		return "allowed"
	case denied:
		return "explicitDeny"
	}
	return "implicitDeny"
}
