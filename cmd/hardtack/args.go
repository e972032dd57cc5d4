package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completionFlag is the library's last argument of a call that completes a command line.
const completionFlag = "--generate-bash-completion"

// ordered returns a command line with its flags where the library reads them: a command's before its first argument, the
// program's before its first command. So flags may stand anywhere, as people who know kubectl write them. What follows -- is
// an argument, and so is every word after a command that passes its words on to another program.
func ordered(app *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	at, commands, known := 1, app.Commands, app.Flags
	head, early := args[:1:1], []string(nil) // early are flags of the command, before its name
	for at < len(args) && len(commands) > 0 {
		word := args[at]
		if isFlag(word) {
			to, owners := &head, known
			if flagNamed(known, word) == nil {
				if owners = flagsBelow(commands, word); owners != nil {
					to = &early
				}
			}
			end := min(at+width(owners, word), len(args))
			*to, at = append(*to, args[at:end]...), end
			continue
		}
		next := findCommand(commands, word)
		if next == nil && word != "--" && flagNamed(known, "--output") == nil {
			// Only a group that is a command too has a result. What follows is for a command that there is not: its flags would be
			// reported, and not the command.
			return append(head, word)
		}
		if next == nil {
			break
		}
		if next.SkipFlagParsing {
			return args
		}
		head, at, commands, known = append(head, word), at+1, next.Subcommands, next.Flags
	}
	flags, programs, arguments := early, []string(nil), []string(nil)
	for at < len(args) {
		word := args[at]
		if word == "--" {
			arguments = append(arguments, args[at:]...)
			break
		}
		if !isFlag(word) {
			arguments = append(arguments, word)
			at++
			continue
		}
		list, owners := &flags, known
		if flagNamed(known, word) == nil && flagNamed(app.Flags, word) != nil && flagNamed([]cli.Flag{cli.HelpFlag}, word) == nil {
			list, owners = &programs, app.Flags
		}
		end := at + width(owners, word)
		if end > len(args) { // an argument would be taken for the value that is missing
			arguments, end = nil, len(args)
		}
		*list = append(*list, args[at:end]...)
		at = end
	}
	// The library takes the first -- for the end of the flags, wherever it is.
	if i := slices.Index(arguments, "--"); i > 0 {
		arguments = slices.Concat([]string{"--"}, arguments[:i], arguments[i+1:])
	}
	return slices.Concat(head[:1], programs, head[1:], flags, arguments)
}

// flagsBelow are the flags of the first command below a group that has this one.
func flagsBelow(commands []*cli.Command, word string) []cli.Flag {
	for _, c := range commands {
		if flagNamed(c.Flags, word) != nil {
			return c.Flags
		}
		if found := flagsBelow(c.Subcommands, word); found != nil {
			return found
		}
	}
	return nil
}

// isFlag reports whether a word is a flag: - is standard input, and -- ends the flags.
func isFlag(word string) bool {
	return strings.HasPrefix(word, "-") && word != "-" && word != "--"
}

// width is the number of words of a flag: with its value two, unless the value is in the same word.
func width(known []cli.Flag, word string) int {
	f := flagNamed(known, word)
	if _, isBool := f.(*cli.BoolFlag); f == nil || isBool || strings.Contains(word, "=") {
		return 1
	}
	return 2
}

// flagNamed is the flag that a word sets, or nil.
func flagNamed(flags []cli.Flag, word string) cli.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func findCommand(commands []*cli.Command, word string) *cli.Command {
	for _, c := range commands {
		if c.HasName(word) {
			return c
		}
	}
	return nil
}
