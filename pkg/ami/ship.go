package ami

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Pipeline is a complete publication: publish, copy, share and promote.
type Pipeline struct {
	Request
	// Home is the region of the original, Copies are the regions that it is copied to.
	Home        string
	Copies      []Target
	Permissions LaunchPermissions
	// Channel is the channel to promote the image to in every region; empty is none.
	Channel string
}

// Check returns all errors at once.
func (j Pipeline) Check() error {
	errs := []error{j.Request.Check(), CheckDistribution(j.Home, j.Key, j.Copies, j.Permissions)}
	if j.Channel != "" {
		errs = append(errs, CheckChannel(j.Channel))
	}
	return errors.Join(errs...)
}

// PipelineResult is the result of a Pipeline.
type PipelineResult struct {
	Result
	// Images are the image and its copies by region.
	Images map[string]string `json:"images"`
	// Promotions are the channels by region.
	Promotions map[string]Promotion `json:"promotions,omitempty"`
}

// Regions returns the clients of each region.
type Regions interface {
	Region(name string) (Region, error)
	Channels(region string) (Channels, error)
}

// RunPipeline publishes, copies, shares and promotes, in that order. If a step fails, the results of earlier steps
// stay, and the next attempt finds them.
func RunPipeline(ctx context.Context, p *Publisher, regions Regions, j Pipeline, log *slog.Logger) (PipelineResult, error) {
	if err := j.Check(); err != nil {
		return PipelineResult{}, err
	}
	r, err := p.Publish(ctx, j.Request)
	s := PipelineResult{Result: r, Images: map[string]string{}}
	if err != nil {
		return s, err
	}
	d := Distribution{Home: j.Home, At: regions.Region, Permissions: j.Permissions, Log: log}
	if s.Images, err = d.Run(ctx, r, j.Copies); err != nil || j.Channel == "" {
		return s, err
	}
	s.Promotions, err = PromoteAll(ctx, regions, j.Channel, s.Images)
	return s, err
}

// PromoteAll points a channel at an image in each region of images (by region), one region after another in the order
// of their names.
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
