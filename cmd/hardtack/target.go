package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// A command's cluster is that of its document, for every command in the same way: -f FILE, or the file that the environment
// names. There is no default cluster, but in the lab: a document that was forgotten would be another cluster's, applied over a running one.

// clusterVariable names the file of the cluster's document.
const clusterVariable = "HARDTACK_CLUSTER"

// exampleCluster is the name of the cluster that complete and explain show without a document.
const exampleCluster = "demo"

func clusterFlag() cli.Flag { return clusterFlagOr("") }

// exampleFlag is clusterFlag for commands that change nothing, and have an example to show.
func exampleFlag() cli.Flag {
	return clusterFlagOr(" (default: an example of one named " + exampleCluster + ")")
}

// clusterFlagOr is clusterFlag of a command that says what it does without a document.
func clusterFlagOr(without string) cli.Flag {
	return &cli.StringFlag{Name: "file", Aliases: []string{"f"}, EnvVars: []string{clusterVariable}, Usage: "the cluster document, a `FILE`, or - for standard input" + without}
}

// readCluster reads and completes the document of --file, which is needed.
func readCluster(c *cli.Context) (*spec.Complete, error) {
	file := c.String("file")
	if file == "" {
		return nil, usagef("which cluster? name its document with -f FILE, or in the variable %s (see %s --help)", clusterVariable, name(c))
	}
	return loadDocument(c, file)
}

// readExample is readCluster, with an example where no document is given.
func readExample(c *cli.Context) (*spec.Complete, error) {
	if file := c.String("file"); file != "" {
		return loadDocument(c, file)
	}
	fmt.Fprintf(c.App.ErrWriter, "no document was given with -f FILE or %s: this is an example, a cluster named %s\n", clusterVariable, exampleCluster)
	return completeText(c, "the example cluster", spec.Minimal(exampleCluster))
}

func loadDocument(c *cli.Context, file string) (*spec.Complete, error) {
	name, data, err := documentText(c, file)
	if err != nil {
		return nil, err
	}
	return completeText(c, name, data)
}

// documentText reads a document, and says how messages name it.
func documentText(c *cli.Context, file string) (name string, data []byte, err error) {
	if data, err = readInput(c.Context, file, spec.MaxInput); err != nil {
		return "", nil, usagef("reading the cluster: %w", err)
	}
	if file == "-" {
		file = "standard input"
	}
	return file, data, nil
}

// completeText completes a document and prints warnings to stderr; name is used in messages only.
func completeText(c *cli.Context, name string, data []byte) (*spec.Complete, error) {
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		return nil, err
	}
	complete, warnings, err := spec.Load(image, name, data)
	for _, w := range warnings {
		fmt.Fprintln(c.App.ErrWriter, w)
	}
	return complete, err
}

// targetFlags decide what a command works on. The next command has to have them too: without the last three, apply would change
// the user data back, close ports, or look for another template.
var targetFlags = []string{"file", "stack", "terraform", "store", "region", "endpoint-url", "ca", "manifest", "template-url"}

// given writes those flags again that a command line had.
func given(c *cli.Context, names ...string) string {
	var b strings.Builder
	for _, name := range names {
		if !c.IsSet(name) {
			continue
		}
		flag, values := "--"+name, c.StringSlice(name)
		if name == "file" {
			flag = "-f"
		}
		if values == nil {
			values = []string{c.String(name)}
		}
		for _, v := range values {
			b.WriteString(" " + flag + " " + quoted(v))
		}
	}
	return b.String()
}

// plain is a word that no shell changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted writes a word as a shell reads it back.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// followUp is a command for the same cluster in a hint, which is written without the flags that name the cluster.
var followUp = regexp.MustCompile(`hardtack (stack|etcd|pki) [a-z]+\b`)

// addressed gives the commands of a hint the flags by which they mean the same cluster as this command: they are pasted.
func addressed(c *cli.Context, hint string) string {
	return followUp.ReplaceAllStringFunc(hint, func(command string) string {
		words := strings.Fields(command)
		group := findCommand(c.App.Commands, words[1])
		next := findCommand(group.Subcommands, words[2])
		if next == nil {
			return command
		}
		var names []string
		for _, name := range targetFlags {
			if flagNamed(next.Flags, name) != nil {
				names = append(names, name)
			}
		}
		return command + given(c, names...)
	})
}
