package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// defaultPriceRegion is the region of most published prices.
const defaultPriceRegion = "us-east-1"

func stackCostCommand() *cli.Command {
	return &cli.Command{
		Name:  "cost",
		Usage: "print the monthly cost of a cluster's control parts, with each price's date and source, or unknown",
		Flags: []cli.Flag{
			clusterFlag(),
			&cli.StringFlag{Name: "region", Usage: "the `REGION` of the prices", EnvVars: []string{"AWS_REGION", "AWS_DEFAULT_REGION"}, Value: defaultPriceRegion},
			&cli.StringFlag{Name: "prices", Usage: "a `FILE` of prices (default: the built-in ones)"},
		},
		Action: stackCost,
	}
}

func stackCost(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	list, err := readPrices(c.String("prices"))
	if err != nil {
		return err
	}
	complete, err := readCluster(c)
	if err != nil {
		return err
	}
	sheet, err := template.Cost(complete, c.String("region"), list)
	if err != nil {
		return fmt.Errorf("computing the cost of %s: %w", complete.Cluster.Name, err)
	}
	if structured(c) {
		return printResult(c, sheet)
	}
	return printSheet(c.App.Writer, sheet)
}

func readPrices(name string) ([]template.Price, error) {
	if name == "" {
		return template.Prices()
	}
	data, err := file.ReadUpTo(name, spec.MaxInput)
	if err != nil {
		return nil, usagef("--prices: %w", err)
	}
	list, err := template.ParsePrices(data)
	if err != nil {
		return nil, usagef("--prices %s: %w", name, err)
	}
	return list, nil
}

// unknown is printed for unknown prices.
const unknown = "unknown"

func printSheet(w io.Writer, s template.Sheet) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s in %s, a month\tquantity\tUSD a unit\tUSD\n", s.Cluster, s.Region)
	var sources []string
	for _, l := range s.Lines {
		price := unknown
		if l.Price != nil {
			price = fmt.Sprintf("%s [%s]", l.Price.USD, l.Price.Unit)
			sources = append(sources, fmt.Sprintf("  %s: %s, read %s", l.Part, l.Price.Source, l.Price.Read))
		}
		fmt.Fprintf(table, "%s\t%s %s\t%s\t%s\n", l.Part, cmp.Or(l.Quantity, "?"), l.Unit, price, cmp.Or(l.USD, unknown))
	}
	fmt.Fprintf(table, "sum of known prices\t\t\t%s\n", s.USD)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&b, "not included: %s\nquantities:\n", s.Without)
	for _, l := range s.Lines {
		fmt.Fprintf(&b, "  %s: %s\n", l.Part, l.Why)
	}
	if len(sources) > 0 {
		fmt.Fprintf(&b, "prices, without tax and free tiers:\n%s\n", strings.Join(sources, "\n"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
