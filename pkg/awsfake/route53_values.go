package awsfake

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// recordTypes are the modelled types and the checks of their values. A check returns Route 53's name of the problem,
// or "".
var recordTypes = map[string]func(value string) string{
	"A":     checkA,
	"AAAA":  checkAAAA,
	"CNAME": checkDomain,
	"MX":    func(v string) string { return checkFields(v, 1) },
	"NS":    checkDomain,
	"PTR":   checkDomain,
	"SOA":   checkSOA,
	"SRV":   func(v string) string { return checkFields(v, 3) },
	"TXT":   checkTXT,
}

// checkValues returns the problems of a set's values.
func checkValues(s RecordSet) []string {
	var problems []string
	limit := maxSetValues
	if s.Type == "CNAME" || s.Type == "SOA" {
		limit = 1
	}
	if len(s.Values) > limit {
		problems = append(problems, fmt.Sprintf("Cannot have more than %d records in a RRSet.", limit))
	}
	check := recordTypes[s.Type]
	seen := map[string]bool{}
	for _, value := range s.Values {
		if problem := check(value); problem != "" {
			problems = append(problems, fmt.Sprintf("Invalid Resource Record: 'FATAL problem: %s encountered with '%s''", problem, value))
		}
		if seen[value] {
			problems = append(problems, fmt.Sprintf("Duplicate Resource Record: '%s'", value))
		}
		seen[value] = true
	}
	return problems
}

func checkA(value string) string {
	if strings.ContainsAny(value, " \t") {
		return "ARRDATANotSingleField (Value contains spaces)"
	}
	if a, err := netip.ParseAddr(value); err != nil || !a.Is4() {
		return "ARRDATAIllegalIPv4Address (Value is not a valid IPv4 address)"
	}
	return ""
}

func checkAAAA(value string) string {
	if strings.ContainsAny(value, " \t") {
		return "AAAARRDATANotSingleField (Value contains spaces)"
	}
	if a, err := netip.ParseAddr(value); err != nil || !a.Is6() || a.Zone() != "" {
		return "AAAARRDATAIllegalIPv6Address (Value is not a valid IPv6 address)"
	}
	return ""
}

func checkDomain(value string) string {
	if _, problem := normalName(value); problem != "" {
		return "InvalidDomainName (Value is not a valid domain name)"
	}
	return ""
}

// checkFields checks a value of so many 16-bit numbers and a domain name: MX has one, SRV three.
func checkFields(value string, numbers int) string {
	fields := strings.Fields(value)
	if len(fields) != numbers+1 {
		return fmt.Sprintf("RRDATANotEnoughFields (Value should have %d fields)", numbers+1)
	}
	for _, field := range fields[:numbers] {
		if _, err := strconv.ParseUint(field, 10, 16); err != nil {
			return "RRDATAIllegalNumber (Value is not a number from 0 to 65535)"
		}
	}
	return checkDomain(fields[numbers])
}

func checkSOA(value string) string {
	fields := strings.Fields(value)
	if len(fields) != 7 {
		return "SOARRDATANotSevenFields (Value should have 7 fields)"
	}
	for _, field := range fields[2:] {
		if _, err := strconv.ParseUint(field, 10, 31); err != nil {
			return "SOARRDATAIllegalNumber (Value is not a number)"
		}
	}
	if problem := checkDomain(fields[0]); problem != "" {
		return problem
	}
	return checkDomain(fields[1])
}

// checkTXT takes one or more quoted strings of up to 255 characters, 4000 together (Developer Guide,
// "TXT record type").
func checkTXT(value string) string {
	texts, ok := quoted(value)
	switch {
	case !ok:
		return "InvalidCharacterString (Value should be enclosed in quotation marks)"
	case slices.ContainsFunc(texts, func(s string) bool { return len(s) > 255 }):
		return "CharacterStringTooLong (Value is too long)"
	case len(value) > 4000:
		return "TXTRRDATATooLong (Value is too long)"
	}
	return ""
}

// quoted reads strings in quotation marks, apart by spaces; a backslash escapes a quotation mark, a
// backslash or three octal digits.
func quoted(value string) (texts []string, ok bool) {
	rest := strings.TrimLeft(value, " \t")
	for rest != "" {
		if rest[0] != '"' {
			return nil, false
		}
		text, after, ok := quotedOne(rest[1:])
		if !ok {
			return nil, false
		}
		texts = append(texts, text)
		rest = strings.TrimLeft(after, " \t")
	}
	return texts, len(texts) > 0
}

func quotedOne(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if escaped, ok := octal(s[i+1:]); ok {
				b.WriteByte(escaped)
				i += 3
				continue
			}
			if i+1 == len(s) {
				return "", "", false
			}
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
