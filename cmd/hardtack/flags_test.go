package main

import (
	"io"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestFlagsMeanTheSame: --yes and --dry-run have one meaning, and a verb that asks for --yes has both.
func TestFlagsMeanTheSame(t *testing.T) {
	usages := map[string]string{}
	for _, f := range confirmFlags() {
		usages[f.Names()[0]] = f.(*cli.BoolFlag).Usage
	}
	found := 0
	var check func(commands []*cli.Command)
	check = func(commands []*cli.Command) {
		for _, c := range commands {
			check(c.Subcommands)
			have := map[string]bool{}
			for _, f := range c.Flags {
				b, ok := f.(*cli.BoolFlag)
				if !ok || usages[b.Name] == "" {
					continue
				}
				have[b.Name] = true
				if b.Usage != usages[b.Name] {
					t.Errorf("%s --%s: %q, and elsewhere %q", c.Name, b.Name, b.Usage, usages[b.Name])
				}
			}
			if have["yes"] {
				found++
				if !have["dry-run"] {
					t.Errorf("%s has --yes and no --dry-run", c.Name)
				}
			}
		}
	}
	check(newApp(io.Discard, io.Discard).Commands)
	if found < 9 {
		t.Errorf("%d verbs ask for --yes: at least image promote, rollback and gc, stack apply, refresh, rollback and delete, etcd restore and remove do", found)
	}
}
