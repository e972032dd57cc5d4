package ami

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChannelOfParameter(t *testing.T) {
	for parameter, want := range map[string]string{
		Parameter("stable"):           "stable",
		Parameter("a"):                "a",
		"/hardtack/a-1/image-id":      "a-1",
		"stable/image-id":             "",
		"/hardtack/stable":            "",
		"/hardtack/stable/image":      "",
		"/hardtack//image-id":         "",
		"/hardtack/Stable/image-id":   "",
		"/hardtack/a/b/image-id":      "",
		"/x/hardtack/stable/image-id": "",
		"":                            "",
	} {
		if got, ok := ChannelOf(parameter); ok != (want != "") || ok && got != want {
			t.Errorf("%q is the channel %q, %v; want %q", parameter, got, ok, want)
		}
	}
}

func TestCheckChannel(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, good := range map[string]bool{"stable": true, "a": true, "1-a": true, long: true, long + "a": false, "": false, "-a": false, "a-": false, "A": false, "a/b": false} {
		if err := CheckChannel(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// withImages is an account with available images of these ids, and one of each other state.
func withImages(ids ...string) *account {
	a := newAccount()
	for _, id := range ids {
		a.images = append(a.images, Image{ID: id, State: Available})
	}
	a.images = append(a.images, Image{ID: "pending", State: Pending}, Image{ID: "failed", State: Failed})
	return a
}

func TestPromote(t *testing.T) {
	for _, c := range []struct {
		name, before, image string
		want                Promotion
		good                bool
	}{
		{"the first", "", "b", Promotion{Version: 1, Changed: true}, true},
		{"another", "a", "b", Promotion{Before: "a", Version: 2, Changed: true}, true},
		{"an earlier one", "a b", "a", Promotion{Before: "b", Version: 3, Changed: true}, true},
		{"the same", "a b", "b", Promotion{Before: "b", Version: 2}, true},
		{"one in the making", "a", "pending", Promotion{}, false},
		{"one that has failed", "a", "failed", Promotion{}, false},
		{"one that is not there", "a", "c", Promotion{}, false},
		{"the same, which has failed", "failed", "failed", Promotion{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := withImages("a", "b")
			a.channels["stable"] = history(c.before)
			got, err := Promote(t.Context(), a, "stable", c.image)
			if !c.good {
				if err == nil || len(a.channels["stable"]) != len(history(c.before)) {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			c.want.Channel, c.want.Parameter, c.want.Image = "stable", "/hardtack/stable/image-id", c.image
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
			now := a.channels["stable"]
			if now[len(now)-1].Image != c.image || int64(len(now)) != c.want.Version {
				t.Errorf("its history is %v", now)
			}
		})
	}
}

func TestRollback(t *testing.T) {
	for _, c := range []struct {
		name, before string
		to           int64
		want         string // empty is an error
	}{
		{"back", "a b c", 0, "b"},
		{"back once more", "a b c b", 0, "a"},
		{"to the first version", "a b c", 1, "a"},
		{"to one between", "a b c", 2, "b"},
		{"to the last, which it is", "a b c", 3, "c"},
		{"beyond the first", "a b a", 0, ""},
		{"to a version that is not there", "a b c", 4, ""},
		{"a channel that is not there", "", 0, ""},
		{"a version of a channel that is not there", "", 1, ""},
		{"to what has failed", "failed a", 0, ""},
		{"to a version that has failed", "failed a", 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := withImages("a", "b", "c")
			a.channels["stable"] = history(c.before)
			got, err := Rollback(t.Context(), a, "stable", c.to)
			now := a.channels["stable"]
			switch {
			case c.want == "" && (err == nil || len(now) != len(history(c.before))):
				t.Errorf("%+v, %v", got, err)
			case c.want == "" && c.to == 0 && c.name != "to what has failed" && len(a.calls) != 1:
				t.Errorf("nothing is there to go back to, and asked was %q", a.calls)
			case c.want != "" && (err != nil || got.Image != c.want || now[len(now)-1].Image != c.want):
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	// AWS forgets versions after the hundredth, and the numbers go on.
	a := withImages("a", "b")
	a.channels["stable"] = []Version{{Number: 7, Image: "a"}, {Number: 8, Image: "b"}}
	if got, err := Rollback(t.Context(), a, "stable", 7); err != nil || got.Image != "a" {
		t.Errorf("to version 7: %+v, %v", got, err)
	}
}

func TestChannelsFail(t *testing.T) {
	for _, call := range []string{"History", "Image", "Set"} {
		a := withImages("a", "b")
		a.channels["stable"] = history("a b")
		a.before = breaks(call, 1)
		if p, err := Promote(t.Context(), a, "stable", "a"); !errors.Is(err, errBroken) || p.Changed {
			t.Errorf("promoted, where %s fails: %+v, %v", call, p, err)
		}
		a.before = breaks(call, 1)
		if p, err := Rollback(t.Context(), a, "stable", 0); !errors.Is(err, errBroken) || p.Changed {
			t.Errorf("rolled back, where %s fails: %+v, %v", call, p, err)
		}
	}
}

// What is only planned says what would be, and sets nothing.
func TestPlannedChannels(t *testing.T) {
	for before, want := range map[string]int64{"": 1, "a": 2, "a b c": 4} {
		a := withImages("d")
		a.channels["stable"] = history(before)
		got, err := Promote(t.Context(), Planned{a}, "stable", "d")
		if err != nil || !got.Changed || got.Version != want || got.Image != "d" {
			t.Errorf("after %q: %+v, %v", before, got, err)
		}
		if len(a.channels["stable"]) != len(history(before)) {
			t.Errorf("after %q it is set: %v", before, a.channels)
		}
		if v, err := (Planned{a}).Set(t.Context(), "stable", "d"); err != nil || v.Image != "d" || v.Number != want {
			t.Errorf("after %q the version would be %+v, %v", before, v, err)
		}
	}
	a := withImages("d")
	a.before = breaks("History", 1)
	if _, err := (Planned{a}).Set(t.Context(), "stable", "d"); !errors.Is(err, errBroken) {
		t.Errorf("its history cannot be read: %v", err)
	}
}
