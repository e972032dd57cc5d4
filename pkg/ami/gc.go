package ami

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Orphan is a snapshot with Hardtack's tags that belongs to no image.
type Orphan struct {
	ID      string
	State   State
	Started time.Time
	Tags    map[string]string
}

// Inventory is everything in a region that garbage collection needs to know, read in one go.
type Inventory struct {
	// Images are the account's own with Hardtack's tags, the newest first.
	Images []Image
	// UsedBy lists the users of each image: launch templates, groups, instances.
	UsedBy map[string][]string
	// Unread lists the users of each parameter that may not be read: the image that it names may be any.
	Unread map[string][]string
	// Channels is the history of each channel, the oldest first.
	Channels map[string][]Version
	// Shared lists the other accounts and organisations that may launch each image.
	Shared  map[string][]string
	Orphans []Orphan
}

// Rules decide which unused images are kept.
type Rules struct {
	// Keep is how many of the newest images of each family and architecture are kept.
	Keep int
	// Age is the minimum age of what is removed: something new may still be in the making, or not in use yet.
	Age time.Duration
	// Shared allows the removal of images that other accounts may launch, whose use of them is not visible here.
	Shared bool
	Now    time.Time
}

// Verdict is the decision about an image or a snapshot, and the reasons for it.
type Verdict struct {
	Image    string `json:"image,omitempty"`
	Name     string `json:"name,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	Created  string `json:"created"`
	Remove   bool   `json:"remove"`
	// Unread: the image is kept only because something may use it that could not be read.
	Unread bool     `json:"unread,omitempty"`
	Why    []string `json:"why"`
}

// Collect decides about every image and orphan of the inventory.
func Collect(s Inventory, r Rules) []Verdict {
	var out []Verdict
	rank := map[string]int{}
	for _, i := range s.Images {
		line := i.Tags[TagImage] + " " + i.Architecture
		if i.State == Available {
			rank[line]++
		}
		v := Verdict{Image: i.ID, Name: i.Name, Snapshot: i.Snapshot, Created: i.Created.UTC().Format(time.RFC3339), Why: keepReasons(s, r, i, rank[line])}
		if len(v.Why) == 0 {
			v.Why = s.Unseen()
			v.Unread = len(v.Why) > 0
		}
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

// keepReasons lists the reasons to keep an image.
func keepReasons(s Inventory, r Rules, i Image, rank int) []string {
	var why []string
	keep := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	for _, channel := range slices.Sorted(maps.Keys(s.Channels)) {
		history := s.Channels[channel]
		before, ok := RollbackTarget(history)
		switch {
		case len(history) > 0 && history[len(history)-1].Image == i.ID:
			keep("channel %s names it", channel)
		case ok && before == i.ID:
			keep("channel %s would roll back to it", channel)
		}
	}
	for _, user := range s.UsedBy[i.ID] {
		keep("%s uses it", user)
	}
	if who := s.Shared[i.ID]; len(who) > 0 && !r.Shared {
		keep("others may launch it: %s", strings.Join(who, ", "))
	}
	if i.State == Disabled {
		keep("it is disabled")
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

// Unseen says what may use any of the images, and the next step: one line for each parameter.
func (s Inventory) Unseen() (lines []string) {
	for _, parameter := range slices.Sorted(maps.Keys(s.Unread)) {
		who := s.Unread[parameter][0]
		if more := len(s.Unread[parameter]) - 1; more > 0 {
			who = fmt.Sprintf("%s (and %d more)", who, more)
		}
		lines = append(lines, fmt.Sprintf("%s may use any image: parameter %s, which names it, may not be read (allow ssm:GetParameter on it, or remove what names it)", who, parameter))
	}
	return lines
}

// Blind is an error if images are kept only because something may use them that could not be read.
func (s Inventory) Blind(verdicts []Verdict) error {
	kept := 0
	for _, v := range verdicts {
		if v.Unread {
			kept++
		}
	}
	if kept == 0 {
		return nil
	}
	return fmt.Errorf("images that nothing is seen to use are kept (%d): %s", kept, strings.Join(s.Unseen(), "; "))
}

// Remover removes images and snapshots.
type Remover interface {
	// Deregister and DeleteSnapshot are as in Images and Snapshots.
	Deregister(ctx context.Context, image string) error
	DeleteSnapshot(ctx context.Context, snapshot string) error
}

// Remove carries out the verdicts, and continues after errors. It returns the verdicts that were carried out.
func Remove(ctx context.Context, b Remover, verdicts []Verdict) ([]Verdict, error) {
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

// ChannelsNaming lists the channels that point at an image.
func (s Inventory) ChannelsNaming(image string) []string {
	names := []string{}
	for _, channel := range slices.Sorted(maps.Keys(s.Channels)) {
		if history := s.Channels[channel]; len(history) > 0 && history[len(history)-1].Image == image {
			names = append(names, channel)
		}
	}
	return names
}
