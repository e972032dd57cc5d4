package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "explain a field of a cluster document: its meaning, its value, the value's origin, and its effect on the machines",
		ArgsUsage: "[PATH, such as kubelet.config.maxPods or groups[].roles]",
		Flags:     []cli.Flag{exampleFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return usagef("one path is expected, not %d (see %s --help)", c.NArg(), name(c))
			}
			complete, err := readExample(c)
			if err != nil {
				return err
			}
			e, err := complete.Explain(c.Args().First())
			if err != nil {
				return usagef("%w", err)
			}
			if structured(c) {
				return printResult(c, e)
			}
			return printExplanation(c.App.Writer, e)
		},
	}
}

func printExplanation(w io.Writer, e spec.Explanation) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(tw, "%s\t%s\n", name, text)
		}
	}
	line("path", e.Path)
	line("what", e.What)
	line("type", e.Type)
	if e.Origin != nil {
		line("value", oneLine(e.Value))
		line("from", e.Origin.String())
	}
	if e.Default != nil {
		line("upstream's", oneLine(e.Default))
	}
	line("why", e.Why)
	for _, b := range e.Becomes {
		line("becomes", b)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, p := range e.Parts {
		what, _, _ := strings.Cut(p.What, ". ")
		fmt.Fprintf(tw, "%s\t%s\t%s\n", p.Path, p.Type, what)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, f := range e.Fields {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Path, oneLine(f.Value), f.Origin)
	}
	return tw.Flush()
}

// oneLine formats a value for a table: JSON, shortened.
func oneLine(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	const width = 100
	if text := []rune(string(data)); len(text) > width {
		return string(text[:width]) + "…"
	}
	return string(data)
}
