package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/lookup"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func dnsLookupCommand() *cli.Command {
	return &cli.Command{
		Name:      "lookup",
		Usage:     "ask name servers directly: every address, how long it is cached, and how long a negative answer is",
		ArgsUsage: "[NAME ...]",
		Flags: []cli.Flag{
			clusterFlag(), dnsClusterFlag(), suffixFlag(),
			&cli.StringSliceFlag{Name: "server", Usage: "a name server, `HOST[:PORT]`; may be repeated (default: those of /etc/resolv.conf)"},
		},
		Action: func(c *cli.Context) error {
			names, err := lookupNames(c)
			if err != nil {
				return err
			}
			servers := c.StringSlice("server")
			if len(servers) == 0 {
				if servers, err = lookup.SystemServers(); err != nil {
					return fmt.Errorf("%w (name one with --server)", err)
				}
			}
			answers := lookup.All(c.Context, servers, names)
			if structured(c) {
				err = printResult(c, answers)
			} else {
				err = printAnswers(c.App.Writer, answers)
			}
			if i := slices.IndexFunc(answers, func(a lookup.Answer) bool { return a.Error != "" }); err == nil && i >= 0 {
				return fmt.Errorf("asking %s for %s: %s", answers[i].Server, answers[i].Name, answers[i].Error)
			}
			return err
		},
	}
}

// lookupNames returns the arguments, or else the names that every cluster has.
func lookupNames(c *cli.Context) ([]string, error) {
	p := record.Policy{Suffix: c.String("suffix")}
	names := c.Args().Slice()
	if len(names) == 0 {
		for _, r := range role.All() {
			names = append(names, string(r))
		}
	}
	absolute := func(name string) bool { return strings.HasSuffix(name, ".") }
	if !slices.ContainsFunc(names, func(name string) bool { return !absolute(name) }) {
		return names, nil
	}
	cluster, err := chosenCluster(c)
	if err != nil {
		return nil, fmt.Errorf("%w; a name that ends with a dot is below none", err)
	}
	for i, n := range names {
		if !absolute(n) {
			names[i] = n + "." + p.Domain(cluster)
		}
	}
	return names, nil
}

func printAnswers(w io.Writer, answers []lookup.Answer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, a := range answers {
		source := "cached"
		if a.Authoritative {
			source = "authoritative"
		}
		switch {
		case a.Error != "":
			fmt.Fprintf(tw, "%s\t%s\t%s\t\terror: %s\n", a.Server, a.Name, a.Type, a.Error)
		case len(a.Values) == 0:
			text := fmt.Sprintf("none (%s, %s)", cmp.Or(map[string]string{"NOERROR": "the name has no such record"}[a.Code], a.Code), source)
			if a.NegativeSeconds > 0 {
				text += fmt.Sprintf(", kept as a no for %d s, of which %d s are over", a.NegativeSeconds+a.NegativeAgeSeconds, a.NegativeAgeSeconds)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t\t%s\n", a.Server, a.Name, a.Type, text)
		}
		for _, v := range a.Values {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d s\t%s\t(%s)\n", a.Server, a.Name, a.Type, a.TTLSeconds, v, source)
		}
	}
	return tw.Flush()
}
