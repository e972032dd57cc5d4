package record

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const control = "_hardtack.demo.k8s."

// TestGenerationsOfAnyLength: a generation is read back as it was given, and no string of it is longer than DNS takes.
func TestGenerationsOfAnyLength(t *testing.T) {
	f := demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))
	for _, n := range []int{1, generationPart, generationPart + 1, 2 * generationPart, 3*generationPart - 1, MaxGeneration} {
		var long strings.Builder
		for i := range n {
			long.WriteByte("0123456789abcdefghijklm"[(i+i/generationPart)%23])
		}
		have := next(t, nil, f, DefaultPolicy(), long.String())
		if got, ok := Generation(have, "demo"); !ok || got != long.String() {
			t.Errorf("a generation of %d: %q, %v", n, got, ok)
		}
		values := at(have, control, TXT)
		backwards := slices.Clone(values)
		slices.Reverse(backwards)
		if got, ok := Generation([]Set{{Name: control, Type: TXT, Values: backwards}}, "demo"); !ok || got != long.String() {
			t.Errorf("a generation of %d whose values come backwards: %q, %v", n, got, ok)
		}
		for _, v := range values {
			if len(v) > 255 {
				t.Errorf("a generation of %d has a string of %d", n, len(v))
			}
		}
		desired, _ := Desired(f, DefaultPolicy(), Limits{})
		want, _ := Guard(desired, have, f, DefaultPolicy())
		if c := Diff(have, want, "other"); !c.Empty() {
			t.Errorf("after a generation of %d nothing has changed, and yet: %+v", n, c)
		}
		if got := at(Stamp(have, "demo", "other").Create, control, TXT); !slices.Equal(got, []string{"generation=other", "group=masters/demo-masters", "owner=hardtack"}) {
			t.Errorf("a generation of %d is followed by %v", n, got)
		}
	}
}

// TestAnotherTypesControl: only a TXT record is the control record.
func TestAnotherTypesControl(t *testing.T) {
	have := []Set{{Name: control, Type: "SPF", TTL: DefaultTTL, Values: []string{"generation=g1", "owner=hardtack", "vanished=masters/a@1"}}}
	if g, ok := Generation(have, "demo"); ok {
		t.Errorf("its generation is %q", g)
	}
	if c := Stamp(have, "demo", "g2"); !c.Empty() {
		t.Errorf("it is changed: %+v", c)
	}
	if at := LetGoAt(have, "demo"); !at.IsZero() {
		t.Errorf("a group is let go at %v", at)
	}
}

// TestControlsTTL: the control record follows the policy as all others do.
func TestControlsTTL(t *testing.T) {
	f := demo(group(role.Masters, 1, in("i-1", "10.0.0.1")))
	want := next(t, nil, f, DefaultPolicy(), "g1")
	have := slices.Clone(want)
	have[slices.IndexFunc(have, isControl)].TTL = time.Hour
	c := Diff(have, want, "g2")
	if got := commit(t, have, c); len(c.Create) != 1 || got[slices.IndexFunc(got, isControl)].TTL != DefaultTTL {
		t.Errorf("a TTL that somebody has changed: %+v", c)
	}
}

// TestGroupNames: any name of a group is remembered in plain letters, so that a zone says back what was written.
func TestGroupNames(t *testing.T) {
	for name, plain := range map[string]bool{
		"a": true, "A.b_c:d/e+f-0": true, "0": true,
		"a b": false, `a"b`: false, "-a": false, "ä": false, "a\x00": false, "a;b": false, `a\b`: false, "a@1": false,
	} {
		f := demo(named(name, group(role.Masters, 1, in("i-1", "10.0.0.1"))))
		have := next(t, nil, f, DefaultPolicy(), "g1")
		got := at(have, control, TXT)[1]
		if !plainName.MatchString(strings.TrimPrefix(got, groupPrefix)) || (got == "group=masters/"+name) != plain {
			t.Errorf("%q is remembered as %q", name, got)
		}
		if again := next(t, have, f, DefaultPolicy(), "g2"); text(again) != text(have) {
			t.Errorf("%q is not known again:\n%s", name, text(again))
		}
	}
}

// minionGroups are groups of minions, with a machine each.
func minionGroups(from, to int) (all []Group) {
	for i := from; i < to; i++ {
		all = append(all, named(fmt.Sprintf("g%02d", i), group(role.Minions, 1, in(fmt.Sprint("i-", i), fmt.Sprint("10.0.1.", i+1)))))
	}
	return all
}

