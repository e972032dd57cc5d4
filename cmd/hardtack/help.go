package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
)

// steps is what the program says without a command: the main job, in its order.
const steps = `hardtack builds, runs and operates Kubernetes clusters of immutable machines, all from one image.

  1. sudo packer build images/local.pkr.hcl                       bake the image: build/hardtack.qcow2
  2. hardtack image publish --channel stable build/hardtack.qcow2 make it an AMI, which the channel names
  3. hardtack pki create -f cluster.yaml                          create the cluster's authorities, once
  4. hardtack stack apply -f cluster.yaml --vpc … --subnets …     create the cluster on AWS; it says what comes next
  5. hardtack stack refresh -f cluster.yaml                       later: replace machines by those of a new image

hardtack lab up runs the image here, without AWS. hardtack help lists all commands, hardtack help COMMAND explains one.
`

// The kinds of commands, in the order of the list.
const (
	forImages   = "1. The image"
	forDocument = "2. The cluster's document and secrets"
	forAWS      = "3. The cluster on AWS"
	forLab      = "4. The cluster on this computer"
	forShell    = "5. This program"
)

var categories = map[string]string{
	"lock": forImages, "roles": forImages, "lint": forImages, "units": forImages, "tree": forImages, "image": forImages,
	"complete": forDocument, "explain": forDocument, "example": forDocument, "schema": forDocument, "userdata": forDocument, "pki": forDocument, "registry": forDocument, "monitoring": forDocument,
	"stack": forAWS, "upgrade": forAWS, "dns": forAWS, "lambda": forAWS, "etcd": forAWS, "doctor": forAWS,
	"lab":        forLab,
	"completion": forShell, "help": forShell, "version": forShell, "man": forShell,
}

// unknownCommand is the action of the program and of command groups, which do nothing without a subcommand.
func unknownCommand(c *cli.Context) error {
	switch {
	case c.Args().Present():
		return usagef("%q is not a command%s (see %s --help)", c.Args().First(), meant(c.Args().First(), commandsOf(c)), name(c))
	case c.Command.Name == c.App.Name:
		_, err := io.WriteString(c.App.Writer, steps)
		return err
	}
	return cli.ShowSubcommandHelp(c)
}

func commandsOf(c *cli.Context) (names []string) {
	for _, sub := range c.Command.Subcommands {
		if !sub.Hidden {
			names = append(names, sub.Name)
		}
	}
	return names
}

// meant is the suggestion for a misspelled name, with a comma before it, or empty.
func meant(name string, known []string) string {
	if text := near.DidYouMean(name, known); text != "" {
		return ": " + text
	}
	return ""
}

// undefined is how the flag package reports a flag that there is not.
const undefined = "flag provided but not defined: -"

// usageError reports a wrong flag. The library would print the help to stdout, which is for results.
func usageError(c *cli.Context, err error, _ bool) error {
	flag, found := strings.CutPrefix(err.Error(), undefined)
	if !found {
		return usagef("%w (see %s --help)", err, name(c))
	}
	var known []string
	for _, f := range append(slices.Clone(c.Command.Flags), c.App.Flags...) {
		known = append(known, "--"+f.Names()[0])
	}
	if flag = strings.TrimLeft(flag, "-"); len(flag) == 1 {
		flag = "-" + flag
	} else {
		flag = "--" + flag
	}
	return usagef("%s is not a flag of %s%s (see %s --help)", flag, name(c), meant(flag, known), name(c))
}

// need takes over what the library does for required flags: it would print the help to stdout, and end with the exit code of
// a failure.
func need(command *cli.Command) (names []string) {
	for _, f := range command.Flags {
		if s, ok := f.(*cli.StringFlag); ok && s.Required {
			s.Required = false
			names = append(names, s.Name)
		}
	}
	return names
}

func helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "list the commands, or explain one",
		ArgsUsage: "[COMMAND ...]",
		Action: func(c *cli.Context) error {
			commands := c.App.Commands
			for i, word := range c.Args().Slice() {
				next := findCommand(commands, word)
				if next == nil {
					var names []string
					for _, sub := range commands {
						names = append(names, sub.Name)
					}
					at := strings.Join(append([]string{c.App.Name}, c.Args().Slice()[:i]...), " ")
					return usagef("%q is not a command%s (see %s --help)", word, meant(word, names), at)
				}
				commands = next.Subcommands
			}
			app := newApp(c.App.Writer, c.App.ErrWriter)
			return app.RunContext(c.Context, slices.Concat([]string{app.Name}, c.Args().Slice(), []string{"--help"}))
		},
	}
}

func manCommand() *cli.Command {
	return &cli.Command{
		Name:  "man",
		Usage: "print the manual page",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			page, err := c.App.ToManWithSection(1)
			if err != nil {
				return fmt.Errorf("making the manual page: %w", err)
			}
			_, err = io.WriteString(c.App.Writer, page)
			return err
		},
	}
}

// about is the output of hardtack version --json.
type about struct {
	Version string `json:"version"`
	// Commit is the commit that the program was built from; empty where the build did not say.
	Commit string `json:"commit"`
	Go     string `json:"go"`
	System string `json:"system"`
	// Locks are the built-in locks, with the versions of the components of each.
	Locks []lockVersions `json:"locks"`
}

type lockVersions struct {
	Lock       string            `json:"lock"`
	Components map[string]string `json:"components"`
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version, the commit, and the versions of the components that an image gets",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			a, err := describe()
			if err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, a)
			}
			commit := a.Commit
			if commit == "" {
				commit = "unknown"
			}
			fmt.Fprintf(c.App.Writer, "hardtack %s, commit %s, %s, %s\n", a.Version, commit, a.Go, a.System)
			for _, l := range a.Locks {
				var parts []string
				for _, n := range slices.Sorted(maps.Keys(l.Components)) {
					parts = append(parts, n+" "+l.Components[n])
				}
				fmt.Fprintf(c.App.Writer, "%s: %s\n", l.Lock, strings.Join(parts, ", "))
			}
			return nil
		},
	}
}

func describe() (about, error) {
	a := about{Version: version.String(), Commit: version.Commit, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && a.Commit == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				a.Commit = s.Value
			}
		}
	}
	for _, name := range ownLocks() {
		l, err := readLock(name)
		if err != nil {
			return a, err
		}
		versions := lockVersions{Lock: name, Components: map[string]string{}}
		for _, c := range l.Components {
			versions.Components[c.Name] = c.Version
		}
		a.Locks = append(a.Locks, versions)
	}
	return a, nil
}
