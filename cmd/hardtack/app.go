package main

import (
	"fmt"
	"io"
	"log/slog"
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
		},
		Commands: []*cli.Command{
			lockCommand(),
			rolesCommand(),
			lintCommand(),
			treeCommand(),
			completeCommand(),
			explainCommand(),
			userdataCommand(),
			pkiCommand(),
			dnsCommand(),
			lambdaCommand(),
			imageCommand(),
			stackCommand(),
			etcdCommand(),
			monitoringCommand(),
			labCommand(),
			doctorCommand(),
			completionCommand(),
		},
		EnableBashCompletion: true,
		Action:               unknownCommand,
		// The library would end the process at an error that has an exit code.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	inherit(app.Commands)
	app.OnUsageError = usageError
	return app
}

// inherit sets on every command the settings that the library does not pass down.
func inherit(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		if len(c.Subcommands) > 0 {
			if c.Action == nil { // etcd backup takes one, and its list shows them
				c.Action = unknownCommand
			}
			inherit(c.Subcommands)
			continue
		}
		if !c.SkipFlagParsing {
			c.Before = checkCall
		}
	}
}

// usagef returns an error of a wrong command line; its exit code is 2.
func usagef(format string, args ...any) error { return cli.Exit(fmt.Errorf(format, args...), 2) }

// usageError reports a wrong flag. The library would print the help to stdout, which is for results.
func usageError(c *cli.Context, err error, _ bool) error {
	return usagef("%w (see %s --help)", err, name(c))
}

// unknownCommand is the action of the program and of command groups, which do nothing without a subcommand.
func unknownCommand(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("%q is not a command (see %s --help)", c.Args().First(), name(c))
	}
	return cli.ShowSubcommandHelp(c)
}

// checkCall reports the errors of a command line that are the same for all commands.
func checkCall(c *cli.Context) error {
	if err := refuseLateFlags(c); err != nil {
		return err
	}
	return refuseYesAndDryRun(c)
}

// refuseLateFlags reports flags after the first argument, which the library takes for arguments. A file whose name
// begins with a dash can be written as ./-name.
func refuseLateFlags(c *cli.Context) error {
	for _, arg := range c.Args().Slice() {
		if strings.HasPrefix(arg, "-") && arg != "-" {
			return usagef("flag %s comes after an argument: put flags first (see %s --help)", arg, name(c))
		}
	}
	return nil
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

// The scripts that `hardtack completion` prints. They call the program with --generate-bash-completion, which prints
// the words.
const (
	completeBash = `_hardtack() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[@]:0:COMP_CWORD}" --generate-bash-completion 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _hardtack hardtack
`
	completeZsh = `#compdef hardtack
_hardtack() {
  local -a words_now
  words_now=("${(@f)$("${words[@]:0:$((CURRENT-1))}" --generate-bash-completion 2>/dev/null)}")
  compadd -a words_now
}
compdef _hardtack hardtack
`
)

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the shell completion script; use it with: source <(hardtack completion bash)",
		ArgsUsage: "bash|zsh",
		Action: func(c *cli.Context) error {
			script, ok := map[string]string{"bash": completeBash, "zsh": completeZsh}[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usagef("completion takes one shell, bash or zsh, not %q", strings.Join(c.Args().Slice(), " "))
			}
			_, err := io.WriteString(c.App.Writer, script)
			return err
		},
	}
}