// TestManyVanish: ten groups that are missing are remembered one by one, and of more the last decides for all of its role.
func TestManyVanish(t *testing.T) {
	masters := group(role.Masters, 1, in("i-m", "10.0.0.1"))
	for n, first := range map[int]time.Duration{maxVanished - 1: VanishAfter, maxVanished: 20*time.Second + VanishAfter} {
		sweep := func(have []Set, after time.Duration, groups ...Group) []Set {
			f := demo(groups...)
			f.At = noon.Add(after)
			return next(t, have, f, DefaultPolicy(), fmt.Sprint("g", after))
		}
		// Half of the minions' groups go at once and the others one by one, the masters' before the last.
		have := sweep(nil, 0, append(minionGroups(0, n), masters)...)
		for i := n / 2; i < n; i++ {
			have = sweep(have, time.Duration(i-n/2)*time.Second, append(minionGroups(i, n), masters)...)
		}
		have = sweep(have, 20*time.Second, minionGroups(n-1, n)...)
		before := have
		have = sweep(before, 30*time.Second)
		for range 10 {
			if again := sweep(before, 30*time.Second); text(again) != text(have) {
				t.Errorf("the same reading of %d groups gives\n%sand\n%s", n+1, text(have), text(again))
			}
		}
		missing := slices.DeleteFunc(slices.Clone(at(have, control, TXT)), func(v string) bool { return !strings.HasPrefix(v, vanishedPrefix) })
		ofRoles := []string{fmt.Sprintf("vanished=masters/@%d", noon.Unix()+20), fmt.Sprintf("vanished=minions/@%d", noon.Unix()+30)}
		if one := n < maxVanished; one && len(missing) != n+1 || !one && !slices.Equal(missing, ofRoles) {
			t.Errorf("of %d groups %v are missing", n+1, missing)
		}
		if got := LetGoAt(have, "demo"); !got.Equal(noon.Add(first)) {
			t.Errorf("of %d groups the first is let go at %v", n+1, got)
		}
		have = sweep(have, 80*time.Second)
		expect(t, "the masters' time is over", have, "masters", A, "192.0.2.1")
		if got := at(have, "minions.demo.k8s.", A); len(got) != n {
			t.Errorf("of %d groups the minions are %v before the last of them is given up", n, got)
		}
		expect(t, "the minions' time is over", sweep(have, 90*time.Second), "minions", A, "192.0.2.1")
	}
}

