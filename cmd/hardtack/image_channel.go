package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

func channelFlag() cli.Flag {
	return &cli.StringFlag{Name: "channel", Usage: "the `CHANNEL`, as stable: the parameter /hardtack/<channel>/image-id"}
}

func imagePromoteCommand() *cli.Command {
	return &cli.Command{
		Name:      "promote",
		Usage:     "have a channel name an image, by its id or its name; launch templates follow the channel",
		ArgsUsage: "IMAGE",
		Flags:     []cli.Flag{channelFlag(), regionsFlag(), jsonFlag()},
		Action:    imagePromote,
	}
}

func imageRollbackCommand() *cli.Command {
	return &cli.Command{
		Name:  "rollback",
		Usage: "have a channel name the image again that it named before",
		Flags: []cli.Flag{channelFlag(), regionsFlag(),
			&cli.Int64Flag{Name: "to", Usage: "`VERSION` of the channel's history, as hardtack image list --channel prints it"}, jsonFlag()},
		Action: imageRollback,
	}
}

func imagePromote(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("one image is expected, not %d (see %s --help)", c.NArg(), name(c))
	}
	if err := publish.CheckChannel(c.String("channel")); err != nil {
		return usagef("--%w", err)
	}
	cl, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	images := map[string]string{}
	// All are found before any channel is changed.
	for _, client := range clients {
		if images[client.Region], err = findImage(c, client, c.Args().First()); err != nil {
			return err
		}
	}
	done, err := publish.PromoteAll(c.Context, cl, c.String("channel"), images)
	if err != nil {
		return err
	}
	return answerPromotions(c, done)
}

// findImage is an image by its id or its name; a name may be in several regions.
func findImage(c *cli.Context, client *ami.Client, text string) (string, error) {
	if strings.HasPrefix(text, "ami-") {
		return text, nil
	}
	images, err := client.Find(c.Context, map[string]string{publish.TagImage: ""})
	if err != nil {
		return "", err
	}
	for _, i := range images {
		if i.Name == text {
			return i.ID, nil
		}
	}
	return "", fmt.Errorf("image %s: there is none in %s (hardtack image list prints what there is)", text, client.Region)
}

func imageRollback(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if err := publish.CheckChannel(c.String("channel")); err != nil {
		return usagef("--%w", err)
	}
	if c.IsSet("to") && c.Int64("to") < 1 {
		return usagef("--to %d: versions begin with 1", c.Int64("to"))
	}
	_, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	done := map[string]publish.Promotion{}
	for _, client := range clients {
		if done[client.Region], err = publish.Rollback(c.Context, client, c.String("channel"), c.Int64("to")); err != nil {
			return fmt.Errorf("in %s: %w", client.Region, err)
		}
	}
	return answerPromotions(c, done)
}

func answerPromotions(c *cli.Context, done map[string]publish.Promotion) error {
	if c.Bool("json") {
		return printJSON(c.App.Writer, done)
	}
	return printPromotions(c, done)
}

func printPromotions(c *cli.Context, done map[string]publish.Promotion) error {
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
