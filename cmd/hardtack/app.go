package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
)

// newApp returns the program. Results go to stdout, everything else to stderr.
func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:            "hardtack",
		Usage:           "build, run and operate Kubernetes clusters of immutable machines, all from one image",
		Version:         version.String(),
		Writer:          stdout,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verbose", Usage: "log in more detail, to stderr"},
			cli.HelpFlag, // the library adds it only to a program without a command help
		},
		Commands: []*cli.Command{
			lockCommand(),
			rolesCommand(),
			lintCommand(),
			unitsCommand(),
			treeCommand(),
			completeCommand(),
			explainCommand(),
			exampleCommand(),
			schemaCommand(),
			userdataCommand(),
			pkiCommand(),
			registryCommand(),
			dnsCommand(),
			lambdaCommand(),
			imageCommand(),
			stackCommand(),
			upgradeCommand(),
			etcdCommand(),
			monitoringCommand(),
			labCommand(),
			doctorCommand(),
			completionCommand(),
			helpCommand(),
			manCommand(),
			versionCommand(),
		},
		Action: unknownCommand,
		// The library would end the process at an error that has an exit code.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	inherit("", app.Commands)
	for _, c := range app.Commands {
		c.Category = categories[c.Name]
	}
	app.OnUsageError = usageError
	return app
}

// inherit sets on every command the settings that the library does not pass down.
func inherit(above string, commands []*cli.Command) {
	for _, c := range commands {
		path := strings.TrimSpace(above + " " + c.Name)
		showExamples(path, c)
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		if _, none := withoutResult[path]; !none && c.Action != nil {
			c.Flags = append(slices.Clip(c.Flags), outputFlags()...)
		}
		if len(c.Subcommands) > 0 {
			if c.Action == nil { // etcd backup takes one, and its list shows them
				c.Action = unknownCommand
			}
			inherit(path, c.Subcommands)
			continue
		}
		if needed := need(c); !c.SkipFlagParsing {
			c.Before = func(call *cli.Context) error { return checkCall(call, needed) }
		}
	}
}

// exitError is an error that says with which code the program exits. The library's would not do: the error of a program that
// a command has run looks like one too, and its exit status says nothing of ours.
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

func exitf(code int, format string, args ...any) error {
	return &exitError{fmt.Errorf(format, args...), code}
}

// exitCode is the code with which the program exits after a command.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit := new(exitError); errors.As(err, &exit) {
		return exit.code
	}
	return 1
}

// usagef returns an error of a wrong command line; its exit code is 2.
func usagef(format string, args ...any) error { return exitf(2, format, args...) }

// checkCall reports the errors of a command line that are the same for all commands.
func checkCall(c *cli.Context, needed []string) error {
	var missing []string
	for _, flag := range needed {
		if !c.IsSet(flag) {
			missing = append(missing, "--"+flag)
		}
	}
	if len(missing) > 0 {
		verb := "is"
		if len(missing) > 1 {
			verb = "are"
		}
		return usagef("%s %s needed (see %s --help)", strings.Join(missing, " and "), verb, name(c))
	}
	return cmp.Or(refuseYesAndDryRun(c), checkFormat(c))
}

// noArguments reports arguments of a command without any.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("argument %q is not expected (see %s --help)", c.Args().First(), name(c))
	}
	return nil
}

func name(c *cli.Context) string {
	if c.Command == nil || c.Command.HelpName == "" {
		return c.App.HelpName
	}
	return c.Command.HelpName
}

// logger logs slow steps and warnings to stderr, with --verbose everything.
func logger(c *cli.Context) *slog.Logger {
	level := slog.LevelInfo
	if c.Bool("verbose") {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{
		Level: level,
		// Times are left out: the log is for a person at a terminal.
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
