package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/version"
)

// newApp returns the command line; answers go to stdout, everything else to stderr.
func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:            "hardtack",
		Usage:           "what one image for every role is made of",
		Version:         version.String(),
		Writer:          stdout,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verbose", Usage: "tell more about what is done, on stderr"},
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
			labCommand(),
			completionCommand(),
		},
		EnableBashCompletion: true,
		Action:               unknownCommand,
		// An error with an exit code of its own would end the process inside the library.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	prepare(app.Commands)
	app.OnUsageError = usageError
	return app
}

// prepare gives every command what the library does not pass down.
func prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		if len(c.Subcommands) > 0 {
			c.Action = unknownCommand
			prepare(c.Subcommands)
			continue
		}
		if !c.SkipFlagParsing {
			c.Before = refuseLateFlags
		}
	}
}

// usagef is an error in how the program was called; its exit code is 2.
func usagef(format string, args ...any) error { return cli.Exit(fmt.Errorf(format, args...), 2) }

// usageError reports a wrong flag; the library would print the help to stdout, which is for answers.
func usageError(c *cli.Context, err error, _ bool) error {
	return usagef("%w (see %s --help)", err, name(c))
}

// unknownCommand is the action of the program and of groups of commands: they do nothing themselves.
func unknownCommand(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("%q is not a command (see %s --help)", c.Args().First(), name(c))
	}
	return cli.ShowSubcommandHelp(c)
}

// refuseLateFlags reports flags after the first argument, which the library takes for arguments. A file
// whose name begins with a dash can be written as ./-name.
func refuseLateFlags(c *cli.Context) error {
	for _, arg := range c.Args().Slice() {
		if strings.HasPrefix(arg, "-") && arg != "-" {
			return usagef("flag %s comes after an argument: put flags first (see %s --help)", arg, name(c))
		}
	}
	return nil
}

// noArguments reports arguments of a command that takes none.
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

// logger writes to stderr: what takes long and warnings, and everything with --verbose.
func logger(c *cli.Context) *slog.Logger {
	level := slog.LevelInfo
	if c.Bool("verbose") {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{
		Level: level,
		// A person watching needs no clock on every line.
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// The scripts that `hardtack completion` prints. The program itself answers what the words are, when it
// is called with --generate-bash-completion.
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
		Usage:     "print the shell's completion script: source <(hardtack completion bash)",
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
