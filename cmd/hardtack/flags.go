package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"
)

// The flags that mean the same in every command.

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

// timeoutFlag limits the run time of a command.
func timeoutFlag(value time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: value, Usage: "give up after this `DURATION`"}
}

// timeoutContext returns a context that ends with the program or after --timeout.
func timeoutContext(c *cli.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context, c.Duration("timeout"))
}

// dryRunFlag is for commands that can report their actions in advance.
func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "print what would be done, and change nothing"}
}

// destroyFlags are the flags of a command that destroys data: it does so only with --yes. Without it the command works
// as with --dry-run, which may be given for clarity; both at once are refused.
func destroyFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.BoolFlag{Name: "yes", Usage: "do it; without this flag nothing is changed"},
		dryRunFlag(),
	}, more...)
}

// refuseYesAndDryRun reports a command line with both flags.
func refuseYesAndDryRun(c *cli.Context) error {
	if c.Bool("yes") && c.Bool("dry-run") {
		return usagef("--yes and --dry-run contradict each other: give one")
	}
	return nil
}
