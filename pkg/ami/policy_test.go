package ami

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func history(images string) []Version {
	var h []Version
	for i, image := range strings.Fields(images) {
		h = append(h, Version{Number: int64(i + 1), Image: image})
	}
	return h
}

func TestBefore(t *testing.T) {
	for images, want := range map[string]string{
		"": "", "a": "", "a a": "", "a b": "a", "a b c": "b",
		"a b c b":     "a", // rolled back once: once more goes further
		"a b c b a":   "",
		"a b c b d":   "b", // and then on
		"a b c b c":   "b",
		"a b b c":     "b",
		"a b a b a b": "a",
	} {
		if got, ok := RollbackTarget(history(images)); got != want || ok != (want != "") {
			t.Errorf("%q: back to %q, want %q", images, got, want)
		}
	}
}

func TestCollect(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	days := func(n int) time.Time { return now.AddDate(0, 0, -n) }
	image := func(id string, age int, change ...func(*Image)) Image {
		i := Image{ID: id, Name: "n-" + id, State: Available, Architecture: "amd64", Snapshot: "s-" + id, Created: days(age), Tags: map[string]string{TagImage: "n"}}
		for _, f := range change {
			f(&i)
		}
		return i
	}
	other := func(i *Image) { i.Architecture = "arm64" }
	failed := func(i *Image) { i.State = Failed }
	launched := func(i *Image) { i.Launched = now.Add(-time.Hour) }
	s := Inventory{
		Images: []Image{image("young", 0), image("newest", 2), image("failed", 3, failed), image("second", 4), image("current", 5), image("before", 6),
			image("earlier", 7), image("template", 8), image("shared", 9), image("launched", 10, launched), image("arm", 11, other), image("old", 12)},
		UsedBy:   map[string][]string{"template": {"launch template t, version 1"}},
		Channels: map[string][]Version{"stable": history("earlier before current"), "gone": nil},
		Shared:   map[string][]string{"shared": {"111122223333"}},
		Orphans:  []Orphan{{ID: "s-1", State: Pending, Started: days(3)}, {ID: "s-2", State: Pending, Started: now}},
	}
	removed := func(r Rules) string {
		var words []string
		r.Now = now
		for _, v := range Collect(s, r) {
			if len(v.Why) == 0 {
				t.Errorf("nothing is said of %s%s", v.Image, v.Snapshot)
			}
			if v.Remove {
				words = append(words, v.Image+v.Snapshot)
			}
		}
		return strings.Join(words, " ")
	}
	for _, c := range []struct {
		rules Rules
		want  string
	}{
		{Rules{Keep: 3, Age: 24 * time.Hour}, "faileds-failed earliers-earlier olds-old s-1"},
		{Rules{Keep: 100, Age: 24 * time.Hour}, "faileds-failed s-1"},
		{Rules{Shared: true}, "youngs-young newests-newest faileds-failed seconds-second earliers-earlier shareds-shared launcheds-launched arms-arm olds-old s-1 s-2"},
	} {
		if diff := cmp.Diff(c.want, removed(c.rules)); diff != "" {
			t.Errorf("%+v:\n%s", c.rules, diff)
		}
	}
}
