package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func rolesCommand() *cli.Command {
	return &cli.Command{
		Name:      "roles",
		Usage:     "show which units a machine runs for each role, computed from the units themselves",
		ArgsUsage: "[UNITS DIRECTORY]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "role", Usage: "only a machine with these `ROLES`, such as masters+etcd or none"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON, with every combination of roles"},
		},
		Action: func(c *cli.Context) error {
			fsys, _, err := unitFiles(c)
			if err != nil {
				return err
			}
			us, problems := unit.Load(fsys)
			if err := problems.Err(); err != nil {
				return fmt.Errorf("reading the units: %w", err)
			}
			table := unit.NewTable(us)
			if !c.IsSet("role") {
				return printTable(c.App.Writer, table, c.Bool("json"))
			}
			set, err := role.ParseSet(c.String("role"))
			if err != nil {
				return usagef("--role: %w", err)
			}
			return printCombination(c.App.Writer, table.Combination(set), c.Bool("json"))
		},
	}
}

// unitFiles returns the units of the directory in the command's argument, or else this program's. prefix goes before
// the names of files in findings.
func unitFiles(c *cli.Context) (fsys fs.FS, prefix string, err error) {
	switch c.NArg() {
	case 0:
		return units.FS, "units/", nil
	case 1:
		dir := c.Args().First()
		if info, err := os.Stat(dir); err != nil {
			return nil, "", usagef("reading the directory of units: %w", err)
		} else if !info.IsDir() {
			return nil, "", usagef("%s is not a directory: name the one that holds the units", dir)
		}
		return os.DirFS(dir), strings.TrimSuffix(dir, "/") + "/", nil
	}
	return nil, "", usagef("one directory of units is expected, not %d (see %s --help)", c.NArg(), name(c))
}

// printJSON prints JSON for every command. Keys are snake_case; TestJSONKeys checks it.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable prints a row for each unit, with a mark under each role that runs it.
func printTable(w io.Writer, table unit.Table, asJSON bool) error {
	if asJSON {
		return printJSON(w, table)
	}
	_, err := io.WriteString(w, table.Text())
	return err
}

// printCombination prints a line for each unit of one machine: whether it runs.
func printCombination(w io.Writer, c unit.Combination, asJSON bool) error {
	if asJSON {
		return printJSON(w, c)
	}
	fates := []struct {
		fate  string
		units []string
	}{{"starts", c.Starts}, {"skips", c.Skips}}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fates {
		for _, u := range f.units {
			fate := f.fate
			if slices.Contains(c.Fails, u) {
				fate = "fails"
			}
			fmt.Fprintf(tw, "%s\t%s\n", fate, u)
		}
	}
	return tw.Flush()
}
