package main

import (
	"cmp"
	"io"

	"github.com/fatih/color"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// report prints the checks of a doctor command. It returns an error if one of them is.
func report(c *cli.Context, checks doctor.List) error {
	var err error
	if structured(c) {
		err = printResult(c, checks)
	} else {
		err = printChecks(c.App.Writer, checks)
	}
	if err != nil {
		return err
	}
	return checks.Err()
}

func printChecks(w io.Writer, checks doctor.List) error {
	table := newPainted()
	for _, ch := range checks {
		paint := map[doctor.State]*color.Color{doctor.OK: green, doctor.Error: red}[ch.State]
		table.row(cmp.Or(paint, yellow), "%s\t%s\t%s", ch.State, ch.Name, ch.Text)
		if ch.Next != "" {
			table.row(nil, "\t\tnext: %s", ch.Next)
		}
	}
	_, err := io.WriteString(w, table.String())
	return err
}
