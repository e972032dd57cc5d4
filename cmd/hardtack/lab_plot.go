//go:build linux

package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labPlotCommand() *cli.Command {
	return &cli.Command{
		Name:  "plot",
		Usage: "draw the boot of each machine of a lab, as SVG",
		Flags: labFlags(
			&cli.StringFlag{Name: "out", Usage: "write to `FILE` instead of stdout"},
			&cli.BoolFlag{Name: "all", Usage: "include stopped machines"},
		),
		Action: onLab(func(c *cli.Context, _ lab.Home, client *lab.Client) error {
			if err := noArguments(c); err != nil {
				return err
			}
			s, err := client.Status(c.Context)
			if err != nil {
				return err
			}
			plot := lab.NewPlot(s, c.Bool("all"))
			if structured(c) {
				return printResult(c, plot)
			}
			file := c.String("out")
			if file == "" {
				return plot.WriteSVG(c.App.Writer)
			}
			out, err := os.Create(file)
			if err != nil {
				return fmt.Errorf("writing the plot: %w", err)
			}
			if err := plot.WriteSVG(out); err != nil {
				_ = out.Close() // the first error is returned
				return err
			}
			return out.Close()
		}),
	}
}
