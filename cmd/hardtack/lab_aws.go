//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labAWSCommand() *cli.Command {
	return &cli.Command{
		Name:  "aws",
		Usage: "run a program whose AWS calls go to the lab, or print the environment variables for that",
		// The flags after PROGRAM are the program's.
		SkipFlagParsing: true,
		ArgsUsage:       "[--name NAME] [-o FORMAT] [PROGRAM ARGUMENTS]",
		Action:          labAWS,
	}
}

func labAWS(c *cli.Context) error {
	name, args := leadingName(c.Args().Slice(), os.Getenv("HARDTACK_LAB"))
	if wantsHelp(args) {
		return cli.ShowSubcommandHelp(c)
	}
	format, args, err := leadingFormat(args)
	if err != nil {
		return err
	}
	h, err := labNamed(name)
	if err != nil {
		return err
	}
	region, err := lab.NewClient(h).AWS(c.Context)
	if err != nil {
		return err
	}
	switch {
	case format != "":
		return printAs(c, format, region)
	case len(args) == 0:
		for _, v := range region.Environ() {
			if _, err := fmt.Fprintf(c.App.Writer, "export %s\n", v); err != nil {
				return err
			}
		}
		return nil
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return usagef("looking for the program to run in the lab's region: %w", err)
	}
	// Replace this process, so that the program has the terminal, gets the signals and sets the exit code.
	return fmt.Errorf("running %s: %w", program, unix.Exec(program, args, append(withoutAWS(os.Environ()), region.Environ()...)))
}

// withoutAWS leaves out variables that would lead a program to another account: profiles, sessions and services'
// endpoints.
func withoutAWS(env []string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, "AWS_") {
			kept = append(kept, v)
		}
	}
	return kept
}

// wantsHelp reports whether the first word of another program's is a question to this one.
func wantsHelp(args []string) bool { return len(args) == 1 && (args[0] == "--help" || args[0] == "-h") }
