package ami

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const home, away, farther = "us-west-2", "us-east-1", "eu-central-1"

// spread is an image in the home region, of three.
type spread struct {
	regions
	original Result
	disk     *memory
}

func newSpread(t *testing.T) *spread {
	t.Helper()
	s := &spread{regions: regions{home: newAccount(), away: newAccount(), farther: newAccount()}, disk: disk("abc.")}
	s.original = s.publish(t, home)
	return s
}

// publish publishes the disk in a region, as if it were copied there.
func (s *spread) publish(t *testing.T, region string) Result {
	t.Helper()
	at := situation{account: s.regions[region], state: t.TempDir()}
	return at.must(t, s.disk)
}

func (s *spread) run(ctx context.Context, targets ...Target) (map[string]string, error) {
	d := Distribution{Home: home, At: s.Region, Permissions: LaunchPermissions{Accounts: []string{anAccount}}}
	return d.Run(ctx, s.original, targets)
}

// A copy is of the original, with its own key; it and the original are shared.
func TestCopies(t *testing.T) {
	s := newSpread(t)
	images, err := s.run(t.Context(), Target{away, NoKey}, Target{farther, anotherKey})
	if err != nil || len(images) != 3 || images[home] != s.original.Image {
		t.Fatalf("%v, %v", images, err)
	}
	for region, key := range map[string]string{away: NoKey, farther: anotherKey} {
		got := s.regions[region].copied[images[region]]
		tags := maps.Clone(s.original.Tags)
		tags[TagKey] = key
		want := CopyRequest{Region: home, Image: s.original.Image, Name: s.original.Name, Description: s.original.Description, Key: key, Tags: tags}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(CopyRequest{}, "Token")); diff != "" || got.Token == "" {
			t.Errorf("in %s, by the token %q:\n%s", region, got.Token, diff)
		}
	}
	for name, a := range s.regions {
		if shared := a.shared[images[name]]; len(shared) != 1 || !slices.Equal(shared[0].Accounts, []string{anAccount}) {
			t.Errorf("in %s it is shared with %v", name, shared)
		}
		if name != home && !slices.Contains(a.calls, "WaitImage") {
			t.Errorf("in %s nobody waited for it", name)
		}
	}
	if s.original.Tags[TagKey] != NoKey {
		t.Errorf("the original's tags are changed: %v", s.original.Tags)
	}
}

// Whoever is not named is not let in.
func TestCopiesNotShared(t *testing.T) {
	s := newSpread(t)
	d := Distribution{Home: home, At: s.Region}
	if _, err := d.Run(t.Context(), s.original, []Target{{away, NoKey}}); err != nil {
		t.Fatal(err)
	}
	for name, a := range s.regions {
		if slices.Contains(a.calls, "Share") {
			t.Errorf("in %s it is shared: %v", name, a.shared)
		}
	}
}

// An image that is there already is the copy, if it is of the disk; one that has failed is not.
func TestCopyIsThere(t *testing.T) {
	for _, c := range []struct {
		name          string
		change        func(*account)
		found, copied bool
	}{
		{"it is", func(*account) {}, true, false},
		{"in the making", func(a *account) { a.images[0].State = Pending }, true, false},
		{"it has failed", func(a *account) { a.images[0].State, a.images[0].Name = Failed, "other" }, false, true},
		{"encrypted otherwise", func(a *account) { a.images[0].Tags[TagKey] = anotherKey }, false, false},
		{"another disk", func(a *account) { a.snapshots[a.images[0].Snapshot].blocks[1][7] ^= 1 }, false, false},
	} {
		s := newSpread(t)
		there := s.publish(t, away)
		c.change(s.regions[away])
		before := len(s.regions[away].calls)
		images, err := s.run(t.Context(), Target{away, NoKey})
		if (err == nil) != (c.found || c.copied) {
			t.Errorf("%s: it ended with %v", c.name, err)
		}
		if c.found != (images[away] == there.Image) || c.copied != (len(s.regions[away].copied) == 1) || (images[away] != "") != (err == nil) {
			t.Errorf("%s: of %v, %v were copied", c.name, images, s.regions[away].copied)
		}
		if c.name == "it is" && slices.Contains(s.regions[away].calls[before+1:], "Find") {
			t.Errorf("%s: it is looked for twice: %q", c.name, s.regions[away].calls)
		}
		if shared := len(s.regions[away].shared[images[away]]); err == nil && shared != 1 {
			t.Errorf("%s: it was shared %d times", c.name, shared)
		}
	}
}

// If one copy fails, nothing of it is left, the other is made, and the error is that copy's.
func TestCopyFails(t *testing.T) {
	for _, there := range []bool{false, true} {
		calls := []string{"Find", "Copy", "WaitImage", "Share"}
		if there {
			calls = []string{"Find", "WaitImage", "List", "Get 1", "Share"}
		}
		for _, call := range calls {
			s := newSpread(t)
			if there {
				s.publish(t, away)
			}
			s.regions[away].before = breaks(call, 1)
			images, err := s.run(t.Context(), Target{away, NoKey}, Target{farther, NoKey})
			if !errors.Is(err, errBroken) || len(images) != 2 || images[home] == "" || images[farther] == "" {
				t.Errorf("%s fails: %v, %v", call, images, err)
			}
			a := s.regions[away]
			if left := len(a.images); there != (left == 1) {
				t.Errorf("%s fails: there are %v", call, a.images)
			}
			if discarded := slices.Contains(a.calls, "Discard"); discarded != (!there && (call == "WaitImage" || call == "Share")) {
				t.Errorf("%s fails: the calls are %v", call, a.calls)
			}
		}
	}
	s := newSpread(t)
	s.regions[home].before = breaks("Share", 1)
	if images, err := s.run(t.Context(), Target{away, NoKey}); !errors.Is(err, errBroken) || images[home] != s.original.Image || len(s.regions[away].calls) > 0 {
		t.Errorf("the original cannot be shared: %v, %v", images, err)
	}
	delete(s.regions, away)
	if images, err := s.run(t.Context(), Target{away, NoKey}, Target{farther, NoKey}); !errors.Is(err, errNoRegion) || images[farther] == "" {
		t.Errorf("a region that is not there: %v, %v", images, err)
	}
	delete(s.regions, home)
	if _, err := s.run(t.Context(), Target{farther, NoKey}); !errors.Is(err, errNoRegion) {
		t.Errorf("the home region is not there: %v", err)
	}
}

