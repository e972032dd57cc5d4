package awsfake

import (
	"slices"
	"strconv"
	"strings"
)

// allValues is the prefix of an operator that all of a key's values must satisfy. As in IAM, a call without values for
// the key satisfies it.
const allValues = "ForAllValues:"

// anyValue is the prefix of an operator that one of a key's values must satisfy; a call without values does not.
const anyValue = "ForAnyValue:"

// notEquals holds if the key is absent or none of its values is one of the patterns.
const notEquals = "StringNotEquals"

// conditionOperators returns the operators that are modelled beside Null and StringNotEquals, and how each compares a statement's value
// with a call's ("IAM JSON policy elements: Condition operators"): those that policies of this repository use.
func conditionOperators() map[string]func(pattern, value string) bool {
	return map[string]func(pattern, value string) bool{
		"StringEquals": func(p, v string) bool { return p == v }, "StringLike": like,
		"ArnEquals": likeARN, "ArnLike": likeARN, "Bool": strings.EqualFold,
	}
}

// likeARN compares ARNs part by part: a wildcard does not match a colon among the first five.
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

// known reports whether the operator is modelled.
func (c Condition) known() bool {
	_, ok := conditionOperators()[strings.TrimPrefix(strings.TrimPrefix(c.Operator, allValues), anyValue)]
	return ok || c.Operator == "Null" || c.Operator == notEquals
}

// holds evaluates the condition.
func (c Condition) holds(context map[string][]string) bool {
	values := context[strings.ToLower(c.Key)]
	switch c.Operator {
	case "Null":
		return slices.Contains(c.Patterns, strconv.FormatBool(len(values) == 0))
	case notEquals:
		return !slices.ContainsFunc(values, func(value string) bool { return slices.Contains(c.Patterns, value) })
	}
	name, all := strings.CutPrefix(c.Operator, allValues)
	name, one := strings.CutPrefix(name, anyValue)
	matches, known := conditionOperators()[name]
	if !known {
		return false
	}
	fits := func(value string) bool {
		return slices.ContainsFunc(c.Patterns, func(pattern string) bool { return matches(pattern, value) })
	}
	switch {
	case one:
		return slices.ContainsFunc(values, fits)
	case len(values) == 0:
		return all
	}
	return !slices.ContainsFunc(values, func(value string) bool { return !fits(value) })
}
