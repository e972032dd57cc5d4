package main

import (
	"fmt"
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
		Flags:     []cli.Flag{channelFlag(), regionsFlag(), jsonFlag()},
		Action:    imagePromote,
	}
}

func imageRollbackCommand() *cli.Command {
	return &cli.Command{
		Name:  "rollback",
		Usage: "point a channel back at its previous image",
		Flags: []cli.Flag{channelFlag(), regionsFlag(),
			&cli.Int64Flag{Name: "to", Usage: "the `VERSION` in the channel's history to return to, as printed by hardtack image list --channel (default: the previous one)"}, jsonFlag()},
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
	done, err := ami.PromoteAll(c.Context, cl, c.String("channel"), images)
	if err != nil {
		return err
	}
	return answerPromotions(c, done)
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
	done := map[string]ami.Promotion{}
	for _, client := range clients {
		if done[client.Region], err = ami.Rollback(c.Context, client, c.String("channel"), c.Int64("to")); err != nil {
			return fmt.Errorf("in %s: %w", client.Region, err)
		}
	}
	return answerPromotions(c, done)
}

func answerPromotions(c *cli.Context, done map[string]ami.Promotion) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, done)
	}
	return printPromotions(c, done)
}

func printPromotions(c *cli.Context, done map[string]ami.Promotion) error {
	for _, region := range slices.Sorted(maps.Keys(done)) {
		p, was := done[region], ""
		if p.Before != "" && p.Changed {
			was = " (was " + p.Before + ")"
		}
		if !p.Changed {
			was = " already"
		}
		if _, err := fmt.Fprintf(c.App.Writer, "%s in %s: %s%s, version %d\n", p.Parameter, region, p.Image, was, p.Version); err != nil {
			return err
		}
	}
	return nil
}
