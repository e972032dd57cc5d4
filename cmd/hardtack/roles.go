package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit/layer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

func rolesCommand() *cli.Command {
	return &cli.Command{
		Name:      "roles",
		Usage:     "show which units a machine runs for each role, computed from the units themselves",
		ArgsUsage: "[UNITS DIRECTORY]...",
		Flags: []cli.Flag{
			aloneFlag(),
			&cli.StringFlag{Name: "role", Usage: "only a machine with these `ROLES`, such as masters+etcd or none"},
		},
		Action: func(c *cli.Context) error {
			plan, err := unitPlan(c)
			if err != nil {
				return err
			}
			_, us, problems := plan.LoadUnits()
			if err := problems.Err(); err != nil {
				return fmt.Errorf("reading the units:\n%w", err)
			}
			table := unit.NewTable(us)
			if !c.IsSet("role") {
				return printTable(c, table)
			}
			set, err := role.ParseSet(c.String("role"))
			if err != nil {
				return usagef("--role: %w", err)
			}
			combination, ok := table.Combination(set)
			if !ok {
				return usagef("--role %s: the units name the roles %s, of which those that are not Hardtack's are asked for one at a time", set, strings.Join(tableRoles(table), ", "))
			}
			return printCombination(c, combination)
		},
	}
}

// tableRoles lists the roles of a table.
func tableRoles(table unit.Table) (names []string) {
	for _, r := range table.Roles {
		names = append(names, string(r.Role))
	}
	return names
}

// aloneFlag is the flag of commands whose arguments are directories of units.
func aloneFlag() cli.Flag {
	return &cli.BoolFlag{Name: "alone", Usage: "only the units of the directories, without the image's own, which they otherwise lie over"}
}

// unitPlan returns a plan with this program's units and, over them, those of the directories in the command's arguments.
func unitPlan(c *cli.Context) (bake.Plan, error) {
	plan := bake.Plan{Assets: images.FS, Units: units.FS}
	layers, err := unitLayers(c.Args().Slice())
	if err != nil {
		return bake.Plan{}, err
	}
	plan.Layers = layers
	if c.Bool("alone") {
		if len(layers) == 0 {
			return bake.Plan{}, usagef("--alone is for directories of units, and none is given")
		}
		plan.Units, plan.Layers = nil, layers
	}
	return plan, nil
}

// unitLayers returns the layers of directories.
func unitLayers(dirs []string) ([]layer.Layer, error) {
	var layers []layer.Layer
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil {
			return nil, usagef("reading the directory of units: %w", err)
		} else if !info.IsDir() {
			return nil, usagef("%s is not a directory: name the one that holds the units", dir)
		}
		layers = append(layers, layer.Directory(dir))
	}
	return layers, nil
}

// printTable prints a row for each unit, with a mark under each role that runs it.
func printTable(c *cli.Context, table unit.Table) error {
	if structured(c) {
		return printResult(c, table)
	}
	_, err := io.WriteString(c.App.Writer, table.Text())
	return err
}

// printCombination prints a line for each unit of one machine: whether it runs.
func printCombination(c *cli.Context, machine unit.Combination) error {
	if structured(c) {
		return printResult(c, machine)
	}
	fates := []struct {
		fate  string
		units []string
	}{{"starts", machine.Starts}, {"skips", machine.Skips}}
	tw := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	for _, f := range fates {
		for _, u := range f.units {
			fate := f.fate
			if slices.Contains(machine.Fails, u) {
				fate = "fails"
			}
			fmt.Fprintf(tw, "%s\t%s\n", fate, u)
		}
	}
	return tw.Flush()
}
