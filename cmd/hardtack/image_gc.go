package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

func imageListCommand() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "print the published images with what uses them, or a channel's history",
		Flags: []cli.Flag{
			lineFlag(),
			&cli.StringFlag{Name: "channel", Usage: "print what a `CHANNEL` has named instead"},
			regionsFlag(), jsonFlag(),
		},
		Action: imageList,
	}
}

func imageGCCommand() *cli.Command {
	return &cli.Command{
		Name: "gc",
		Usage: "remove published images that no channel, launch template, group or instance uses, and snapshots that no image has; " +
			"says what it would do unless --yes is given",
		Flags: []cli.Flag{
			lineFlag(),
			&cli.IntFlag{Name: "keep", Value: 3, Usage: "keep the newest `N` of each line and architecture"},
			&cli.DurationFlag{Name: "older", Value: 24 * time.Hour, Usage: "keep what is younger, or was launched since"},
			&cli.BoolFlag{Name: "shared", Usage: "also remove what others may launch; nobody here can see whether they do"},
			&cli.BoolFlag{Name: "yes", Usage: "do it"},
			regionsFlag(), jsonFlag(),
		},
		Action: imageGC,
	}
}

func lineFlag() cli.Flag {
	return &cli.StringFlag{Name: "name", Usage: "only the line of images that was published under this `NAME`; left out, all that Hardtack made"}
}

// listed is an image as `hardtack image list --json` prints it.
type listed struct {
	Region       string            `json:"region"`
	Image        string            `json:"image"`
	Name         string            `json:"name"`
	State        publish.State     `json:"state"`
	Architecture string            `json:"architecture"`
	Created      time.Time         `json:"created"`
	Snapshot     string            `json:"snapshot"`
	Volume       int64             `json:"volumeGiB"`
	Channels     []string          `json:"channels"`
	Users        []string          `json:"users"`
	Shared       []string          `json:"shared"`
	Tags         map[string]string `json:"tags"`
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
	all := []listed{}
	for _, client := range clients {
		stock, err := client.Stock(c.Context, c.String("name"))
		if err != nil {
			return err
		}
		for _, i := range stock.Images {
			all = append(all, listed{
				Region: client.Region, Image: i.ID, Name: i.Name, State: i.State, Architecture: i.Architecture, Created: i.Created,
				Snapshot: i.Snapshot, Volume: i.Volume, Channels: stock.Naming(i.ID), Users: orNone(stock.Users[i.ID]),
				Shared: orNone(stock.Shared[i.ID]), Tags: i.Tags,
			})
		}
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, all)
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REGION\tIMAGE\tNAME\tSTATE\tCREATED\tCHANNELS\tUSERS")
	for _, l := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", l.Region, l.Image, l.Name, l.State, l.Created.UTC().Format(time.DateOnly),
			dashed(strings.Join(l.Channels, ", ")), len(l.Users))
	}
	return w.Flush()
}

// orNone is an empty list in JSON, not null.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func dashed(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// channelHistory prints what a channel has named.
func channelHistory(c *cli.Context) error {
	if err := publish.CheckChannel(c.String("channel")); err != nil {
		return usagef("--%w", err)
	}
	_, clients, err := everyRegion(c)
	if err != nil {
		return err
	}
	histories := map[string][]publish.Version{}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REGION\tVERSION\tIMAGE\tSINCE\tBY")
	for _, client := range clients {
		history, err := client.History(c.Context, c.String("channel"))
		if err != nil {
			return err
		}
		if len(history) == 0 {
			return fmt.Errorf("channel %s: there is none in %s", c.String("channel"), client.Region)
		}
		histories[client.Region] = history
		for _, v := range history {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", client.Region, v.Number, v.Image, v.Since.UTC().Format(time.RFC3339), dashed(v.By))
		}
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, histories)
	}
	return w.Flush()
}

// collected is what `hardtack image gc --json` prints of a region.
type collected struct {
	Region string `json:"region"`
	// DryRun: nothing was removed.
	DryRun   bool              `json:"dryRun"`
	Verdicts []publish.Verdict `json:"verdicts"`
	Removed  []publish.Verdict `json:"removed"`
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
	rules := publish.Rules{Keep: c.Int("keep"), Age: c.Duration("older"), Shared: c.Bool("shared"), Now: time.Now()}
	var all []collected
	var errs []error
	for _, client := range clients {
		stock, err := client.Stock(c.Context, c.String("name"))
		if err != nil {
			return err
		}
		r := collected{Region: client.Region, DryRun: !c.Bool("yes"), Verdicts: publish.Collect(stock, rules), Removed: []publish.Verdict{}}
		if !r.DryRun {
			r.Removed, err = publish.Remove(c.Context, client, r.Verdicts)
			errs = append(errs, err)
		}
		all = append(all, r)
	}
	if c.Bool("json") {
		err = printJSON(c.App.Writer, all)
	} else {
		err = printCollected(c, all)
	}
	return errors.Join(append(errs, err)...)
}

func printCollected(c *cli.Context, all []collected) error {
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	for _, r := range all {
		for _, v := range r.Verdicts {
			verdict, id := "keep", v.Image
			switch {
			case r.DryRun && v.Remove:
				verdict = "would remove"
			case slices.ContainsFunc(r.Removed, func(d publish.Verdict) bool { return d.Image == v.Image && d.Snapshot == v.Snapshot }):
				verdict = "removed"
			}
			if id == "" {
				id = v.Snapshot
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Region, verdict, id, dashed(v.Name), strings.Join(v.Why, "; "))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if all[0].DryRun {
		_, err := fmt.Fprintln(c.App.Writer, "nothing was removed; --yes does it")
		return err
	}
	return nil
}
