//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labPlotCommand() *cli.Command {
	return &cli.Command{
		Name:  "plot",
		Usage: "draw the boot of each machine of a lab, and the unit that a stuck one waits for",
		Flags: labFlags(
			&cli.StringFlag{Name: "out", Usage: "write to `FILE` instead of stdout"},
			&cli.StringFlag{Name: "format", Value: "svg", Usage: "draw in this `FORMAT`: svg or png"},
			&cli.BoolFlag{Name: "all", Usage: "include stopped machines"},
		),
		Action: func(c *cli.Context) error {
			if form := c.String("format"); !slices.Contains(plotFormats, form) {
				return usagef("--format %s: it is %s", form, strings.Join(plotFormats, " or "))
			}
			return onLab(labPlot)(c)
		},
	}
}

func labPlot(c *cli.Context, _ lab.Home, client *lab.Client) error {
	if err := noArguments(c); err != nil {
		return err
	}
	s, err := client.Status(c.Context)
	if err != nil {
		return err
	}
	var drawing bytes.Buffer
	if err := draw(c, lab.NewPlot(s, c.Bool("all")), &drawing); err != nil {
		return err
	}
	if file := c.String("out"); file != "" {
		return writeWhole(file, drawing.Bytes())
	}
	_, err = drawing.WriteTo(c.App.Writer)
	return err
}

// draw draws a plot in the format that is asked for, or writes what it shows for a program.
func draw(c *cli.Context, plot lab.Plot, to *bytes.Buffer) error {
	if structured(c) {
		return encode(to, formatOf(c), plot)
	}
	if err := plot.WriteSVG(to); err != nil || c.String("format") != "png" {
		return err
	}
	return toPNG(c.Context, to)
}

// toPNG replaces an SVG by its pixels. Go has no library that draws the text of one.
func toPNG(ctx context.Context, drawing *bytes.Buffer) error {
	var pixels bytes.Buffer
	err := run.Run(ctx, run.Command{Name: "rsvg-convert", Args: []string{"--format=png", "--zoom=2"}, Stdin: bytes.NewReader(drawing.Bytes()), Stdout: &pixels})
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("drawing the plot as PNG: %w (Debian's package librsvg2-bin has it; --format svg needs nothing)", err)
	}
	if err != nil {
		return fmt.Errorf("drawing the plot as PNG: %w", err)
	}
	*drawing = pixels
	return nil
}
