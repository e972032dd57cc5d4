package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// The scripts that `hardtack completion` prints. They call the program with the words so far, the one that is being written
// last and perhaps empty, and with --generate-bash-completion. It answers with lines of a word, a tab and what the word is.
// The library has scripts too, but none for fish, and theirs do not pass a word that is no flag, by which values are found.
const (
	completeBash = `_hardtack() {
  local IFS=$'\n' current="${COMP_WORDS[COMP_CWORD]}"
  # bash takes --flag=value for three words
  [ "$current" = "=" ] && current=""
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[@]:0:COMP_CWORD}" "$current" --generate-bash-completion 2>/dev/null | cut -f1)" -- "$current"))
  # what ends in a colon goes on, as MACHINE:/PATH
  [[ "${COMPREPLY[*]}" == *: ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o default -F _hardtack hardtack
`
	completeZsh = `#compdef hardtack
_hardtack() {
  local -a found
  local line word
  for line in "${(@f)$("${(@)words[1,CURRENT-1]}" "${words[CURRENT]}" --generate-bash-completion 2>/dev/null)}"; do
    [[ -n "$line" ]] || continue
    word="${line%%$'\t'*}"
    found+=("${word//:/\\:}:${line#*$'\t'}")
  done
  if (( ${#found} )); then _describe hardtack found; else _files; fi
}
compdef _hardtack hardtack
`
	completeFish = `function __hardtack_words
  set -l words (commandline -opc)
  $words "$(commandline -ct)" --generate-bash-completion 2>/dev/null
end
complete -c hardtack -a '(__hardtack_words)'
`
)

func completionCommand() *cli.Command {
	scripts := map[string]string{"bash": completeBash, "zsh": completeZsh, "fish": completeFish}
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a shell's completion script",
		ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			script, ok := scripts[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usagef("completion takes one shell, bash, zsh or fish, not %q", strings.Join(c.Args().Slice(), " "))
			}
			_, err := io.WriteString(c.App.Writer, script)
			return err
		},
	}
}

// candidate is a word that may come next, with what it is.
type candidate struct{ word, what string }

// complete answers a shell's completion: args are the words of a command line, the last one being written.
func complete(ctx context.Context, app *cli.App, args []string) {
	for _, c := range candidates(ctx, app, args) {
		fmt.Fprintf(app.Writer, "%s\t%s\n", c.word, strings.ReplaceAll(c.what, "\n", " "))
	}
}

// candidates are the words that can stand in the place of the last one.
func candidates(ctx context.Context, app *cli.App, args []string) []candidate {
	words, current := args[1:len(args)-1], args[len(args)-1]
	l := typed{ctx: ctx, words: words}
	commands, own := app.Commands, []cli.Flag(nil)
	for at := 0; at < len(words); {
		word := words[at]
		if isFlag(word) {
			n, rest := width(slices.Concat(own, app.Flags), word), words[at+1:]
			if n == 2 && (len(rest) == 0 || len(rest) == 1 && rest[0] == "=") {
				return matching(current, l.values(strings.TrimLeft(word, "-")))
			}
			if n == 2 && rest[0] == "=" { // bash's three words
				n++
			}
			at += n
			continue
		}
		at++
		next := findCommand(commands, word)
		if next == nil {
			l.arguments = append(l.arguments, word)
			continue
		}
		l.path, commands, own = append(l.path, next.Name), next.Subcommands, next.Flags
	}
	if flag, value, found := strings.Cut(current, "="); found && isFlag(current) {
		var out []candidate
		for _, v := range matching(value, l.values(strings.TrimLeft(flag, "-"))) {
			out = append(out, candidate{flag + "=" + v.word, v.what})
		}
		return out
	}
	var out []candidate
	if isFlag(current) || current == "--" || current == "-" {
		for _, f := range slices.Concat(own, app.Flags) {
			out = append(out, flagCandidate(f))
		}
		return matching(current, out)
	}
	for _, c := range commands {
		if !c.Hidden {
			out = append(out, candidate{c.Name, c.Usage})
		}
	}
	return matching(current, append(out, l.argument()...))
}

func flagCandidate(f cli.Flag) candidate {
	what := ""
	if d, ok := f.(cli.DocGenerationFlag); ok {
		what = strings.ReplaceAll(d.GetUsage(), "`", "")
	}
	name := f.Names()[0]
	if len(name) == 1 {
		return candidate{"-" + name, what}
	}
	return candidate{"--" + name, what}
}

func matching(current string, all []candidate) (out []candidate) {
	for _, c := range all {
		if strings.HasPrefix(c.word, current) {
			out = append(out, c)
		}
	}
	return out
}
