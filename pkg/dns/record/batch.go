package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Fit returns the part of a change that fits one batch, which is nearly always all of it; more reports that something
// is left. Then commit the part, Apply it to the sets that were read, and Diff again with another generation. The
// records are consistent after every part: all sets of a name change together, etcd's names and SRV records change
// together, and all shards of an announced number exist. An error means that a part fits no batch.
func (c Change) Fit(l Limits) (first Change, more bool, err error) {
	if l.fits(c) {
		return c, false, nil
	}
	stamp, parts := c.parts()
	for _, p := range parts {
		if alone := stamp.withPart(p); !l.fits(alone) {
			values, characters := alone.size()
			return Change{}, false, fmt.Errorf("changing the records of %s takes %d values and %d characters, and the DNS service takes %d and %d in a batch: raise its limits, or use fewer machines in the role",
				p.label, values, characters, l.BatchValues, l.BatchCharacters)
		}
	}
	first = stamp
	for _, p := range parts {
		next := first.withPart(p)
		if !l.fits(next) {
			break
		}
		first = next
	}
	sortSets(first.Remove)
	sortSets(first.Create)
	return first, true, nil
}

// Removal splits the removal of sets into batches that fit, which is nearly always one. The control record goes last: it says whose
// the records are as long as there are any.
func Removal(sets []Set, l Limits) (batches [][]Set) {
	others := slices.DeleteFunc(slices.Clone(sets), isControl)
	control := slices.DeleteFunc(slices.Clone(sets), func(s Set) bool { return !isControl(s) })
	for _, s := range append(others, control...) {
		last := len(batches) - 1
		if last >= 0 && l.fits(Change{Remove: append(slices.Clip(batches[last]), s)}) {
			batches[last] = append(batches[last], s)
			continue
		}
		batches = append(batches, []Set{s})
	}
	return batches
}

// Apply returns have as it is after the change, in the order of names.
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

// size counts as Route 53 does: each removed value and each created value counts as one.
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

// part is a part of a change that must be committed as a whole.
type part struct {
	Change
	label string
	rank  int
}

func (c Change) withPart(p part) Change {
	return Change{Remove: slices.Concat(c.Remove, p.Remove), Create: slices.Concat(c.Create, p.Create)}
}

// parts splits a change, which creates a control record as every one of Diff does: that record, which keeps its groups until the
// last part is committed, and the other parts in a valid order of commits.
func (c Change) parts() (stamp Change, parts []part) {
	after := c.Create[slices.IndexFunc(c.Create, isControl)]
	domain := strings.TrimPrefix(after.Name, controlLabel+".")
	generation, _ := after.generation()
	owner := slices.DeleteFunc(after.withoutGeneration(), func(v string) bool { return !strings.HasPrefix(v, ownerPrefix) })
	after.Values = append(generationValues(generation), owner...)
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
			groups := slices.DeleteFunc(s.withoutGeneration(), func(v string) bool { return strings.HasPrefix(v, ownerPrefix) })
			after.Values = slices.Sorted(slices.Values(slices.Concat(groups, owner, generationValues(generation))))
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
	return stamp, inOrder(byLabel, domain)
}

// partLabel groups etcd's names and SRV records; any other name is a part of its own.
func partLabel(s Set, domain string) string {
	if _, r := identify(s, domain); r == role.Etcd {
		return string(role.Etcd)
	}
	return s.Name
}

// inOrder sorts the parts so that no committed part announces shards that do not exist: new shards come first and old
// ones go last. Between them, a growing number of shards is announced before values move out of the old shards, and a
// shrinking one after values have moved into those that stay.
func inOrder(byLabel map[string]*part, domain string) []part {
	fewer := map[role.Role]bool{}
	for _, p := range byLabel {
		if k, r := p.identify(domain); k == kindShard && len(p.Create) == 0 {
			fewer[r] = true
		}
	}
	var parts []part
	for _, p := range byLabel {
		k, r := p.identify(domain)
		switch {
		case k != kindShard:
			p.rank = 2
		case len(p.Remove) == 0:
			p.rank = 0
		case len(p.Create) == 0:
			p.rank = 4
		case !fewer[r]:
			p.rank = 3
		default:
			p.rank = 1
		}
		parts = append(parts, *p)
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.label, b.label))
	})
	return parts
}

func (p *part) identify(domain string) (nameKind, role.Role) {
	return identify(slices.Concat(p.Remove, p.Create)[0], domain)
}
