package ami

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The parameter of a channel is /hardtack/<channel>/image-id; launch templates name it, not an image.
const (
	ChannelPrefix = "/hardtack/"
	channelSuffix = "/image-id"
)

// RootDevice is the device name of an image's root volume; a launch template uses it to change the volume's size. On
// NVMe the kernel names the device nvme0n1 nevertheless.
const RootDevice = "/dev/xvda"

// Parameter returns the name of the Parameter Store parameter of a channel.
func Parameter(channel string) string { return ChannelPrefix + channel + channelSuffix }

// ChannelOf returns the channel of a parameter, and false for a parameter that is not a channel's.
func ChannelOf(parameter string) (string, bool) {
	rest, ok := strings.CutPrefix(parameter, ChannelPrefix)
	channel, ends := strings.CutSuffix(rest, channelSuffix)
	return channel, ok && ends && channelName.MatchString(channel)
}

var channelName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckChannel returns an error unless name is valid for a channel.
func CheckChannel(name string) error {
	if !channelName.MatchString(name) {
		return fmt.Errorf("channel %q: not a name (a to z, 0 to 9 and -, at most 63)", name)
	}
	return nil
}

// Version is one entry of a channel's history.
type Version struct {
	Number int64     `json:"version"`
	Image  string    `json:"image"`
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
}

// Channels reads and sets channels: parameters whose value is the id of an image.
type Channels interface {
	// History lists the versions of a channel, the oldest first; none if the channel does not exist.
	History(ctx context.Context, channel string) ([]Version, error)
	// Set points a channel at an image, and returns when readers see the new value.
	Set(ctx context.Context, channel, image string) (Version, error)
	// Image returns an image; its state is Missing if it does not exist.
	Image(ctx context.Context, id string) (Image, error)
}

// Planned are channels that are only read: Promote and Rollback on them say what they would do.
type Planned struct{ Channels }

// Set returns the version that the channel would have, and sets nothing.
func (p Planned) Set(ctx context.Context, channel, image string) (Version, error) {
	history, err := p.History(ctx, channel)
	next := Version{Number: 1, Image: image}
	if n := len(history); n > 0 {
		next.Number = history[n-1].Number + 1
	}
	return next, err
}

// Promotion is the result of pointing a channel at an image.
type Promotion struct {
	Channel   string `json:"channel"`
	Parameter string `json:"parameter"`
	Image     string `json:"image"`
	// Before is the channel's previous image; empty if the channel is new.
	Before  string `json:"before,omitempty"`
	Version int64  `json:"version"`
	Changed bool   `json:"changed"`
}

// Promote points a channel at an image, which must be available.
func Promote(ctx context.Context, c Channels, channel, image string) (Promotion, error) {
	history, err := c.History(ctx, channel)
	if err != nil {
		return Promotion{}, err
	}
	return setChannel(ctx, c, channel, image, history)
}

// Rollback points a channel at an earlier image: the one that RollbackTarget selects, or that of version to of its
// history if to is not zero.
func Rollback(ctx context.Context, c Channels, channel string, to int64) (Promotion, error) {
	history, err := c.History(ctx, channel)
	if err != nil {
		return Promotion{}, err
	}
	if len(history) == 0 {
		return Promotion{}, fmt.Errorf("channel %s: there is none (%s)", channel, Parameter(channel))
	}
	if to == 0 {
		image, ok := RollbackTarget(history)
		if !ok {
			return Promotion{}, fmt.Errorf("channel %s: it has named nothing before %s", channel, history[len(history)-1].Image)
		}
		return setChannel(ctx, c, channel, image, history)
	}
	at := slices.IndexFunc(history, func(v Version) bool { return v.Number == to })
	if at < 0 {
		return Promotion{}, fmt.Errorf("channel %s: its history has no version %d, but %d to %d", channel, to, history[0].Number, history[len(history)-1].Number)
	}
	return setChannel(ctx, c, channel, history[at].Image, history)
}

// RollbackTarget returns the image that a rollback selects. A rollback adds a version, and it also undoes every version
// since the image was named before, so that repeated rollbacks go back further and further.
func RollbackTarget(history []Version) (image string, ok bool) {
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

func setChannel(ctx context.Context, c Channels, channel, image string, history []Version) (Promotion, error) {
	p := Promotion{Channel: channel, Parameter: Parameter(channel), Image: image}
	if n := len(history); n > 0 {
		p.Before, p.Version = history[n-1].Image, history[n-1].Number
	}
	i, err := c.Image(ctx, image)
	if err != nil {
		return p, err
	}
	if i.State != Available {
		return p, fmt.Errorf("channel %s: image %s cannot be launched: it is %s", channel, image, i.State)
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
