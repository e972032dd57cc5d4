package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Fit returns as much of a change as one batch may hold, which is nearly always all of it; more says
// that something was left. Then commit the part, Apply it to what was read, and Diff again with
// another generation. Every part leaves records that are right by themselves: a name's sets change
// together, etcd's names and SRV records change together, and of a sharded record the shards that a
// reader is told of exist. The error is a part that no batch can hold.
func (c Change) Fit(l Limits) (first Change, more bool, err error) {
	if l.fits(c) {
		return c, false, nil
	}
	stamp, parts := c.parts()
	for _, p := range parts {
		if alone := stamp.with(p); !l.fits(alone) {
			values, characters := alone.size()
			return Change{}, false, fmt.Errorf("changing the records of %s takes %d values and %d characters, and the DNS service takes %d and %d in a batch: raise its limits, or use fewer machines in the role",
				p.label, values, characters, l.BatchValues, l.BatchCharacters)
		}
	}
	first = stamp
	for _, p := range parts {
		next := first.with(p)
		if !l.fits(next) {
			break
		}
		first = next
	}
	sortSets(first.Remove)
	sortSets(first.Create)
	return first, true, nil
}

// Apply returns have after the change was committed, in the order of names.
func (c Change) Apply(have []Set) []Set {
	after := slices.DeleteFunc(slices.Clone(have), func(s Set) bool {
		return slices.ContainsFunc(c.Remove, func(r Set) bool { return r.Name == s.Name && r.Type == s.Type })
	})
	after = append(after, c.Create...)
	sortSets(after)
	return after
}

func (l Limits) fits(c Change) bool {
	values, characters := c.size()
	return (l.BatchValues == 0 || values <= l.BatchValues) && (l.BatchCharacters == 0 || characters <= l.BatchCharacters)
}

// size counts as Route 53 does: a value that is removed and one that is created are one each.
func (c Change) size() (values, characters int) {
	for _, sets := range [][]Set{c.Remove, c.Create} {
		for _, s := range sets {
			values += len(s.Values)
			for _, v := range s.Values {
				characters += len(v)
				if s.Type == TXT {
					characters += len(`""`)
				}
			}
		}
	}
	return values, characters
}

// part is what of a change is never torn apart.
type part struct {
	Change
	label string
	rank  int
}

func (c Change) with(p part) Change {
	return Change{Remove: slices.Concat(c.Remove, p.Remove), Create: slices.Concat(c.Create, p.Create)}
}

// parts takes a change apart: the control record, which keeps what it says of the groups until the last
// part is committed, and the others in the order in which they may be committed.
func (c Change) parts() (stamp Change, parts []part) {
	i := slices.IndexFunc(c.Create, isControl)
	if i < 0 {
		return Change{}, nil
	}
	after := c.Create[i]
	domain := strings.TrimPrefix(after.Name, controlLabel+".")
	generation, _ := after.generation()
	after.Values = []string{generationPrefix + generation, ownerValue}
	byLabel := map[string]*part{}
	of := func(s Set) *part {
		label := partLabel(s, domain)
		if byLabel[label] == nil {
			byLabel[label] = &part{label: label}
		}
		return byLabel[label]
	}
	for _, s := range c.Remove {
		if isControl(s) {
			stamp.Remove = []Set{s}
			after.Values = slices.Sorted(slices.Values(append(s.withoutGeneration(), generationPrefix+generation)))
			continue
		}
		p := of(s)
		p.Remove = append(p.Remove, s)
	}
	for _, s := range c.Create {
		if !isControl(s) {
			p := of(s)
			p.Create = append(p.Create, s)
		}
	}
	stamp.Create = []Set{after}
	return stamp, ranked(byLabel, domain)
}

// partLabel groups etcd's names and services; any other name stands for itself.
func partLabel(s Set, domain string) string {
	if _, r := identify(s, domain); r == role.Etcd {
		return string(role.Etcd)
	}
	return s.Name
}

// ranked orders the parts so that no part tells readers of shards that are not there: new shards come
// first and old ones go last. Between them, a record that gets more shards is announced before values
// move out of the old ones, and one that gets fewer after values have moved into those that stay.
func ranked(byLabel map[string]*part, domain string) []part {
	fewer := map[role.Role]bool{}
	for _, p := range byLabel {
		if k, r := p.identify(domain); k == shard && len(p.Create) == 0 {
			fewer[r] = true
		}
	}
	var parts []part
	for _, p := range byLabel {
		k, r := p.identify(domain)
		switch {
		case k == shard && len(p.Remove) == 0:
			p.rank = 0
		case k == shard && len(p.Create) == 0:
			p.rank = 4
		case k == shard && !fewer[r]:
			p.rank = 3
		case k == shard:
			p.rank = 1
		default:
			p.rank = 2
		}
		parts = append(parts, *p)
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.label, b.label))
	})
	return parts
}

func (p *part) identify(domain string) (kind, role.Role) {
	return identify(slices.Concat(p.Remove, p.Create)[0], domain)
}
