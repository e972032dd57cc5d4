package doctor

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// ruleKind is one of the template's rules.
type ruleKind struct {
	id, name string // ScalingRule, rules.scaling
	loss     string // what is lost without it
	vital    bool
}

func ruleKinds() []ruleKind {
	return []ruleKind{
		{IDScaling, "rules.scaling", "changes of the groups are found by the sweep alone, a minute late", true},
		{IDCalls, "rules.calls", "standby, attach and detach are found by the sweep, a minute late", false},
		{IDSweep, "rules.sweep", "what events miss stays wrong, and hooks wait for their own time limit", true},
	}
}

// is reports whether r is of the kind: by the stack's name for it, or by what it does where there is no stack.
func (k ruleKind) is(r Rule) bool {
	if r.LogicalID != "" {
		return r.LogicalID == k.id
	}
	switch {
	case r.Schedule != "":
		return k.id == IDSweep
	case strings.Contains(r.Pattern, "CloudTrail"):
		return k.id == IDCalls
	}
	return k.id == IDScaling
}

func (l *List) rules(f Facts) {
	rules, ok := f.Rules.get(l, "rules")
	if !ok {
		return
	}
	patterns := patterns(f.Settings.Value.AllGroups())
	for _, k := range ruleKinds() {
		i := slices.IndexFunc(rules, k.is)
		if i < 0 || rules[i].Missing {
			l.fail(k.name, deployAgain, "there is none: %s", k.loss)
			continue
		}
		r := rules[i]
		l.enabled(k, r)
		l.matches(k, r, patterns[k.id], f.Settings.Err == nil)
		l.target(k, r, f.Queue.Value.ARN)
	}
}

func (l *List) enabled(k ruleKind, r Rule) {
	name, next := k.name+".state", "aws events enable-rule --name "+r.Name
	switch {
	case strings.HasPrefix(r.State, "ENABLED"): // ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS is more than is needed
		l.ok(name, "%s is %s", r.Name, r.State)
	case k.vital:
		l.fail(name, next, "%s is %s: %s", r.Name, r.State, k.loss)
	default:
		l.warn(name, next, "%s is %s: %s", r.Name, r.State, k.loss)
	}
}

// matches compares what a rule matches with the template's; known: the groups are.
func (l *List) matches(k ruleKind, r Rule, pattern string, known bool) {
	switch {
	case k.id == IDSweep && r.Schedule != sweepEvery:
		l.warn(k.name+".schedule", deployAgain, "%q, where the template has %s", r.Schedule, sweepEvery)
	case k.id == IDSweep:
		l.ok(k.name+".schedule", "%s", r.Schedule)
	case !known:
		l.unread(k.name+".pattern", ErrUnread)
	case !samePattern(r.Pattern, pattern):
		l.fail(k.name+".pattern", deployAgain, "%s, where the groups need %s", r.Pattern, pattern)
	default:
		l.ok(k.name+".pattern", "as the template's, for the function's groups")
	}
}

// target looks for the queue among a rule's targets; an empty queue is one that could not be read.
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
		l.fail(name, deployAgain, "%s sends something else than the event: the function cannot tell whose it is", r.Name)
	default:
		l.ok(name, "the queue")
	}
}

// samePattern compares event patterns, in which the order of a list has no meaning.
func samePattern(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(sorted(x), sorted(y))
}

// sorted sorts the lists of texts inside of v.
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
