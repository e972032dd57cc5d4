package awsfake

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params are the fields of a Query request: structures by dots, lists by numbers from 1
// ("Filters.member.1.Values.member.2"; EC2 leaves "member" out).
type params url.Values

func (p params) get(name string) string { return url.Values(p).Get(name) }

func (p params) has(name string) bool { return url.Values(p).Has(name) }

// integer is the field as a number, or otherwise where it is absent.
func (p params) integer(name string, otherwise int) (int, error) {
	if !p.has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(p.get(name))
	if err != nil {
		return 0, malformed("%s must be a number, is %q", name, p.get(name))
	}
	return n, nil
}

// flag is the field as a truth value, or otherwise where it is absent.
func (p params) flag(name string, otherwise bool) (bool, error) {
	if !p.has(name) {
		return otherwise, nil
	}
	b, err := strconv.ParseBool(p.get(name))
	if err != nil {
		return false, malformed("%s must be true or false, is %q", name, p.get(name))
	}
	return b, nil
}

// list is the values of prefix.1, prefix.2 … up to the first that is absent.
func (p params) list(prefix string) []string {
	var values []string
	for i := 1; p.has(prefix + "." + strconv.Itoa(i)); i++ {
		values = append(values, p.get(prefix+"."+strconv.Itoa(i)))
	}
	return values
}

// structs is the list of structures below prefix, each with its own field names.
func (p params) structs(prefix string) []params {
	byIndex := map[int]params{}
	for key, values := range p {
		rest, below := strings.CutPrefix(key, prefix+".")
		if !below {
			continue
		}
		number, field, nested := strings.Cut(rest, ".")
		n, err := strconv.Atoi(number)
		if err != nil || !nested {
			continue
		}
		if byIndex[n] == nil {
			byIndex[n] = params{}
		}
		byIndex[n][field] = values
	}
	var list []params
	for _, n := range sortedKeys(byIndex) {
		list = append(list, byIndex[n])
	}
	return list
}

// actions are the calls of a Query service, by name.
type actions map[string]func(params) (any, error)

// serve carries out one call.
func (a actions) serve(c *call) (any, error) {
	do, ok := a[c.Action]
	if !ok {
		return nil, refuse("InvalidAction", "awsfake does not model %s:%s", c.Service, c.Action)
	}
	return do(params(c.Form))
}

func malformed(format string, args ...any) error {
	return refuse("ValidationError", format, args...)
}

// filter is one of a describe call's filters: any of its values may match; all filters must.
type filter struct {
	name   string
	values []*regexp.Regexp
}

// filtersOf reads filters; with wild, * and ? in values are wildcards, as on EC2.
func filtersOf(list []params, values string, wild bool) []filter {
	var filters []filter
	for _, p := range list {
		f := filter{name: p.get("Name")}
		for _, value := range p.list(values) {
			pattern := regexp.QuoteMeta(value)
			if wild {
				pattern = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(pattern)
			}
			f.values = append(f.values, regexp.MustCompile(`(?s)\A`+pattern+`\z`))
		}
		filters = append(filters, f)
	}
	return filters
}

// matches reports whether one of the candidates is one of the filter's values.
func (f filter) matches(candidates ...string) bool {
	return slices.ContainsFunc(candidates, func(c string) bool {
		return slices.ContainsFunc(f.values, func(v *regexp.Regexp) bool { return v.MatchString(c) })
	})
}

// page cuts one page out of items, which are in a stable order; the token is the offset, opaque to callers.
func page[T any](items []T, size int, token string) ([]T, string, error) {
	from := 0
	if token != "" {
		raw, err := base64.StdEncoding.DecodeString(token)
		if err == nil {
			from, err = strconv.Atoi(strings.TrimPrefix(string(raw), "offset:"))
		}
		if err != nil || from < 0 {
			return nil, "", refuse("InvalidNextToken", "The token '%s' is invalid.", token)
		}
	}
	from = min(from, len(items))
	to := min(from+size, len(items))
	if to == len(items) {
		return items[from:], "", nil
	}
	return items[from:to], base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "offset:%d", to)), nil
}

// hexID returns the nth identifier of a kind. It is deterministic; identifiers do not sort by n.
func hexID(kind string, n, digits int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, n))
	return hex.EncodeToString(sum[:])[:digits]
}

// uuidOf makes the nth identifier of a kind in the form of a UUID.
func uuidOf(kind string, n int) string {
	h := hexID(kind, n, 32)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// stamp is a time as the Query protocol writes it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// past holds the versions of a value, so that a reader can get an outdated one.
type past[T any] struct{ versions []version[T] }

type version[T any] struct {
	from  time.Time
	value T
}

// put adds a version, and drops those that are too old for any reader by lag.
func (p *past[T]) put(now time.Time, lag time.Duration, value T) {
	p.versions = append(p.versions, version[T]{now, value})
	for len(p.versions) > 1 && !p.versions[1].from.After(now.Add(-lag)) {
		p.versions = p.versions[1:]
	}
}

// at returns the value at t; false if it had none.
func (p *past[T]) at(t time.Time) (T, bool) {
	for _, v := range slices.Backward(p.versions) {
		if !v.from.After(t) {
			return v.value, true
		}
	}
	var none T
	return none, false
}

// last returns the current value.
func (p *past[T]) last() T { return p.versions[len(p.versions)-1].value }