// What cannot be taken away of a copy is said beside why.
func TestCopyCannotBeDiscarded(t *testing.T) {
	s, stuck := newSpread(t), errors.New("stuck")
	s.regions[away].before = func(call string) error {
		return map[string]error{"WaitImage": errBroken, "Deregister": stuck}[call]
	}
	if _, err := s.run(t.Context(), Target{away, NoKey}); !errors.Is(err, errBroken) || !errors.Is(err, stuck) {
		t.Errorf("it ended with %v", err)
	}
}

// Interrupted while a copy is asked for, whose answer is lost: it is asked for again, by the same token, and taken away. What is
// known is not asked for twice.
func TestCopyInterrupted(t *testing.T) {
	for _, c := range []struct {
		name                string
		call                string
		interrupted, broken bool
		copies              int
	}{
		{"interrupted", "Copy", true, false, 2}, {"interrupted, and not to be found out", "Copy", true, true, 2}, {"refused", "Copy", false, false, 1},
		{"interrupted while it is waited for", "WaitImage", true, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSpread(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a, asked := s.regions[away], errors.New("not to be found out")
			lost := once(c.call, func() error {
				if c.interrupted {
					cancel()
				}
				return errBroken
			})
			if a.after = lost; !c.interrupted {
				a.before, a.after = lost, nil
			}
			if c.broken {
				n := 0
				a.before = func(call string) error {
					if call == "Copy" {
						if n++; n == 2 {
							return asked
						}
					}
					return nil
				}
			}
			if _, err := s.run(ctx, Target{away, NoKey}); !errors.Is(err, errBroken) || c.broken != errors.Is(err, asked) {
				t.Errorf("it ended with %v", err)
			}
			copies := 0
			for _, call := range a.calls {
				if call == "Copy" {
					copies++
				}
			}
			if copies != c.copies || (len(a.images) > 0) != c.broken {
				t.Errorf("%d requests, and left is %v", copies, a.images)
			}
		})
	}
}

// The whole way ends with the channel in every region. Where a step fails, those before it stay, and the next try finds them.
func TestPipeline(t *testing.T) {
	begin := func() (regions, Pipeline) {
		return regions{home: newAccount(), away: newAccount()}, Pipeline{
			Request: requestOf(disk("abc.")), Home: home, Copies: []Target{{away, NoKey}}, Permissions: LaunchPermissions{Organisations: []string{anOrganisation}}, Channel: "stable",
		}
	}
	at, j := begin()
	dir := t.TempDir()
	var published, shipped bytes.Buffer
	logged := func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&published, nil)) }
	r, err := RunPipeline(t.Context(), at[home].publisher(t, dir, logged), at, j, slog.New(slog.NewTextHandler(&shipped, nil)))
	if err != nil || r.Image == "" || len(r.Images) != 2 || len(r.Promotions) != 2 || r.Images[home] != r.Image {
		t.Fatalf("%+v, %v", r, err)
	}
	if published.Len() == 0 || shipped.Len() == 0 {
		t.Errorf("of %d bytes of its log, %d are of the copies", published.Len(), shipped.Len())
	}
	for name, a := range at {
		if got := r.Promotions[name]; !got.Changed || got.Image != r.Images[name] || len(a.channels["stable"]) != 1 || len(a.shared[r.Images[name]]) != 1 {
			t.Errorf("in %s: %+v, of %+v", name, got, a.channels)
		}
	}
	for _, c := range []struct {
		region, call       string
		images, promotions int
	}{{home, "Register", 0, 0}, {home, "Share", 1, 0}, {away, "Copy", 1, 0}, {away, "Set", 2, 1}, {home, "History", 2, 2}} {
		at, j := begin()
		at[c.region].before = breaks(c.call, 1)
		r, err := RunPipeline(t.Context(), at[home].publisher(t, t.TempDir()), at, j, nil)
		if !errors.Is(err, errBroken) || len(r.Images) != c.images || len(r.Promotions) != c.promotions || r.Images == nil || r.Name == "" {
			t.Errorf("%s in %s fails: %+v, %v", c.call, c.region, r, err)
		}
	}
	at, j = begin()
	j.Channel = ""
	r, err = RunPipeline(t.Context(), at[home].publisher(t, t.TempDir()), at, j, nil)
	if err != nil || len(r.Images) != 2 || len(r.Promotions) > 0 || len(at[home].channels)+len(at[away].channels) > 0 {
		t.Errorf("without a channel: %+v, %v", r, err)
	}
	// One region after another, in the order of their names.
	if done, err := PromoteAll(t.Context(), at, "stable", map[string]string{home: r.Image, "nowhere": "ami-1"}); !errors.Is(err, errNoRegion) || len(done) != 0 {
		t.Errorf("a region that is not there: %v, %v", done, err)
	}
}
