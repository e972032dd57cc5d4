package spec

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

var (
	// judging are the fields by which much of a document is judged: where one is wrong, only the components' flags and fields
	// are judged beside it.
	judging = []string{"apiVersion", "kind", "arch", "store", "addons", "groups"}
	// judgedBy are the sections that are also judged by another one.
	judgedBy = map[string][]string{"serviceAccounts": {"addons", "aws"}, "aws": {"addons"}}
	// alone are fields by which no other is judged.
	alone = []string{"network.mtu", "network.timeServers"}
	// ofGroup are the parts of a group by which no other group is judged.
	ofGroup = regexp.MustCompile(`^groups\[[0-9]+\]\.(size|cpus|memory|node|aws)\b`)
)

// besides are the findings about what is not wrong by itself in a document with these problems. What they are about is taken
// out, so that nothing is told which is only wrong because of it.
func (c *Cluster) besides(image *Image, problems problem.List) problem.List {
	var cut, untold []string
	for _, p := range problems {
		if p.Severity == problem.Warning {
			continue
		}
		part := c.source.part(p)
		if part == "" {
			return c.componentFaults(image)
		}
		cut = append(cut, part)
		untold = append(append(untold, part), judgedBy[section(part)]...)
		if ofGroup.MatchString(part) {
			untold = append(untold, "addons")
		}
	}
	rest := &Cluster{source: newSource(c.source.file)}
	takeOut("", c.source.root, cut)
	if err := c.source.root.Decode(rest); err != nil {
		return nil // it was read before
	}
	rest.source.index("", c.source.root)
	rest.Name = cmp.Or(rest.Name, "demo")
	_, found := rest.Complete(image)
	return slices.DeleteFunc(found, func(p problem.Problem) bool {
		return p.Severity == problem.Warning || slices.ContainsFunc(untold, func(part string) bool { return within(p.Field, part) })
	})
}

// part is the part of a document that a finding makes useless for judging the rest, or empty if that is too much.
func (s *source) part(p problem.Problem) string {
	field := p.Field
	if field == "" { // one that is not known
		field = s.sectionAt(p.Line)
	}
	name := section(field)
	switch _, known := fieldTypes(reflect.TypeFor[Cluster]())[name]; {
	case ofGroup.MatchString(field):
		return ofGroup.FindString(field)
	case !known || slices.Contains(judging, name):
		return ""
	case slices.Contains(alone, field):
		return field
	}
	return name
}

// sectionAt is the field of the document in which a line is, or empty if there are several.
func (s *source) sectionAt(line int) string {
	best, found := 0, ""
	for field, at := range s.lines {
		switch {
		case field != section(field) || at > line || at < best:
		case at == best:
			found = ""
		default:
			best, found = at, field
		}
	}
	return found
}

// section is the first part of a field's path.
func section(field string) string {
	if i := strings.IndexAny(field, ".["); i >= 0 {
		return field[:i]
	}
	return field
}

// takeOut removes fields below n.
func takeOut(field string, n *yaml.Node, cut []string) {
	switch n.Kind {
	case yaml.DocumentNode:
		takeOut(field, n.Content[0], cut)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			takeOut(at(field, i), item, cut)
		}
	case yaml.MappingNode:
		var kept []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := join(field, n.Content[i].Value); !slices.Contains(cut, key) {
				kept = append(kept, n.Content[i], n.Content[i+1])
				takeOut(key, n.Content[i+1], cut)
			}
		}
		n.Content = kept
	}
}
