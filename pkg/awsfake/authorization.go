package awsfake

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// authorizationText is the table of condition keys: its head describes it.
//
//go:embed authorization.txt
var authorizationText string

// authorized is a row of the table: one action on one kind of resource.
type authorized struct {
	action, kind string
	// always rows are those of a resource that every call of the action is about.
	always bool
	// keys are those that are handed here, unknown those that AWS hands and awsfake has no value for, never those that no call here has.
	keys, unknown, never keyList
}

// keyList are names of condition keys, in small letters; one that ends in "/" or ":" is a prefix.
type keyList []string

func (l keyList) has(key string) bool {
	return slices.ContainsFunc(l, func(name string) bool {
		return key == name || strings.HasSuffix(name, "/") && strings.HasPrefix(key, name) || strings.HasSuffix(name, ":") && strings.HasPrefix(key, name)
	})
}

// authorizations returns the table's rows by action.
var authorizations = sync.OnceValue(func() map[string][]authorized {
	rows, err := parseAuthorizations(authorizationText)
	if err != nil {
		panic("awsfake: authorization.txt: " + err.Error()) // an embedded file, which a test reads
	}
	return rows
})

func parseAuthorizations(text string) (map[string][]authorized, error) {
	rows, sets := map[string][]authorized{}, map[string][]string{}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(line, "#") || words[0] == "page":
			continue
		case words[0] == "set" && len(words) > 3 && words[2] == "=":
			sets[words[1]] = words[3:]
			continue
		case len(words) < 2 || !strings.Contains(words[0], ":"):
			return nil, fmt.Errorf("line %d: %q", i+1, line)
		}
		row := authorized{action: words[0]}
		row.kind, row.always = strings.CutSuffix(words[1], "*")
		for _, word := range words[2:] {
			set, named := strings.CutPrefix(word, "@")
			if !named {
				row.add(word)
				continue
			}
			if sets[set] == nil {
				return nil, fmt.Errorf("line %d: there is no set %s", i+1, set)
			}
			for _, key := range sets[set] {
				row.add(key)
			}
		}
		rows[row.action] = append(rows[row.action], row)
	}
	return rows, nil
}

func (a *authorized) add(word string) {
	list, name := &a.keys, strings.ToLower(word)
	switch word[0] {
	case '?':
		list, name = &a.unknown, name[1:]
	case '~':
		list, name = &a.never, name[1:]
	}
	*list = append(*list, name)
}

// kindOfARN is the kind of an ARN's resource as the Service Authorization Reference names it; "-" for "*".
func kindOfARN(arn string) string {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) < 6 {
		return "-"
	}
	switch parts[2] {
	case "s3":
		if strings.Contains(parts[5], "/") {
			return "object"
		}
		return "bucket"
	case "sqs":
		return "queue"
	}
	return parts[5][:max(strings.IndexAny(parts[5]+"/", ":/"), 0)]
}

// question is what policies are asked about one permission: the condition keys that AWS hands for this action on this kind of resource,
// and those of them that have no value here.
type question struct {
	values  map[string][]string
	unknown keyList
}

// question narrows a permission's context to what AWS hands. An action or a resource that is not in the table is a fault of awsfake.
func (n need) question() (question, error) {
	kind := kindOfARN(n.arn)
	rows := authorizations()[n.action]
	i := slices.IndexFunc(rows, func(a authorized) bool { return a.kind == kind })
	if i < 0 && kind == "-" && len(rows) > 0 {
		return question{values: map[string][]string{}}, nil // about any resource: serve refuses what names none
	}
	if i < 0 {
		return question{}, fmt.Errorf("awsfake: authorization.txt has no row for %s on %s", n.action, n.arn)
	}
	q := question{values: map[string][]string{}, unknown: rows[i].unknown}
	for key, values := range n.context {
		if name := strings.ToLower(key); rows[i].keys.has(name) {
			q.values[name] = values
		}
	}
	return q, nil
}
