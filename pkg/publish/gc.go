package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Orphan is a snapshot with Hardtack's tags that no image has.
type Orphan struct {
	ID      string
	State   State
	Started time.Time
	Tags    map[string]string
}

// Stock is what there is in a region, read as a whole: what is to go is decided by it alone.
type Stock struct {
	// Images are the account's own with Hardtack's tags, the newest first.
	Images []Image
	// Users says of an image what uses it: launch templates, groups, instances.
	Users map[string][]string
	// Channels are what each channel has named, the oldest first.
	Channels map[string][]Version
	// Shared says who else may launch an image.
	Shared  map[string][]string
	Orphans []Orphan
}

// Rules say what is kept beside what is used.
type Rules struct {
	// Keep is how many of the newest images of each line and architecture stay.
	Keep int
	// Age is how old something must be to go: what was just made may not be named anywhere yet, or be in the making.
	Age time.Duration
	// Shared also lets images go that others may launch, whose use of them nobody here can see.
	Shared bool
	Now    time.Time
}

// Verdict is what becomes of an image or a snapshot.
type Verdict struct {
	Image    string   `json:"image,omitempty"`
	Name     string   `json:"name,omitempty"`
	Snapshot string   `json:"snapshot,omitempty"`
	Created  string   `json:"created"`
	Remove   bool     `json:"remove"`
	Why      []string `json:"why"`
}

// Collect decides about everything in stock.
func Collect(s Stock, r Rules) []Verdict {
	var out []Verdict
	rank := map[string]int{}
	for _, i := range s.Images {
		line := i.Tags[TagImage] + " " + i.Architecture
		if i.State == Available {
			rank[line]++
		}
		v := Verdict{Image: i.ID, Name: i.Name, Snapshot: i.Snapshot, Created: i.Created.UTC().Format(time.RFC3339), Why: reasons(s, r, i, rank[line])}
		if v.Remove = len(v.Why) == 0; v.Remove {
			v.Why = []string{"nothing uses it"}
		}
		out = append(out, v)
	}
	for _, o := range s.Orphans {
		v := Verdict{Name: o.Tags["Name"], Snapshot: o.ID, Created: o.Started.UTC().Format(time.RFC3339), Remove: true, Why: []string{"no image has it: " + string(o.State)}}
		if r.Now.Sub(o.Started) < r.Age {
			v.Remove, v.Why = false, []string{"it is young, and may be in the making"}
		}
		out = append(out, v)
	}
	return out
}

// reasons are what keeps an image.
func reasons(s Stock, r Rules, i Image, rank int) []string {
	var why []string
	keep := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	for _, channel := range slices.Sorted(maps.Keys(s.Channels)) {
		history := s.Channels[channel]
		before, ok := Before(history)
		switch {
		case len(history) > 0 && history[len(history)-1].Image == i.ID:
			keep("channel %s names it", channel)
		case ok && before == i.ID:
			keep("channel %s would roll back to it", channel)
		}
	}
	for _, user := range s.Users[i.ID] {
		keep("%s uses it", user)
	}
	if who := s.Shared[i.ID]; len(who) > 0 && !r.Shared {
		keep("others may launch it: %s", strings.Join(who, ", "))
	}
	if i.State == Available && rank <= r.Keep {
		keep("it is one of the newest %d", r.Keep)
	}
	if age := r.Now.Sub(i.Created); age < r.Age {
		keep("it was made %v ago", age.Round(time.Minute))
	}
	if !i.Launched.IsZero() && r.Now.Sub(i.Launched) < r.Age {
		keep("it was launched %v ago", r.Now.Sub(i.Launched).Round(time.Minute))
	}
	return why
}

// Bin removes what nobody wants.
type Bin interface {
	// Deregister and DeleteSnapshot are Images' and Keeper's.
	Deregister(ctx context.Context, image string) error
	DeleteSnapshot(ctx context.Context, snapshot string) error
}

// Remove carries out verdicts, and goes on where one cannot be. It returns those that were carried out.
func Remove(ctx context.Context, b Bin, verdicts []Verdict) ([]Verdict, error) {
	var done []Verdict
	var errs []error
	for _, v := range verdicts {
		if !v.Remove || ctx.Err() != nil {
			continue
		}
		var err error
		if v.Image != "" {
			err = b.Deregister(ctx, v.Image)
		}
		if err == nil && v.Snapshot != "" {
			err = b.DeleteSnapshot(ctx, v.Snapshot)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, v)
	}
	return done, errors.Join(append(errs, ctx.Err())...)
}

// Naming lists the channels that name an image.
func (s Stock) Naming(image string) []string {
	names := []string{}
	for _, channel := range slices.Sorted(maps.Keys(s.Channels)) {
		if history := s.Channels[channel]; len(history) > 0 && history[len(history)-1].Image == image {
			names = append(names, channel)
		}
	}
	return names
}
