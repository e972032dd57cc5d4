package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Job is a publication from the disk to the channel.
type Job struct {
	Request
	// Home is the region of the image, Copies are where it goes from there.
	Home   string
	Copies []Target
	With   Audience
	// Channel, where it is not empty, names the image in each of the regions in the end.
	Channel string
}

// Check reports everything that is wrong at once.
func (j Job) Check() error {
	errs := []error{j.Request.Check(), CheckDistribution(j.Home, j.Key, j.Copies, j.With)}
	if j.Channel != "" {
		errs = append(errs, CheckChannel(j.Channel))
	}
	return errors.Join(errs...)
}

// Shipped says what is there now.
type Shipped struct {
	Result
	// Images are the image and its copies by region.
	Images map[string]string `json:"images"`
	// Promotions are the channels by region.
	Promotions map[string]Promotion `json:"promotions,omitempty"`
}

// Regions reaches what a job needs beyond its first region.
type Regions interface {
	Region(name string) (Region, error)
	Channels(region string) (Channels, error)
}

// Ship publishes, copies, shares and promotes, in that order. What has become ready stays when a later step fails,
// and is found by the next try.
func Ship(ctx context.Context, p *Publisher, regions Regions, j Job, log *slog.Logger) (Shipped, error) {
	if err := j.Check(); err != nil {
		return Shipped{}, err
	}
	r, err := p.Publish(ctx, j.Request)
	s := Shipped{Result: r, Images: map[string]string{}}
	if err != nil {
		return s, err
	}
	d := Distribution{Home: j.Home, At: regions.Region, With: j.With, Log: log}
	if s.Images, err = d.Run(ctx, r, j.Copies); err != nil || j.Channel == "" {
		return s, err
	}
	s.Promotions, err = PromoteAll(ctx, regions, j.Channel, s.Images)
	return s, err
}

// PromoteAll has a channel name images in their regions, one region after another in the order of their names.
func PromoteAll(ctx context.Context, regions Regions, channel string, images map[string]string) (map[string]Promotion, error) {
	done := map[string]Promotion{}
	for _, region := range slices.Sorted(maps.Keys(images)) {
		c, err := regions.Channels(region)
		if err != nil {
			return done, err
		}
		if done[region], err = Promote(ctx, c, channel, images[region]); err != nil {
			return done, fmt.Errorf("in %s: %w", region, err)
		}
	}
	return done, nil
}
