package record

import (
	"slices"
	"strings"
)

// Change is one atomic change of record sets.
type Change struct {
	// Remove holds sets exactly as they were read, Create complete new ones; a set that changes is in both.
	Remove []Set `json:"remove"`
	Create []Set `json:"create"`
}

// Empty reports whether there is nothing to do.
func (c Change) Empty() bool { return len(c.Remove) == 0 && len(c.Create) == 0 }

// Equal reports whether two sets have the same name, type, TTL and values in any order.
func (s Set) Equal(o Set) bool {
	return s.Name == o.Name && s.Type == o.Type && s.TTL == o.TTL &&
		slices.Equal(slices.Sorted(slices.Values(s.Values)), slices.Sorted(slices.Values(o.Values)))
}

// Diff returns the change from have to want, in the order of names. want is the result of Guard; if it has no control
// record nothing changes. A change that is not empty also replaces the control record, exactly as it was read, by one
// with the new generation. The generation must be unique: otherwise a base from before this change could match again
// later. Sets of have that are not Managed are left alone.
func Diff(have, want []Set, generation string) Change {
	i := slices.IndexFunc(want, isControl)
	if i < 0 {
		return Change{}
	}
	domain := strings.TrimPrefix(want[i].Name, controlLabel+".")
	old := map[[2]string]Set{}
	for _, s := range have {
		if k, _ := identify(s, domain); k != kindForeign {
			old[[2]string{s.Name, s.Type}] = s
		}
	}
	c := changes(old, want)
	before, known := old[[2]string{want[i].Name, TXT}]
	_, stamped := before.generation()
	if c.Empty() && stamped && before.TTL == want[i].TTL && slices.Equal(before.withoutGeneration(), want[i].withoutGeneration()) {
		return Change{}
	}
	after := want[i]
	after.Values = slices.Sorted(slices.Values(append(after.withoutGeneration(), generationPrefix+generation)))
	c.Create = append(c.Create, after)
	if known {
		c.Remove = append(c.Remove, before)
	}
	sortSets(c.Remove)
	sortSets(c.Create)
	return c
}

func isControl(s Set) bool { return s.Type == TXT && strings.HasPrefix(s.Name, controlLabel+".") }

// changes compares everything but the control record.
func changes(old map[[2]string]Set, want []Set) Change {
	var c Change
	keep := map[[2]string]bool{}
	for _, s := range want {
		if isControl(s) {
			continue
		}
		key := [2]string{s.Name, s.Type}
		keep[key] = true
		before, ok := old[key]
		if ok && before.Equal(s) {
			continue
		}
		if ok {
			c.Remove = append(c.Remove, before)
		}
		c.Create = append(c.Create, s)
	}
	for key, s := range old {
		if !keep[key] && !isControl(s) {
			c.Remove = append(c.Remove, s)
		}
	}
	return c
}
