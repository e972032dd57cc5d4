package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
)

func channelFlag() cli.Flag {
	return &cli.StringFlag{Name: "channel", Usage: "the `CHANNEL`, such as stable; its image is in the parameter /hardtack/<channel>/image-id"}
}

func imagePromoteCommand() *cli.Command {
	return &cli.Command{
		Name:      "promote",
		Usage:     "point a channel at an image, given by its ID or name; launch templates follow the channel",
		ArgsUsage: "IMAGE",
		Flags:     append(append(regionsFlags(), channelFlag()), confirmFlags()...),
		Action:    imagePromote,
	}
}

func imageRollbackCommand() *cli.Command {
	return &cli.Command{
		Name:  "rollback",
		Usage: "point a channel back at its previous image",
		Flags: append(append(regionsFlags(), channelFlag(),
			&cli.Int64Flag{Name: "to", Usage: "the `VERSION` in the channel's history to return to, as printed by hardtack image list --channel (default: the previous one)"}), confirmFlags()...),
		Action: imageRollback,
	}
}

func imagePromote(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("one image is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	if err := ami.CheckChannel(c.String("channel")); err != nil {
		return usagef("--%w", err)
	}
	cl, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	images := map[string]string{}
	// Find the image in all regions before any channel is changed.
	for _, client := range clients {
		if images[client.Region], err = findImage(c, client, c.Args().First()); err != nil {
			return err
		}
	}
	return changeChannel(c, func(dry bool) (promotions, error) {
		out := promotions{dry: dry}
		if !dry {
			out.done, err = ami.PromoteAll(c.Context, cl, c.String("channel"), images)
			return out, err
		}
		out.done, err = inRegions(clients, func(client *cloud.Client) (ami.Promotion, error) {
			return ami.Promote(c.Context, ami.Planned{Channels: client}, c.String("channel"), images[client.Region])
		})
		return out, err
	})
}

// promotions are what became of a channel in each region, or would.
type promotions struct {
	dry  bool
	done map[string]ami.Promotion
}

func inRegions(clients []*cloud.Client, do func(*cloud.Client) (ami.Promotion, error)) (map[string]ami.Promotion, error) {
	done := map[string]ami.Promotion{}
	for _, client := range clients {
		var err error
		if done[client.Region], err = do(client); err != nil {
			return nil, fmt.Errorf("in %s: %w", client.Region, err)
		}
	}
	return done, nil
}

// changeChannel points a channel at other images, once that is confirmed.
func changeChannel(c *cli.Context, run func(dry bool) (promotions, error)) error {
	return change[promotions]{
		question: "Point the channel " + c.String("channel") + " there, from which every stack takes its next machines' image?", run: run, text: promotionsText,
		due: func(p promotions) bool {
			return slices.ContainsFunc(slices.Collect(maps.Values(p.done)), func(p ami.Promotion) bool { return p.Changed })
		},
		answer: func(p promotions) error { return answerPromotions(c, p) },
	}.do(c)
}

// findImage returns the id of an image given by its id or name; the same name may exist in several regions.
func findImage(c *cli.Context, client *cloud.Client, text string) (string, error) {
	if strings.HasPrefix(text, "ami-") {
		return text, nil
	}
	images, err := client.Find(c.Context, map[string]string{ami.TagImage: ""})
	if err != nil {
		return "", err
	}
	for _, i := range images {
		if i.Name == text {
			return i.ID, nil
		}
	}
	return "", fmt.Errorf("image %s does not exist in %s (hardtack image list shows the images)", text, client.Region)
}

func imageRollback(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if err := ami.CheckChannel(c.String("channel")); err != nil {
		return usagef("--%w", err)
	}
	if c.IsSet("to") && c.Int64("to") < 1 {
		return usagef("--to %d: versions begin with 1", c.Int64("to"))
	}
	_, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	return changeChannel(c, func(dry bool) (promotions, error) {
		done, err := inRegions(clients, func(client *cloud.Client) (ami.Promotion, error) {
			var channels ami.Channels = client
			if dry {
				channels = ami.Planned{Channels: client}
			}
			return ami.Rollback(c.Context, channels, c.String("channel"), c.Int64("to"))
		})
		return promotions{dry, done}, err
	})
}

func answerPromotions(c *cli.Context, p promotions) error {
	if structured(c) {
		return printResult(c, p.done)
	}
	_, err := io.WriteString(c.App.Writer, promotionsText(p))
	return err
}

func promotionsText(all promotions) string {
	var b strings.Builder
	for _, region := range slices.Sorted(maps.Keys(all.done)) {
		p, was := all.done[region], ""
		if p.Before != "" && p.Changed {
			was = " (was " + p.Before + ")"
		}
		if !p.Changed {
			was = " already"
		}
		would := ""
		if all.dry && p.Changed {
			would = "would be "
		}
		fmt.Fprintf(&b, "%s in %s: %s%s%s, version %d\n", p.Parameter, region, would, p.Image, was, p.Version)
	}
	return b.String()
}