// TestGroupsOfBefore: whose groups are waited for when they are missing: this fleet's, also if the records did not say so yet, or
// a person took them over before.
func TestGroupsOfBefore(t *testing.T) {
	minions, others := group(role.Minions, 1, in("i-1", "10.0.1.1")), named("others", group(role.Minions, 1, in("i-2", "10.0.1.2")))
	for name, tt := range map[string]struct {
		before, after string // the owners
		takeOver      bool
		waits         bool
	}{
		"its own":                       {"aws:1:eu", "aws:1:eu", false, true},
		"its own, taken over again":     {"aws:1:eu", "aws:1:eu", true, true},
		"nobody's in particular":        {"", "aws:1:eu", false, true},
		"nobody's, taken over":          {"", "aws:1:eu", true, false},
		"another's, taken over":         {"rack", "aws:1:eu", true, false},
		"another's, taken over by none": {"rack", "", true, false},
	} {
		p := DefaultPolicy()
		have := next(t, nil, owned(tt.before, minions), p, "g1")
		p.TakeOver = tt.takeOver
		have = next(t, have, owned(tt.after, others), p, "g2")
		want, owner := "10.0.1.2", "owner=hardtack"
		if tt.waits {
			want = "10.0.1.1"
		}
		if tt.after != "" {
			owner += "/" + tt.after
		}
		expect(t, name, have, "minions", A, want)
		// A fleet that does not say when it was read is of the beginning of Unix's time.
		if got := at(have, control, TXT); !slices.Contains(got, owner) || slices.Contains(got, "vanished=minions/demo-minions@0") != tt.waits {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDeletedBesideLost: a group that is deleted is let go, though another one is there that has lost its role.
func TestDeletedBesideLost(t *testing.T) {
	masters := group(role.Masters, 1, in("i-1", "10.0.0.1"))
	have := next(t, nil, demo(masters, group(role.Minions, 1, in("i-2", "10.0.1.1"))), DefaultPolicy(), "g1")
	f := demo(masters, Group{Name: "bastion", Cluster: "demo"})
	for i, want := range []string{"10.0.1.1", "192.0.2.1"} {
		f.At = noon.Add(time.Duration(i) * VanishAfter)
		have = next(t, have, f, DefaultPolicy(), fmt.Sprint("h", i))
		expect(t, f.At.String(), have, "minions", A, want)
	}
}

// TestClaims: a name of an operator's own role is the cluster's where its control record says so, and no other record does.
func TestClaims(t *testing.T) {
	name := Set{Name: "grafana.demo.k8s.", Type: A, TTL: DefaultTTL, Values: []string{"10.0.0.1"}}
	for _, tt := range []struct {
		record, kind, value string
		ours                bool
	}{
		{control, TXT, "group=grafana/x", true},
		{control, TXT, "vanished=grafana/x@1", true},
		{control, TXT, "vanished=grafana/@1", true},
		{control, TXT, "group=prometheus/x", false},
		{control, "SPF", "group=grafana/x", false},
		{"_hardtack.other.k8s.", TXT, "group=grafana/x", false},
		{"notes.demo.k8s.", TXT, "group=grafana/x", false},
	} {
		have := []Set{{Name: tt.record, Type: tt.kind, TTL: DefaultTTL, Values: []string{"owner=hardtack", tt.value}}, name}
		if got := slices.ContainsFunc(ManagedSets(have, "demo", DefaultPolicy()), name.Equal); got != tt.ours {
			t.Errorf("%s %s %q: the name is the cluster's: %v", tt.record, tt.kind, tt.value, got)
		}
	}
}

// TestOthersRecords: what is in the way, and what is not.
func TestOthersRecords(t *testing.T) {
	f := owned("aws:1:eu", group(role.Masters, 1, in("i-1", "10.0.0.1")))
	mine := next(t, nil, f, DefaultPolicy(), "g1")
	owners := func(values ...string) Set {
		return Set{Name: control, Type: TXT, TTL: DefaultTTL, Values: append([]string{"generation=g1"}, values...)}
	}
	mark := func(name string) Set {
		return Set{Name: name, Type: TXT, TTL: DefaultTTL, Values: []string{"heritage=external-dns,external-dns/owner=default"}}
	}
	for name, tt := range map[string]struct {
		have  []Set
		other []string // the fields of the findings, in their order
	}{
		"a CNAME elsewhere":       {[]Set{{Name: "www.demo.k8s.", Type: "CNAME", TTL: DefaultTTL, Values: []string{"x."}}}, nil},
		"a CNAME of a name":       {[]Set{{Name: "masters.demo.k8s.", Type: "CNAME", TTL: DefaultTTL, Values: []string{"x."}}}, []string{"masters.demo.k8s."}},
		"another type of a name":  {[]Set{{Name: "masters.demo.k8s.", Type: "MX", TTL: DefaultTTL, Values: []string{"10 x."}}}, nil},
		"its own control record":  {[]Set{owners("owner=hardtack/aws:1:eu")}, nil},
		"nobody's":                {[]Set{owners("owner=hardtack")}, nil},
		"two owners":              {[]Set{owners("owner=hardtack/aws:1:eu", "owner=somebody")}, []string{"cluster demo"}},
		"two fleets":              {[]Set{owners("owner=hardtack", "owner=hardtack/aws:1:eu")}, []string{"cluster demo"}},
		"one whose name is alike": {[]Set{owners("owner=hardtacked")}, []string{"cluster demo"}},
		"marks of several names": {append([]Set{mark("a-minions.demo.k8s."), mark("a-masters.demo.k8s."), mark("aaaa-masters.demo.k8s."), mark("masters.demo.k8s."), mark("etcd.demo.k8s."), mark("aaaa-minions.demo.k8s.")}, mine...),
			[]string{"etcd.demo.k8s.", "masters.demo.k8s.", "minions.demo.k8s."}},
		"a mark of a name that nobody needs": {append([]Set{mark("a-minions-7.demo.k8s.")}, mine...), nil},
	} {
		desired, _ := Desired(f, DefaultPolicy(), Limits{})
		want, found := Guard(desired, tt.have, f, DefaultPolicy())
		var fields []string
		for _, p := range found {
			fields = append(fields, p.Field)
		}
		if !slices.Equal(fields, tt.other) {
			t.Errorf("%s: %v", name, found)
		}
		if c := Diff(tt.have, want, "g2"); tt.other != nil && !c.Empty() {
			t.Errorf("%s: and yet %+v", name, c)
		} else if !slices.IsSortedFunc(c.Create, compareSets) || !slices.IsSortedFunc(c.Remove, compareSets) {
			t.Errorf("%s: not in order: %+v", name, c)
		}
	}
}
