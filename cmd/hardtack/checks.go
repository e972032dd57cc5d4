package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// report prints the checks of a doctor command. It returns an error if one of them is.
func report(c *cli.Context, checks doctor.List) error {
	var err error
	if c.Bool("json") {
		err = printJSON(c.App.Writer, checks)
	} else {
		err = printChecks(c.App.Writer, checks)
	}
	if err != nil {
		return err
	}
	return checks.Err()
}

func printChecks(w io.Writer, checks doctor.List) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, ch := range checks {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", ch.State, ch.Name, ch.Text)
		if ch.Next != "" {
			fmt.Fprintf(tw, "\t\tnext: %s\n", ch.Next)
		}
	}
	return tw.Flush()
}
