package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/unit"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func rolesCommand() *cli.Command {
	return &cli.Command{
		Name:      "roles",
		Usage:     "which units a machine runs for each role, computed from the units themselves",
		ArgsUsage: "[directory of units]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "role", Usage: "only a machine with these roles: masters+etcd, or none"},
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

// unitFiles returns the units that a command is about: those of the directory that its argument names,
// else those of this program. prefix goes before the names of files in findings.
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

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable prints the seed's table: a row for each unit, a mark under each role that runs it.
func printTable(w io.Writer, table unit.Table, asJSON bool) error {
	if asJSON {
		return printJSON(w, table)
	}
	// Every row keeps its empty cells for the alignment, and loses the blanks that they become.
	var aligned bytes.Buffer
	tw := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	header := []string{"unit"}
	for _, r := range table.Roles {
		header = append(header, string(r.Role))
	}
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	var every []string
	for _, row := range table.Units {
		if row.Role == "" {
			every = append(every, short(row.Unit))
			continue
		}
		cells := []string{short(row.Unit)}
		for _, r := range table.Roles {
			cells = append(cells, mark(r.Role == row.Role))
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	for _, name := range table.NoUnit {
		fmt.Fprintln(tw, name+" (no unit)")
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	if len(every) > 0 {
		fmt.Fprintf(w, "\nEvery machine runs %s.\n", strings.Join(every, ", "))
	}
	if none := table.Combination(nil); len(none.Fails) > 0 {
		fmt.Fprintf(w, "With no role, or one that is not known, %s fails and no other unit starts.\n", shorts(none.Fails))
	}
	return nil
}

func mark(yes bool) string {
	if yes {
		return "✔"
	}
	return ""
}

func short(name string) string { return unit.Unit{Name: name}.Short() }

func shorts(names []string) string {
	out := slices.Clone(names)
	for i := range out {
		out[i] = short(out[i])
	}
	return strings.Join(out, ", ")
}

// printCombination prints what one machine does with each unit, a line each.
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
