package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestDocsNameWhatExists checks that every command, flag, target, path and test in the documents' code exists.
// Placeholders, in capitals or with an ellipsis, are ignored.
func TestDocsNameWhatExists(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	var targets []string
	for _, match := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, match[1])
	}
	verb := regexp.MustCompile(`hardtack-agent ([a-z]+)`)
	verbs := verb.FindAllStringSubmatch(usageOf(t, "cmd/hardtack-agent/app.go"), -1)
	for _, d := range documents(t) {
		for _, line := range d.code() {
			command, _, _ := strings.Cut(line, " #")
			words := strings.Fields(command)
			for i, word := range words {
				rest := words[i+1:]
				switch {
				case word == "hardtack" && (i == 0 || slices.Contains([]string{"aws", "&&", "sudo"}, words[i-1])):
					checkCommand(t, d.name, rest)
				case word == "hardtack-agent" && i == 0 && len(rest) > 0 && !placeholder(rest[0]):
					if !slices.ContainsFunc(verbs, func(v []string) bool { return v[1] == rest[0] }) {
						t.Errorf("%s names `hardtack-agent %s`, which is no command", d.name, rest[0])
					}
				case word == "make" && (i == 0 || words[i-1] == "&&") && len(rest) > 0 && !slices.Contains(targets, rest[0]):
					t.Errorf("%s names `make %s`, which is no target", d.name, rest[0])
				case word == "test" && i > 0 && words[i-1] == "go":
					checkTest(t, d.name, words)
				}
			}
			checkPaths(t, d.name, words)
		}
	}
}

func placeholder(word string) bool {
	return word == "" || strings.ContainsAny(word, "…<>{}") || word == strings.ToUpper(word)
}

// checkCommand follows the words of a command line to a command, and looks for each flag there.
func checkCommand(t *testing.T, name string, words []string) {
	t.Helper()
	app := newApp(io.Discard, io.Discard)
	commands, flags, at := app.Commands, slices.Clone(app.Flags), "hardtack"
	for i, word := range words {
		word = strings.TrimRight(word, ",;:)")
		if flag, ok := strings.CutPrefix(word, "-"); ok && flag != "" {
			flag, _, _ = strings.Cut(strings.TrimPrefix(flag, "-"), "=")
			known := func(f cli.Flag) bool { return slices.Contains(f.Names(), flag) }
			if !slices.ContainsFunc(flags, known) && flag != "help" {
				t.Errorf("%s names the flag %s of `%s`, which has none such: %s", name, word, at, strings.Join(words, " "))
			}
			continue
		}
		next := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == word })
		switch {
		case next >= 0:
			command := commands[next]
			at += " " + command.Name
			commands, flags = command.Subcommands, slices.Concat(flags, command.Flags)
			if command.SkipFlagParsing {
				return // the rest is another program's
			}
		case len(commands) > 0 && !placeholder(word):
			t.Errorf("%s names `%s %s`, which is no command (word %d)", name, at, word, i)
			return
		}
	}
}

// checkTest checks that the test of `go test DIR -run NAME` exists.
func checkTest(t *testing.T, name string, words []string) {
	t.Helper()
	dir, pattern := "", ""
	for i, word := range words {
		switch {
		case strings.HasPrefix(word, "./"), i > 0 && words[i-1] == "cd":
			dir = word
		case i > 0 && (words[i-1] == "-run" || words[i-1] == "-bench" && word != "."):
			pattern = strings.Trim(word, "'")
		}
	}
	if dir == "" || strings.Contains(dir, "...") {
		return
	}
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s runs the tests of %s, which has none", name, dir)
		return
	}
	var text []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, content...)
	}
	if pattern != "xxx" && !regexp.MustCompile(`(?m)^func (Test|Benchmark)\w*(`+pattern+`)|^func (`+pattern+`)`).Match(text) {
		t.Errorf("%s runs %s in %s, which has no such test", name, pattern, dir)
	}
}

// checkPaths checks that every path of the repository in the documents' code exists, except for built files in build/.
func checkPaths(t *testing.T, name string, words []string) {
	t.Helper()
	ours := regexp.MustCompile(`^(pkg|cmd|images|units|lambda|scripts)/[^\s]+$`)
	for _, word := range words {
		word = strings.TrimSuffix(strings.TrimRight(word, ".,;:)"), "/...")
		if !ours.MatchString(word) || placeholder(word) {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root, word)); err != nil || len(found) == 0 {
			t.Errorf("%s names %s, which is not there", name, word)
		}
	}
}
