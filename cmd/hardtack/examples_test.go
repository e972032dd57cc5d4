package main

import (
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestEveryCommandHasAnExample: each command has one, of itself, with flags and commands that exist.
func TestEveryCommandHasAnExample(t *testing.T) {
	found := map[string]bool{}
	var check func(above string, commands []*cli.Command)
	check = func(above string, commands []*cli.Command) {
		for _, c := range commands {
			path := strings.TrimSpace(above + " " + c.Name)
			check(path, c.Subcommands)
			if c.Hidden || len(c.Subcommands) > 0 && examples[path] == "" {
				continue
			}
			found[path] = true
			if !strings.Contains(examples[path], "hardtack "+path) {
				t.Errorf("%s has no example of itself: %q", path, examples[path])
			}
		}
	}
	check("", newApp(io.Discard, io.Discard).Commands)
	for path, text := range examples {
		if !found[path] {
			t.Errorf("an example is of %q, which is no command", path)
		}
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			if _, rest, ok := strings.Cut(line, "hardtack "); ok {
				rest, _, _ = strings.Cut(rest, " >")
				rest, _, _ = strings.Cut(rest, " | ")
				checkCommand(t, "the example of "+path, strings.Fields(strings.NewReplacer(`)"`, "", ")", "").Replace(rest)))
			}
		}
	}
}
