package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
)

func imageListCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list published images, their version of Kubernetes and what uses them, or the history of a channel",
		Flags: append(regionsFlags(),
			lineFlag(),
			&cli.StringFlag{Name: "channel", Usage: "print the history of this `CHANNEL` instead"},
		),
		Action: imageList,
	}
}

func imageGCCommand() *cli.Command {
	return &cli.Command{
		Name:  "gc",
		Usage: "remove published images that no channel, launch template, group or instance uses, and snapshots without an image",
		Flags: append(regionsFlags(), confirmFlags(
			lineFlag(),
			&cli.IntFlag{Name: "keep", Value: 3, Usage: "keep the newest `N` of each image family and architecture"},
			&cli.DurationFlag{Name: "older", Value: 24 * time.Hour, Usage: "keep images created or launched within this `DURATION`"},
			&cli.BoolFlag{Name: "shared", Usage: "also remove images shared with other accounts, whose use of them cannot be seen"},
		)...),
		Action: imageGC,
	}
}

func lineFlag() cli.Flag {
	return &cli.StringFlag{Name: "name", Usage: "only the image family published under this `NAME` (default: every image that Hardtack made)"}
}

// listedImage is an image in the output of `hardtack image list --json`.
type listedImage struct {
	Region       string    `json:"region"`
	Image        string    `json:"image"`
	Name         string    `json:"name"`
	State        ami.State `json:"state"`
	Architecture string    `json:"architecture"`
	// Kubernetes is the version of Kubernetes, as v1.36.3; empty if the image's tags do not say it.
	Kubernetes string            `json:"kubernetes"`
	Created    time.Time         `json:"created"`
	Snapshot   string            `json:"snapshot"`
	Volume     int64             `json:"volume_gib"`
	Channels   []string          `json:"channels"`
	Users      []string          `json:"users"`
	Shared     []string          `json:"shared"`
	Tags       map[string]string `json:"tags"`
}

func imageList(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.IsSet("channel") {
		return channelHistory(c)
	}
	_, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	all := []listedImage{}
	for _, client := range clients {
		stock, err := client.Inventory(c.Context, c.String("name"))
		if err != nil {
			return err
		}
		for _, line := range stock.Unseen() {
			fmt.Fprintf(c.App.ErrWriter, "warning: %s: %s\n", client.Region, line)
		}
		for _, i := range stock.Images {
			all = append(all, listedImage{
				Region: client.Region, Image: i.ID, Name: i.Name, State: i.State, Architecture: i.Architecture, Kubernetes: i.Kubernetes(), Created: i.Created,
				Snapshot: i.Snapshot, Volume: i.Volume, Channels: stock.ChannelsNaming(i.ID), Users: nonNil(stock.UsedBy[i.ID]),
				Shared: nonNil(stock.Shared[i.ID]), Tags: i.Tags,
			})
		}
	}
	if structured(c) {
		return printResult(c, all)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REGION\tIMAGE\tNAME\tKUBERNETES\tSTATE\tCREATED\tCHANNELS\tUSERS")
	for _, l := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", l.Region, l.Image, l.Name, cmp.Or(l.Kubernetes, "unknown"), l.State, l.Created.UTC().Format(time.DateOnly),
			dash(strings.Join(l.Channels, ", ")), len(l.Users))
	}
	return w.Flush()
}

// nonNil returns an empty list for nil, which JSON would print as null.
func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// channelHistory prints the images to which a channel has pointed.
func channelHistory(c *cli.Context) error {
	if err := ami.CheckChannel(c.String("channel")); err != nil {
		return usagef("--%w", err)
	}
	_, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	histories := map[string][]ami.Version{}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REGION\tVERSION\tIMAGE\tSINCE\tBY")
	for _, client := range clients {
		history, err := client.History(c.Context, c.String("channel"))
		if err != nil {
			return err
		}
		if len(history) == 0 {
			return fmt.Errorf("channel %s does not exist in %s", c.String("channel"), client.Region)
		}
		histories[client.Region] = history
		for _, v := range history {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", client.Region, v.Number, v.Image, v.Since.UTC().Format(time.RFC3339), dash(v.By))
		}
	}
	if structured(c) {
		return printResult(c, histories)
	}
	return w.Flush()
}

// gcResult is the output of `hardtack image gc --json` for one region.
type gcResult struct {
	Region string `json:"region"`
	// DryRun is true if nothing was removed.
	DryRun   bool          `json:"dry_run"`
	Verdicts []ami.Verdict `json:"verdicts"`
	Removed  []ami.Verdict `json:"removed"`
}

func imageGC(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.Int("keep") < 0 || c.Duration("older") < 0 {
		return usagef("--keep and --older must not be negative")
	}
	_, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	rules := ami.Rules{Keep: c.Int("keep"), Age: c.Duration("older"), Shared: c.Bool("shared"), Now: time.Now()}
	var failed error
	return change[[]gcResult]{
		question: "Remove these images and snapshots?",
		run: func(dry bool) (all []gcResult, err error) {
			all, failed, err = collect(c, clients, rules, dry)
			return all, err
		},
		due: func(all []gcResult) bool {
			return slices.ContainsFunc(all, func(r gcResult) bool {
				return slices.ContainsFunc(r.Verdicts, func(v ami.Verdict) bool { return v.Remove })
			})
		},
		text: collectedText,
		answer: func(all []gcResult) error {
			if structured(c) {
				return errors.Join(failed, printResult(c, all))
			}
			_, err := io.WriteString(c.App.Writer, collectedText(all))
			return errors.Join(failed, err)
		},
	}.do(c)
}

// collect judges the images of each region and, unless that is dry, removes some. What could not be removed is failed: the
// other regions' images are removed nevertheless.
func collect(c *cli.Context, clients []*cloud.Client, rules ami.Rules, dry bool) (all []gcResult, failed, err error) {
	for _, client := range clients {
		stock, err := client.Inventory(c.Context, c.String("name"))
		if err != nil {
			return nil, nil, err
		}
		r := gcResult{Region: client.Region, DryRun: dry, Verdicts: ami.Collect(stock, rules), Removed: []ami.Verdict{}}
		if err := stock.Blind(r.Verdicts); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", client.Region, err))
		}
		if !dry {
			removed, err := ami.Remove(c.Context, client, r.Verdicts)
			r.Removed, failed = removed, errors.Join(failed, err)
		}
		all = append(all, r)
	}
	return all, failed, nil
}

func collectedText(all []gcResult) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range all {
		for _, v := range r.Verdicts {
			verdict, id := "keep", v.Image
			switch {
			case r.DryRun && v.Remove:
				verdict = "would remove"
			case slices.ContainsFunc(r.Removed, func(d ami.Verdict) bool { return d.Image == v.Image && d.Snapshot == v.Snapshot }):
				verdict = "removed"
			}
			if id == "" {
				id = v.Snapshot
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Region, verdict, id, dash(v.Name), strings.Join(v.Why, "; "))
		}
	}
	_ = w.Flush() // writes to memory
	return b.String()
}
