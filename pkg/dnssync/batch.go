package dnssync

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// nextStep returns the sets to write now: want, when the service takes the change from have to it in
// one batch, else as much of it as fits. A step never holds a part of a name, nor a part of what etcd
// discovers itself by; and as new sets come before changed ones and these before removals, a machine
// that moves between the shards of a large record is at no time in none of them.
func nextStep(have, want []record.Set, l record.Limits) []record.Set {
	whole := record.Diff(have, want, strings.Repeat("x", generationLength))
	size := sizeOf(whole)
	if size.fits(l) {
		return want
	}
	var step bulk // what every step costs: the control record
	for _, s := range slices.Concat(whole.Remove, whole.Create) {
		if unitOf(s) == "" {
			step = step.plus(s)
		}
	}
	next := slices.Clone(have)
	for i, u := range units(whole) {
		after := step
		for _, s := range slices.Concat(u.remove, u.create) {
			after = after.plus(s)
		}
		if !after.fits(l) && i == 0 {
			return want // nothing smaller can be made: the service's refusal says what is wrong
		}
		if !after.fits(l) {
			break
		}
		step = after
		next = replace(next, u.remove, u.create)
	}
	return controlled(next, want)
}

// bulk is what counts against the limits of one batch.
type bulk struct{ values, characters int }

func sizeOf(c record.Change) bulk {
	var b bulk
	for _, s := range slices.Concat(c.Remove, c.Create) {
		b = b.plus(s)
	}
	return b
}

func (b bulk) plus(s record.Set) bulk {
	b.values += len(s.Values)
	for _, v := range s.Values {
		b.characters += len(v)
		if s.Type == record.TXT {
			b.characters += 2 // its quotes
		}
	}
	return b
}

func (b bulk) fits(l record.Limits) bool {
	return (l.BatchValues == 0 || b.values <= l.BatchValues) &&
		(l.BatchCharacters == 0 || b.characters <= l.BatchCharacters)
}

// unit is what may not be split between two batches.
type unit struct {
	key            string
	remove, create []record.Set
}

// unitOf names the unit of a set: its name, "etcd" for all that etcd's discovery reads, and "" for the
// control record, which is in every batch.
func unitOf(s record.Set) string {
	label, _, _ := strings.Cut(s.Name, ".")
	switch {
	case s.Type == record.SRV, label == string(role.Etcd), strings.HasPrefix(label, string(role.Etcd)+"-"):
		return string(role.Etcd)
	case strings.HasPrefix(label, "_"):
		return ""
	default:
		return s.Name
	}
}

// units are the units of a change in the order in which they may be written.
func units(c record.Change) []unit {
	by := map[string]*unit{}
	at := func(s record.Set) *unit {
		key := unitOf(s)
		if by[key] == nil {
			by[key] = &unit{key: key}
		}
		return by[key]
	}
	for _, s := range c.Remove {
		u := at(s)
		u.remove = append(u.remove, s)
	}
	for _, s := range c.Create {
		u := at(s)
		u.create = append(u.create, s)
	}
	delete(by, "")
	out := make([]unit, 0, len(by))
	for _, u := range by {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b unit) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.key, b.key))
	})
	return out
}

func (u unit) rank() int {
	switch {
	case u.key == string(role.Etcd):
		return 0
	case len(u.remove) == 0:
		return 1
	case len(u.create) > 0:
		return 2
	default:
		return 3
	}
}

// replace takes sets out by name and type and adds others.
func replace(sets, remove, create []record.Set) []record.Set {
	kept := slices.DeleteFunc(slices.Clone(sets), func(s record.Set) bool {
		return slices.ContainsFunc(remove, func(r record.Set) bool { return r.Name == s.Name && r.Type == s.Type })
	})
	return append(kept, create...)
}

// controlled is the sets with the control record of want in place of their own.
func controlled(sets, want []record.Set) []record.Set {
	isControl := func(s record.Set) bool { return unitOf(s) == "" }
	return append(slices.DeleteFunc(sets, isControl), want[slices.IndexFunc(want, isControl)])
}
