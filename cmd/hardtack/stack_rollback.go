package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/scaling"
)

func stackRollbackCommand() *cli.Command {
	return &cli.Command{
		Name:  "rollback",
		Usage: "replace machines by ones of the version of their launch template before the stack's: the image and configuration that were there before",
		Flags: rolloutFlags(
			&cli.StringSliceFlag{Name: "to", Usage: "go back to this version of the group's launch template, `GROUP=VERSION`"},
		),
		Action: func(c *cli.Context) error {
			to, err := versionsOf(c)
			if err != nil {
				return err
			}
			return rollOut(c, func(fleet *scaling.Cluster, s rollout.State) error {
				return goBack(c.Context, fleet, s, c.StringSlice("group"), to)
			})
		},
	}
}

// goBack has every chosen group want the version before its template's latest, or that of to.
func goBack(ctx context.Context, fleet *scaling.Cluster, s rollout.State, only []string, to map[string]int) error {
	fleet.Wanted = map[string]int{}
	for _, g := range s.Groups {
		if !g.Chosen(only) {
			continue
		}
		version, ok := to[g.Key]
		if !ok {
			all, err := fleet.Versions(ctx, g.Name)
			if err != nil {
				return err
			}
			before, found := rollout.Previous(all, g.Wanted)
			if !found {
				continue // it is what it always was
			}
			version = before.Number
		}
		fleet.Wanted[g.Name] = version
		if g.Refresh.Active() && g.Refresh.To != version {
			if err := fleet.TakeBack(ctx, g.Name); err != nil {
				return err
			}
		}
	}
	if len(fleet.Wanted) == 0 {
		return fmt.Errorf("rolling back %s: no launch template has an earlier version that makes another machine", s.Cluster)
	}
	return nil
}

// versionsOf reads --to.
func versionsOf(c *cli.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, text := range c.StringSlice("to") {
		group, number, ok := strings.Cut(text, "=")
		version, err := strconv.Atoi(number)
		if !ok || err != nil || version < 1 {
			return nil, usagef("--to %q: not of the form GROUP=VERSION", text)
		}
		out[group] = version
	}
	return out, nil
}

// afterwards says what has to follow a rollback: the next apply would launch what was left.
func (t *stackTarget) afterwards(ctx context.Context, fleet *scaling.Cluster) ([]string, error) {
	if fleet.Wanted == nil {
		return []string{}, nil
	}
	s, err := fleet.Read(ctx)
	if err != nil {
		return nil, err
	}
	image, err := t.image(ctx)
	if err != nil {
		return nil, err
	}
	channel := t.complete.Cluster.AWS.Channel
	for _, g := range s.Groups {
		if _, ok := fleet.Wanted[g.Name]; ok && g.Wanted.Image != image {
			return []string{fmt.Sprintf("hardtack image rollback --channel %s    # it names %s, which the next apply takes; %s runs %s", channel, image, g.Name, g.Wanted.Image)}, nil
		}
	}
	return []string{}, nil
}
