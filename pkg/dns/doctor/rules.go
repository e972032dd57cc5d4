package doctor

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// ruleKind is a rule of the template.
type ruleKind struct {
	id, name string // ScalingRule, rules.scaling
	loss     string // what is lost if it is missing
	vital    bool
}

func ruleKinds() []ruleKind {
	return []ruleKind{
		{shipped.IDScaling, "rules.scaling", "changes of the groups are found by the sweep alone, a minute late", true},
		{shipped.IDCalls, "rules.calls", "standby, attach and detach are found by the sweep, a minute late", false},
		{shipped.IDInstances, "rules.instances", "machines that stop or end without their group are found by the sweep, a minute late", false},
		{shipped.IDSweep, "rules.sweep", "what events miss stays wrong, and hooks wait for their own time limit", true},
	}
}

// matchesRule reports whether r is this rule: by its logical id, or by its content if there is no stack.
func (k ruleKind) matchesRule(r Rule) bool {
	if r.LogicalID != "" {
		return r.LogicalID == k.id
	}
	switch {
	case r.Schedule != "":
		return k.id == shipped.IDSweep
	case strings.Contains(r.Pattern, "CloudTrail"):
		return k.id == shipped.IDCalls
	case strings.Contains(r.Pattern, "aws.ec2"):
		return k.id == shipped.IDInstances
	}
	return k.id == shipped.IDScaling
}

func (l *List) rules(f Facts, w Wanted) {
	rules, ok := f.Rules.get(l, "rules")
	if !ok {
		return
	}
	for _, k := range ruleKinds() {
		i := slices.IndexFunc(rules, k.matchesRule)
		if i < 0 || rules[i].Missing {
			l.fail(k.name, deployAgain, "there is none: %s", k.loss)
			continue
		}
		r := rules[i]
		l.enabled(k, r)
		l.matches(k, r, w.Shipped.Rules[k.id], f.Settings.Err == nil)
		l.target(k, r, f.Queue.Value.ARN)
	}
}

func (l *List) enabled(k ruleKind, r Rule) {
	name, next := k.name+".state", "aws events enable-rule --name "+r.Name
	switch {
	case strings.HasPrefix(r.State, "ENABLED"): // ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS is a superset
		l.ok(name, "%s is %s", r.Name, r.State)
	case k.vital:
		l.fail(name, next, "%s is %s: %s", r.Name, r.State, k.loss)
	default:
		l.warn(name, next, "%s is %s: %s", r.Name, r.State, k.loss)
	}
}

// matches compares a rule's pattern with the template's; known: the groups are known.
func (l *List) matches(k ruleKind, r Rule, want shipped.Rule, known bool) {
	switch {
	case want.Schedule != "" && r.Schedule != want.Schedule:
		l.warn(k.name+".schedule", deployAgain, "%q, where the template has %s", r.Schedule, want.Schedule)
	case want.Schedule != "":
		l.ok(k.name+".schedule", "%s", r.Schedule)
	case !known:
		l.unread(k.name+".pattern", ErrUnread)
	case !samePattern(r.Pattern, want.Pattern):
		l.fail(k.name+".pattern", deployAgain, "%s, where the groups need %s", r.Pattern, want.Pattern)
	default:
		l.ok(k.name+".pattern", "as the template's, for the function's groups")
	}
}

// target looks for the queue among a rule's targets; queue is empty if it could not be read.
func (l *List) target(k ruleKind, r Rule, queue string) {
	name := k.name + ".target"
	if queue == "" {
		l.unread(name, ErrUnread)
		return
	}
	i := slices.IndexFunc(r.Targets, func(t Target) bool { return t.ARN == queue })
	switch {
	case i < 0:
		l.fail(name, deployAgain, "%s does not send to %s (%d other targets): %s", r.Name, queue, len(r.Targets), k.loss)
	case r.Targets[i].Transformed:
		l.fail(name, deployAgain, "%s changes the event: the function cannot tell which group it is about", r.Name)
	default:
		l.ok(name, "the queue")
	}
}

// samePattern compares event patterns; the order of lists is irrelevant.
func samePattern(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(sorted(x), sorted(y))
}

// sorted sorts the lists of strings inside v.
func sorted(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = sorted(v[k])
		}
	case []any:
		slices.SortFunc(v, func(a, b any) int {
			x, _ := json.Marshal(a) // it was decoded from JSON
			y, _ := json.Marshal(b)
			return strings.Compare(string(x), string(y))
		})
	}
	return v
}
