package awsfake

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// test compares one of a call's values with one of a statement's.
type test struct {
	matches func(pattern, value string) bool
	// negated operators hold where the key is absent, or no value matches.
	negated bool
}

// conditionOperators are IAM's operators ("IAM JSON policy elements: Condition operators") but those for numbers,
// binary values and times before or after another.
func conditionOperators() map[string]test {
	equal := func(p, v string) bool { return p == v }
	arn := func(p, v string) bool { return likeARN(p, v) }
	within := func(p, v string) bool {
		prefix, err := netip.ParsePrefix(p)
		if err != nil {
			single, err := netip.ParseAddr(p)
			if err != nil {
				return false
			}
			prefix = netip.PrefixFrom(single, single.BitLen())
		}
		address, err := netip.ParseAddr(v)
		return err == nil && prefix.Contains(address)
	}
	before := func(p, v string) bool { return timeOf(v).Before(timeOf(p)) }
	after := func(p, v string) bool { return timeOf(v).After(timeOf(p)) }
	return map[string]test{
		"StringEquals": {equal, false}, "StringNotEquals": {equal, true},
		"StringEqualsIgnoreCase": {strings.EqualFold, false}, "StringNotEqualsIgnoreCase": {strings.EqualFold, true},
		"StringLike": {like, false}, "StringNotLike": {like, true},
		"ArnEquals": {arn, false}, "ArnLike": {arn, false}, "ArnNotEquals": {arn, true}, "ArnNotLike": {arn, true},
		"Bool": {strings.EqualFold, false}, "IpAddress": {within, false}, "NotIpAddress": {within, true},
		"DateLessThan": {before, false}, "DateGreaterThan": {after, false},
	}
}

// timeOf reads a time as policies have it, of RFC 3339 or seconds since 1970; the zero time is none.
func timeOf(s string) time.Time {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Unix(n, 0)
	}
	return time.Time{}
}

// likeARN compares ARNs part by part: a wildcard does not reach over a colon of the first five.
func likeARN(pattern, value string) bool {
	p, v := strings.SplitN(pattern, ":", 6), strings.SplitN(value, ":", 6)
	if len(p) != 6 || len(v) != 6 {
		return pattern == "*"
	}
	for i := range p {
		if !like(p[i], v[i]) {
			return false
		}
	}
	return true
}

// operator takes an operator apart: its set prefix, its name, and whether it is of the kind IfExists.
func (c Condition) operator() (set, name string, ifExists bool) {
	name = c.Operator
	if name == "" {
		return "ForAllValues", "StringLike", false
	}
	if prefix, rest, ok := strings.Cut(name, ":"); ok {
		set, name = prefix, rest
	}
	name, ifExists = strings.CutSuffix(name, "IfExists")
	return set, name, ifExists
}

// known reports whether the operator is one that is modelled.
func (c Condition) known() bool {
	set, name, ifExists := c.operator()
	if _, ok := conditionOperators()[name]; !ok {
		return name == "Null" && set == "" && !ifExists
	}
	return set == "" || set == "ForAllValues" || set == "ForAnyValue"
}

// holds evaluates the condition; an operator that is not known never holds.
func (c Condition) holds(context map[string][]string) bool {
	set, name, ifExists := c.operator()
	values, present := context[strings.ToLower(c.Key)]
	present = present && len(values) > 0
	if name == "Null" {
		return slices.Contains(c.Patterns, strconv.FormatBool(!present))
	}
	t, known := conditionOperators()[name]
	if !known {
		return false
	}
	if !present {
		// As in IAM, a call without values for the key passes ForAllValues.
		return ifExists || set == "ForAllValues" || set == "" && t.negated
	}
	patterns := resolved(c.Patterns, context)
	matches := func(value string) bool {
		some := slices.ContainsFunc(patterns, func(p string) bool { return t.matches(p, value) })
		return some != t.negated
	}
	if set == "ForAnyValue" {
		return slices.ContainsFunc(values, matches)
	}
	return !slices.ContainsFunc(values, func(v string) bool { return !matches(v) })
}
