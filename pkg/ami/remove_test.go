package ami

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A verdict names what it is about, and says when that was made.
func TestVerdicts(t *testing.T) {
	made := time.Date(2026, 11, 1, 10, 0, 0, 0, time.FixedZone("", 3600))
	s := Inventory{
		Images:  []Image{{ID: "ami-1", Name: "n-1", State: Available, Snapshot: "snap-1", Created: made}},
		Orphans: []Orphan{{ID: "snap-2", State: Failed, Started: made.Add(time.Hour), Tags: map[string]string{"Name": "n-2"}}},
	}
	for _, remove := range []bool{true, false} {
		r := Rules{Now: made.Add(2 * time.Hour)}
		if !remove {
			r.Age = 3 * time.Hour
		}
		got := Collect(s, r)
		for i := range got {
			if len(got[i].Why) != 1 {
				t.Errorf("the reasons are %q", got[i].Why)
			}
			got[i].Why = nil
		}
		want := []Verdict{
			{Image: "ami-1", Name: "n-1", Snapshot: "snap-1", Created: "2026-11-01T09:00:00Z", Remove: remove},
			{Name: "n-2", Snapshot: "snap-2", Created: "2026-11-01T10:00:00Z", Remove: remove},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// What is exactly as old as asked for is old enough; a second earlier it was not.
func TestCollectByAge(t *testing.T) {
	const age = 24 * time.Hour
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		ago  time.Duration
		want bool
	}{{"old", age, true}, {"young", age - time.Second, false}} {
		then := now.Add(-c.ago)
		s := Inventory{
			Images:  []Image{{ID: "made", Created: then}, {ID: "launched", Launched: then}},
			Orphans: []Orphan{{ID: "begun", Started: then}},
		}
		for _, v := range Collect(s, Rules{Age: age, Now: now}) {
			if v.Remove != c.want {
				t.Errorf("%s: %+v", c.name, v)
			}
		}
	}
}

// Every reason to keep an image is said, and each once.
func TestReasonsToKeep(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := Inventory{
		Images: []Image{{ID: "a", State: Available, Created: now, Launched: now}, {ID: "b", Created: now.AddDate(0, 0, -9)}},
		UsedBy: map[string][]string{"a": {"template t", "instance i"}},
		Channels: map[string][]Version{
			"one": history("b a"), "two": history("a"), "three": history("a c"), "four": history("a b c"), "five": nil,
		},
		Shared: map[string][]string{"a": {anAccount, anOrganisation}},
	}
	got := Collect(s, Rules{Keep: 1, Age: time.Hour, Now: now})
	// Three channels, two users, those it is shared with, its rank, when it was made and launched.
	if len(got[0].Why) != 9 || len(slices.Compact(slices.Sorted(slices.Values(got[0].Why)))) != 9 {
		t.Errorf("a is kept for %q", got[0].Why)
	}
	// Of two channels, as what they would roll back to.
	if len(got[1].Why) != 2 || got[1].Remove {
		t.Errorf("b is kept for %q", got[1].Why)
	}
}

// What could not be read may use any image: those that are kept for nothing else are said, with the next step. A snapshot without an image
// has no such user.
func TestUnread(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := Inventory{
		Images:  []Image{{ID: "used", State: Available}, {ID: "unused", State: Available}},
		UsedBy:  map[string][]string{"used": {"instance i"}},
		Unread:  map[string][]string{"/golden/b": {"launch template t, version 1", "launch template t, version 2"}, "/golden/a": {"group g"}},
		Orphans: []Orphan{{ID: "snap-1"}},
	}
	got := Collect(s, Rules{Now: now})
	if !slices.Equal(got[0].Why, []string{"instance i uses it"}) || got[0].Unread || !got[2].Remove {
		t.Errorf("%+v", got)
	}
	why := []string{
		"group g may use any image: parameter /golden/a, which names it, may not be read (allow ssm:GetParameter on it, or remove what names it)",
		"launch template t, version 1 (and 1 more) may use any image: parameter /golden/b, which names it, may not be read (allow ssm:GetParameter on it, or remove what names it)",
	}
	if diff := cmp.Diff(why, got[1].Why); diff != "" || got[1].Remove || !got[1].Unread {
		t.Errorf("%+v\n%s", got[1], diff)
	}
	if err := s.Blind(got); err == nil || !strings.HasPrefix(err.Error(), "images that nothing is seen to use are kept (1): group g") {
		t.Error(err)
	}
	if err := s.Blind(got[:1]); err != nil {
		t.Error(err)
	}
}

func TestChannelsNaming(t *testing.T) {
	s := Inventory{Channels: map[string][]Version{"z": history("b a"), "a": history("a"), "m": history("a b"), "empty": nil}}
	for image, want := range map[string][]string{"a": {"a", "z"}, "b": {"m"}, "c": {}, "": {}} {
		if diff := cmp.Diff(want, s.ChannelsNaming(image)); diff != "" {
			t.Errorf("%q:\n%s", image, diff)
		}
	}
}

// An image goes before its snapshot. What cannot be removed is said, and does not keep the others from it.
func TestRemove(t *testing.T) {
	verdicts := []Verdict{{Image: "ami-1", Snapshot: "snap-1", Remove: true}, {Image: "ami-2", Snapshot: "snap-2"}, {Snapshot: "snap-3", Remove: true}, {Image: "ami-4", Remove: true}}
	deregister, remove := "Deregister", "DeleteSnapshot"
	for _, c := range []struct {
		name   string
		before func(string) error
		calls  []string
		done   []Verdict
	}{
		{"all", nil, []string{deregister, remove, remove, deregister}, []Verdict{verdicts[0], verdicts[2], verdicts[3]}},
		{"an image stays", breaks(deregister, 1), []string{deregister, remove, deregister}, []Verdict{verdicts[2], verdicts[3]}},
		{"a snapshot stays", breaks(remove, 1), []string{deregister, remove, remove, deregister}, []Verdict{verdicts[2], verdicts[3]}},
		{"the last stays", breaks(deregister, 2), []string{deregister, remove, remove, deregister}, []Verdict{verdicts[0], verdicts[2]}},
	} {
		a := newAccount()
		a.before = c.before
		done, err := Remove(t.Context(), a, verdicts)
		if errors.Is(err, errBroken) != (c.before != nil) {
			t.Errorf("%s: it ended with %v", c.name, err)
		}
		if diff := cmp.Diff(c.done, done) + cmp.Diff(c.calls, a.calls); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

// Interrupted, it removes no more, and says what is gone.
func TestRemoveInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := newAccount()
	a.after = func(string) error { cancel(); return nil }
	done, err := Remove(ctx, a, []Verdict{{Snapshot: "snap-1", Remove: true}, {Snapshot: "snap-2", Remove: true}})
	if !errors.Is(err, context.Canceled) || len(done) != 1 || done[0].Snapshot != "snap-1" || len(a.calls) != 1 {
		t.Errorf("removed %v by %v, and ended with %v", done, a.calls, err)
	}
}
