//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labNoticeCommand() *cli.Command {
	return &cli.Command{
		Name:      "notice",
		Usage:     "announce to a machine what EC2 would, and take its power when a spot instance's time has come; the masters move its pods away",
		ArgsUsage: "MACHINE",
		Flags: labFlags(
			&cli.StringFlag{Name: "kind", Value: "spot", Usage: "the `KIND`: " + strings.Join(lab.NoticeKinds, ", ") + ", where none takes back what was announced"},
			&cli.DurationFlag{Name: "in", Value: 2 * time.Minute, Usage: "what is announced comes after this `DURATION`; EC2 gives spot instances two minutes"},
		),
		Action: onMachine(func(c *cli.Context, _ lab.Home, client *lab.Client, m lab.MachineStatus) error {
			n := lab.Notice{Kind: c.String("kind"), In: c.Duration("in")}
			if err := client.Announce(c.Context, m.ID, n); err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, struct {
					Machine string    `json:"machine"`
					Kind    string    `json:"kind"`
					At      time.Time `json:"at"`
				}{m.ID, n.Kind, time.Now().Add(n.In).UTC()})
			}
			text := fmt.Sprintf("%s of group %s is told of %s, in %v", m.ID, m.Group, n.Kind, n.In)
			if n.Kind == "none" {
				text = fmt.Sprintf("%s of group %s is told of nothing any more", m.ID, m.Group)
			}
			_, err := fmt.Fprintln(c.App.Writer, text)
			return err
		}),
	}
}
