package publish

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The parameter of a channel is /hardtack/<channel>/image-id; launch templates name it, not an image.
const (
	channelPrefix = "/hardtack/"
	channelSuffix = "/image-id"
)

// RootDevice is what an image calls its root volume, and what a launch template says to change its size. On NVMe the
// kernel calls it nvme0n1, whatever is said here.
const RootDevice = "/dev/xvda"

// Parameter is the name of a channel's parameter.
func Parameter(channel string) string { return channelPrefix + channel + channelSuffix }

// ChannelOf is the channel of a parameter; false: it is no channel's.
func ChannelOf(parameter string) (string, bool) {
	rest, ok := strings.CutPrefix(parameter, channelPrefix)
	channel, ends := strings.CutSuffix(rest, channelSuffix)
	return channel, ok && ends && channelName.MatchString(channel)
}

var channelName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckChannel is an error for what is no channel's name.
func CheckChannel(name string) error {
	if !channelName.MatchString(name) {
		return fmt.Errorf("channel %q: not a name (a to z, 0 to 9 and -, at most 63)", name)
	}
	return nil
}

// Version is what a channel said at some time.
type Version struct {
	Number int64     `json:"version"`
	Image  string    `json:"image"`
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
}

// Channels are parameters that name images.
type Channels interface {
	// History lists what a channel has said, the oldest first; nothing, where there is no such channel.
	History(ctx context.Context, channel string) ([]Version, error)
	// Set has a channel name an image, and returns when whoever asks is told so.
	Set(ctx context.Context, channel, image string) (Version, error)
	// Image is an image; its state is Missing where there is none.
	Image(ctx context.Context, id string) (Image, error)
}

// Promotion is what became of a channel.
type Promotion struct {
	Channel   string `json:"channel"`
	Parameter string `json:"parameter"`
	Image     string `json:"image"`
	// Before is what the channel named; empty: there was no such channel.
	Before  string `json:"before,omitempty"`
	Version int64  `json:"version"`
	Changed bool   `json:"changed"`
}

// Promote has a channel name an image that can be launched.
func Promote(ctx context.Context, c Channels, channel, image string) (Promotion, error) {
	history, err := c.History(ctx, channel)
	if err != nil {
		return Promotion{}, err
	}
	return set(ctx, c, channel, image, history)
}

// Rollback has a channel name what it named before: the image that Before says, or version to of its history where
// that is not zero.
func Rollback(ctx context.Context, c Channels, channel string, to int64) (Promotion, error) {
	history, err := c.History(ctx, channel)
	if err != nil {
		return Promotion{}, err
	}
	if len(history) == 0 {
		return Promotion{}, fmt.Errorf("channel %s: there is none (%s)", channel, Parameter(channel))
	}
	if to == 0 {
		image, ok := Before(history)
		if !ok {
			return Promotion{}, fmt.Errorf("channel %s: it has named nothing before %s", channel, history[len(history)-1].Image)
		}
		return set(ctx, c, channel, image, history)
	}
	at := slices.IndexFunc(history, func(v Version) bool { return v.Number == to })
	if at < 0 {
		return Promotion{}, fmt.Errorf("channel %s: its history has no version %d, but %d to %d", channel, to, history[0].Number, history[len(history)-1].Number)
	}
	return set(ctx, c, channel, history[at].Image, history)
}

// Before is what a roll back goes to. To name an image again that was named earlier undoes everything since, so that
// one roll back after another goes further and further back.
func Before(history []Version) (image string, ok bool) {
	var stack []string
	for _, v := range history {
		if at := slices.Index(stack, v.Image); at >= 0 {
			stack = stack[:at]
		}
		stack = append(stack, v.Image)
	}
	if len(stack) < 2 {
		return "", false
	}
	return stack[len(stack)-2], true
}

func set(ctx context.Context, c Channels, channel, image string, history []Version) (Promotion, error) {
	p := Promotion{Channel: channel, Parameter: Parameter(channel), Image: image}
	if n := len(history); n > 0 {
		p.Before, p.Version = history[n-1].Image, history[n-1].Number
	}
	i, err := c.Image(ctx, image)
	if err != nil {
		return p, err
	}
	if i.State != Available {
		return p, errors.Join(fmt.Errorf("channel %s: image %s cannot be launched: it is %s", channel, image, i.State))
	}
	if p.Before == image {
		return p, nil
	}
	v, err := c.Set(ctx, channel, image)
	if err != nil {
		return p, err
	}
	p.Version, p.Changed = v.Number, true
	return p, nil
}
